"""Sections about rankings: retrieval, plan length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dtdr.evaluate.lab.experiments import DatasetSplit
from dtdr.evaluate.lab.report.page import Block, Text, method_table
from dtdr.evaluate.lab.report.results import (
    Results,
    group_experiments,
    of_last,
    paper,
    paper_row,
    records_of,
    share_of,
)
from dtdr.evaluate.lab.report.variations import build_ablations
from dtdr.evaluate.lab.suite import PAPER_ORDER
from dtdr.evaluate.lab.summary import ExperimentSummary, Summaries, against_best, mean_of
from dtdr.evaluate.metrics import DEFAULT
from dtdr.evaluate.result_tables import metric_title
from dtdr.evaluate.statistics import FEWEST_SPLITS, Proportion, over_splits
from dtdr.evaluate.tables import (
    EMPTY,
    Cell,
    Table,
    interval,
    number,
    p_value,
    percent,
    share,
    significant,
)

FSA_NOTE = (
    "FSA: function selection accuracy of the model with the retrieved tools alone in its prompt, "
    "by exact answers, with Wilson's 95 % interval over steps; the paper's is of Qwen3 0.6B. "
    "Retrieved: what followed the history for dtdr-c, else what is above α, which is 0.2, 0.23 or "
    "0.5, as held-out training plans chose it."
)

RIGHT_NOTE = (
    "Right is a tool whose inputs are there and that the plan still calls; for Log top-1 and Log "
    "MRR, only the one that the plan calls next."
)

P_NOTE = (
    "p: two-sided paired permutation test of the MRR over plans (10,000 sign flips; a plan's value "
    "is its mean over its steps and over the splits that held it out) against the best method, "
    "adjusted by Holm's method for the rows of this table."
)

TIMES_NOTE = "Fit s and Step µs: medians over the splits. Others may have run at the same time."

SIZES_NOTE = (
    "Parameters: as the paper counts them, e·|F| weights of a linear layer and e·K coordinates of "
    "centres. Stored: every number that the ranker keeps of what it learned."
)

PUBLISHED_NOTE = "The paper's figures are in italics; the text above names the differences."

FEWEST_STEPS = 40
"""With fewer steps per split, the mean of a plan length is too uncertain."""


def build_retrieval(results: Results, suite: str) -> list[Block]:
    """One table a data set and split; then what a user's suite varies."""
    accuracies = _selection_accuracies(results, suite)
    blocks: list[Block] = []
    said: set[str] = set()
    for dataset_split, summaries in results.by_dataset_split(suite).items():
        table = _retrieval_table(
            results, suite, dataset_split, summaries, accuracies.get(dataset_split, {})
        )
        # Notes that tables have in common are below the first.
        notes = [note for note in table.caption.splitlines() if note not in said]
        said.update(notes)
        blocks.append(replace(table, caption="\n".join(notes)))
    return [*blocks, *build_ablations(results, suite)]


def _selection_accuracies(
    results: Results, suite: str
) -> dict[DatasetSplit, dict[str, dict[str, Proportion]]]:
    """How often an LLM selected exactly a right function, by data set and split, LLM and method."""
    accuracies: dict[DatasetSplit, dict[str, dict[str, Proportion]]] = {}
    for (dataset_split, model, method), experiments in group_experiments(
        results.experiments(suite, "selections"),
        lambda experiment: (experiment.dataset_split, experiment.spec["llm"], experiment.method),
    ).items():
        models = accuracies.setdefault(dataset_split, {})
        records = records_of(results, of_last(experiments))
        models.setdefault(model, {})[method] = share_of(records, "exact")
    return accuracies


