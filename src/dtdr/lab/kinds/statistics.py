"""``statistics``: size and shape of a set (paper, App. Dataset Statistics)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdr.datasets import SOURCES
from dtdr.datasets.statistics import measure
from dtdr.lab.kinds import Context
from dtdr.lab.log import LabLog
from dtdr.model_folder import versions


def run(spec: Mapping[str, Any], context: Context) -> LabLog:
    """The four figures of the paper's table."""
    dataset = context.dataset(spec)
    source = SOURCES.get(dataset.name)
    found = measure(
        dataset.demonstrations,
        dataset.tools,
        name=dataset.name,
        title=dataset.title,
        note=dataset.note,
        published=None if source is None else source.published,
    )
    sequences = {item.plan.tools for item in dataset.demonstrations}
    result = {**found.to_dict(), "distinct_sequences": len(sequences)}
    return LabLog({"kind": "statistics", "versions": versions(), "result": result})
