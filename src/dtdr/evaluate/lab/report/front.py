"""What is above and below the suites: the best methods, the paper's claims, how to reproduce."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtdr.evaluate.lab.report.page import Block, Section, Text
from dtdr.evaluate.lab.report.results import NOT_RUN, Results, paper, share_of
from dtdr.evaluate.lab.suite import PAPER_ORDER
from dtdr.evaluate.lab.summary import against_best, mean_of
from dtdr.evaluate.metrics import mean
from dtdr.evaluate.tables import Cell, Column, Table, interval, number, numeric, p_value

Figures = Mapping[tuple[str, str], Mapping[str, float]]
"""By data set and model, each method's figure."""


def build_summary(results: Results) -> Section | None:
    """The first lines of a report: best and second best by MRR.

    None without a retrieval table. From few plans nothing is concluded.
    """
    if not results.may_judge:
        plans = results.few_plans()
        data = (
            "A small form of each suite was run"
            if plans is None
            else (f"Only the first {plans:,} plans of each set were used")
        )
        text = (
            f"{data}: enough to see that everything works, too little to judge a method or a claim."
        )
        return Section("summary", "In short", [Text(text)])
    rows = []
    for suite, manifest in results.manifests.items():
        for place, runs in results.by_place(suite).items() if _is_retrieval(manifest) else ():
            best, adjusted = against_best(runs, "mrr")
            others = {name: mean_of(splits, "mrr") for name, splits in runs.items() if name != best}
            if not others:
                continue
            second = max(others, key=lambda name: others[name].value)
            first_mrr = replace(interval(mean_of(runs[best], "mrr")), best=True)
            row = [Cell(results.place_title(place)), Cell(best), first_mrr, Cell(second)]
            rows.append([*row, interval(others[second]), Cell(p_value(adjusted.get(second)))])
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


def _is_retrieval(manifest: Mapping[str, Any]) -> bool:
    return bool(manifest["section"] == "retrieval")


def build_claims(results: Results) -> Section | None:
    """One row a claim; None where the paper's settings were not run."""
    if not any(name in PAPER_ORDER for name in results.manifests):
        return None
    here = {"mrr": _mrr(results), "fsa": _fsa(results), "sr": _sr(results)}
    published = {metric: _find_published(metric) for metric in here}
    columns = [Column("The paper says"), Column("Its tables"), Column("Here")]
    if results.may_judge:
        columns.append(Column("So here"))
    rows = []
    for claim in paper()["claims"]:
        gains = _gains(claim, here[claim["metric"]])
        texts = [claim["text"], _range(_gains(claim, published[claim["metric"]])), _range(gains)]
        rows.append([Cell(text) for text in (*texts, _verdict(gains, claim))][: len(columns)])
    caption = (
        "By how much the best of the variants is above the best of what it is compared with, from "
        "the lowest to the highest of the data sets and models. Its tables: computed from "
        "Tables 2, 3 and 7 of the paper. A base of 0 has no ratio and is left out."
    )
    return Section("claims", "What the paper says", [Table(columns, rows, caption=caption)])


def _gains(claim: Mapping[str, Any], figures: Figures) -> list[float]:
    """In % above the base, one for each data set and model that has both."""
    gains = []
    for (dataset, _), methods in figures.items():
        ours = [methods[name] for name in claim["ours"] if name in methods]
        over = [methods[name] for name in claim["over"] if name in methods]
        if dataset in claim["sets"] and ours and over and max(over) > 0:
            gains.append(100 * (max(ours) / max(over) - 1))
    return gains


def _range(gains: Sequence[float]) -> str:
    if not gains:
        return "not run"
    low, high = (f"{value:+,.0f} %" for value in (min(gains), max(gains)))
    return low if low == high else f"{low} to {high}"


def _verdict(gains: Sequence[float], claim: Mapping[str, Any]) -> str:
    if not gains:
        return "-"
    high = claim.get("high", float("inf"))
    below = sum(gain < claim["low"] for gain in gains)
    above = sum(gain > high for gain in gains)
    if below:
        return f"does not hold: {below} of {len(gains)} below the range"
    return "holds" if not above else f"holds, {above} of {len(gains)} above the range"


