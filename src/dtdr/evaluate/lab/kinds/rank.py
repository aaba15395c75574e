"""``rank``: fit a retriever on one side of a split and rank every step of the other.

``statistics``: size and shape of a data set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dtdr.evaluate import harness
from dtdr.evaluate.datasets import SOURCES
from dtdr.evaluate.datasets.splits import Split
from dtdr.evaluate.datasets.statistics import measure
from dtdr.evaluate.lab.fitting import fit_retriever
from dtdr.evaluate.lab.kinds import Context
from dtdr.evaluate.lab.train_test import train_test
from dtdr.evaluate.next_calls import agreement
from dtdr.evaluate.run_log import RunLog
from dtdr.rankers.model_folder import versions


def rank(
    spec: Mapping[str, Any], context: Context, ask: Callable[[str], str] | None = None
) -> RunLog:
    """One row of the retrieval table, step by step.

    Args:
        spec: of the run.
        context: of the lab.
        ask: an LLM, for retrievers that need one.

    Raises:
        InputError: a side of the split is empty, or the data cannot be learned from.
    """
    dataset = context.dataset(spec)
    data = train_test(dataset, spec)
    retriever, fit_seconds = fit_retriever(spec, data, ask)
    both = [*data.train, *data.test]
    log = harness.run(
        retriever,
        replace(dataset, demonstrations=both, tools=data.tools),
        Split("lab", tuple(range(len(data.train))), tuple(range(len(data.train), len(both)))),
        fit_seconds=fit_seconds,
    )
    if spec.get("split") != "group":
        return log
    other = agreement(log, dataset.demonstrations)
    details = {} if other is None else {"another_run": other.to_dict()}
    return replace(log, header=replace(log.header, details=details))


def measure_dataset(spec: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The four figures of the paper's table (App. Dataset Statistics)."""
    dataset = context.dataset(spec)
    source = SOURCES.get(dataset.name)
    statistics = measure(
        dataset.demonstrations,
        dataset.tools,
        name=dataset.name,
        title=dataset.title,
        note=dataset.note,
        published=None if source is None else source.published,
        remarks=dataset.remarks,
    )
    sequences = {item.plan.tools for item in dataset.demonstrations}
    result = {**statistics.to_dict(), "distinct_sequences": len(sequences)}
    return {"versions": versions(), "result": result}