def _retrieval_table(
    results: Results,
    suite: str,
    dataset_split: DatasetSplit,
    summaries: Summaries,
    accuracies: Mapping[str, Mapping[str, Proportion]],
) -> Table:
    published = _find_published(dataset_split, summaries) if results.is_comparable(suite) else {}
    source = str(paper()["retrieval"].get(dataset_split[0], {}).get("source", ""))
    best, adjusted = against_best(summaries, "mrr") if results.may_judge else ("", {})

    def mean(metric: str, name: str) -> Cell:
        # The other metrics' intervals are in the hover text: the table must fit a page.
        return interval(mean_of(summaries[name], metric), short=metric != "mrr")

    def printed(metric: str, digits: int, name: str) -> Cell:
        figure = published.get(name, {}).get(metric)
        return EMPTY if figure is None else Cell(f"{figure:.{digits}f}", source, aside=True)

    def kept(key: str, name: str) -> Cell:
        return number(summaries[name][0].header.details.get(key))

    def median(attribute: str, name: str) -> Cell:
        values = sorted(getattr(split.header, attribute) for split in summaries[name])
        return significant(values[len(values) // 2])

    columns: dict[str, Callable[[str], Cell]] = {
        metric_title(metric): partial(mean, metric) for metric in DEFAULT
    }
    if published:
        columns["MRR, paper"], columns["F1, paper"] = (
            partial(printed, metric, 2) for metric in ("mrr", "f1")
        )
    for model, by_method in accuracies.items():
        columns[f"FSA %, {model}"] = lambda name, by_method=by_method: percent(by_method.get(name))  # type: ignore[misc]
    if suite in PAPER_ORDER:
        for key in ("parameters", "stored"):
            columns[key.title()] = partial(kept, key)
    if accuracies and published:
        columns["FSA %, paper"] = partial(printed, "fsa", 1)
    if best:
        columns["p against best"] = lambda name: Cell(
            "best" if name == best else p_value(adjusted.get(name))
        )
    columns["Fit s"] = partial(median, "fit_seconds")
    columns["Step µs"] = partial(median, "rank_microseconds_median")
    notes = [_split_note(next(iter(summaries.values()))), RIGHT_NOTE]
    notes += [P_NOTE] if best else []
    notes.append(TIMES_NOTE)
    notes += [FSA_NOTE] if accuracies else []
    notes += [SIZES_NOTE] if suite in PAPER_ORDER else []
    notes += [PUBLISHED_NOTE] if published else []
    rows = {name: name for name in summaries}
    title = results.split_title(dataset_split, suite)
    return method_table(rows, columns, title, "\n".join(notes), best=bool(best))


def _split_note(splits: Sequence[ExperimentSummary]) -> str:
    sizes = splits[0].header.split
    sides = f"{sizes['train']:,} plans to learn from and {sizes['test']:,} held out"
    steps = sum(split.steps for split in splits)
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


def _find_published(
    dataset_split: DatasetSplit, summaries: Summaries
) -> Mapping[str, Mapping[str, float]]:
    """The paper's row for each method on a data set; empty where it has none.

    Of several methods of one ranker it goes with the one with the paper's recipe.
    """
    figures: Mapping[str, Any] = paper()["retrieval"].get(dataset_split[0], {})
    rows: dict[str, tuple[tuple[bool, int], str]] = {}
    for method, splits in summaries.items():
        header = splits[0].header
        if dataset_split[1] == "paper" and header.ranker in figures:
            fit = (header.parameters.get("recipe") == "paper", -len(method))
            rows[header.ranker] = max(rows.get(header.ranker, (fit, method)), (fit, method))
    return {method: figures[ranker] for ranker, (_, method) in rows.items()}


def build_plan_length(results: Results, suite: str) -> list[Block]:
    """Top-1 accuracy by plan length (paper, Table 4)."""
    blocks: list[Block] = []
    for dataset_split, summaries in results.by_dataset_split(suite).items():
        title = results.split_title(dataset_split, suite)
        splits = next(iter(summaries.values()))
        sizes: Counter[int] = Counter()
        for split in splits:
            sizes.update({n: mean.steps for n, mean in split.top1_by_length.items()})
        lengths = sorted(n for n, steps in sizes.items() if steps >= FEWEST_STEPS * len(splits))
        if not lengths:
            blocks.append(Text(f"{title}: no length has {FEWEST_STEPS} steps a split or more."))
            continue
        caption = (
            "Columns: calls of the whole plan, the end of the plan not counted; lengths with fewer "
            f"than {FEWEST_STEPS} steps a split are left out."
        )
        if len(splits) >= FEWEST_SPLITS:
            caption += (
                " Means over the splits ± half of Student's 95 % interval. Steps: of all splits."
            )
        rows = {name: {n: _top1(splits, n) for n in lengths} for name, splits in summaries.items()}
        if dataset_split == ("tinyagent", "paper") and results.is_comparable(suite):
            rows |= _published_lengths(lengths)
            caption += " The paper counts join, which ends its plans: its row is one call shifted."
        rows["steps"] = {n: number(sizes[n]) for n in lengths}
        columns = {str(n): lambda row, n=n: row[n] for n in lengths}
        title = f"Top-1 accuracy by plan length, {title}"
        blocks.append(method_table(rows, columns, title, caption))
    return blocks


def _top1(splits: Sequence[ExperimentSummary], length: int) -> Cell:
    known = [
        split.top1_by_length[length].value for split in splits if length in split.top1_by_length
    ]
    return interval(over_splits(known)) if known else EMPTY


def _published_lengths(lengths: Sequence[int]) -> dict[str, dict[int, Cell]]:
    published = paper()["plan_length"]
    names = sorted(published.keys() - {"source", "samples"}, key=paper_row)
    return {
        f"{name}, paper": {
            n: Cell(share(published[name][str(n + 1)] / 100), published["source"], aside=True)
            if str(n + 1) in published[name]  # the paper counts ``join``
            else EMPTY
            for n in lengths
        }
        for name in names
    }
