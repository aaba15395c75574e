"""Sections about data sets and costs, and how to get the same report again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from dtdr.evaluation.result_tables import MOST_GROUPS
from dtdr.evaluation.statistics import over_splits
from dtdr.evaluation.tables import (
    EMPTY,
    Cell,
    Column,
    Table,
    interval,
    number,
    numeric,
    significant,
)
from dtdr.lab.report.page import Block, Section, Text
from dtdr.lab.report.results import NOT_RUN, Results, by_place


def build_datasets(results: Results, suite: str) -> list[Block]:
    """Statistics of the data sets (paper, Table 5), the paper's row below each."""
    rows = []
    notes = []
    for run in results.runs(suite, "statistics"):
        result = results.result(run)["result"]
        title = Cell(results.title(str(run.spec["dataset"])))
        rows.append([title, *_sizes(result), number(result["distinct_sequences"])])
        if result["published"]:
            cells = _sizes(result["published"], aside=True)
            rows.append([Cell("  in the paper", aside=True), *cells, EMPTY])
            far = (Cell(text, aside=True) for text in result["difference"].values())
            rows.append([Cell("  difference", aside=True), *far, EMPTY])
        for sentence in (result["note"], *result["remarks"]):
            if sentence:
                notes.append(f"{result['title']}: {sentence}")
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


def build_efficiency(results: Results, suite: str) -> list[Block]:
    """What each method costs: one table a data set."""
    tables: list[Block] = []
    keys = ("resident_mb", "peak_mb", "fit_seconds", "load_ms", "query_ms", "step_ms")
    columns = [
        Column("Method"),
        *numeric("Numbers", "Model KB", "MB added", "Peak MB, fit"),
        *numeric("Fit s", "Load ms", "Query ms", "Step ms"),
    ]
    caption = (
        "Numbers: elements of all arrays of the saved model, the encoder's included. "
        "MB added: by loading the model into a process that has numpy and scipy. "
        "Query: encode and rank a new one; step: rank once more after a call. Medians; "
        "one thread; a run at a time."
    )
    for place, runs in by_place(results.runs(suite, "efficiency")).items():
        rows = []
        for run in runs:
            result = results.result(run)["result"]
            measured = [significant(result["measured"][key], measured=True) for key in keys]
            sizes = [number(result["numbers"]), significant(result["model_kb"])]
            rows.append([Cell(run.method), *sizes, *measured])
        tables.append(Table(columns, rows, results.place_title(place), caption))
    return tables


def build_whole_plans(results: Results, suite: str) -> list[Block]:
    """How many whole plans come out right, and by their length; means over the splits."""
    blocks: list[Block] = []
    for place, runs in by_place(results.runs(suite, "whole-plans")).items():
        scores: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for run in runs:
            scores[run.method].append(results.result(run)["result"])
        title = results.place_title(place)
        blocks += [_whole_plans(scores, title), _plans_by_length(scores, title)]
    return blocks


def _whole_plans(scores: Mapping[str, Sequence[Mapping[str, Any]]], title: str) -> Table:
    keys = ("greedy", "tools", "tools@5", "dag", "log")
    columns = [
        Column("Method"),
        *numeric("Greedy", "First", "Among five", "DAG", "Log", best=True),
        *numeric("First - greedy", "ECE", "ms"),
    ]
    rows = []
    for method, splits in scores.items():
        gains = [one["tools"] - one["greedy"] for one in splits]
        errors = [one["ece"] for one in splits if one["ece"] is not None]
        rows.append(
            [
                Cell(method),
                *(interval(over_splits([one[key] for one in splits])) for key in keys),
                interval(over_splits(gains)),
                interval(over_splits(errors)) if errors else EMPTY,
                significant(fmean(one["milliseconds_median"] for one in splits), measured=True),
            ]
        )
    caption = (
        "Greedy: the best tool of each step of a session, with lookahead where fit chose it; "
        "first, among five: of the predicted plans. DAG: isomorphic by names; log: in its order. "
        "First - greedy: paired by split. ECE: calibration "
        "error of the first plan's probability. ms: median, for five plans."
    )
    return Table(columns, rows, title, caption)


