"""The section about whole calls: their arguments, plans without an LLM, calls made early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from dtdr.evaluation.charts import Axis, Point, Series, line_chart
from dtdr.evaluation.statistics import Proportion, over_splits, wilson_interval
from dtdr.evaluation.tables import (
    EMPTY,
    Cell,
    Column,
    Table,
    interval,
    number,
    numeric,
    percent,
    significant,
)
from dtdr.lab.report.page import Block, Figure, Figures
from dtdr.lab.report.results import Results, by_method, by_place

Runs: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
"""What was measured on each split, by method."""

SOURCES = ("query", "message", "output", "argument", "constant", "unknown")
READINGS = ("tools", "names", "similar", "strict")
SELECTIONS = {"retriever": "step by step", "plan": "as a whole"}


def build_arguments(results: Results, suite: str) -> list[Block]:
    """Tables of calls, of what is predicted from where, of free plans, and of early calls."""
    blocks: list[Block] = []
    figures: list[Figure] = []
    for place, listed in by_place(results.runs(suite, "arguments")).items():
        runs = {
            name: [results.result(run)["result"] for run in same]
            for name, same in by_method(listed).items()
        }
        title = results.place_title(place)
        blocks += [_calls(title, runs), _sources(title, runs), _plans_table(title, runs)]
        blocks.append(_early(title, runs))
        figures.append(_curve(title, runs))
    return [Figures(figures), *blocks] if figures else blocks


def _calls(title: str, runs: Runs) -> Table:
    keys = ("exact", "exact_most_sure_half", "exact_most_sure_quarter", "plans_dependencies")
    rows = []
    for name, splits in runs.items():
        calls = [split["calls"] for split in splits]
        means = [interval(over_splits([one[key] for one in calls])) for key in keys]
        milliseconds = over_splits([one["milliseconds_median"] for one in calls]).value
        counted = number(sum(one["calls"] for one in calls))
        rows.append([Cell(name), counted, *means, significant(milliseconds, measured=True)])
    columns = [
        Column("Method"),
        *numeric("Calls", "Exact", "Most sure half", "Most sure quarter"),
        *numeric("Plans with all dependencies", "ms a call"),
    ]
    caption = (
        "The right tool and everything before the call are given. Exact: every argument is right; "
        "case, spaces and the format of numbers do not count."
    )
    return Table(columns, rows, f"Calls, {title}", caption)


def _sources(title: str, runs: Runs) -> Table:
    rows = []
    for name, splits in runs.items():
        cells = []
        for source in SOURCES:
            shares = [one["calls"]["slots"][source] for one in splits
                      if source in one["calls"]["slots"]]  # fmt: skip
            cells.append(interval(over_splits(shares)) if shares else EMPTY)
        rows.append([Cell(name), *cells])
    caption = (
        "The share of the predicted arguments from each source that are right; of unknown ones, "
        "the share that the demonstration left out too."
    )
    return Table([Column("Method"), *numeric(*SOURCES)], rows, f"Arguments, {title}", caption)


def _plans_table(title: str, runs: Runs) -> Table:
    rows = []
    for name, splits in runs.items():
        for select, shown in SELECTIONS.items():
            made = [split["free_running"][select] for split in splits]
            count = sum(one["plans"] for one in made)
            cells = [
                percent(_proportion((one[reading] for one in made), count)) for reading in READINGS
            ]
            rows.append([Cell(name), Cell(shown), number(count), *cells])
    columns = [Column("Method"), Column("Planned"), *numeric("Plans", *READINGS)]
    caption = (
        "Plans in %, made from the query alone, without an LLM. Tools: the right ones, each as "
        "often as in the gold plan; names: the dependencies too; similar, strict: every argument "
        "too, free text compared loosely or exactly. Wilson's 95 % intervals over plans."
    )
    return Table(columns, rows, f"Whole plans without an LLM, {title}", caption)


def _early(title: str, runs: Runs) -> Table:
    rows = []
    for name, splits in runs.items():
        for replays in zip(*(split["prefetch"] for split in splits), strict=True):
            totals = {
                key: sum(one[key] for one in replays)
                for key in ("calls", "hits", "started", "wasted")
            }
            saved = sum(one["saved_seconds"] for one in replays) / len(replays)
            rows.append(
                [
                    Cell(name),
                    number(replays[0]["min_probability"], 2),
                    number(totals["hits"] / max(1, totals["calls"]), 3),
                    number(totals["started"]),
                    number(totals["wasted"]),
                    number(saved, 2),
                ]
            )
    columns = [
        Column("Method"),
        *numeric("Probability", "Calls made early", "Early calls", "Wasted", "s saved a run"),
    ]
    caption = (
        "Replayed runs; a call is made early while the LLM thinks for 2 s, and takes 1 s. Every "
        "tool counts as safe to call early here, which is an upper bound."
    )
    return Table(columns, rows, f"Calls made early, {title}", caption)


def _curve(title: str, runs: Runs) -> Figure:
    points = {
        name: [
            (covered, exact)
            for covered, exact in (
                (place / len(splits[0]["calls"]["curve"]), _mean(values))
                for place, values in enumerate(
                    zip(*(split["calls"]["curve"] for split in splits), strict=True), start=1
                )
            )
        ]
        for name, splits in runs.items()
    }
    chart = line_chart(
        [Series(name, [Point(x, y) for x, y in line]) for name, line in points.items()],
        Axis("share of the calls, most probable first", lambda value: f"{value:.1f}", low=0.0),
        Axis("exact", lambda value: f"{value:.1f}", low=0.0, high=1.0),
        label=f"Precision by coverage of predicted calls on {title}",
    )
    coverages = [x for x, _ in next(iter(points.values()))][1::2]
    rows = [[Cell(name), *(number(y, 3) for _, y in line[1::2])] for name, line in points.items()]
    columns = [Column("Method"), *numeric(*(f"{x:.1f}" for x in coverages))]
    caption = "Of the most probable calls, the share that is exact."
    values = Table(columns, rows, f"Precision by coverage, {title}", caption)
    return Figure(f"Precision by coverage, {title}", chart, caption, list(points), values)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _proportion(counts: Iterable[int], total: int) -> Proportion | None:
    if not total:
        return None
    value = sum(counts) / total
    return Proportion(value, *wilson_interval(value, total), total)
