"""Explains which runs learning leaves out, and the option that keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

MANY = 0.05
"""Share of runs from which a command reports that they are left out."""

OPTIONS = {
    "no query in the log": "--set query=TEXT",
    "no tool was called": "--set empty=true",
}
"""Reasons why an import drops runs, and the option of ``dtdr import`` that keeps them."""


def explain_failures(left_out: int, runs: int) -> str:
    """A sentence about ``left_out`` of ``runs``, which are marked as failed; empty if few are."""
    if left_out <= MANY * runs:
        return ""
    return (
        f"{_share(left_out, runs)} are marked as failed, and fit leaves them out; to learn from "
        "them, delete their field outcome"
    )


def explain_dropped(dropped: Mapping[str, int], runs: int) -> str:
    """A sentence about runs that an import dropped, by reason; empty if they are few."""
    count = sum(dropped.values())
    if count <= MANY * runs:
        return ""
    options = [option for reason, option in OPTIONS.items() if reason in dropped]
    remedy = f"; to keep them, import with {' or '.join(options)}" if options else ""
    reasons = ", ".join(f"{name}: {number:,}" for name, number in Counter(dropped).most_common())
    return f"{_share(count, runs)} were dropped ({reasons}){remedy}"


def _share(count: int, runs: int) -> str:
    return f"{count:,} of {runs:,} runs ({count / runs:.0%})"
