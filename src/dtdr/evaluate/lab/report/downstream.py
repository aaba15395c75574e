"""The table of selections and plans of LLMs by method, with costs and p-values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from dtdr.evaluate.lab.experiments import Experiment
from dtdr.evaluate.lab.oracle import NAME as ORACLE
from dtdr.evaluate.lab.report.llm_methods import (
    PROMPT_KEYS,
    is_without_ranker,
    loop_of,
    method_names,
)
from dtdr.evaluate.lab.report.page import Block
from dtdr.evaluate.lab.report.results import (
    WILSON,
    Results,
    group_experiments,
    of_last,
    paper,
    paper_row,
    records_of,
    share_of,
)
from dtdr.evaluate.statistics import Proportion, holm, paired_p_value
from dtdr.evaluate.tables import EMPTY, Cell, Column, Table, number, numeric, p_value, percent

READINGS = ("strict", "names")


def build_downstream(results: Results, suite: str) -> list[Block]:
    """FSA and SR by model and method (paper, Tables 3 and 8)."""
    blocks: list[Block] = []
    asking = [
        experiment
        for experiment in results.experiments(suite)
        if experiment.kind in ("selections", "plans")
    ]
    for dataset_split, experiments in group_experiments(
        asking, lambda experiment: experiment.dataset_split
    ).items():
        measures = _measures(results, experiments)
        names = method_names(experiments)
        groups: dict[tuple[str, str], list[Experiment]] = {}
        for experiment in experiments:
            groups.setdefault((str(experiment.spec["llm"]), names[experiment]), []).append(
                experiment
            )
        ordered = sorted(groups, key=lambda name: (name[0], paper_row(name[1]), name[1]))
        p_values = _p_values(results, groups, measures)
        has_alpha = any("alpha" in results.value(experiment) for experiment in experiments)
        has_steps = any(experiment.kind == "selections" for experiment in experiments)
        rows: list[list[Any]] = []
        for name in ordered:
            row: list[Any] = [*name]
            for title, measure in measures.items():
                measured = measure.find(groups[name])
                row.append(percent(measure.share(results, measured)) if measured else EMPTY)
                if title in p_values:
                    row.append(Cell(p_values[title].get(name, "-")))
            row += _costs(results, groups[name]) if has_steps else []
            rows.append(row + ([_alpha(results, groups[name])] if has_alpha else []))
        titles: list[str] = []
        for title in measures:
            titles += [title, "p"] if title in p_values else [title]
        titles += COSTS if has_steps else ()
        titles += ["α"] if has_alpha else []
        if dataset_split[1] == "paper" and results.is_comparable(suite):
            rows += _published_downstream(dataset_split[0], ["Model", "Method", *titles])
        columns = [Column("Model"), Column("Method"), *numeric(*titles)]
        caption = _downstream_caption(experiments, has_p=bool(p_values), has_alpha=has_alpha)
        blocks.append(Table(columns, rows, results.split_title(dataset_split, suite), caption))
    return blocks


COSTS = ("Ranker alone %", "Tokens", "Step s")


def _costs(results: Results, experiments: Sequence[Experiment]) -> list[Cell]:
    """The columns ``COSTS`` of a method; empty where it selects at no single steps."""
    of_steps = of_last([item for item in experiments if item.kind == "selections"])
    if not of_steps:
        return [EMPTY] * len(COSTS)
    records = records_of(results, of_steps)
    alone = EMPTY if is_without_ranker(of_steps[0]) else percent(share_of(records, "ranker"))
    costs = _step_costs(records)
    return [alone, number(costs.get("tokens")), number(costs["seconds"], 2)]


def _step_costs(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean prompt tokens, where they are known, and the median of the seconds of a step."""
    tokens = [record["tokens"] for record in records if record["tokens"] is not None]
    seconds = median(record["seconds"] for record in records)
    return {"seconds": seconds} | ({"tokens": fmean(tokens)} if tokens else {})


READING_KEYS = {"exact": "exact", "lenient": "right"}
"""Where a record of a selection has each reading of the answer."""


