"""Explains which runs learning leaves out, by tool and reason, and the option that keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dtdr.data.demonstrations import Demonstration

MANY = 0.05
"""Share of runs from which a command reports that they are left out."""

WHOLE_RUN = "the run as a whole"
"""In place of a tool if a run failed and none of its calls did."""

OPTIONS = {
    "no query in the log": "--set query=TEXT",
    "no tool was called": "--set empty=true",
}
"""Reasons why an import drops runs, and the option of ``dtdr import`` that keeps them."""


def blame(demonstration: Demonstration) -> list[str]:
    """What a failed run is counted under: tools that did not succeed later, or the whole run."""
    last = {call.tool: call.status for call in demonstration.plan.calls}
    return [tool for tool, status in last.items() if status == "error"] or [WHOLE_RUN]


def explain_failures(failures: Mapping[str, int], left_out: int, runs: int) -> str:
    """A sentence about ``left_out`` of ``runs`` that are marked as failed; empty if they are few.

    ``failures`` counts by ``blame``.
    """
    if left_out <= MANY * runs:
        return ""
    return (
        f"{_share(left_out, runs)} are marked as failed, and fit leaves them out "
        f"({_list(failures)}); to learn from them, delete their field outcome"
    )


def explain_dropped(dropped: Mapping[str, int], runs: int) -> str:
    """A sentence about runs that an import dropped, by reason; empty if they are few."""
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
