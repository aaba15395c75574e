"""Sections about LLMs: selection and plans, ICL methods, weights, prompt length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdr.evaluation.charts import Axis, Dot, dot_chart, stacked_bars
from dtdr.evaluation.statistics import Proportion, over_splits
from dtdr.evaluation.tables import EMPTY, Cell, Column, Table, interval, number, numeric, percent
from dtdr.lab.report.page import Block, Figure, Figures
from dtdr.lab.report.results import (
    WILSON,
    Results,
    Run,
    accuracy,
    by_method,
    by_place,
    paper,
    share_of,
)
from dtdr.lab.summary import UNSURE

ICL = ("none", "raw", "hard", "hard-weighted", "soft", "soft-weighted", "cached", "cached-weighted")

DRAWN = "dtdr-c"
"""The retriever whose prompts are drawn."""


def build_downstream(results: Results, suite: str) -> list[Block]:
    """FSA and SR by model and method (paper, Tables 3 and 8)."""
    blocks: list[Block] = []
    for place, runs in by_place(results.runs(suite)).items():
        loops = dict.fromkeys(_loop(run) for run in runs if run.kind == "plans")
        readings = ("strict", "similar", "names")
        columns = [Column("Model"), Column("Method"), *numeric("FSA %")]
        for loop in loops:
            after = "" if len(loops) == 1 else f", {loop} history"
            columns += numeric(*(f"SR %, {reading}{after}" for reading in readings))
        has_alpha = any("alpha" in results.result(run) for run in runs)
        if has_alpha:
            columns += numeric("α")
        rows = _downstream_rows(results, runs, list(loops), has_alpha)
        if place[1] == "paper":
            rows += _published_downstream(place[0], len(columns))
        caption = (
            f"{WILSON} FSA: the selected function is acceptable by the gold plan's DAG. "
            "SR: the whole plan is isomorphic to the gold plan, with all arguments equal "
            "(strict, the paper's), free text compared loosely (similar), or functions and "
            "dependencies only (names). Each cell is one greedy run over the same steps or "
            "plans of one split."
        )
        if len(loops) > 1:
            caption += (
                " Own history: each step goes on after the calls made so far (paper, Section 4); "
                "gold history: after those of the gold plan (paper, Algorithm 1)."
            )
        if has_alpha:
            caption += " α: chosen on held-out training plans; dtdr-c needs none."
        blocks.append(Table(columns, rows, results.place_title(place), caption))
    return blocks


def _loop(run: Run) -> str:
    return str(run.spec.get("loop", "own"))


def _shown_method(run: Run) -> str:
    """The retriever, and how it was written into the prompt where that is not by masking."""
    icl = str(run.spec.get("icl"))
    # Without retrieval there is no method.
    return icl if icl in ("none", "raw") else str(run.spec["retriever"])


def _downstream_rows(
    results: Results, runs: Sequence[Run], loops: Sequence[str], has_alpha: bool
) -> list[list[Cell]]:
    groups: dict[tuple[str, str], dict[str, Run]] = {}
    for run in runs:
        key = run.kind if run.kind == "selections" else _loop(run)
        groups.setdefault((str(run.spec["llm"]), _shown_method(run)), {})[key] = run
    rows = []
    for (model, method), kinds in groups.items():
        steps = kinds.get("selections")
        row = [Cell(model), Cell(method)]
        row.append(EMPTY if steps is None else percent(accuracy(results, steps)))
        for plans in (kinds.get(loop) for loop in loops):
            for reading in ("strict", "similar", "names"):
                if plans is None:
                    row.append(EMPTY)
                else:
                    row.append(percent(share_of(results.result(plans)["records"], reading)))
        if has_alpha:
            chosen = [results.result(run)["alpha"] for run in kinds.values()
                      if "alpha" in results.result(run)]  # fmt: skip
            row.append(Cell(", ".join(f"{alpha:g}" for alpha in dict.fromkeys(chosen)) or "-"))
        rows.append(row)
    return rows


def _published_downstream(dataset: str, width: int) -> list[list[Cell]]:
    tables = paper()
    rows: list[list[str]] = []
    for model, methods in tables["downstream"].get(dataset, {}).items():
        for method, (fsa, success) in methods.items():
            rows.append([f"{model}, paper", method, f"{fsa:.1f}", f"{success:.1f}"])
    for model, methods in tables["downstream_fsa"].get(dataset, {}).items():
        for method, fsa in methods.items():
            rows.append([f"{model}, paper", method, f"{fsa:.1f}"])
    return [
        [Cell(text, aside=True) for text in (*row, *["-"] * (width - len(row)))] for row in rows
    ]


def build_icl(results: Results, suite: str) -> list[Block]:
    """Function selection accuracy by ICL method and model (paper, Figure 3)."""
    blocks: list[Block] = []
    for place, runs in by_place(results.runs(suite, "selections")).items():
        models = list(dict.fromkeys(str(run.spec["llm"]) for run in runs))
        methods = list(dict.fromkeys(str(run.spec["icl"]) for run in runs))
        shares = {
            (str(run.spec["icl"]), str(run.spec["llm"])): accuracy(results, run) for run in runs
        }
        title = results.place_title(place)
        rows = [[Cell(icl), *(percent(shares.get((icl, m))) for m in models)] for icl in methods]
        table = Table(
            [Column("ICL"), *numeric(*models)],
            rows,
            f"Function selection accuracy in %, {title}",
            WILSON,
        )
        dots = [
            (icl, [_dot(m, icl, shares[icl, m]) for m in models if (icl, m) in shares])
            for icl in methods
        ]
        ticks = (0, 20, 40, 60, 80, 100)
        chart = dot_chart(
            dots,
            Axis("FSA, %", lambda value: f"{value:.0f}", low=0.0, high=100.0, ticks=ticks),
            label=f"Function selection accuracy by ICL method on {title}",
        )
        blocks += [Figures([Figure(title, chart, WILSON, models)]), table]
    return blocks


def _dot(model: str, icl: str, value: Proportion) -> Dot:
    share, low, high = 100 * value.value, 100 * value.low, 100 * value.high
    hover = f"{model}, {icl}: {share:.1f} % ({low:.0f} to {high:.0f})"
    return Dot(model, share, low, high, hover=hover)


def build_weights(results: Results, suite: str) -> list[Block]:
    """Weighted against unweighted masks where the retriever is unsure (paper, App. on weights)."""
    columns = numeric(*(f"none above {threshold:g}" for threshold in UNSURE))
    published = paper()["weights"]
    caption = (
        f"{WILSON} Columns: steps at which no acceptable tool that the prompt names "
        "had a probability above the value. Paper "
        f"({published['source']}): on TinyAgent the unweighted hard mask reaches about "
        f"{published['hard']} % at most below .5, up to 10 points above the weighted one."
    )
    blocks: list[Block] = []
    for place, runs in by_place(results.runs(suite, "selections")).items():
        rows = []
        methods = by_method(runs)
        for run in runs:
            records = results.result(run)["records"]
            row = [Cell(str(run.spec["llm"])), Cell(str(run.spec["icl"]))]
            if len(methods) > 1:
                row.insert(1, Cell(run.method))
            for threshold in (1.0, *UNSURE):
                unsure = [one for one in records if one["best_acceptable"] <= threshold]
                row.append(percent(share_of(unsure, "right")))
            rows.append(row)
        head = [Column("Model"), Column("ICL"), *numeric("all steps"), *columns]
        if len(methods) > 1:
            head.insert(1, Column("Method"))
        blocks.append(Table(head, rows, f"FSA in %, {results.place_title(place)}", caption))
    for place, runs in by_place(results.runs(suite, "rank")).items():
        rows = []
        for name, same in by_method(runs).items():
            splits = [results.summary(run) for run in same]
            means = [over_splits([one.unsure[threshold] for one in splits]) for threshold in UNSURE]
            rows.append([Cell(name), *map(interval, means)])
        blocks.append(
            Table(
                [Column("Method"), *columns],
                rows,
                f"Steps at which the retriever is unsure, {results.place_title(place)}",
                "Share of all held-out steps at which no acceptable tool has a probability "
                "above the value. Means over splits ± half of Student's 95 % interval.",
            )
        )
    return blocks


def build_prompts(results: Results, suite: str) -> list[Block]:
    """Prompt length by ICL method and retriever (paper, Figure 5)."""
    figures, tables = [], []
    for place, runs in by_place(results.runs(suite, "prompts")).items():
        title = results.place_title(place)
        counted = str(results.result(runs[-1])["counted"])
        lengths = {
            (str(run.spec["retriever"]), str(run.spec["icl"])): _mean_lengths(
                results.result(run)["records"]
            )
            for run in runs
        }
        tables.append(_prompt_table(title, lengths, counted))
        retrievers = list(dict.fromkeys(name for name, _ in lengths))
        drawn = DRAWN if DRAWN in retrievers else retrievers[0]
        parts = ("constant", "variable")
        chart = stacked_bars(
            [
                (icl, [(part, lengths[drawn, icl][part]) for part in parts])
                for icl in ICL
                if (drawn, icl) in lengths
            ],
            Axis("tokens of a prompt, mean", lambda value: f"{value:,.0f}"),
            label=f"Prompt tokens by ICL method on {title}",
        )
        figures.append(Figure(f"{title}, {drawn}", chart, f"Tokens: {counted}.", parts))
    return [Figures(figures), *tables] if figures else []


def _mean_lengths(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean tokens of both parts of a prompt, and mean tools retrieved."""
    return {
        key: sum(record[key] for record in records) / len(records)
        for key in ("constant", "variable", "shown")
    }


