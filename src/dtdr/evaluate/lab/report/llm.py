"""Sections about LLMs: ICL methods, weights, prompt length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dtdr.evaluate.lab.experiments import Experiment
from dtdr.evaluate.lab.report.page import Block, method_table
from dtdr.evaluate.lab.report.results import (
    WILSON,
    Results,
    group_experiments,
    of_last,
    paper,
    records_of,
    share_of,
)
from dtdr.evaluate.tables import EMPTY, Cell, Column, Table, number, numeric, percent

UNSURE = (0.3, 0.4, 0.5)
"""No acceptable tool is above such a probability (paper, App. "Weighted vs")."""


def build_icl(results: Results, suite: str) -> list[Block]:
    """Function selection accuracy by ICL method and model (paper, Figure 3)."""
    blocks: list[Block] = []
    for dataset_split, experiments in group_experiments(
        results.experiments(suite, "selections"), lambda experiment: experiment.dataset_split
    ).items():
        rows = group_experiments(experiments, lambda experiment: str(experiment.spec["icl"]))

        def accuracy(row: Sequence[Experiment], model: str) -> Cell:
            asked = of_last([experiment for experiment in row if experiment.spec["llm"] == model])
            return percent(share_of(records_of(results, asked), "exact")) if asked else EMPTY

        columns = {
            model: partial(accuracy, model=model)
            for model in dict.fromkeys(str(experiment.spec["llm"]) for experiment in experiments)
        }
        title = f"Function selection accuracy in %, {results.split_title(dataset_split, suite)}"
        blocks.append(method_table(rows, columns, title, WILSON, head="ICL"))
    return blocks


def build_weights(results: Results, suite: str) -> list[Block]:
    """Weighted against unweighted masks where the ranker is unsure (paper, App. on weights)."""
    published = paper()["weights"]
    caption = (
        f"{WILSON} Columns: steps at which no acceptable tool that the prompt names "
        "had a probability above the value."
    )
    if results.is_comparable(suite):
        caption += (
            f" Paper ({published['source']}): on TinyAgent the unweighted hard mask reaches about "
            f"{published['hard']} % at most below 0.5, up to 10 points above the weighted one."
        )

    def accuracy(threshold: float) -> Callable[[Sequence[Mapping[str, Any]]], Cell]:
        return lambda records: percent(
            share_of(
                (record for record in records if record["best_acceptable"] <= threshold), "exact"
            )
        )

    columns = {
        "all steps" if threshold == 1 else f"none above {threshold:g}": accuracy(threshold)
        for threshold in (1.0, *UNSURE)
    }
    blocks: list[Block] = []
    for dataset_split, experiments in group_experiments(
        results.experiments(suite, "selections"), lambda experiment: experiment.dataset_split
    ).items():
        groups = group_experiments(
            experiments, lambda item: f"{item.spec['llm']}, {item.method}, {item.spec['icl']}"
        )
        records = {name: records_of(results, of_last(items)) for name, items in groups.items()}
        title = f"FSA in %, {results.split_title(dataset_split, suite)}"
        blocks.append(method_table(records, columns, title, caption, head="Model, method, ICL"))
    return blocks


def build_prompts(results: Results, suite: str) -> list[Block]:
    """Prompt length by ICL method and ranker (paper, Figure 5)."""
    published = paper()["prompts"]
    columns = [
        *map(Column, ("Method", "ICL")),
        *numeric("Constant", "Variable", "Total"),
        *numeric("Total less than raw", "Variable less than raw", "Tools retrieved"),
    ]
    blocks: list[Block] = []
    for dataset_split, experiments in group_experiments(
        results.experiments(suite, "prompts"), lambda experiment: experiment.dataset_split
    ).items():
        values = {
            (str(experiment.spec["retriever"]), str(experiment.spec["icl"])): results.value(
                experiment
            )
            for experiment in experiments
        }
        lengths = {names: value["means"] for names, value in values.items()}
        rows = []
        for (ranker, icl), mean in lengths.items():
            raw = lengths.get((ranker, "raw"), {})
            tokens = [number(mean[key]) for key in ("constant", "variable", "total")]
            less = [_reduction(mean[key], raw.get(key)) for key in ("total", "variable")]
            rows.append([ranker, icl, *tokens, *less, number(mean["shown"], 1)])
        counted = results.value(experiments[-1])["counted"]
        caption = f"Means over held-out steps, seed 0. Tokens: {counted}."
        if results.is_comparable(suite):
            caption += (
                f" Paper ({published['source']}): DTDR-C and DTDR-L need up to "
                f"{published['total_reduction']} % less in all and up to "
                f"{published['variable_reduction']} % less of the variable part than raw "
                "demonstrations."
            )
        title = f"Prompt tokens, {results.split_title(dataset_split, suite)}"
        blocks.append(Table(columns, rows, title, caption))
    return blocks


def _reduction(value: float, base: float | None) -> Cell:
    return Cell(f"{100 * (1 - value / base):.0f} %") if base else EMPTY
