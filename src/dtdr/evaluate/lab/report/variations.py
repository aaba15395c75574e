"""Variations of an experiment: history, clusters, demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtdr.evaluate.charts import Axis, Point, Series, line_chart
from dtdr.evaluate.lab.experiments import Experiment
from dtdr.evaluate.lab.report.page import Block, Figure, Text, method_table
from dtdr.evaluate.lab.report.results import (
    WILSON,
    Results,
    group_experiments,
    records_of,
    share_of,
)
from dtdr.evaluate.lab.summary import INTERVALS, mean_of
from dtdr.evaluate.result_tables import metric_title
from dtdr.evaluate.statistics import Interval
from dtdr.evaluate.tables import interval


@dataclass(frozen=True)
class Ablation:
    """One thing that a suite varies, all else at its default.

    Attributes:
        title: of its part.
        axis: what is varied, and how it is written.
        text: what the paper finds.
        value: what an experiment has chosen; None where it is not about this.
        position: where that is on the axis.
        name: of the curve that an experiment is on: the method without what is varied.
    """

    title: str
    axis: Axis
    text: str
    value: Callable[[Experiment], Any]
    position: Callable[[Results, Experiment], float]
    name: Callable[[Experiment], str] = lambda experiment: experiment.method


def _vary(parameter: str, title: str, axis: Axis, text: str) -> Ablation:
    """An ablation of one of the ranker's parameters."""

    def name(experiment: Experiment) -> str:
        others = {k: v for k, v in experiment.spec["parameters"].items() if k != parameter}
        return Experiment({**experiment.spec, "parameters": others}, experiment.key).method

    return Ablation(
        title,
        axis,
        text,
        lambda experiment: experiment.spec.get("parameters", {}).get(parameter),
        lambda results, experiment: results.header(experiment)["parameters"][parameter],
        name,
    )


def _demonstrations(experiment: Experiment) -> Any:
    is_other = "history" in experiment.spec
    return (
        None
        if is_other
        else experiment.spec.get("demonstrations", experiment.spec.get("share", "all"))
    )


ABLATIONS = (
    Ablation(
        "History length",
        Axis("calls of the history that are seen", lambda value: f"{value:.0f}"),
        "The paper finds gains up to three calls, and that dtdr-l without a history falls back on "
        "the most frequent tools.",
        lambda experiment: experiment.spec.get("history"),
        lambda results, experiment: experiment.spec["history"],
    ),
    _vary(
        "clusters",
        "Number of clusters",
        Axis("clusters (logarithmic)", lambda value: f"{value:,.0f}", log=True),
        "dtdr-c only: dtdr-l and dtdr-f have no clusters. The paper finds the best number near a "
        "tenth of the demonstrations. With the paper's recipe a history that the cluster never saw "
        "leaves all tools equal; the default backs off to shorter histories and to all "
        "demonstrations.",
    ),
    Ablation(
        "Number of demonstrations",
        Axis("demonstrations (logarithmic)", lambda value: f"{value:,.0f}", log=True),
        "The paper finds a plateau near 10,000 demonstrations and a sharp drop of DTDR-L below "
        "1,000.",
        _demonstrations,
        lambda results, experiment: results.header(experiment)["train"],
    ),
    _vary(
        "batch_size",
        "Batch size",
        Axis("examples of a batch (logarithmic)", lambda value: f"{value:.0f}", log=True),
        "The paper names no batch size; its Algorithm 5 trains example by example.",
    ),
    _vary(
        "seed",
        "Seed",
        Axis("seed of the ranker, on one split", lambda value: f"{value:.0f}"),
        "What another seed of the ranker changes, to compare with what another split changes.",
    ),
)


def build_ablations(results: Results, suite: str, *, metric: str = "mrr") -> list[Block]:
    """Figures by history length, clusters, demonstrations (paper, Figure 6).

    The measure is the metric, and the accuracy of each LLM that was asked.
    """
    measures: dict[str, list[Experiment]] = {"": results.experiments(suite, "rank")}
    measures |= group_experiments(
        results.experiments(suite, "selections"), lambda experiment: str(experiment.spec["llm"])
    )
    blocks: list[Block] = []
    for ablation in ABLATIONS:
        groups = []
        for model, experiments in measures.items():
            figures = []
            for dataset_split, here in group_experiments(
                experiments, lambda experiment: experiment.dataset_split
            ).items():
                if curves := _curves(results, here, ablation, model, metric):
                    title = results.split_title(dataset_split, suite) + (
                        f", {model}" if model else ""
                    )
                    measure = f"FSA, {model}" if model else metric_title(metric)
                    figures.append(_figure(title, curves, ablation, measure))
            groups += [figures] if figures else []
        if groups:
            is_like_paper = metric == "mrr" and results.is_comparable(suite)  # else of other data
            said = [Text(ablation.text)] if is_like_paper else []
            blocks += [Text(ablation.title, strong=True), *said, *groups]
    return blocks


Curves = Mapping[str, Mapping[float, Interval]]


def _curves(
    results: Results, experiments: Sequence[Experiment], ablation: Ablation, model: str, metric: str
) -> Curves:
    """Points by method; experiments of one choice make one point, at their mean position.

    A tenth of the demonstrations is not the same number in every split. Experiments with all
    demonstrations are a point only of a method whose number is varied.
    """
    groups: dict[str, dict[Any, list[Experiment]]] = {}
    for experiment in experiments:
        value = ablation.value(experiment)
        if value is not None:
            groups.setdefault(ablation.name(experiment), {}).setdefault(value, []).append(
                experiment
            )
    curves: dict[str, dict[float, Interval]] = {}
    for name, choices in groups.items():
        if set(choices) == {"all"}:
            continue
        points = {}
        for same in choices.values():
            position = round(
                sum(ablation.position(results, experiment) for experiment in same) / len(same)
            )
            points[position] = _mean(results, same, model, metric)
        curves[name] = {position: points[position] for position in sorted(points)}
    return curves


def _mean(results: Results, experiments: Sequence[Experiment], model: str, metric: str) -> Interval:
    if not model:
        return mean_of([results.value(experiment) for experiment in experiments], metric)
    share = share_of(records_of(results, experiments), "exact")
    return Interval(share.value, share.low, share.high)


def _figure(title: str, curves: Curves, ablation: Ablation, measure: str) -> Figure:
    places = sorted({x for points in curves.values() for x in points})
    columns = {ablation.axis.show(x): lambda points, x=x: interval(points.get(x)) for x in places}
    heading = f"{measure} by {ablation.title.lower()}, {title}"
    table = method_table(curves, columns, heading)
    series = [
        Series(
            name,
            [Point(x, mean.value, mean.low, mean.high) for x, mean in points.items()],
            dashed="(" in name,
        )
        for name, points in curves.items()
    ]
    axis = ablation.axis if ablation.axis.log else replace(ablation.axis, ticks=places)
    up = Axis(measure.partition(",")[0], lambda value: f"{value:.2f}")
    chart = line_chart(series, axis, up, label=heading)
    caption = WILSON if measure.startswith("FSA") else INTERVALS
    return Figure(f"{ablation.title}, {title}", chart, caption, list(curves), table)