def _prompt_table(
    title: str, lengths: Mapping[tuple[str, str], Mapping[str, float]], counted: str
) -> Table:
    rows = []
    for (retriever, icl), mean in lengths.items():
        total = mean["constant"] + mean["variable"]
        raw = lengths.get((retriever, "raw"))
        less = [EMPTY, EMPTY]
        if raw is not None:
            raw_total = raw["constant"] + raw["variable"]
            less = [_reduction(total, raw_total), _reduction(mean["variable"], raw["variable"])]
        rows.append(
            [
                Cell(retriever),
                Cell(icl),
                *(number(value) for value in (mean["constant"], mean["variable"], total)),
                *less,
                number(mean["shown"], 1),
            ]
        )
    published = paper()["prompts"]
    columns = [
        Column("Method"),
        Column("ICL"),
        *numeric("Constant", "Variable", "Total", "Total less than raw", "Variable less than raw"),
        *numeric("Tools retrieved"),
    ]
    caption = (
        f"Means over held-out steps, seed 0. Tokens: {counted}. Paper ({published['source']}): "
        f"DTDR-C and DTDR-L need up to {published['total_reduction']} % less in all and up to "
        f"{published['variable_reduction']} % less of the variable part than raw demonstrations."
    )
    return Table(columns, rows, f"Prompt tokens, {title}", caption)


def _reduction(value: float, base: float) -> Cell:
    return Cell(f"{100 * (1 - value / base):.0f} %") if base else EMPTY
