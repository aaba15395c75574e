"""Sections about variations of a run: ablations, other encoders, shifted data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdr.evaluation.charts import Axis, Point, Series, line_chart
from dtdr.evaluation.statistics import Interval, auroc, holm, over_splits, paired_p_value
from dtdr.evaluation.tables import (
    EMPTY,
    Cell,
    Column,
    Table,
    interval,
    number,
    numeric,
    p_value,
    significant,
)
from dtdr.lab.report.page import Block, Figure, Figures, Text
from dtdr.lab.report.results import WILSON, Place, Results, Run, by_method, by_place, share_of
from dtdr.lab.summary import INTERVALS, mean_of, plan_means

BASE_ENCODER = "lexical"

NO_SHIFT = "as trained"
SHIFTS = (NO_SHIFT, "opaque-names", "unseen-tools", "short-to-long", "rare-tools")

HISTORY = (
    "The paper finds gains up to three calls, and that dtdr-l without a history falls back on the "
    "most frequent tools."
)
CLUSTERS = (
    "dtdr-c only: dtdr-l and dtdr-f have no clusters. The paper finds the best number near a tenth "
    "of the demonstrations. With the paper's recipe a history that the cluster never saw leaves "
    "all tools equal; the default backs off to shorter histories and to all demonstrations."
)
DEMONSTRATIONS = (
    "The paper finds a plateau near 10,000 demonstrations and a sharp drop of DTDR-L below 1,000."
)

Curves = dict[str, dict[float, Interval]]


@dataclass(frozen=True)
class Measure:
    """What the points of a curve show.

    Attributes:
        title: of the axis.
        model: the LLM that was asked; empty without one.
        runs: those that measured it.
        of: the mean over runs that differ in their split only.
        show: a point of a table.
        intervals: what the bars are.
    """

    title: str
    model: str
    runs: Sequence[Run]
    of: Callable[[Sequence[Run]], Interval]
    show: Callable[[Interval | None], Cell]
    intervals: str


def build_ablations(results: Results, suite: str) -> list[Block]:
    """Three rows of figures for each measure, one figure a data set (paper, Figure 6)."""
    blocks: list[Block] = []
    for title, make_curves, axis, text in (
        (
            "History length",
            _by_history,
            _linear("calls of the history that are seen"),
            HISTORY,
        ),
        ("Number of clusters", _by_clusters, _log("clusters"), CLUSTERS),
        (
            "Number of demonstrations",
            _by_demonstrations,
            _log("demonstrations"),
            DEMONSTRATIONS,
        ),
    ):
        rows = []
        for measure in _measures(results, suite):
            figures = []
            for place, here in by_place(measure.runs).items():
                curves = make_curves(results, here, measure)
                if any(len(points) > 1 for points in curves.values()):
                    data = results.place_title(place)
                    figures.append(_curve_figure(title, data, curves, axis, measure))
            if figures:
                rows.append(Figures(figures))
        if rows:
            blocks += [Text(title, strong=True), Text(text), *rows]
    return blocks


def _measures(results: Results, suite: str) -> Iterator[Measure]:
    """MRR, and the accuracy of each LLM that was asked."""

    def mrr(runs: Sequence[Run]) -> Interval:
        return mean_of([results.summary(run) for run in runs], "mrr")

    def fsa(runs: Sequence[Run]) -> Interval:
        records = [one for run in runs for one in results.result(run)["records"]]
        share = share_of(records, "right")
        return Interval(share.value, share.low, share.high)

    yield Measure("MRR", "", results.runs(suite, "rank"), mrr, interval, INTERVALS)
    asked = results.runs(suite, "selections")
    for model in dict.fromkeys(str(run.spec["llm"]) for run in asked):
        runs = [run for run in asked if run.spec["llm"] == model]
        yield Measure("FSA", model, runs, fsa, _share, WILSON)


def _share(mean: Interval | None) -> Cell:
    """As ``interval``; Wilson's is not symmetric."""
    if mean is None:
        return EMPTY
    return Cell(f"{mean.value:.3f} ({mean.low:.2f} to {mean.high:.2f})", value=mean.value)


def _by_history(results: Results, runs: Sequence[Run], measure: Measure) -> Curves:
    chosen = [run for run in runs if "history" in run.spec]
    return _curves(measure, chosen, lambda run: run.spec["history"])


def _by_demonstrations(results: Results, runs: Sequence[Run], measure: Measure) -> Curves:
    limited = {run.method for run in runs if "demonstrations" in run.spec}
    chosen = [
        run
        for run in runs
        if run.method in limited and not any(key in run.spec for key in ("history", "shift"))
    ]
    return _curves(
        measure,
        chosen,
        lambda run: run.spec.get("demonstrations", "all"),
        place=lambda run: float(results.count_learned(run)),
    )


