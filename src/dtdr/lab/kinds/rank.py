"""``rank``: fit a retriever on one side of a split and rank every step of the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtdr.datasets import Dataset
from dtdr.datasets.splits import Split
from dtdr.errors import InputError
from dtdr.evaluation import harness
from dtdr.evaluation.run_log import LoggedStep
from dtdr.lab import data
from dtdr.lab.fitting import fitted_retriever, some_of
from dtdr.lab.kinds import Context
from dtdr.lab.log import DIGITS, HEAD, LOWEST, LabLog
from dtdr.lab.shifts import Sides, shifted
from dtdr.retrievers.base import Retriever


def run(spec: Mapping[str, Any], context: Context) -> LabLog:
    """One row of the retrieval table, step by step.

    Raises:
        InputError: a side of the split is empty, or the data cannot be learned from.
    """
    started = time.perf_counter()
    dataset = context.dataset(spec)
    sides = sides_of(dataset, spec)
    retriever, fit_seconds = fitted_retriever(spec, sides)
    both = [*sides.train, *sides.test]
    found = harness.run(
        retriever,
        replace(dataset, demonstrations=both, tools=sides.tools),
        Split("lab", tuple(range(len(sides.train))), tuple(range(len(sides.train), len(both)))),
        fit_seconds=fit_seconds,
    )
    header = {
        "kind": "rank",
        "train": len(sides.train),
        "test": len(sides.test),
        "tools": found.header.tools,
        "encoder": None if found.header.encoder is None else found.header.encoder.get("name"),
        "parameters": found.header.parameters,
        "split_sha256": found.header.split["sha256"],
        "training_sha256": found.header.training_data["sha256"],
        "steps": len(found.steps),
        "versions": found.header.versions,
        "measured": {
            "fit_seconds": round(found.header.fit_seconds, 3),
            "rank_microseconds": found.header.rank_microseconds_median,
            "seconds": round(time.perf_counter() - started, 3),
        },
        "familiar": _familiar(retriever, sides, spec, context),
    }
    return LabLog(header, tuple(records_of(found.steps)))


def sides_of(dataset: Dataset, spec: Mapping[str, Any]) -> Sides:
    """What a cell learns from and tests on.

    Raises:
        InputError: nothing is left on a side.
    """
    split = data.split_of(dataset, spec)
    sides = shifted(
        Sides(
            split.training(dataset.demonstrations),
            split.testing(dataset.demonstrations),
            dataset.tools,
        ),
        spec.get("shift"),
        int(spec.get("seed", 0)),
    )
    if not sides.train or not sides.test:
        raise InputError(f"shift {spec.get('shift')!r} leaves nothing on a side of the split")
    return Sides(some_of(sides.train, spec), sides.test, sides.tools)


def records_of(steps: Sequence[LoggedStep]) -> list[dict[str, Any]]:
    """What the lab's log keeps of each step."""
    records = []
    for step in steps:
        places = [place - 1 for place in step.ranks]
        records.append(
            {
                "plan": step.plan,
                "step": step.step,
                "length": step.plan_length,
                "ok": list(step.acceptable),
                "at": list(step.ranks),
                "ok_p": [round(float(step.probabilities[place]), DIGITS) for place in places],
                "top": step.ranking[:HEAD].tolist(),
                "top_p": [
                    round(value, DIGITS) for value in step.probabilities.tolist() if value > LOWEST
                ],
            }
        )
    return records


def _familiar(
    retriever: Retriever, sides: Sides, spec: Mapping[str, Any], context: Context
) -> dict[str, Any] | None:
    """How sure the retriever is at the first step of its own queries and of another set's."""
    if "queries" not in spec:
        return None
    other = context.dataset({"dataset": spec["queries"], "plans": spec.get("plans")})
    split = data.split_of(other, spec)
    found: dict[str, Any] = {"from": spec["queries"]}
    for name, items in (("own", sides.test), ("other", split.testing(other.demonstrations))):
        rankings = retriever.rank_batch([item.query for item in items], [()] * len(items))
        found[name] = {
            "probability": [round(float(ranking.probabilities[0]), DIGITS) for ranking in rankings],
            "confidence": [round(ranking.confidence, DIGITS) for ranking in rankings],
            "familiarity": [
                None if ranking.familiarity is None else round(ranking.familiarity, DIGITS)
                for ranking in rankings
            ],
            "flagged": sum(not ranking.is_familiar for ranking in rankings),
        }
    return found
