"""Sections about rankings: retrieval, the front table, other packages, plan length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtdr.evaluation.charts import SHARE, Axis, Dot, Point, Series, dot_chart, line_chart
from dtdr.evaluation.metrics import DEFAULT
from dtdr.evaluation.result_tables import metric_title
from dtdr.evaluation.statistics import FEWEST_SPLITS, Proportion, over_splits
from dtdr.evaluation.tables import (
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
from dtdr.lab.report.page import Block, Figure, Figures, Section, Text
from dtdr.lab.report.results import NOT_RUN, Place, Results, accuracy, paper
from dtdr.lab.summary import LEVEL, SPLITS_ONLY, RunSummary, against_best, mean_of

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

Summaries = Mapping[str, Sequence[RunSummary]]


def build_retrieval(results: Results, suite: str) -> list[Block]:
    """One table and one figure a data set and split."""
    places = results.by_place(suite)
    figures = [_mrr_figure(results, *item) for item in places.items()]
    accuracies = _accuracies(results, suite)
    tables = [
        _retrieval_table(results, place, runs, accuracies.get(place, {}))
        for place, runs in places.items()
    ]
    # What all tables have in common is said below the first.
    said: set[str] = set()
    for at, table in enumerate(tables):
        notes = [note for note in table.caption.splitlines() if note not in said]
        said.update(notes)
        tables[at] = replace(table, caption="\n".join(notes))
    return [Figures(figures), *tables] if figures else []


Accuracies = Mapping[str, Mapping[str, Proportion]]
"""Function selection accuracy by model and method."""


def _accuracies(results: Results, suite: str) -> dict[Place, dict[str, dict[str, Proportion]]]:
    """How often an LLM that saw the retrieved tools chose an acceptable one."""
    accuracies: dict[Place, dict[str, dict[str, Proportion]]] = {}
    for run in results.runs(suite, "selections"):
        models = accuracies.setdefault(run.place, {})
        models.setdefault(str(run.spec["llm"]), {})[run.method] = accuracy(results, run)
    return accuracies


def _retrieval_table(
    results: Results, place: Place, runs: Summaries, accuracies: Accuracies
) -> Table:
    """Methods as rows, best first."""
    published = _find_published(place, runs)
    source = str(paper()["retrieval"].get(place[0], {}).get("source", ""))
    best, adjusted = against_best(runs, "mrr")
    columns = [Column("Method"), *numeric(*map(metric_title, DEFAULT), best=True)]
    if published:
        columns += numeric("MRR, paper", "F1, paper")
    columns += numeric(*(f"FSA %, {model}" for model in accuracies), best=True)
    if accuracies and published:
        columns += numeric("FSA %, paper")
    columns += numeric("p against best", "Fit s", "Step µs")
    rows: list[list[Cell]] = []
    for name, splits in runs.items():
        p = adjusted.get(name)
        mark = f" {LIKE}" if p is not None and p >= LEVEL else ""
        row = [Cell(name)]
        for metric in DEFAULT:
            row.append(interval(mean_of(splits, metric), mark=mark if metric == "mrr" else ""))
        if published:
            figures = published.get(name, {})
            row += [
                Cell(f"{figures[key]:.2f}", source, aside=True) if key in figures else EMPTY
                for key in ("mrr", "f1")
            ]
        row += [percent(chosen.get(name)) for chosen in accuracies.values()]
        if accuracies and published:
            fsa = published.get(name, {}).get("fsa")
            row.append(EMPTY if fsa is None else Cell(f"{fsa:.1f}", source, aside=True))
        row.append(Cell("best" if name == best else p_value(p)))
        for times in (
            [one.header.fit_seconds for one in splits],
            [one.header.rank_microseconds_median for one in splits],
        ):
            row.append(significant(_median(times), measured=True))
        rows.append(row)
    first = next(iter(runs.values()))
    caption = _retrieval_notes(first, bool(published), bool(accuracies))
    return Table(columns, rows, results.place_title(place), caption)


def _retrieval_notes(splits: Sequence[RunSummary], published: bool, has_fsa: bool) -> str:
    notes = [
        _split_note(splits),
        "p: two-sided paired permutation test of the MRR over plans (10,000 sign flips; a plan's "
        "value is its mean over its steps and over the splits that held it out) against the best "
        f"method, adjusted by Holm's method for the rows of this table; {LIKE} marks a method that "
        f"cannot be told from the best at {LEVEL:.2f}.",
        "Fit s and Step µs are medians over the splits, measured beside another run; texts that "
        "an earlier run of the process encoded cost it nothing. Suite efficiency measures alone.",
    ]
    if has_fsa:
        notes.append(FSA_NOTE)
    if published:
        notes.append("The paper's figures stand in italics; what differs from it is said above.")
    return "\n".join(notes)


def _split_note(splits: Sequence[RunSummary]) -> str:
    sizes = splits[0].header.split
    sides = f"{sizes['train']:,} plans to learn from and {sizes['test']:,} held out"
    steps = sum(one.steps for one in splits)
    over_plans = "the 95 % bootstrap interval over plans"
    if len(splits) == 1:
        return f"One split, ± half of {over_plans}; {sides}, {steps:,} steps."
    over = over_plans
    if len(splits) >= FEWEST_SPLITS:
        over = "Student's 95 % interval over the splits"
    return (
        f"Means over {len(splits)} splits ± half of {over}; {sides} in each, {steps:,} steps in "
        "all. The test sides of two splits share plans, so the intervals are about the draw of "
        "the split, not about other data."
    )


def _mrr_figure(results: Results, place: Place, runs: Summaries) -> Figure:
    published = _find_published(place, runs)
    rows = []
    for name, splits in runs.items():
        mean = mean_of(splits, "mrr")
        hover = f"{name}: {mean.value:.3f}"
        if mean.low is not None and mean.high is not None:
            hover += f" ({mean.low:.3f} to {mean.high:.3f})"
        dots = [Dot(name, mean.value, mean.low, mean.high, hover=hover)]
        figure = published.get(name, {}).get("mrr")
        if figure is not None:
            dots.append(Dot(name, figure, hollow=True, hover=f"{name}, paper: {figure:.2f}"))
        rows.append((name, dots))
    title = results.place_title(place)
    caption = "Dots: here, with 95 % intervals."
    if published:
        caption += " Hollow: the paper, on its larger set."
    chart = dot_chart(rows, replace(SHARE, title="MRR"), label=f"MRR of each method on {title}")
    return Figure(title, chart, caption, [])


def build_front(results: Results) -> Section | None:
    """The first lines of a report: best and second best by MRR; None without a retrieval table."""
    rows = []
    for suite in results.suites_of("retrieval"):
        for place, runs in results.by_place(suite).items():
            if len(runs) < 2:
                continue
            best, adjusted = against_best(runs, "mrr")
            second = next(name for name in runs if name != best)
            row = [Cell(results.place_title(place))]
            for name in (best, second):
                mrr = interval(mean_of(runs[name], "mrr"))
                row += [Cell(name), replace(mrr, best=name == best)]
            rows.append([*row, Cell(p_value(adjusted.get(second)))])
    if not rows:
        return None
    columns = [
        Column("Data"),
        Column("Best"),
        *numeric("MRR"),
        Column("Second"),
        *numeric("MRR", "p"),
    ]
    note = "As in the tables of the section Retrieval, where intervals and tests are explained."
    return Section("summary", "In short", [Table(columns, rows, caption=note)])


def build_peers(results: Results, suite: str) -> list[Block]:
    """Other packages on the same records: one table a data set, best first."""
    return [
        _peer_table(results, suite, place, runs)
        for place, runs in results.by_place(suite, kind=None).items()
    ]


def _peer_table(results: Results, suite: str, place: Place, runs: Summaries) -> Table:
    metrics = ("mrr", "f1", "recall@5")
    best, adjusted = against_best(runs, "mrr")
    rows = []
    for name, (run,) in runs.items():
        header = run.header
        micros = header.rank_microseconds_median
        package = str(header.details.get("package", f"dtdr=={header.versions['dtdr']}"))
        rows.append(
            [
                Cell(name),
                *(interval(mean_of([run], metric)) for metric in metrics),
                Cell("best" if name == best else p_value(adjusted.get(name))),
                significant(None if micros is None else micros / 1e3, measured=True),
                Cell(package.split()[0].partition("==")[2], package),
                Cell(str(header.details.get("how", "query and history"))),
            ]
        )
    for failed, reason in results.failures(suite):
        if failed.place == place and reason != NOT_RUN:
            rows.append([Cell(failed.method), *[EMPTY] * 6, Cell(reason)])
    columns = [
        Column("Method"),
        *numeric(*map(metric_title, metrics), best=True),
        *numeric("p against best", "Step ms"),
        Column("Version"),
        Column("How it was used"),
    ]
    caption = (
        "One split, ± half of the 95 % bootstrap interval over its plans. p: paired "
        "permutation test of the MRR over plans, adjusted by Holm's method."
    )
    return Table(columns, rows, results.place_title(place), caption)


def build_plan_length(results: Results, suite: str) -> list[Block]:
    """Top-1 accuracy by plan length (paper, Table 4)."""
    figures: list[Figure] = []
    tables: list[Block] = []
    for place, runs in results.by_place(suite).items():
        splits = next(iter(runs.values()))
        sizes = _steps_by_length(splits)
        lengths = [n for n, steps in sizes.items() if steps >= FEWEST_STEPS * len(splits)]
        title = results.place_title(place)
        if not lengths:
            note = f"{title}: no length has {FEWEST_STEPS} steps a split or more."
            tables.append(Text(note))
            continue
        means = {
            name: {
                n: over_splits(values)
                for n in lengths
                if (values := [s.top1_by_length[n].value for s in one if n in s.top1_by_length])
            }
            for name, one in runs.items()
        }
        rows = [
            [Cell(name), *(interval(row.get(n)) for n in lengths)] for name, row in means.items()
        ]
        if place == ("tinyagent", "paper"):
            rows += _published_lengths(lengths)
        rows.append([Cell("steps"), *(number(sizes[n]) for n in lengths)])
        caption = (
            "Columns: calls of the whole plan, the end of the plan not counted. Means over splits "
            "± half of Student's 95 % interval (from three splits on); lengths with fewer than "
            f"{FEWEST_STEPS} steps a split are left out. Steps: over all splits."
        )
        columns = [Column("Method"), *numeric(*map(str, lengths))]
        tables.append(Table(columns, rows, f"Top-1 accuracy by plan length, {title}", caption))
        series = [
            Series(name, [Point(n, m.value, m.low, m.high) for n, m in row.items()])
            for name, row in means.items()
        ]
        chart = line_chart(
            series,
            Axis("calls of the plan", lambda value: f"{value:.0f}", ticks=lengths[:16]),
            Axis("top-1 accuracy", lambda value: f"{value:.1f}", low=0.0, high=1.0),
            label=f"Top-1 accuracy by plan length on {title}",
        )
        figures.append(Figure(title, chart, SPLITS_ONLY, list(runs)))
    return [Figures(figures), *tables] if figures else tables


def _steps_by_length(splits: Sequence[RunSummary]) -> dict[int, int]:
    lengths = sorted({length for one in splits for length in one.top1_by_length})
    return {
        n: sum(one.top1_by_length[n].steps for one in splits if n in one.top1_by_length)
        for n in lengths
    }


def _published_lengths(lengths: Sequence[int]) -> list[list[Cell]]:
    published = paper()["plan_length"]
    return [
        [
            Cell(f"{name}, paper", published["source"], aside=True),
            *(
                Cell(share(figures[str(n)] / 100), aside=True) if str(n) in figures else EMPTY
                for n in lengths
            ),
        ]
        for name, figures in published.items()
        if name not in ("source", "samples")
    ]


def _find_published(place: Place, runs: Summaries) -> Mapping[str, Mapping[str, float]]:
    """The paper's row for each method on a data set; empty where it has none.

    Of several methods of one retriever it stands beside the one with the paper's recipe.
    """
    figures: Mapping[str, Any] = paper()["retrieval"].get(place[0], {})
    rows: dict[str, tuple[bool, str]] = {}
    for method, splits in runs.items():
        header = splits[0].header
        if place[1] == "paper" and header.retriever in figures:
            follows = header.parameters.get("recipe") == "paper"
            known = rows.get(header.retriever)
            if known is None or (follows, -len(method)) > (known[0], -len(known[1])):
                rows[header.retriever] = (follows, method)
    return {method: figures[retriever] for retriever, (_, method) in rows.items()}


def _median(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None
