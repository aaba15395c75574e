"""Sections about rankings: retrieval, plan length, thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dtdr.evaluate.charts import SHARE, Axis, Point, Series, line_chart
from dtdr.evaluate.lab.report.page import Block, Figure, Figures, Text, method_table
from dtdr.evaluate.lab.report.results import Place, Results, paper, paper_row, share_of
from dtdr.evaluate.lab.report.variations import build_ablations
from dtdr.evaluate.lab.summary import LEVEL, THRESHOLDS, RunSummary, against_best, mean_of
from dtdr.evaluate.metrics import DEFAULT
from dtdr.evaluate.result_tables import metric_title
from dtdr.evaluate.statistics import FEWEST_SPLITS, Proportion, over_splits
from dtdr.evaluate.tables import (
    EMPTY,
    Cell,
    Column,
    Table,
    interval,
    number,
    numeric,
    p_value,
    percent,
    share,
    significant,
)

FSA_NOTE = (
    "FSA: function selection accuracy of the model with the retrieved tools alone in its prompt, "
    "with Wilson's 95 % interval over steps; the paper's is of Qwen3 0.6B. Retrieved: what "
    "followed the history for dtdr-c, else what is above α, which is 0.2, 0.23 or 0.5, as held-out "
    "training plans chose it."
)

LIKE = "="
"""Marks a method that cannot be told from the best."""

FEWEST_STEPS = 40
"""Steps of a plan length, a split, below which its mean says little."""

SHOWN_THRESHOLDS = (0.05, 0.1, 0.2, 0.23, 0.3, 0.5, 0.7, 0.9)
"""Thresholds of the table; the figure has all."""

DEEP = 10
"""Tools up to which recall is shown."""

Summaries = Mapping[str, Sequence[RunSummary]]


def build_retrieval(results: Results, suite: str) -> list[Block]:
    """One table a data set and split; then what a user's suite varies."""
    places = results.by_place(suite)
    accuracies: dict[Place, dict[str, dict[str, Proportion]]] = {}
    for run in results.runs(suite, "selections"):
        models = accuracies.setdefault(run.place, {})
        accuracy = share_of(results.value(run)["records"], "right")
        models.setdefault(str(run.spec["llm"]), {})[run.method] = accuracy
    blocks: list[Block] = []
    said: set[str] = set()
    for place, runs in places.items():
        table = _retrieval_table(results, place, runs, accuracies.get(place, {}))
        # What all tables have in common is said below the first.
        notes = [note for note in table.caption.splitlines() if note not in said]
        said.update(notes)
        blocks.append(replace(table, caption="\n".join(notes)))
    return [*blocks, *build_ablations(results, suite)]


def _retrieval_table(
    results: Results,
    place: Place,
    runs: Summaries,
    accuracies: Mapping[str, Mapping[str, Proportion]],
) -> Table:
    published = _find_published(place, runs)
    source = str(paper()["retrieval"].get(place[0], {}).get("source", ""))
    best, adjusted = against_best(runs, "mrr") if results.may_judge else ("", {})
    columns = [Column("Method"), *numeric(*map(metric_title, DEFAULT), best=bool(best))]
    columns += numeric(*(f"{name}, paper" for name in ("MRR", "F1") if published))
    columns += numeric(*(f"FSA %, {model}" for model in accuracies), best=bool(best))
    columns += numeric(*(["FSA %, paper"] if accuracies and published else []))
    columns += numeric(*(["p against best"] if best else []), "Fit s", "Step µs")
    rows: list[list[Cell]] = []
    for name, splits in runs.items():
        p = adjusted.get(name)
        mark = f" {LIKE}" if p is not None and p >= LEVEL else ""
        row = [Cell(name), interval(mean_of(splits, "mrr"), mark=mark)]
        # The interval of the others is in the hover text: the table must fit a page.
        row += [interval(mean_of(splits, metric), short=True) for metric in DEFAULT[1:]]
        figures = published.get(name, {})
        if published:
            row += [_published(figures.get(key), source, 2) for key in ("mrr", "f1")]
        row += [percent(chosen.get(name)) for chosen in accuracies.values()]
        if accuracies and published:
            row.append(_published(figures.get("fsa"), source, 1))
        if best:
            row.append(Cell("best" if name == best else p_value(p)))
        headers = [split.header for split in splits]
        row.append(significant(_median([one.fit_seconds for one in headers]), measured=True))
        speeds = [one.rank_microseconds_median for one in headers]
        row.append(significant(_median(speeds), measured=True))
        rows.append(row)
    notes = [_split_note(next(iter(runs.values())))]
    if best:
        notes.append(
            "p: two-sided paired permutation test of the MRR over plans (10,000 sign flips; a "
            "plan's value is its mean over its steps and over the splits that held it out) against "
            f"the best method, adjusted by Holm's method for the rows of this table; {LIKE} marks "
            f"a method that cannot be told from the best at {LEVEL:.2f}."
        )
    notes.append(
        "Fit s and Step µs are medians over the splits, measured while another run was computed."
    )
    notes += [FSA_NOTE] if accuracies else []
    if published:
        notes.append("The paper's figures are in italics; what differs from it is said above.")
    return Table(columns, rows, results.place_title(place), "\n".join(notes))


