"""What the sections about LLMs share: shares of right answers with Wilson's intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dtdr.evaluation.planning.metrics import Share, share
from dtdr.lab.report.blocks import Cell
from dtdr.lab.report.results import Results, Run

WILSON = "Intervals are Wilson's 95 % intervals over steps or plans."


def right(results: Results, run: Run) -> Share:
    """Function selection accuracy of a run."""
    return share(bool(record["right"]) for record in results.log(run).records)


def share_of(records: Iterable[Mapping[str, Any]], key: str) -> Share:
    """The share of records in which a key is true."""
    return share(bool(record[key]) for record in records)


def percent(found: Share, *, best: bool = False) -> Cell:
    """A share in per cent with its interval."""
    if not found.count:
        return Cell("-")
    text = f"{100 * found.value:.1f} ({100 * found.low:.0f} to {100 * found.high:.0f})"
    return Cell(text, f"{found.count:,} cases", best)


def row_name(run: Run) -> str:
    """A method; without retrieval there is none."""
    return "none" if run.spec.get("icl") == "none" else str(run.spec["retriever"])
