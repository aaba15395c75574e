"""The paper's table of dataset statistics (App. Dataset Statistics), measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdr.data.demonstrations import DemonstrationLike, as_demonstrations
from dtdr.data.tools import ToolLike, as_tools
from dtdr.errors import InputError
from dtdr.evaluate.datasets.source import Published


@dataclass(frozen=True, slots=True)
class Statistics:
    """Size and shape of a set of demonstrations.

    Attributes:
        plans: number of demonstrations.
        tools: number of tools, called or only described, and the end of plan.
        calls: mean and standard deviation of the calls in a plan, end of plan not counted.
        dependencies: mean and standard deviation of a plan's dependencies: pairs of calls of which
            the later uses the output of the earlier, or is linked to it.
        published: the paper's figures for the full set, where it has them.
        remarks: what was left out or repaired while reading.
    """

    plans: int
    tools: int
    calls: tuple[float, float]
    dependencies: tuple[float, float]
    name: str = ""
    title: str = ""
    note: str = ""
    published: Published | None = None
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "name": self.name,
            "title": self.title,
            **figures(self),
            "note": self.note,
            "published": None if self.published is None else figures(self.published),
            "remarks": list(self.remarks),
        }


def figures(of: Statistics | Published) -> dict[str, Any]:
    """The four figures of the table, as JSON."""
    return {
        "plans": of.plans,
        "tools": of.tools,
        "calls_per_plan": {"mean": round(of.calls[0], 4), "sd": round(of.calls[1], 4)},
        "dependencies_per_plan": {
            "mean": round(of.dependencies[0], 4),
            "sd": round(of.dependencies[1], 4),
        },
    }


def measure(
    demonstrations: Iterable[DemonstrationLike], tools: Iterable[ToolLike] = (), **about: Any
) -> Statistics:
    """Statistics of a stream of demonstrations, read once, before the tools.

    ``about`` has further attributes.

    Raises:
        InputError: there are no demonstrations.
    """
    names: set[str] = set()
    sizes: list[tuple[int, int]] = []
    for demonstration in as_demonstrations(demonstrations):
        plan = demonstration.plan
        names.update(plan.tools)
        sizes.append((len(plan), sum(map(len, plan.dependencies))))
    if not sizes:
        raise InputError("there are no demonstrations to count")
    names.update(tool.name for tool in as_tools(tools))
    means, deviations = np.mean(sizes, axis=0).tolist(), np.std(sizes, axis=0).tolist()
    calls, dependencies = zip(means, deviations, strict=True)
    return Statistics(len(sizes), len(names) + 1, calls, dependencies, **about)
