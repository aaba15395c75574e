"""Sections about LLMs: selection and plans, ICL methods, weights, prompt length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtdr.evaluate.lab.oracle import NAME as ORACLE
from dtdr.evaluate.lab.report.page import Block, method_table
from dtdr.evaluate.lab.report.results import WILSON, Results, group_runs, paper, paper_row, share_of
from dtdr.evaluate.lab.runs import Experiment
from dtdr.evaluate.statistics import Proportion
from dtdr.evaluate.tables import EMPTY, Cell, Column, Table, number, numeric, percent

UNSURE = (0.3, 0.4, 0.5)
"""No acceptable tool is above such a probability (paper, App. "Weighted vs")."""

READINGS = ("strict", "names")


def _accuracy(results: Results, run: Experiment) -> Proportion:
    return share_of(results.value(run)["records"], "right")


def build_downstream(results: Results, suite: str) -> list[Block]:
    """FSA and SR by model and method (paper, Tables 3 and 8)."""
    blocks: list[Block] = []
    for place, runs in group_runs(results.runs(suite), lambda run: run.place).items():
        loops = list(dict.fromkeys(_loop(run) for run in runs if run.kind == "plans"))
        has_alpha = any("alpha" in results.value(run) for run in runs)
        titles = ["FSA %"]
        for loop in loops:
            after = "" if len(loops) == 1 else f", {loop} history"
            titles += [f"SR %, {reading}{after}" for reading in READINGS]
        titles += ["α"] if has_alpha else []
        groups = group_runs(runs, lambda run: (str(run.spec["llm"]), _shown_method(run)))
        rows: list[list[Any]] = [
            [*name, *_downstream_cells(results, groups[name], loops, has_alpha)]
            for name in sorted(groups, key=lambda name: (name[0], paper_row(name[1])))
        ]
        if place[1] == "paper" and results.is_comparable(suite):
            rows += _published_downstream(place[0], len(titles) + 2)
        caption = (
            f"{WILSON} FSA: the selected function is acceptable by the gold plan's DAG. "
            "SR: the whole plan is isomorphic to the gold plan, with all arguments equal "
            "(strict, the paper's), or functions and dependencies only (names). Each cell is one "
            "greedy run over the same steps or plans of one split."
        )
        if len(loops) > 1:
            caption += (
                " Own history: each step goes on after the calls made so far (paper, Section 4); "
                "gold history: after those of the gold plan (paper, Algorithm 1)."
            )
        if any(run.spec["retriever"] == ORACLE for run in runs):
            caption += (
                " Perfect ranking: only the acceptable tools of the gold plan are retrieved; gold "
                "tools: these are called without asking, and the LLM fills the parameters. With "
                "gold arguments, strict would be what names is."
            )
        if has_alpha:
            caption += " α: chosen on held-out training plans; dtdr-c needs none."
        columns = [Column("Model"), Column("Method"), *numeric(*titles)]
        blocks.append(Table(columns, rows, results.place_title(place, suite), caption))
    return blocks


def _loop(run: Experiment) -> str:
    return str(run.spec.get("loop", "own"))


def _shown_method(run: Experiment) -> str:
    """The ranker, or how the prompt is written without one."""
    icl = str(run.spec.get("icl"))
    if run.spec["retriever"] == ORACLE:
        return "gold tools" if run.spec.get("select") == "retriever" else "perfect ranking"
    return icl if icl in ("none", "raw") else str(run.spec["retriever"])


def _downstream_cells(
    results: Results, runs: Sequence[Experiment], loops: Sequence[str], has_alpha: bool
) -> list[Cell]:
    selections = [run for run in runs if run.kind == "selections"]
    cells = [percent(_accuracy(results, selections[-1])) if selections else EMPTY]
    for loop in loops:
        plans = [run for run in runs if run.kind == "plans" and _loop(run) == loop]
        records = results.value(plans[-1])["records"] if plans else []
        cells += [percent(share_of(records, reading)) for reading in READINGS]
    if has_alpha:
        chosen = [results.value(run)["alpha"] for run in runs if "alpha" in results.value(run)]
        cells.append(Cell(", ".join(f"{alpha:g}" for alpha in dict.fromkeys(chosen)) or "-"))
    return cells


def _published_downstream(dataset: str, width: int) -> list[list[Cell]]:
    tables = paper()
    rows: list[list[str]] = []
    for model, methods in tables["downstream"].get(dataset, {}).items():
        for method, (fsa, success) in methods.items():
            rows.append([f"{model}, paper", method, f"{fsa:.1f}", f"{success:.1f}"])
    for model, methods in tables["downstream_fsa"].get(dataset, {}).items():
        rows += [[f"{model}, paper", method, f"{fsa:.1f}"] for method, fsa in methods.items()]
    return [
        [Cell(text, aside=True) for text in (*row, *["-"] * (width - len(row)))] for row in rows
    ]


def build_icl(results: Results, suite: str) -> list[Block]:
    """Function selection accuracy by ICL method and model (paper, Figure 3)."""
    blocks: list[Block] = []
    for place, runs in group_runs(results.runs(suite, "selections"), lambda run: run.place).items():
        rows: dict[str, dict[str, Proportion]] = {}
        for run in runs:
            by_model = rows.setdefault(str(run.spec["icl"]), {})
            by_model[str(run.spec["llm"])] = _accuracy(results, run)
        columns = {
            model: lambda row, model=model: percent(row.get(model))
            for model in dict.fromkeys(model for row in rows.values() for model in row)
        }
        title = f"Function selection accuracy in %, {results.place_title(place, suite)}"
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
            share_of((one for one in records if one["best_acceptable"] <= threshold), "right")
        )

    columns = {
        "all steps" if threshold == 1 else f"none above {threshold:g}": accuracy(threshold)
        for threshold in (1.0, *UNSURE)
    }
    blocks: list[Block] = []
    for place, runs in group_runs(results.runs(suite, "selections"), lambda run: run.place).items():
        records = {
            f"{run.spec['llm']}, {run.method}, {run.spec['icl']}": results.value(run)["records"]
            for run in runs
        }
        title = f"FSA in %, {results.place_title(place, suite)}"
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
    for place, runs in group_runs(results.runs(suite, "prompts"), lambda run: run.place).items():
        values = {
            (str(run.spec["retriever"]), str(run.spec["icl"])): results.value(run) for run in runs
        }
        lengths = {names: value["means"] for names, value in values.items()}
        rows = []
        for (retriever, icl), mean in lengths.items():
            raw = lengths.get((retriever, "raw"), {})
            tokens = [number(mean[key]) for key in ("constant", "variable", "total")]
            less = [_reduction(mean[key], raw.get(key)) for key in ("total", "variable")]
            rows.append([retriever, icl, *tokens, *less, number(mean["shown"], 1)])
        caption = (
            f"Means over held-out steps, seed 0. Tokens: {results.value(runs[-1])['counted']}."
        )
        if results.is_comparable(suite):
            caption += (
                f" Paper ({published['source']}): DTDR-C and DTDR-L need up to "
                f"{published['total_reduction']} % less in all and up to "
                f"{published['variable_reduction']} % less of the variable part than raw "
                "demonstrations."
            )
        title = f"Prompt tokens, {results.place_title(place, suite)}"
        blocks.append(Table(columns, rows, title, caption))
    return blocks


def _reduction(value: float, base: float | None) -> Cell:
    return Cell(f"{100 * (1 - value / base):.0f} %") if base else EMPTY
