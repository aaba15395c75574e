"""One module a section of the report; each has ``build(results, suite) -> list[Block]``."""

MODULES = {
    "retrieval": "retrieval",
    "plan_length": "plan_length",
    "ablations": "ablations",
    "thresholds": "thresholds",
    "encoders": "encoders",
    "shifts": "shifts",
    "prompts": "prompts",
    "datasets": "data",
    "efficiency": "efficiency",
    "downstream": "downstream",
    "icl": "icl",
    "weights": "weights",
    "peers": "peers",
}
