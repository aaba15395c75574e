"""Section on how many tools to show: by a threshold, and by a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dtdr.evaluation.charts import Axis, Point, Series, line_chart
from dtdr.evaluation.statistics import over_splits
from dtdr.evaluation.tables import EMPTY, Cell, Column, Table, numeric, share
from dtdr.lab.report.page import Block, Figure, Figures
from dtdr.lab.report.results import Results
from dtdr.lab.summary import SPLITS_ONLY, THRESHOLDS, RunSummary

SHOWN = (0.05, 0.1, 0.2, 0.23, 0.3, 0.5, 0.7, 0.9)
"""Thresholds of the table; the figure has all."""

DEEP = 10
"""Tools up to which recall is shown."""

Sweep = Mapping[str, Mapping[float, tuple[float, float]]]
"""By method and threshold, mean tools shown and share of the steps that show an acceptable one."""


def build_thresholds(results: Results, suite: str) -> list[Block]:
    """What a threshold does: a curve a method, and one of recall by number of tools."""
    sweeps, depths, tables = [], [], []
    for place, runs in results.by_place(suite).items():
        title = results.place_title(place)
        sweep = {
            name: {threshold: _shown_and_hit(splits, threshold) for threshold in THRESHOLDS}
            for name, splits in runs.items()
        }
        sweeps.append(_sweep_figure(title, sweep))
        tables.append(_sweep_table(title, sweep))
        depths.append(_depth_figure(title, runs))
    return [Figures(sweeps), *tables, Figures(depths)] if sweeps else []


def _shown_and_hit(splits: Sequence[RunSummary], threshold: float) -> tuple[float, float]:
    """Mean tools shown, and share of the steps that show an acceptable one."""
    shown, hit = zip(*(one.sweep[threshold] for one in splits), strict=True)
    return sum(shown) / len(shown), sum(hit) / len(hit)


def _sweep_table(title: str, sweep: Sweep) -> Table:
    rows = [
        [Cell(name), *(Cell(f"{row[t][1]:.3f} ({row[t][0]:.1f})") for t in SHOWN)]
        for name, row in sweep.items()
    ]
    return Table(
        [Column("Method"), *numeric(*(f"α = {threshold:g}" for threshold in SHOWN))],
        rows,
        f"Share of steps that show an acceptable tool (mean tools shown), {title}",
        "Means over splits. The best tool is shown even where none is above α. "
        "The paper's sweep has 0.2, 0.23 and 0.5.",
    )


def _sweep_figure(title: str, sweep: Sweep) -> Figure:
    series = [
        Series(
            name,
            [
                Point(
                    shown,
                    hit,
                    hover=f"{name}, α = {threshold:g}: {hit:.3f} of the steps with {shown:.1f} "
                    "tools",
                )
                for threshold, (shown, hit) in row.items()
            ],
        )
        for name, row in sweep.items()
    ]
    chart = line_chart(
        series,
        Axis("tools shown, mean (logarithmic)", lambda value: f"{value:g}", log=True),
        Axis("steps with an acceptable tool", lambda value: f"{value:.1f}", low=0.0, high=1.0),
        label=f"Steps with an acceptable tool by tools shown on {title}",
    )
    caption = (
        f"Each dot is a threshold, from {THRESHOLDS[0]:g} (right) to {THRESHOLDS[-1]:g} (left)."
    )
    return Figure(title, chart, caption, list(sweep))


def _depth_figure(title: str, runs: Mapping[str, Sequence[RunSummary]]) -> Figure:
    means = {
        name: [
            over_splits([float(one.recall[k]) for one in splits])
            for k in range(min(DEEP, *(len(one.recall) for one in splits)))
        ]
        for name, splits in runs.items()
    }
    series = [
        Series(name, [Point(k, m.value, m.low, m.high) for k, m in enumerate(curve, start=1)])
        for name, curve in means.items()
    ]
    rows = [
        [Cell(name), *(Cell(share(m.value)) for m in curve), *[EMPTY] * (DEEP - len(curve))]
        for name, curve in means.items()
    ]
    chart = line_chart(
        series,
        Axis("tools shown", lambda value: f"{value:.0f}", ticks=range(1, DEEP + 1)),
        Axis("recall", lambda value: f"{value:.1f}", low=0.0, high=1.0),
        label=f"Recall by number of tools on {title}",
    )
    columns = [Column("Method"), *numeric(*(str(k) for k in range(1, DEEP + 1)))]
    return Figure(
        f"Recall by number of tools, {title}",
        chart,
        f"Share of the acceptable tools among the first k. {SPLITS_ONLY}",
        list(runs),
        Table(columns, rows, f"Recall@k, {title}"),
    )
