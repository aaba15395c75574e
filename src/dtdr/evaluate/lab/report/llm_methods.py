"""Names of the rows of tables about LLMs: the method, and the settings that tell rows apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dtdr.evaluate.lab.experiments import Experiment
from dtdr.evaluate.lab.oracle import NAME as ORACLE

PROMPT_KEYS = ("icl", "select", "layout", "top", "threshold", "mask", "history", "demonstrations")
"""Settings that a row names where the experiments of a table differ in them."""


def method_names(experiments: Sequence[Experiment]) -> dict[Experiment, str]:
    """Names of rows: the method, and the settings in which the experiments differ."""
    listed = [experiment for experiment in experiments if not is_without_ranker(experiment)]
    methods: dict[str, set[str]] = defaultdict(set)
    for experiment in listed:
        methods[str(experiment.spec["retriever"])].add(experiment.method)
    differing = [
        key
        for key in PROMPT_KEYS
        if len({str(experiment.spec.get(key)) for experiment in listed}) > 1
    ]
    names: dict[Experiment, str] = {}
    for experiment in experiments:
        if is_without_ranker(experiment):
            names[experiment] = str(experiment.spec["icl"])
            continue
        if experiment.spec["retriever"] == ORACLE:
            is_gold = experiment.spec.get("select") == "retriever"
            names[experiment] = "gold tools" if is_gold else "perfect ranking"
            continue
        name = str(experiment.spec["retriever"])
        if len(methods[name]) > 1:
            name = experiment.method
        details = [
            str(experiment.spec[key])
            if key in ("icl", "select")
            else f"{key} {experiment.spec[key]}"
            for key in differing
            if key in experiment.spec
        ]
        names[experiment] = ", ".join([name, *details])
    return names


def is_without_ranker(experiment: Experiment) -> bool:
    """Whether the prompt is the same for every ranker, or has its demonstrations only."""
    return (
        str(experiment.spec.get("icl")) in ("none", "raw")
        and experiment.spec["retriever"] != ORACLE
    )


def loop_of(experiment: Experiment) -> str:
    """Which calls each step of a plan follows: its ``own``, or those of the ``gold`` plan."""
    return str(experiment.spec.get("loop", "own"))
