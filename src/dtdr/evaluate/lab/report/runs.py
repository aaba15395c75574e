"""The section about an agent's own log: next calls, why they are missed, the learning curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdr.evaluate.lab.report.page import Block, method_table
from dtdr.evaluate.lab.report.results import Results, Run, group_runs
from dtdr.evaluate.lab.report.variations import build_ablations
from dtdr.evaluate.next_calls import CAUSES, NextCalls, score_next_calls
from dtdr.evaluate.statistics import over_splits
from dtdr.evaluate.tables import EMPTY, Cell, Table, interval

TITLES = ("Log top-1", "Tool top-1", "Tool recall@5", "End AUROC", "Other run", "Here")


def build_runs(results: Results, suite: str) -> list[Block]:
    """Two tables a data set and split, and the learning curve by time."""
    blocks: list[Block] = []
    plain = [run for run in results.runs(suite, "rank") if run.is_plain]
    for place, here in group_runs(plain, lambda run: run.place).items():
        title = results.place_title(place)
        methods = group_runs(here, lambda run: run.method)
        scores = {
            name: [score_next_calls(results.log(run)) for run in same]
            for name, same in methods.items()
        }
        blocks += [_next_calls(results, title, methods, scores), _causes(title, scores)]
    return [*blocks, *build_ablations(results, suite, metric="log_top1")]


def _next_calls(
    results: Results,
    title: str,
    methods: dict[str, list[Run]],
    scores: dict[str, list[NextCalls]],
) -> Table:
    rows = {name: (scores[name], [results.value(run) for run in methods[name]]) for name in methods}

    def cells(row: tuple[list[NextCalls], list[Any]]) -> list[Cell]:
        measured, summaries = row
        others = [one.header.details.get("another_run") for one in summaries]
        agreed = [other for other in others if other]
        return [
            _mean([one.means["log_top1"] for one in summaries]),
            _mean([one.tool_top1 for one in measured]),
            _mean([one.tool_recall for one in measured]),
            _mean([one.end_auroc for one in measured if one.end_auroc is not None]),
            _mean([other["other_run"] for other in agreed]),
            _mean([other["model"] for other in agreed]),
        ]

    caption = (
        "Tool: of the steps where the log made a call, the end set aside. End: how well its "
        "probability tells where the log ends. Other run: at the steps before which another run of "
        "the same task had made the same calls, how often its next call is right; here: how often "
        "the best tool is right at these steps. It needs runs that share a group."
    )
    return method_table(rows, TITLES, cells, f"Next calls, {title}", caption, best=True)


def _causes(title: str, scores: dict[str, list[NextCalls]]) -> Table:
    def cells(measured: list[NextCalls]) -> list[Cell]:
        return [_mean([one.causes[cause] for one in measured]) for cause in CAUSES]

    caption = (
        "Share of the steps. Never called: by no run to learn from. Ended early, end missed: the "
        "model took the end for a call or a call for the end. Comes later, repeated: the run calls "
        "the best tool after or before."
    )
    return method_table(scores, [*CAUSES.values()], cells, f"Why, {title}", caption)


def _mean(values: Sequence[float]) -> Cell:
    return interval(over_splits(values)) if values else EMPTY
