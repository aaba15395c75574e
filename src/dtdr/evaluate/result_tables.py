"""Results of ``dtdr evaluate`` as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdr.errors import check_lists
from dtdr.evaluate.tables import Column, Table, count, duration, share

if TYPE_CHECKING:
    from dtdr.evaluate.call_accuracy import CallScores

TITLES = {
    "mrr": "MRR",
    "f1": "F1",
    "top1": "Top-1",
    "log_top1": "Log top-1",
    "log_mrr": "Log MRR",
    "tool_top1": "Tool top-1",
}
"""Headers of the metrics that are not written as their names; ``tool_recall@5`` becomes ``Tool
recall@5``."""


def metric_title(name: str) -> str:
    """A metric's header."""
    return TITLES.get(name, name.capitalize().replace("_", " "))


def retrieval_table(
    results: Sequence[Mapping[str, Any]], metrics: Sequence[str], *, title: str, caption: str
) -> Table:
    """Methods as rows, metrics as columns, like the paper's retrieval table.

    Args:
        results: what ``dtdr.evaluate.metrics.summary`` gives, one a run.
        metrics: names of the metrics to show.
        title: above the table.
        caption: below it.
    """
    check_lists(metrics=metrics)
    return Table(
        [
            Column("Ranker", "ranker"),
            Column("Encoder", "encoder"),
            *(Column(metric_title(name), name, share, True, True) for name in metrics),
            Column("Fit s", "fit_seconds", duration, True),
            Column("Rank µs", "rank_microseconds_median", count, True),
        ],
        results,
        title,
        caption,
    )


def calls_table(scores: CallScores, *, title: str) -> Table:
    """How many calls are filled exactly: of all, of the sure ones, and by source."""
    named = {
        "calls exact": scores.exact,
        "most sure half": scores.exact_most_sure_half,
        "plans with all dependencies": scores.plans_dependencies,
    }
    for least, (covered, exact) in scores.coverage.items():
        named[f"probability {least} and above ({covered:.0%} of calls)"] = exact
    for kind, value in scores.slots.items():
        named[f"arguments: {kind}"] = value
    rows = [{"name": name, "share": value} for name, value in named.items()]
    columns = [Column("Measure", "name"), Column("Share right", "share", share, True)]
    caption = f"{scores.calls:,} calls, {scores.milliseconds_median:.1f} ms each (median)."
    return Table(columns, rows, title=title, caption=caption)
