"""Sections about variations of a run: ablations and other encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdr.evaluate.charts import Axis, Point, Series, line_chart
from dtdr.evaluate.lab.report.page import Block, Figure, Figures, Text, method_table
from dtdr.evaluate.lab.report.results import WILSON, Results, Run, group_runs, share_of
from dtdr.evaluate.lab.summary import INTERVALS, RunSummary, mean_of, plan_means
from dtdr.evaluate.result_tables import metric_title
from dtdr.evaluate.statistics import Interval, holm, paired_p_value
from dtdr.evaluate.tables import (
    Cell,
    Column,
    Table,
    interval,
    numeric,
    p_value,
)

BASE_ENCODER = "lexical"


@dataclass(frozen=True)
class Ablation:
    """One thing that a suite varies, all else at its default.

    Attributes:
        title: of its part.
        axis: what is varied, and how it is written.
        text: what the paper finds.
        value: what a run has chosen; None where it is not about this.
        place: where that is on the axis.
        name: of the curve that a run is on: the method without what is varied.
    """

    title: str
    axis: Axis
    text: str
    value: Callable[[Run], Any]
    place: Callable[[Results, Run], float]
    name: Callable[[Run], str] = lambda run: run.method


def _without_clusters(run: Run) -> str:
    recipe = run.spec["parameters"].get("recipe")
    return f"{run.spec['retriever']} ({recipe})" if recipe else str(run.spec["retriever"])


def _demonstrations(run: Run) -> Any:
    is_other = "history" in run.spec
    return None if is_other else run.spec.get("demonstrations", run.spec.get("share", "all"))


ABLATIONS = (
    Ablation(
        "History length",
        Axis("calls of the history that are seen", lambda value: f"{value:.0f}"),
        "The paper finds gains up to three calls, and that dtdr-l without a history falls back on "
        "the most frequent tools.",
        lambda run: run.spec.get("history"),
        lambda results, run: run.spec["history"],
    ),
    Ablation(
        "Number of clusters",
        Axis("clusters (logarithmic)", lambda value: f"{value:,.0f}", log=True),
        "dtdr-c only: dtdr-l and dtdr-f have no clusters. The paper finds the best number near a "
        "tenth of the demonstrations. With the paper's recipe a history that the cluster never saw "
        "leaves all tools equal; the default backs off to shorter histories and to all "
        "demonstrations.",
        lambda run: run.spec.get("parameters", {}).get("clusters"),
        lambda results, run: results.header(run)["parameters"]["clusters"],
        _without_clusters,
    ),
    Ablation(
        "Number of demonstrations",
        Axis("demonstrations (logarithmic)", lambda value: f"{value:,.0f}", log=True),
        "The paper finds a plateau near 10,000 demonstrations and a sharp drop of DTDR-L below "
        "1,000.",
        _demonstrations,
        lambda results, run: results.header(run)["train"],
    ),
)


def build_ablations(results: Results, suite: str, *, metric: str = "mrr") -> list[Block]:
    """Figures and tables by history length, clusters, demonstrations (paper, Figure 6).

    The measure is the metric, and the accuracy of each LLM that was asked.
    """
    measures: dict[str, list[Run]] = {"": results.runs(suite, "rank")}
    measures |= group_runs(results.runs(suite, "selections"), lambda run: str(run.spec["llm"]))
    blocks: list[Block] = []
    for ablation in ABLATIONS:
        rows: list[Block] = []
        for model, runs in measures.items():
            figures, tables = [], []
            measure = f"FSA, {model}" if model else metric_title(metric)
            for place, here in group_runs(runs, lambda run: run.place).items():
                curves = _curves(results, here, ablation, model, metric)
                if not curves:
                    continue
                title = results.place_title(place) + (f", {model}" if model else "")
                table = _curve_table(title, curves, ablation, measure)
                if any(len(points) > 1 for points in curves.values()):
                    figures.append(_curve_figure(title, curves, ablation, model, measure, table))
                else:
                    tables.append(table)
            rows += [Figures(figures)] if figures else []
            rows += tables
        if rows:
            said = [Text(ablation.text)] if metric == "mrr" else []  # the paper's is of other data
            blocks += [Text(ablation.title, strong=True), *said, *rows]
    return blocks


Curves = Mapping[str, Mapping[float, Interval]]


def _curves(
    results: Results, runs: Sequence[Run], ablation: Ablation, model: str, metric: str
) -> Curves:
    """Points by method; runs of one choice make one point, at their mean place.

    A tenth of the demonstrations is not the same number in every split. Runs with all
    demonstrations are a point only of a method whose number is varied.
    """
    groups: dict[str, dict[Any, list[Run]]] = {}
    for run in runs:
        value = ablation.value(run)
        if value is not None:
            groups.setdefault(ablation.name(run), {}).setdefault(value, []).append(run)
    curves: dict[str, dict[float, Interval]] = {}
    for name, choices in groups.items():
        if set(choices) == {"all"}:
            continue
        points = {}
        for same in choices.values():
            place = round(sum(ablation.place(results, run) for run in same) / len(same))
            points[place] = _mean(results, same, model, metric)
        curves[name] = {place: points[place] for place in sorted(points)}
    return curves


def _mean(results: Results, runs: Sequence[Run], model: str, metric: str) -> Interval:
    if not model:
        return mean_of([results.value(run) for run in runs], metric)
    share = share_of((one for run in runs for one in results.value(run)["records"]), "right")
    return Interval(share.value, share.low, share.high)


def _curve_table(title: str, curves: Curves, ablation: Ablation, measure: str) -> Table:
    places = sorted({x for points in curves.values() for x in points})
    rows = {name: [interval(points.get(x)) for x in places] for name, points in curves.items()}
    titles = [ablation.axis.show(x) for x in places]
    return method_table(rows, titles, iter, f"{measure} by {ablation.title.lower()}, {title}")


def _curve_figure(
    title: str, curves: Curves, ablation: Ablation, model: str, measure: str, table: Table
) -> Figure:
    axis = ablation.axis
    if not axis.log:
        places = sorted({x for points in curves.values() for x in points})
        axis = Axis(axis.title, axis.show, ticks=places)
    series = [
        Series(
            name,
            [Point(x, mean.value, mean.low, mean.high) for x, mean in points.items()],
            dashed="(" in name,
        )
        for name, points in curves.items()
    ]
    up = Axis(measure.partition(",")[0], lambda value: f"{value:.2f}")
    chart = line_chart(series, axis, up, label=table.title)
    caption = WILSON if model else INTERVALS
    return Figure(f"{ablation.title}, {title}", chart, caption, list(curves), table)


def build_encoders(results: Results, suite: str) -> list[Block]:
    """The same methods with other encoders: one table a data set."""
    return [
        _encoder_table(results, results.place_title(place), runs)
        for place, runs in group_runs(results.runs(suite, "rank"), lambda run: run.place).items()
    ]


def _encoder_table(results: Results, title: str, runs: Sequence[Run]) -> Table:
    splits: dict[tuple[str, str], list[RunSummary]] = {}
    for run in runs:
        name = str(run.spec["retriever"]), str(run.spec.get("encoder", BASE_ENCODER))
        splits.setdefault(name, []).append(results.value(run))
    p_values: dict[str, float] = {}
    for name, values in splits.items():
        base = splits.get((name[0], BASE_ENCODER))
        if base is not None and name[1] != BASE_ENCODER:
            p = paired_p_value(plan_means(base, "mrr"), plan_means(values, "mrr"))
            p_values |= {} if p is None else {" ".join(name): p}
    adjusted = holm(p_values) if results.may_judge else {}
    rows = [
        [
            *map(Cell, name),
            *(interval(mean_of(values, metric)) for metric in ("mrr", "f1", "recall@5")),
            Cell(p_value(adjusted.get(" ".join(name)))),
        ]
        for name, values in splits.items()
    ]
    columns = [
        Column("Method"),
        Column("Encoder"),
        *numeric("MRR", "F1", "Recall@5", f"p against {BASE_ENCODER}"),
    ]
    caption = (
        f"{INTERVALS} p: paired permutation test of the MRR over plans against the same method "
        f"with {BASE_ENCODER}, adjusted by Holm's method for the rows of this table."
    )
    return Table(columns, rows, f"Quality by encoder, {title}", caption)
