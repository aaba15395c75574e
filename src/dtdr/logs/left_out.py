"""Says which runs learning leaves out, by tool and reason, and the option that keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration

MANY = 0.05
"""The share of runs from which a command reports that they are left out."""

WHOLE_RUN = "the run as a whole"
"""Stands for a tool where a run failed and none of its calls did."""

OPTIONS = {
    "no query in the log": "--set query=TEXT",
    "no tool was called": "--set empty=true",
}
"""Reasons for which an import drops runs, and the option of ``dtdr import`` that keeps them."""


def unresolved_tools(calls: Iterable[ToolCall]) -> list[str]:
    """Tools of which a call failed and none succeeded later, in the order they failed."""
    pending: dict[str, None] = {}
    for call in calls:
        if call.status == "error":
            pending[call.tool] = None
        else:
            pending.pop(call.tool, None)
    return list(pending)


def blame(demonstration: Demonstration) -> list[str]:
    """What a failed run is counted under: its unresolved tools, or the run as a whole."""
    return unresolved_tools(demonstration.plan.calls) or [WHOLE_RUN]


def explain_failures(
    failures: Mapping[str, int], left_out: int, runs: int, remedies: Iterable[str]
) -> str:
    """A sentence about runs that are marked as failed; empty where they are few.

    Args:
        failures: runs by what they are counted under (``blame``).
        left_out: how many runs failed.
        runs: how many there are.
        remedies: what lets learning take them.
    """
    if left_out <= MANY * runs:
        return ""
    return (
        f"{_share(left_out, runs)} are marked as failed, and fit leaves them out "
        f"({_list(failures)}); to learn from them, {' or '.join(remedies)}"
    )


def explain_dropped(dropped: Mapping[str, int], runs: int) -> str:
    """A sentence about runs that an import dropped; empty where they are few.

    Args:
        dropped: runs by reason.
        runs: how many there were.
    """
    count = sum(dropped.values())
    if count <= MANY * runs:
        return ""
    options = [option for reason, option in OPTIONS.items() if reason in dropped]
    remedy = f"; to keep them, import with {' or '.join(options)}" if options else ""
    return f"{_share(count, runs)} were dropped ({_list(dropped)}){remedy}"


def _share(count: int, runs: int) -> str:
    return f"{count:,} of {runs:,} runs ({count / runs:.0%})"


def _list(counts: Mapping[str, int]) -> str:
    """The five largest counts."""
    shown = [f"{name}: {count:,}" for name, count in Counter(counts).most_common(5)]
    return ", ".join([*shown, "…"] if len(counts) > len(shown) else shown)