def _published(figure: float | None, source: str, digits: int) -> Cell:
    return EMPTY if figure is None else Cell(f"{figure:.{digits}f}", source, aside=True)


def _split_note(splits: Sequence[RunSummary]) -> str:
    sizes = splits[0].header.split
    sides = f"{sizes['train']:,} plans to learn from and {sizes['test']:,} held out"
    steps = sum(one.steps for one in splits)
    over_plans = "the 95 % bootstrap interval over plans"
    if len(splits) == 1:
        return f"One split, ± half of {over_plans}; {sides}, {steps:,} steps."
    students = "Student's 95 % interval over the splits"
    return (
        f"Means over {len(splits)} splits ± half of "
        f"{students if len(splits) >= FEWEST_SPLITS else over_plans}; {sides} in each, {steps:,} "
        "steps in all. The test sides of two splits share plans, so the intervals are about the "
        "draw of the split, not about other data."
    )


def _find_published(place: Place, runs: Summaries) -> Mapping[str, Mapping[str, float]]:
    """The paper's row for each method on a data set; empty where it has none.

    Of several methods of one retriever it goes with the one with the paper's recipe.
    """
    figures: Mapping[str, Any] = paper()["retrieval"].get(place[0], {})
    rows: dict[str, tuple[tuple[bool, int], str]] = {}
    for method, splits in runs.items():
        header = splits[0].header
        if place[1] == "paper" and header.retriever in figures:
            fit = (header.parameters.get("recipe") == "paper", -len(method))
            rows[header.retriever] = max(rows.get(header.retriever, (fit, method)), (fit, method))
    return {method: figures[retriever] for retriever, (_, method) in rows.items()}


def build_plan_length(results: Results, suite: str) -> list[Block]:
    """Top-1 accuracy by plan length (paper, Table 4)."""
    figures: list[Figure] = []
    tables: list[Block] = []
    for place, runs in results.by_place(suite).items():
        splits = next(iter(runs.values()))
        sizes: dict[int, int] = {}
        for split in splits:
            for length, mean in split.top1_by_length.items():
                sizes[length] = sizes.get(length, 0) + mean.steps
        lengths = sorted(n for n, steps in sizes.items() if steps >= FEWEST_STEPS * len(splits))
        title = results.place_title(place)
        if not lengths:
            tables.append(Text(f"{title}: no length has {FEWEST_STEPS} steps a split or more."))
            continue
        means = {
            name: {
                n: over_splits(values)
                for n in lengths
                if (values := [s.top1_by_length[n].value for s in one if n in s.top1_by_length])
            }
            for name, one in runs.items()
        }
        caption = (
            "Columns: calls of the whole plan, the end of the plan not counted. Means over splits "
            "± half of Student's 95 % interval (from three splits on); lengths with fewer than "
            f"{FEWEST_STEPS} steps a split are left out. Steps: over all splits."
        )
        rows = [
            [Cell(name), *(interval(row.get(n)) for n in lengths)] for name, row in means.items()
        ]
        if place == ("tinyagent", "paper"):
            rows += _published_lengths(lengths)
            caption += " The paper counts join, which ends its plans: its row is one call shifted."
        rows.append([Cell("steps"), *(number(sizes[n]) for n in lengths)])
        columns = [Column("Method"), *numeric(*map(str, lengths))]
        tables.append(Table(columns, rows, f"Top-1 accuracy by plan length, {title}", caption))
        chart = line_chart(
            [
                Series(name, [Point(n, m.value, m.low, m.high) for n, m in row.items()])
                for name, row in means.items()
            ],
            Axis("calls of the plan", lambda value: f"{value:.0f}", ticks=lengths[:16]),
            replace(SHARE, title="top-1 accuracy"),
            label=f"Top-1 accuracy by plan length on {title}",
        )
        caption = "Bars: 95 % intervals over the splits, from three on."
        figures.append(Figure(title, chart, caption, list(runs)))
    return [Figures(figures), *tables] if figures else tables


