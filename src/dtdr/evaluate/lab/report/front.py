"""What is above and below the suites: the paper's claims, the data, how to reproduce."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dtdr.evaluate.lab.report.page import Block, Section, Text
from dtdr.evaluate.lab.report.results import NOT_RUN, Results, paper, share_of
from dtdr.evaluate.lab.suite import PAPER_ORDER
from dtdr.evaluate.metrics import mean
from dtdr.evaluate.tables import EMPTY, Cell, Column, Table, number, numeric

Figures = Mapping[tuple[str, str], Mapping[str, float]]
"""By data set and model, each method's figure."""


def build_summary(results: Results) -> Section | None:
    """Why nothing is concluded from a small form of the suites; None where they were run whole."""
    if results.may_judge:
        return None
    plans = results.few_plans()
    data = "A small form of each suite was run"
    if plans is not None:
        data = f"Only the first {plans:,} plans of each set were used"
    text = f"{data}: enough to see that everything works, too little to judge a method or a claim."
    return Section("summary", "In short", [Text(text)])


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
        rows.append([*texts, _verdict(gains, claim)][: len(columns)])
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
        specs = [run["spec"] for run in manifest["runs"]]
        seeds = sorted({int(spec["seed"]) for spec in specs if "seed" in spec})
        shown = ", ".join(map(str, seeds)) or "-"
        rows.append([name, f"`{manifest['command']}`", number(len(specs)), shown])
    columns = [Column("Suite"), Column("Command"), *numeric("Runs"), Column("Seeds")]
    caption = (
        "The seed draws the split and is the retriever's own seed. A run is kept under the "
        "hash of its data, split, retriever, parameters and code; what changed is computed "
        "again, the rest is read."
    )
    return Table(columns, rows, "Commands", caption)


def _data(results: Results) -> Table:
    """Size and shape of each set (paper, Table 5), the paper's row below it, and its source."""
    names = (name for manifest in results.manifests.values() for name in manifest["datasets"])
    rows: list[list[Any]] = []
    notes = ["Tools: described or called, and the end of the plan. ±: standard deviation."]
    for name in dict.fromkeys(names):
        about = results.dataset(name)
        source = [f"`{about['sha256']}`", str(about["source"]), str(about["licence"] or "-")]
        rows.append([results.title(name), *_sizes(about), *source])
        if about["published"]:
            sizes = _sizes(about["published"], aside=True)
            rows.append([Cell("  in the paper", aside=True), *sizes, EMPTY, EMPTY, EMPTY])
        sentences = (about["note"], *about["remarks"])
        notes += [f"{about['title']}: {sentence}" for sentence in sentences if sentence]
    columns = [
        Column("Set"),
        *numeric("Plans", "Tools", "Calls a plan", "Dependencies a plan"),
        *map(Column, ("SHA-256 of its content", "From", "Licence")),
    ]
    return Table(columns, rows, "Data", "\n".join(notes))


def _sizes(values: Mapping[str, Any], *, aside: bool = False) -> list[Cell]:
    texts = [f"{values[key]:,}" for key in ("plans", "tools")]
    for key in ("calls_per_plan", "dependencies_per_plan"):
        texts.append(f"{values[key]['mean']:.1f} ± {values[key]['sd']:.1f}")
    return [Cell(text, aside=aside) for text in texts]


def _versions(results: Results) -> Table:
    versions: dict[str, set[str]] = defaultdict(set)
    for run in results.all_runs():
        for package, version in results.header(run)["versions"].items():
            versions[package].add(str(version))
    rows = [[name, ", ".join(sorted(versions[name]))] for name in sorted(versions)]
    caption = "More than one version in a row: runs of several installations share the cache."
    return Table([Column("Package"), Column("Version")], rows, "Versions", caption)
