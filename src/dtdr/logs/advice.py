"""Sentences about an import: what was left out, what looks wrong, and what helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

MANY = 0.05
"""Share of runs or records from which a command reports that they are left out."""

FEW_FAILURES = 1_000
"""Calls of which some should have failed."""

OPTIONS = {"no query in the log": "--set query=TEXT", "no tool was called": "--set empty=true"}
"""Reasons why an import drops runs, and the option of ``dtdr import`` that keeps them."""


def explain_nothing(about: Mapping[str, Any]) -> str:
    """Why an import kept nothing, by its summary."""
    unknown = _listed(about["unknown"])
    if about["dropped"] and not (unknown and not about["calls"]):
        return f"nothing was kept: {explain_dropped(about['dropped'], about['runs'])}"
    if unknown:
        return (
            f"nothing was kept: {about['format']} does not read what the records have ({unknown}); "
            "name another format, or write your own as module:function (docs/formats.md)"
        )
    seen = _listed(about["ignored"])
    return (
        f"no run was found in {about['records']:,} records ({about['bad_records']:,} bad) read as "
        f"{about['format']}{f', which have only {seen}' if seen else ''}; name another format if "
        "that is wrong"
    )


def explain_failures(failed: int, runs: int) -> str:
    """A sentence about runs that are marked as failed; empty if they are few."""
    if failed <= MANY * runs:
        return ""
    return (
        f"{share(failed, runs)} are marked as failed, and fit learns from them too; give it "
        "--no-failures to leave them out"
    )


def explain_dropped(dropped: Mapping[str, int], runs: int) -> str:
    """A sentence about runs that an import dropped, by reason; empty if they are few."""
    count = sum(dropped.values())
    if count <= MANY * runs:
        return ""
    options = [option for reason, option in OPTIONS.items() if reason in dropped]
    remedy = f"; to keep them, import with {' or '.join(options)}" if options else ""
    return f"{share(count, runs)} were dropped ({_listed(dropped)}){remedy}"


def warnings(about: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what looks wrong in the summary of one format, each with a remedy."""
    unknown = sum(about["unknown"].values())
    units = about["messages"] + about["calls"] + unknown
    if unknown > MANY * max(units, 1):
        yield (
            f"{unknown:,} records, messages or parts are of kinds that {about['format']} does not "
            f"read ({_listed(about['unknown'])}); check the samples, or name another format"
        )
    if about["calls"] >= FEW_FAILURES and not about["failed_calls"]:
        yield (
            f"none of {about['calls']:,} calls failed; if some did, mark errors in the log "
            "(docs/logs.md, Failures)"
        )
    if about["odd_names"]:
        yield (
            "names of tools have a space or a colon "
            f"({_listed(about['odd_names'])}), which no agent offers; "
            "name the format before the file, or log the tools' own names"
        )


def is_odd_name(tool: str) -> bool:
    """Whether no API accepts the name of a tool; ``agent:NAME`` and ``skill:NAME`` are dtdr's."""
    if tool.startswith(("agent:", "skill:")):
        return False
    return " " in tool or ":" in tool


def share(count: int, runs: int) -> str:
    """``3 of 10 runs (30%)``."""
    return f"{count:,} of {runs:,} runs ({count / runs:.0%})"


def _listed(counts: Mapping[str, int]) -> str:
    common = Counter(counts).most_common(4)
    return ", ".join(f"{name}: {count:,}" for name, count in common)
