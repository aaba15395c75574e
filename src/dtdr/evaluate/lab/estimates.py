"""Expected seconds of experiments: a rule by demonstrations and tools."""

from __future__ import annotations

from collections.abc import Sequence

from dtdr.evaluate.lab.data import LabContext
from dtdr.evaluate.lab.experiments import Experiment

RULES = {"dtdr-f": (16.0, 0.2), "dtdr-l": (2.2, 0.5), "dtdr-c": (1.2, 0.0), "lr": (0.35, 0.85)}
"""Seconds to fit and rank 1,000 plans with 16 tools, and the power of the number of tools that they
grow with: measured on TinyAgent (16 tools), T-Eval (50) and UltraTool (260)."""
OTHERS = (0.15, 0.0)

SHARED = 0.3
"""Share of the seconds that an experiment takes if its ranker is fitted already."""

LLM_STEP = 2.0
"""Seconds in which a small LLM on a processor selects a tool; a plan has about four steps."""


def expected_seconds(experiments: Sequence[Experiment], context: LabContext) -> float:
    """Expected seconds of experiments that share a fitted ranker."""
    seconds = 0.0
    for experiment in experiments:
        spec = experiment.spec
        dataset = context.dataset(spec)
        plans, tools = len(dataset), len(dataset.tools)
        share = spec.get("share", min(1.0, spec.get("demonstrations", plans) / (0.7 * plans)))
        rate, power = RULES.get(str(spec["retriever"]), OTHERS)
        shared = SHARED if seconds else 1.0
        seconds += 0.1 + shared * rate * share * plans / 1000 * max(1.0, tools / 16) ** power
        if "llm" in spec:
            steps = spec.get("size", 0.3 * plans) * (4 if experiment.kind == "plans" else 1)
            seconds += LLM_STEP * steps
    return seconds
