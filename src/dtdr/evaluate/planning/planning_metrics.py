"""Downstream metrics, all computed from planning run logs (paper, Appendix on metrics)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from dtdr.data.calls import is_reference
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.planning.run_log import PlanningLog
from dtdr.evaluate.statistics import Proportion, proportion

SIMILAR = 0.8
"""Ratio from which two free texts count as the same: accepts another article, ending or
punctuation; numbers and dates must be equal whatever the ratio, since one digit moves it little."""


def function_selection_accuracy(log: PlanningLog) -> Proportion:
    """FSA: how often the selected function is acceptable by the gold plan's DAG."""
    return proportion(is_correct(record) for record in log)


def is_correct(record: Mapping[str, Any]) -> bool:
    """Whether the selection of one step is acceptable."""
    return record["selected"] in record["acceptable"]


def success_rate(log: PlanningLog, arguments: str = "strict") -> Proportion:
    """SR: how often the whole plan is isomorphic to the gold plan.

    Args:
        log: of whole plans.
        arguments: ``names`` compares the functions and what depends on what; ``strict`` also
            compares every argument (the paper's reading); ``similar`` compares arguments with
            free text compared by ``similar_texts``. Where no parameter was filled, nothing can
            depend on anything, and ``names`` compares the functions alone.
    """
    return proportion(is_success(log, record, arguments) for record in log)


def is_success(log: PlanningLog, record: Mapping[str, Any], arguments: str) -> bool:
    """Whether one whole plan is isomorphic to the gold plan; see ``success_rate``."""
    if record["stopped"] != "end":
        return False
    gold, made = (
        Demonstration.from_dict({"id": record["plan"], "query": "-", **parts}).plan
        for parts in (record["gold"], {"calls": record["calls"]})
    )
    if arguments == "names" and log.header.get("fill") == "none":
        return sorted(made.tools) == sorted(gold.tools)
    compare: Any = {"names": False, "strict": True, "similar": similar_arguments}[arguments]
    return made.is_isomorphic(gold, arguments=compare)


def similar_arguments(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two calls' arguments agree; an empty optional value is as good as none."""
    names = {*left, *right}
    return all(similar_values(left.get(name), right.get(name)) for name in names)


def similar_values(left: Any, right: Any) -> bool:
    """Whether two values agree, with free text compared by ``similar_texts``."""
    if left in (None, "", []) and right in (None, "", []):
        return True
    if isinstance(left, str) and isinstance(right, str):
        return similar_texts(left, right)
    if is_reference(left) or is_reference(right):
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            similar_values(*pair) for pair in zip(left, right, strict=True)
        )
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return similar_arguments(left, right)
    return bool(left == right)


def similar_texts(left: str, right: str) -> bool:
    """Whether two texts are alike but for case, spacing and small differences in wording."""
    first, second = (" ".join(text.casefold().split()) for text in (left, right))
    if re.findall(r"\d+", first) != re.findall(r"\d+", second):
        return False
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio() >= SIMILAR
