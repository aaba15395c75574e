"""Sections about data sets, costs, whole calls and whole plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeAlias

from dtdr.evaluate.charts import SHARE, Axis, Point, Series, line_chart
from dtdr.evaluate.lab.report.page import Block, Figure, Figures, method_table
from dtdr.evaluate.lab.report.results import Methods, Results
from dtdr.evaluate.result_tables import MOST_GROUPS
from dtdr.evaluate.statistics import Proportion, over_splits, wilson_interval
from dtdr.evaluate.tables import (
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

SOURCES = ("query", "message", "output", "argument", "constant", "unknown")
READINGS = ("tools", "names", "similar", "strict")
SELECTIONS = {"retriever": "step by step", "plan": "as a whole"}

Splits: TypeAlias = Sequence[Mapping[str, Any]]
"""What each run of a method measured; they differ in their split only."""


def build_datasets(results: Results, suite: str) -> list[Block]:
    """Statistics of the data sets (paper, Table 5), the paper's row below each."""
    rows = []
    notes = []
    for run in results.runs(suite, "statistics"):
        result = results.value(run)["result"]
        title = Cell(results.title(str(run.spec["dataset"])))
        rows.append([title, *_sizes(result), number(result["distinct_sequences"])])
        if result["published"]:
            cells = _sizes(result["published"], aside=True)
            rows.append([Cell("  in the paper", aside=True), *cells, EMPTY])
            far = (Cell(text, aside=True) for text in result["difference"].values())
            rows.append([Cell("  difference", aside=True), *far, EMPTY])
        sentences = (result["note"], *result["remarks"])
        notes += [f"{result['title']}: {sentence}" for sentence in sentences if sentence]
    notes.append("± is the standard deviation over plans.")
    columns = [
        Column("Set"),
        *numeric("Plans", "Tools", "Calls a plan", "Dependencies a plan"),
        *numeric("Distinct tool sequences"),
    ]
    return [Table(columns, rows, caption="\n".join(notes))]


def _sizes(values: Mapping[str, Any], *, aside: bool = False) -> list[Cell]:
    texts = [f"{values[key]:,}" for key in ("plans", "tools")]
    for key in ("calls_per_plan", "dependencies_per_plan"):
        texts.append(f"{values[key]['mean']:.1f} ± {values[key]['sd']:.1f}")
    return [Cell(text, aside=aside) for text in texts]


def build_whole_plans(results: Results, suite: str) -> list[Block]:
    """How many whole plans are right, and by their length; means over the splits."""
    keys = {"greedy": "Greedy", "tools": "First", "tools@5": "Among five", "dag": "DAG",
            "log": "Log"}  # fmt: skip

    def cells(splits: Splits) -> list[Cell]:
        gains = [split["result"]["tools"] - split["result"]["greedy"] for split in splits]
        return [
            *(_mean(splits, key) for key in keys),
            interval(over_splits(gains)),
            _mean(splits, "ece"),
            _milliseconds([split["result"] for split in splits]),
        ]

    titles = [*keys.values(), "First - greedy", "ECE", "ms"]
    caption = (
        "Greedy: the best tool of each step of a session; "
        "first, among five: of the predicted plans. DAG: isomorphic by names; log: in its order. "
        "First - greedy: paired by split. ECE: calibration "
        "error of the first plan's probability. ms: median, for five plans."
    )
    blocks: list[Block] = []
    for place, methods in results.by_place(suite, "whole-plans").items():
        title = results.place_title(place)
        blocks.append(method_table(methods, titles, cells, title, caption))
        blocks.append(_plans_by_length(methods, title))
    return blocks


def _plans_by_length(methods: Methods, title: str) -> Table:
    lengths = sorted(
        {int(n) for splits in methods.values() for s in splits for n in s["result"]["by_length"]}
    )
    shown = [str(length) for length in lengths[:MOST_GROUPS]]
    rows = {
        f"{method}, {name}": [_mean(splits, "by_length", length, key) for length in shown]
        for method, splits in methods.items()
        for key, name in (("greedy", "greedy"), ("tools", "first"))
    }
    caption = "Columns: calls of the demonstrated plan."
    if len(lengths) > MOST_GROUPS:
        caption += f" Not shown: {lengths[MOST_GROUPS]} to {lengths[-1]}."
    return method_table(rows, shown, iter, f"{title}, by the number of calls", caption)