def _by_clusters(results: Results, runs: Sequence[Run], measure: Measure) -> Curves:
    def name(run: Run) -> str:
        recipe = run.spec["parameters"].get("recipe")
        return f"{run.spec['retriever']} ({recipe})" if recipe else str(run.spec["retriever"])

    return _curves(
        measure,
        [run for run in runs if "clusters" in run.spec.get("parameters", {})],
        lambda run: run.spec["parameters"]["clusters"],
        name=name,
        place=lambda run: float(results.parameters(run)["clusters"]),
    )


def _curves(
    measure: Measure,
    runs: Sequence[Run],
    value: Callable[[Run], Any],
    *,
    name: Callable[[Run], str] = lambda run: run.method,
    place: Callable[[Run], float] | None = None,
) -> Curves:
    """Curves by method; runs of one ``value`` make one point, at their mean ``place``.

    A tenth of the demonstrations is not the same number in every split.
    """
    groups: dict[str, dict[Any, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for same in by_method(runs).values():
        for run in same:
            groups[name(run)][value(run)].append(run)
    curves: Curves = {}
    for method, points in groups.items():
        curve = {}
        for chosen, same in points.items():
            x = float(chosen) if place is None else sum(map(place, same)) / len(same)
            curve[round(x)] = measure.of(same)
        curves[method] = {x: curve[x] for x in sorted(curve)}
    return curves


def _curve_figure(title: str, data: str, curves: Curves, axis: Axis, measure: Measure) -> Figure:
    series = [
        Series(
            name,
            [Point(x, mean.value, mean.low, mean.high) for x, mean in points.items()],
            dashed="(" in name,
        )
        for name, points in curves.items()
    ]
    places = sorted({x for points in curves.values() for x in points})
    rows = [
        [Cell(name), *(measure.show(points.get(x)) for x in places)]
        for name, points in curves.items()
    ]
    chart = line_chart(
        series,
        Axis(axis.title, axis.show, axis.log, None if axis.log else places),
        Axis(measure.title, lambda value: f"{value:.2f}"),
        label=f"{measure.title} by {axis.title} on {data}",
    )
    columns = [Column("Method"), *numeric(*(f"{x:,.0f}" for x in places))]
    asked = f"{measure.title}, {measure.model}" if measure.model else measure.title
    values = Table(columns, rows, f"{asked} by {title.lower()}, {data}")
    heading = f"{title}, {data}" + (f", {measure.model}" if measure.model else "")
    return Figure(heading, chart, measure.intervals, list(curves), values)


def _linear(title: str) -> Axis:
    return Axis(title, lambda value: f"{value:.0f}")


def _log(title: str) -> Axis:
    return Axis(f"{title} (logarithmic)", lambda value: f"{value:,.0f}", log=True)


def build_encoders(results: Results, suite: str) -> list[Block]:
    """The same methods with other encoders: one table of quality a data set, one of costs."""
    blocks: list[Block] = [
        _encoder_table(results, place, runs)
        for place, runs in by_place(results.runs(suite, "rank")).items()
    ]
    rows = []
    for run in results.runs(suite, "encoder"):
        result = results.result(run)["result"]
        measured = [result["measured"][key] for key in ("ms", "resident_mb")]
        rows.append(
            [
                Cell(str(run.spec["encoder"])),
                number(result["dimension"]),
                *(significant(value, measured=True) for value in measured),
            ]
        )
    if rows:
        columns = [Column("Encoder"), *numeric("Dimensions", "ms a query", "MB added")]
        note = "Median over single held-out queries, in a process of its own with one thread."
        blocks.append(Table(columns, rows, "What an encoder costs", note))
    return blocks


def _encoder_table(results: Results, place: Place, runs: Sequence[Run]) -> Table:
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        encoder = str(run.spec.get("encoder", BASE_ENCODER))
        groups.setdefault(str(run.spec["retriever"]), {}).setdefault(encoder, []).append(run)
    rows = []
    p_values = holm(_against_base(results, groups))
    for retriever, encoders in groups.items():
        splits = {name: [results.summary(run) for run in same] for name, same in encoders.items()}
        means = {name: mean_of(same, "mrr") for name, same in splits.items()}
        best = max(f"{mean.value:.3f}" for mean in means.values())
        for name, same in splits.items():
            mrr = interval(means[name])
            rows.append(
                [
                    Cell(retriever),
                    Cell(name),
                    Cell(mrr.text, mrr.hover, best=f"{means[name].value:.3f}" == best),
                    interval(mean_of(same, "f1")),
                    interval(mean_of(same, "recall@5")),
                    Cell(p_value(p_values.get(f"{retriever} {name}"))),
                ]
            )
    columns = [
        Column("Method"),
        Column("Encoder"),
        *numeric("MRR", "F1", "Recall@5", f"p against {BASE_ENCODER}"),
    ]
    caption = (
        "Means over splits ± half of the 95 % interval (Student's; of one or two splits, the "
        "bootstrap's over plans). p: paired permutation test of the MRR over plans against the "
        f"same method with {BASE_ENCODER}, adjusted by Holm's method for the rows of this table."
    )
    return Table(columns, rows, f"Quality by encoder, {results.place_title(place)}", caption)


def _against_base(
    results: Results, groups: Mapping[str, Mapping[str, Sequence[Run]]]
) -> dict[str, float]:
    """The p-value of each method and encoder against the method with the base encoder."""
    p_values = {}
    for retriever, encoders in groups.items():
        means = {
            name: plan_means([results.summary(run) for run in runs], "mrr")
            for name, runs in encoders.items()
        }
        for name, values in means.items():
            if name == BASE_ENCODER or BASE_ENCODER not in means:
                continue
            p = paired_p_value(means[BASE_ENCODER], values)
            if p is not None:
                p_values[f"{retriever} {name}"] = p
    return p_values


def build_shifts(results: Results, suite: str) -> list[Block]:
    """A table of MRR by shift, and one of how well queries of another set are told apart."""
    runs = results.runs(suite, "rank")
    shifted = by_place([run for run in runs if "queries" not in run.spec])
    foreign = by_place([run for run in runs if "queries" in run.spec])
    return [
        *(_shift_table(results, place, here) for place, here in shifted.items()),
        *(_foreign_table(results, place, here) for place, here in foreign.items()),
    ]


def _shift_table(results: Results, place: Place, runs: Sequence[Run]) -> Table:
    present = {str(run.spec.get("shift", NO_SHIFT)) for run in runs}
    shifts = [name for name in SHIFTS if name in present]
    means: dict[str, dict[str, Interval]] = {}
    for method, group in by_method(runs).items():
        for shift in shifts:
            same = [run for run in group if run.spec.get("shift", NO_SHIFT) == shift]
            if same:
                mean = mean_of([results.summary(run) for run in same], "mrr")
                means.setdefault(method, {})[shift] = mean

    def first(method: str) -> float:
        mean = means[method].get(shifts[0])
        return 0.0 if mean is None else -mean.value

    rows = [
        [Cell(method), *(interval(means[method].get(shift)) for shift in shifts)]
        for method in sorted(sorted(means), key=first)
    ]
    columns = [
        Column("Method"),
        *numeric(*(name.replace("-", " ") for name in shifts), best=True),
    ]
    caption = (
        "Means over splits ± half of the 95 % interval (Student's; of one or two splits, the "
        "bootstrap's over plans). The columns are about different "
        "plans, so compare within a column. With unseen tools a history is of names that no "
        "demonstration used; the end of the plan keeps its name."
    )
    return Table(columns, rows, f"MRR under shifts, {results.place_title(place)}", caption)


def _foreign_table(results: Results, place: Place, runs: Sequence[Run]) -> Table:
    rows = []
    for method, group in by_method(runs).items():
        for other in dict.fromkeys(str(run.spec["queries"]) for run in group):
            splits = [
                results.summary(run).header.details["first_steps"]
                for run in group
                if run.spec["queries"] == other
            ]
            sides = ("own", "other")
            values = [
                *([float(np.mean(one[side]["confidence"])) for one in splits] for side in sides),
                [_auroc(one["own"], one["other"]) for one in splits],
                *(
                    [one[side]["flagged"] / len(one[side]["confidence"]) for one in splits]
                    for side in sides
                ),
            ]
            cells = [interval(over_splits(value)) for value in values]
            rows.append([Cell(method), Cell(results.title(other)), *cells])
    columns = [
        Column("Method"),
        Column("Queries of"),
        *numeric("Confidence, own", "Confidence, other", "AUROC", "Flagged, own", "Flagged, other"),
    ]
    caption = (
        "At the first step. AUROC: how often a held-out query of its own set scores above one "
        "of the other set, by familiarity where the retriever has one, else by its "
        "confidence; .5 is chance. Flagged: share of queries that the retriever calls "
        "unfamiliar, whereupon all tools are shown."
    )
    title = f"Queries of another set, after learning from {results.place_title(place)}"
    return Table(columns, rows, title, caption)


def _auroc(own: Mapping[str, list[float]], other: Mapping[str, list[float]]) -> float:
    score = "familiarity" if None not in own["familiarity"] else "confidence"
    return auroc(own[score], other[score])
