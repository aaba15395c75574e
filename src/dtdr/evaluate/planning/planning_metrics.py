"""Downstream metrics, all computed from planning run logs (paper, Appendix on metrics)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.planning.run_log import PlanningLog
from dtdr.evaluate.statistics import Proportion, proportion

READINGS = ("lenient", "exact")
"""``exact`` counts an answer that is a listed name and nothing else, as the paper does; ``lenient``
also one in quotes, in another case, or with one listed name inside other text."""

_UNCLEAR = ("cleaned", "embedded")


def function_selection_accuracy(log: PlanningLog, reading: str = "lenient") -> Proportion:
    """FSA: how often the selected function is acceptable by the gold plan's DAG.

    Args:
        log: of selections.
        reading: one of ``READINGS``.
    """
    return proportion(is_correct(record, reading) for record in log)


def is_correct(record: Mapping[str, Any], reading: str = "lenient") -> bool:
    """Whether the selection of one step is acceptable; see ``READINGS``."""
    if reading == "exact" and record["outcome"] in _UNCLEAR:
        return False
    return record["selected"] in record["acceptable"]


def success_rate(log: PlanningLog, arguments: str = "strict") -> Proportion:
    """SR: how often the whole plan is isomorphic to the gold plan.

    Args:
        log: of whole plans.
        arguments: ``names`` compares the functions and what depends on what; ``strict`` also
            compares every argument (the paper's reading). Where no parameter was filled, nothing
            can depend on anything, and ``names`` compares the functions alone.
    """
    return proportion(is_success(log, record, arguments) for record in log)


def is_success(log: PlanningLog, record: Mapping[str, Any], arguments: str) -> bool:
    """Whether one whole plan is isomorphic to the gold plan; see ``success_rate``."""
    if record["stopped"] != "end":
        return False
    gold, planned = (
        Demonstration.from_dict({"id": record["plan"], "query": "-", **parts}).plan
        for parts in (record["gold"], {"calls": record["calls"]})
    )
    if arguments == "names" and log.header.get("fill") == "none":
        return sorted(planned.tools) == sorted(gold.tools)
    return planned.is_isomorphic(gold, arguments=arguments == "strict")
