"""What the paper says in words, beside its own tables and what was run here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from dtdr.evaluation.metrics import mean
from dtdr.evaluation.tables import Cell, Column, Table
from dtdr.lab.report.page import Section
from dtdr.lab.report.results import Results, accuracy, paper, share_of
from dtdr.lab.suite import PAPER_ORDER

Figures = Mapping[tuple[str, str], Mapping[str, float]]
"""By data set and model, each method's figure."""


def build_claims(results: Results) -> Section | None:
    """One row a claim; None where the paper's settings were not run."""
    if not any(name in PAPER_ORDER for name in results.manifests):
        return None
    here = {"mrr": _mrr(results), "fsa": _fsa(results), "sr": _sr(results)}
    published = {metric: _find_published(metric) for metric in here}
    rows = []
    for claim in paper()["claims"]:
        gains = _gains(claim, published[claim["metric"]])
        own = _gains(claim, here[claim["metric"]])
        rows.append(
            [
                Cell(claim["text"]),
                Cell(_range(gains)),
                Cell(_range(own)),
                Cell(_verdict(own, claim)),
            ]
        )
    columns = [Column("The paper says"), Column("Its tables"), Column("Here"), Column("So here")]
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


def _range(gains: list[float]) -> str:
    if not gains:
        return "not run"
    low, high = (f"{value:+,.0f} %" for value in (min(gains), max(gains)))
    return low if low == high else f"{low} to {high}"


def _verdict(gains: list[float], claim: Mapping[str, Any]) -> str:
    if not gains:
        return "-"
    high = claim.get("high", float("inf"))
    inside = sum(claim["low"] <= gain <= high for gain in gains)
    above = sum(gain > high for gain in gains)
    if inside + above == len(gains):
        return "holds" if not above else f"holds, {above} of {len(gains)} above the range"
    return f"does not hold: {len(gains) - inside - above} of {len(gains)} below the range"


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
        (dataset, ""): {
            name: figures[metric] for name, figures in methods.items() if name != "source"
        }
        for dataset, methods in tables["retrieval"].items()
    }


def _mrr(results: Results) -> Figures:
    by_set: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for suite in _suites(results, "paper-retrieval"):
        for place, methods in results.by_place(suite).items():
            for splits in methods.values():
                name = splits[0].header.retriever
                by_set[place[0], ""][name] = mean(one.means["mrr"] for one in splits)
    return by_set


def _fsa(results: Results) -> Figures:
    by_set: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for suite in _suites(results, "paper-retrieval"):
        for run in results.runs(suite, "selections"):
            name = str(run.spec["retriever"])
            by_set[run.place[0], str(run.spec["llm"])][name] = accuracy(results, run).value
    return by_set


def _sr(results: Results) -> Figures:
    by_set: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for suite in _suites(results, "paper-downstream"):
        for run in results.runs(suite, "plans"):
            name = "none" if run.spec["icl"] == "none" else str(run.spec["retriever"])
            key = run.place[0], f"{run.spec['llm']}, {run.spec.get('loop', 'own')} history"
            by_set[key][name] = share_of(results.result(run)["records"], "strict").value
    return by_set


def _suites(results: Results, name: str) -> Iterator[str]:
    if name in results.manifests:
        yield name
