"""What demonstrations and descriptions say about pairs of tools."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.retrievers.factored.plans import PlanLog

Array = npt.NDArray[Any]


class Relations:
    """Order, dependency, co-occurrence and likeness of tools; each of shape (tools, tools).

    Attributes:
        before: share of the plans with both in which row u is first called before column t.
        producers: how often a call of row t uses the output of column u, per call of t.
        together: pointwise mutual information of being in one plan.
        alike: cosine of the descriptions.
        alike_names: cosine of the names' words.
        after_alike: logarithm of how often t followed tools like u.
        frequency: shape (tools,): calls of each tool.
    """

    def __init__(self, log: PlanLog, documents: csr_array, names: csr_array) -> None:
        tools = log.tools
        first_before = np.zeros((tools, tools), np.float32)
        uses = np.zeros((tools, tools), np.float32)
        follows = np.zeros((tools, tools), np.float32)
        for calls, needs in zip(log.calls, log.needs, strict=True):
            order = list(dict.fromkeys(calls))
            for rank, tool in enumerate(order):
                first_before[tool, order[rank + 1 :]] += 1
            for call, sources in zip(calls, needs, strict=True):
                for source in {calls[position] for position in sources}:
                    uses[call, source] += 1
            for call, following in zip(calls, (*calls[1:], tools - 1), strict=False):
                follows[call, following] += 1
        counts = log.counts()
        self.frequency = counts.sum(axis=0)
        self.before = (first_before + 0.5) / (first_before + first_before.T + 1)
        self.producers = (uses / (self.frequency[:, None] + 1)).astype(np.float32)
        used = np.minimum(counts, 1).astype(np.float32)
        share = used.sum(axis=0)
        expected = share[None] * share[:, None] / max(len(log), 1)
        self.together = np.log((used.T @ used + 0.3 + expected) / (expected + 0.3))
        self.alike, self.alike_names = _cosines(documents), _cosines(names)
        likeness = np.maximum(self.alike, 0) ** 2
        np.fill_diagonal(likeness, 0)
        rates = follows / (follows.sum(axis=1, keepdims=True) + 1)
        mean = (likeness @ rates + 1e-3) / (likeness.sum(axis=1, keepdims=True) + 1)
        self.after_alike = np.log(mean + 1e-5).astype(np.float32)


def _cosines(rows: csr_array) -> Array:
    tools = rows.shape[0] + 1
    found = np.zeros((tools, tools), np.float32)
    found[:-1, :-1] = (rows @ rows.T).toarray()
    return found