def _plans_by_length(scores: Mapping[str, Sequence[Mapping[str, Any]]], title: str) -> Table:
    lengths = sorted({int(one) for some in scores.values() for s in some for one in s["by_length"]})
    shown = lengths[:MOST_GROUPS]
    rows = []
    for method, splits in scores.items():
        for key, name in (("greedy", "greedy"), ("tools", "first")):
            cells = []
            for length in map(str, shown):
                shares = [s["by_length"][length][key] for s in splits if length in s["by_length"]]
                cells.append(interval(over_splits(shares)) if shares else EMPTY)
            rows.append([Cell(method), Cell(name), *cells])
    columns = [Column("Method"), Column("Plan"), *numeric(*map(str, shown))]
    caption = "Columns: calls of the demonstrated plan."
    if len(lengths) > len(shown):
        caption += f" Not shown: {lengths[len(shown)]} to {lengths[-1]}."
    return Table(columns, rows, f"{title}, by the number of calls", caption)


def build_reproduction(results: Results) -> Section:
    """How to get the same report: commands, data sets with their hashes, versions, seeds."""
    blocks: list[Block] = [_commands(results), _data(results), _versions(results)]
    reasons = [reason for _, reason in results.failures()]
    waiting = reasons.count(NOT_RUN)
    for count, what in ((len(reasons) - waiting, "failed"), (waiting, "were not run yet")):
        if count:
            blocks.append(Text(f"{count:,} runs {what}; each section lists its own."))
    return Section("reproduce", "How to reproduce this", blocks)


def _commands(results: Results) -> Table:
    rows = [
        [
            Cell(name),
            Cell(f"`{manifest['command']}`"),
            number(len(manifest["cells"])),
            Cell(_seeds(manifest["cells"])),
        ]
        for name, manifest in results.manifests.items()
    ]
    columns = [Column("Suite"), Column("Command"), *numeric("Runs"), Column("Seeds")]
    caption = (
        "The seed draws the split and is the retriever's own seed. A run is kept under the "
        "hash of its data, split, retriever, parameters and code; what changed is computed "
        "again, the rest is read."
    )
    return Table(columns, rows, "Commands", caption)


def _data(results: Results) -> Table:
    names = (name for manifest in results.manifests.values() for name in manifest["datasets"])
    data = [results.dataset(name) for name in dict.fromkeys(names)]
    rows = [
        [
            Cell(results.title(str(one["name"]))),
            number(one["plans"]),
            number(len((results.dataset_summary(str(one["name"])) or {"tokens": ()})["tokens"])),
            Cell(f"`{one['sha256']}`"),
            Cell(str(one["source"])),
            Cell(str(one["licence"] or "-")),
        ]
        for one in data
    ]
    columns = [
        Column("Set"),
        *numeric("Plans", "Tools"),
        Column("SHA-256 of its content"),
        Column("From"),
        Column("Licence"),
    ]
    notes = [
        f"{one['title']}: {sentence}"
        for one in data
        for sentence in (one.get("note"), *one.get("remarks", ()))
        if sentence
    ]
    notes.insert(0, "Tools: described or called, and the end of the plan.")
    return Table(columns, rows, "Data", "\n".join(notes))


def _versions(results: Results) -> Table:
    versions: dict[str, set[str]] = defaultdict(set)
    for run in results.all_runs():
        for package, version in results.versions(run).items():
            versions[package].add(str(version))
    rows = [[Cell(name), Cell(", ".join(sorted(versions[name])))] for name in sorted(versions)]
    caption = "More than one version in a row: runs of several installations share the cache."
    return Table([Column("Package"), Column("Version")], rows, "Versions", caption)


def _seeds(cells: Sequence[Mapping[str, Any]]) -> str:
    seeds = sorted({int(cell["spec"]["seed"]) for cell in cells if "seed" in cell["spec"]})
    return ", ".join(map(str, seeds)) or "-"