def _mean(splits: Splits, *path: str) -> Cell:
    """Over the splits that have a value there."""
    values = []
    for split in splits:
        value: Any = split["result"]
        for key in path:
            value = value.get(key) if value else None
        values += [] if value is None else [value]
    return interval(over_splits(values)) if values else EMPTY


def _milliseconds(measured: Sequence[Mapping[str, Any]]) -> Cell:
    return significant(fmean(one["milliseconds_median"] for one in measured), measured=True)


def build_arguments(results: Results, suite: str) -> list[Block]:
    """Tables of calls, of what is predicted from where, and of plans without an LLM."""
    exact = {
        "exact": "Exact",
        "exact_most_sure_half": "Most sure half",
        "exact_most_sure_quarter": "Most sure quarter",
        "plans_dependencies": "Plans with all dependencies",
    }

    def calls(splits: Splits) -> list[Cell]:
        measured = [split["result"]["calls"] for split in splits]
        shares = [_mean(splits, "calls", key) for key in exact]
        return [number(sum(one["calls"] for one in measured)), *shares, _milliseconds(measured)]

    def sources(splits: Splits) -> list[Cell]:
        return [_mean(splits, "calls", "slots", source) for source in SOURCES]

    call_titles = ["Calls", *exact.values(), "ms a call"]
    call_note = (
        "The right tool and everything before the call are given. Exact: every argument is right; "
        "case, spaces and the format of numbers do not count."
    )
    source_note = (
        "The share of the predicted arguments from each source that are right; of unknown ones, "
        "the share that the demonstration left out too."
    )
    figures: list[Figure] = []
    blocks: list[Block] = []
    for place, methods in results.by_place(suite, "arguments").items():
        title = results.place_title(place)
        figures.append(_curve(title, methods))
        blocks += [
            method_table(methods, call_titles, calls, f"Calls, {title}", call_note),
            method_table(methods, SOURCES, sources, f"Arguments, {title}", source_note),
            _plans_table(title, methods),
        ]
    return [Figures(figures), *blocks] if figures else blocks


def _plans_table(title: str, methods: Methods) -> Table:
    rows = {
        f"{name}, {shown}": [split["result"]["free_running"][select] for split in splits]
        for name, splits in methods.items()
        for select, shown in SELECTIONS.items()
    }

    def cells(counts: Sequence[Mapping[str, int]]) -> list[Cell]:
        total = sum(count["plans"] for count in counts)
        return [number(total), *(percent(_proportion(counts, key, total)) for key in READINGS)]

    caption = (
        "Plans in %, predicted from the query alone, without an LLM. Tools: the right ones, each "
        "as often as in the gold plan; names: the dependencies too; similar, strict: every "
        "argument too, free text compared loosely or exactly. Wilson's 95 % intervals over plans."
    )
    titles = ("Plans", *READINGS)
    return method_table(rows, titles, cells, f"Whole plans without an LLM, {title}", caption)


def _proportion(counts: Sequence[Mapping[str, int]], key: str, total: int) -> Proportion | None:
    if not total:
        return None
    value = sum(count[key] for count in counts) / total
    return Proportion(value, *wilson_interval(value, total), total)


def _curve(title: str, methods: Methods) -> Figure:
    lines = {}
    for name, splits in methods.items():
        curves = [split["result"]["calls"]["curve"] for split in splits]
        points = enumerate(zip(*curves, strict=True), start=1)
        lines[name] = [(place / len(curves[0]), fmean(values)) for place, values in points]
    chart = line_chart(
        [Series(name, [Point(x, y) for x, y in line]) for name, line in lines.items()],
        Axis("share of the calls, most probable first", lambda value: f"{value:.1f}", low=0.0),
        replace(SHARE, title="exact"),
        label=f"Precision by coverage of predicted calls on {title}",
    )
    shares = [f"{x:.1f}" for x, _ in next(iter(lines.values()))][1::2]
    title = f"Precision by coverage, {title}"
    caption = "Of the most probable calls, the share that is exact."
    values = {name: [number(y, 3) for _, y in line[1::2]] for name, line in lines.items()}
    table = method_table(values, shares, iter, title, caption)
    return Figure(title, chart, caption, list(lines), table)