@dataclass(frozen=True)
class _Measure:
    """One column of the downstream table: which experiments it is of, and which records count."""

    kind: str
    key: str
    loop: str = "own"

    def find(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """The experiments of a method that the column is about, one for each split."""
        return of_last(
            [
                experiment
                for experiment in experiments
                if experiment.kind == self.kind and loop_of(experiment) == self.loop
            ]
        )

    def share(self, results: Results, experiments: Sequence[Experiment]) -> Proportion:
        return share_of(records_of(results, experiments), self.key)

    def by_plan(self, results: Results, experiments: Sequence[Experiment]) -> dict[str, float]:
        """Each plan's mean over its records, of every split that held it out."""
        values: dict[str, list[float]] = defaultdict(list)
        for record in records_of(results, experiments):
            values[record["plan"]].append(float(record[self.key]))
        return {plan: fmean(items) for plan, items in values.items()}


def _measures(results: Results, experiments: Sequence[Experiment]) -> dict[str, _Measure]:
    """The columns by title; those that no experiment has are left out."""
    measures: dict[str, _Measure] = {}
    if any(experiment.kind == "selections" for experiment in experiments):
        measures["FSA %"] = _Measure("selections", READING_KEYS["exact"])
        measures["FSA %, lenient"] = _Measure("selections", READING_KEYS["lenient"])
    plans = [experiment for experiment in experiments if experiment.kind == "plans"]
    loops = list(dict.fromkeys(map(loop_of, plans)))
    for loop in loops:
        after = "" if len(loops) == 1 else f", {loop} history"
        for reading in READINGS:
            measures[f"SR %, {reading}{after}"] = _Measure("plans", reading, loop)
    return measures


def _p_values(
    results: Results, groups: Mapping[Any, Sequence[Experiment]], measures: Mapping[str, _Measure]
) -> dict[str, dict[Any, str]]:
    """By FSA and strict SR, each method's p-value against the best one of the same model.

    Only where the experiments are enough to judge.
    """
    if not results.may_judge:
        return {}
    tested = [title for title, measure in measures.items() if measure.key in ("exact", "strict")]
    shown: dict[str, dict[Any, str]] = {}
    for title in tested:
        measure = measures[title]
        for model in dict.fromkeys(name[0] for name in groups):
            means = {
                name: measure.by_plan(results, measured)
                for name, experiments in groups.items()
                if name[0] == model and (measured := measure.find(experiments))
            }
            if len(means) < 2:
                continue
            best = max(means, key=lambda name: fmean(means[name].values()))
            against = {
                name: paired_p_value(values, means[best])
                for name, values in means.items()
                if name != best
            }
            adjusted = holm({name: p for name, p in against.items() if p is not None})
            cells = shown.setdefault(title, {best: "best"})
            cells[best] = "best"
            cells |= {name: p_value(adjusted.get(name)) for name in against}
    return shown


def _downstream_caption(experiments: Sequence[Experiment], *, has_p: bool, has_alpha: bool) -> str:
    caption = (
        f"{WILSON} FSA: the selected function is acceptable by the gold plan's DAG; the answer is "
        "the function's name and nothing else (lenient: or one listed name inside other text). "
        "SR: the whole plan is isomorphic to the gold plan, with all arguments equal "
        "(strict, the paper's), or functions and dependencies only (names). Every method has the "
        "same steps and plans, those of all splits together."
    )
    if any(experiment.kind == "selections" for experiment in experiments):
        caption += (
            "\nRanker alone: the best tool of the ranking is acceptable. Tokens: mean of the "
            "prompts, with those in a cache. Step s: median."
        )
    if has_p:
        caption += (
            "\np: two-sided paired permutation test over plans (10,000 sign flips) against the "
            "best method of the same model, adjusted by Holm's method."
        )
    if len({loop_of(experiment) for experiment in experiments if experiment.kind == "plans"}) > 1:
        caption += (
            "\nOwn history: each step goes on after the calls made so far (paper, Section 4); "
            "gold history: after those of the gold plan (paper, Algorithm 1)."
        )
    if any(experiment.spec["retriever"] == ORACLE for experiment in experiments):
        caption += (
            "\nPerfect ranking: only the acceptable tools of the gold plan are retrieved; gold "
            "tools: these are called without asking, and the LLM fills the parameters. With "
            "gold arguments, strict would be what names is."
        )
    if has_alpha:
        caption += "\nα: chosen on held-out training plans; dtdr-c needs none."
    return caption


def _alpha(results: Results, experiments: Sequence[Experiment]) -> Cell:
    values = [
        results.value(experiment)["alpha"]
        for experiment in experiments
        if "alpha" in results.value(experiment)
    ]
    return Cell(", ".join(f"{alpha:g}" for alpha in dict.fromkeys(values)) or "-")


def _published_downstream(dataset: str, titles: Sequence[str]) -> list[list[Cell]]:
    """The paper's rows, by the titles of the columns."""
    strict = next((title for title in titles if title.startswith("SR %, strict")), "")
    rows: list[dict[str, str]] = []
    tables = paper()
    for model, methods in tables["downstream"].get(dataset, {}).items():
        for method, (fsa, success) in methods.items():
            row = {"Model": f"{model}, paper", "Method": method}
            rows.append(row | {"FSA %": f"{fsa:.1f}", strict: f"{success:.1f}"})
    for model, methods in tables["downstream_fsa"].get(dataset, {}).items():
        for method, fsa in methods.items():
            rows.append({"Model": f"{model}, paper", "Method": method, "FSA %": f"{fsa:.1f}"})
    return [[Cell(row.get(title, "-"), aside=True) for title in titles] for row in rows]


def llm_means(results: Results, suite: str) -> list[dict[str, Any]]:
    """Results, or prompts, of each experiment that asks an LLM, for ``--json``."""
    rows: list[dict[str, Any]] = []
    for experiment in results.experiments(suite):
        if experiment.kind not in ("prompts", "selections", "plans"):
            continue
        value = results.value(experiment)
        row: dict[str, Any] = {
            "suite": suite,
            "kind": experiment.kind,
            "dataset": experiment.dataset_split[0],
            "split": experiment.dataset_split[1],
            "method": experiment.method,
            **{
                key: experiment.spec[key]
                for key in ("llm", "seed", "loop", *PROMPT_KEYS)
                if key in experiment.spec
            },
        }
        if experiment.kind == "prompts":
            row |= value["means"]
        else:
            keys = (
                READING_KEYS if experiment.kind == "selections" else {key: key for key in READINGS}
            )
            shares = {name: share_of(value["records"], key) for name, key in keys.items()}
            row["count"] = len(value["records"])
            row |= _step_costs(value["records"]) if experiment.kind == "selections" else {}
            row |= {name: round(item.value, 6) for name, item in shares.items() if item.count}
        rows.append(row)
    return rows