def _find_published(metric: str) -> Figures:
    tables = paper()
    if metric == "sr":
        return {
            (dataset, model): {name: success for name, (_, success) in methods.items()}
            for dataset, models in tables["downstream"].items()
            if dataset != "source"
            for model, methods in models.items()
        }
    return {
        (dataset, ""): {n: figures[metric] for n, figures in methods.items() if n != "source"}
        for dataset, methods in tables["retrieval"].items()
    }


def _mrr(results: Results) -> Figures:
    figures: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    if "paper-retrieval" in results.manifests:
        for place, methods in results.by_place("paper-retrieval").items():
            for splits in methods.values():
                mrr = mean(one.means["mrr"] for one in splits)
                figures[place[0], ""][splits[0].header.retriever] = mrr
    return figures


def _fsa(results: Results) -> Figures:
    figures: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    if "paper-retrieval" in results.manifests:
        for run in results.runs("paper-retrieval", "selections"):
            share = share_of(results.value(run)["records"], "right")
            figures[run.place[0], str(run.spec["llm"])][str(run.spec["retriever"])] = share.value
    return figures


def _sr(results: Results) -> Figures:
    figures: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    if "paper-downstream" in results.manifests:
        for run in results.runs("paper-downstream", "plans"):
            name = "none" if run.spec["icl"] == "none" else str(run.spec["retriever"])
            key = run.place[0], f"{run.spec['llm']}, {run.spec.get('loop', 'own')} history"
            figures[key][name] = share_of(results.value(run)["records"], "strict").value
    return figures


def build_reproduction(results: Results) -> Section:
    """How to get the same report: commands, data sets with their hashes, versions, seeds."""
    blocks: list[Block] = [_commands(results), _data(results), _versions(results)]
    reasons = [reason for _, reason in results.failures()]
    waiting = reasons.count(NOT_RUN)
    for count, what in ((len(reasons) - waiting, "failed"), (waiting, "were not run yet")):
        if count:
            blocks.append(Text(f"{count:,} runs {what}; each section lists its own."))
    return Section("reproduce", "How to reproduce this", blocks)


def _commands(results: Results) -> Table:
    rows = []
    for name, manifest in results.manifests.items():
        specs = [cell["spec"] for cell in manifest["cells"]]
        seeds = sorted({int(spec["seed"]) for spec in specs if "seed" in spec})
        command = Cell(f"`{manifest['command']}`")
        shown = ", ".join(map(str, seeds)) or "-"
        rows.append([Cell(name), command, number(len(specs)), Cell(shown)])
    columns = [Column("Suite"), Column("Command"), *numeric("Runs"), Column("Seeds")]
    caption = (
        "The seed draws the split and is the retriever's own seed. A run is kept under the "
        "hash of its data, split, retriever, parameters and code; what changed is computed "
        "again, the rest is read."
    )
    return Table(columns, rows, "Commands", caption)


def _data(results: Results) -> Table:
    names = (name for manifest in results.manifests.values() for name in manifest["datasets"])
    rows, notes = [], ["Tools: described or called, and the end of the plan."]
    for name in dict.fromkeys(names):
        about = results.dataset(name)
        tools = len(results.dataset_summary(str(about["name"]))["tokens"])
        rows.append(
            [
                Cell(results.title(str(about["name"]))),
                number(about["plans"]),
                number(tools),
                Cell(f"`{about['sha256']}`"),
                Cell(str(about["source"])),
                Cell(str(about["licence"] or "-")),
            ]
        )
        sentences = (about.get("note"), *about.get("remarks", ()))
        notes += [f"{about['title']}: {sentence}" for sentence in sentences if sentence]
    columns = [
        Column("Set"),
        *numeric("Plans", "Tools"),
        Column("SHA-256 of its content"),
        Column("From"),
        Column("Licence"),
    ]
    return Table(columns, rows, "Data", "\n".join(notes))


def _versions(results: Results) -> Table:
    versions: dict[str, set[str]] = defaultdict(set)
    for run in results.all_runs():
        for package, version in results.header(run)["versions"].items():
            versions[package].add(str(version))
    rows = [[Cell(name), Cell(", ".join(sorted(versions[name])))] for name in sorted(versions)]
    caption = "More than one version in a row: runs of several installations share the cache."
    return Table([Column("Package"), Column("Version")], rows, "Versions", caption)