def _published_lengths(lengths: Sequence[int]) -> list[list[Cell]]:
    published = paper()["plan_length"]
    names = sorted(published.keys() - {"source", "samples"}, key=paper_row)
    return [
        [
            Cell(f"{name}, paper", published["source"], aside=True),
            *(
                Cell(share(published[name][str(n + 1)] / 100), aside=True)
                if str(n + 1) in published[name]  # the paper counts ``join``
                else EMPTY
                for n in lengths
            ),
        ]
        for name in names
    ]


def build_thresholds(results: Results, suite: str) -> list[Block]:
    """What a threshold does: a curve a method, and a table; recall by number of tools."""
    figures, blocks = [], []
    for place, runs in results.by_place(suite).items():
        title = results.place_title(place)
        sweep = {
            name: {alpha: _shown_and_hit(splits, alpha) for alpha in THRESHOLDS}
            for name, splits in runs.items()
        }
        chart = line_chart(
            [
                Series(
                    name,
                    [
                        Point(
                            shown,
                            hit,
                            hover=f"{name}, α = {alpha:g}: {hit:.3f} of the steps with "
                            f"{shown:.1f} tools",
                        )
                        for alpha, (shown, hit) in row.items()
                    ],
                )
                for name, row in sweep.items()
            ],
            Axis("tools shown, mean (logarithmic)", lambda value: f"{value:g}", log=True),
            replace(SHARE, title="steps with an acceptable tool"),
            label=f"Steps with an acceptable tool by tools shown on {title}",
        )
        caption = (
            f"Each dot is a threshold, from {THRESHOLDS[0]:g} (right) to {THRESHOLDS[-1]:g} (left)."
        )
        figures.append(Figure(title, chart, caption, list(sweep)))
        shares = {
            name: [f"{row[alpha][1]:.3f} ({row[alpha][0]:.1f})" for alpha in SHOWN_THRESHOLDS]
            for name, row in sweep.items()
        }
        blocks.append(
            method_table(
                shares,
                [f"α = {alpha:g}" for alpha in SHOWN_THRESHOLDS],
                lambda texts: map(Cell, texts),
                f"Share of steps that show an acceptable tool (mean tools shown), {title}",
                "Means over splits. The best tool is shown even where none is above α. "
                "The paper's sweep has 0.2, 0.23 and 0.5.",
            )
        )
        depth = min(DEEP, *(len(one.recall) for splits in runs.values() for one in splits))
        recalls = {
            name: np.mean([one.recall[:depth] for one in splits], axis=0)
            for name, splits in runs.items()
        }
        blocks.append(
            method_table(
                recalls,
                [str(k + 1) for k in range(depth)],
                lambda curve: [number(value, 3) for value in curve],
                f"Recall by number of tools, {title}",
                "Share of the acceptable tools among the first k. Means over splits.",
            )
        )
    return [Figures(figures), *blocks] if figures else []


def _shown_and_hit(splits: Sequence[RunSummary], threshold: float) -> tuple[float, float]:
    """Mean tools shown, and share of the steps that show an acceptable one."""
    shown, hit = zip(*(one.sweep[threshold] for one in splits), strict=True)
    return sum(shown) / len(shown), sum(hit) / len(hit)


def _median(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None
