"""Training examples: what had been called, and what may come next, at every step of each plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from dtdr.demonstrations import Demonstration
from dtdr.plan import END


@dataclass(frozen=True)
class Steps:
    """The teacher-forced steps of demonstrations, in their order.

    Attributes:
        demonstration: shape (steps,): position of the demonstration a step is from.
        histories: tool indices called before each step.
        acceptable: shape (steps, tools): 1 for each acceptable next tool.
        following: shape (steps, tools): 1 for the tool that the demonstration called next.
    """

    demonstration: list[int]
    histories: list[tuple[int, ...]]
    acceptable: csr_array
    following: csr_array


def training_steps(demonstrations: Sequence[Demonstration], index: Mapping[str, int]) -> Steps:
    """Steps of demonstrations whose tools all have an index, the end of plan included."""
    owners: list[int] = []
    histories: list[tuple[int, ...]] = []
    accepted: list[list[int]] = []
    called: list[list[int]] = []
    for position, demonstration in enumerate(demonstrations):
        calls = tuple(index[name] for name in demonstration.plan.tools)
        for count, step in enumerate(demonstration.plan.steps()):
            owners.append(position)
            histories.append(calls[:count])
            accepted.append(sorted(index[name] for name in step.acceptable))
            called.append([(*calls, index[END])[count]])
    return Steps(
        owners, histories, indicators(accepted, len(index)), indicators(called, len(index))
    )


def indicators(columns: Sequence[Sequence[int]], width: int) -> csr_array:
    """Shape (rows, width): 1 in the given columns of each row."""
    starts = np.cumsum([0, *map(len, columns)])
    flat = np.fromiter((column for row in columns for column in row), np.int64, starts[-1])
    return csr_array((np.ones(len(flat), np.float32), flat, starts), shape=(len(columns), width))
