"""What demonstrations and descriptions say about pairs of tools."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.retrievers.factored.plans import FORGOTTEN, PlanLog

Array = npt.NDArray[Any]
Counts = dict[int, dict[int, float]]

BEFORE, TOGETHER, USED_BY, ALIKE, ALIKE_NAMES, AFTER_ALIKE = range(6)
_CACHE_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class Pairs:
    """What is said of one tool and every tool; each of shape (tools,), float32.

    Attributes:
        before: share of the plans with both in which it is first called before the other, 0 for
            itself.
        together: pointwise mutual information of being in one plan.
        used_by: how often a call of the other uses its output.
        features: shape (4, tools): ``used_by``; the cosine of the descriptions, and of the names'
            words; and the logarithm of how often the other followed tools like it.
    """

    before: Array
    together: Array
    used_by: Array
    features: Array

    def at(self, tools: Array) -> Pairs:
        """What is said of some of the others."""
        features = self.features.take(tools, axis=1)  # a third of the time of an index
        return Pairs(self.before.take(tools), self.together.take(tools), features[0], features)


class Relations:
    """Order, dependency, co-occurrence and likeness of tools.

    Counts are kept sparse; what is said of one tool and all others is made when it is first asked
    for, so that memory grows with the pairs that occur and not with the square of the tools.

    Args:
        log: plans, counted by their weights.
        documents: shape (tools - 1, stems): vectors of the descriptions.
        names: shape (tools - 1, stems): vectors of the names' words.
        reference: everything is said as if so many plans had been counted, so that it means the
            same to the ranker however many are added; 0 for as many as were.

    Attributes:
        frequency: shape (tools,): calls of each tool, in so many plans.
        producers: shape (tools,): outputs of other tools that a call of each uses on average.
    """

    def __init__(
        self, log: PlanLog, documents: csr_array, names: csr_array, reference: float = 0.0
    ) -> None:
        self._documents, self._names = documents, names
        self._reference = reference
        self._first_before: Counts = {}
        self._both: Counts = {}
        self._used_by: Counts = {}
        self._follows: Counts = {}
        self._frequency, self._share, self._used = np.zeros((3, log.tools))
        self._total = 0.0
        self._count(log)

    def updated(self, log: PlanLog, decay: float) -> Relations:
        """With further plans; what was counted before counts ``decay`` times as much."""
        other = copy(self)
        for name in ("_first_before", "_both", "_used_by", "_follows"):
            counts: Counts = {
                tool: dict(row) if decay == 1 else {key: n * decay for key, n in row.items()}
                for tool, row in getattr(self, name).items()
            }
            setattr(other, name, counts)
        for name in ("_frequency", "_share", "_used"):
            setattr(other, name, getattr(self, name) * decay)
        other._total *= decay
        other._count(log)
        return other

    def _count(self, log: PlanLog) -> None:
        end = log.tools - 1
        for calls, needs, weight in zip(log.calls, log.needs, log.weights, strict=True):
            order = [tool for tool in dict.fromkeys(calls) if tool != FORGOTTEN]
            for rank, tool in enumerate(order):
                self._share[tool] += weight
                for later in order[rank + 1 :]:
                    _add(self._first_before, tool, later, weight)
                    _add(self._both, tool, later, weight)
                    _add(self._both, later, tool, weight)
            for call, sources in zip(calls, needs, strict=True):
                if call == FORGOTTEN:
                    continue
                self._frequency[call] += weight
                for source in {calls[position] for position in sources} - {FORGOTTEN}:
                    _add(self._used_by, source, call, weight)
                    self._used[call] += weight
            for call, following in zip(calls, (*calls[1:], end), strict=False):
                if FORGOTTEN not in (call, following):
                    _add(self._follows, call, following, weight)
            self._total += weight
        self._scale = self._reference / max(self._total, 1e-9) if self._reference else 1.0
        frequency = self._frequency * self._scale
        self.frequency = frequency.astype(np.float32)
        self.producers = (self._used * self._scale / (frequency + 1)).astype(np.float32)
        self._rates: csr_array | None = None
        self._rows: dict[int, Pairs] = {}
        self._every_before: Array | None = None

    @property
    def share(self) -> Array:
        """Share of the plans that call each tool; shape (tools,)."""
        result: Array = (self._share / max(self._total, 1e-9)).astype(np.float32)
        return result

    def row(self, tool: int) -> Pairs:
        """What is said of one tool and every tool."""
        found = self._rows.get(tool)
        if found is None:
            found = self._row(tool)
            if (len(self._rows) + 1) * 24 * len(self.frequency) > _CACHE_BYTES:
                self._rows.clear()
            self._rows[tool] = found
        return found

    def before(self, chosen: Sequence[int]) -> Array:
        """``Pairs.before`` of some tools; shape (chosen, tools)."""
        if self._every_before is not None:
            found: Array = self._every_before[chosen]
            return found
        return np.array([self.row(tool).before for tool in chosen])

    def _row(self, tool: int) -> Pairs:
        return self._pairs(self._made([tool]))[0]

    def warm(self, most: int) -> None:
        """Make everything that ``row`` gives at once, for vocabularies of at most so many tools."""
        tools = len(self.frequency)
        if 1 < tools <= most:
            made = self._made(range(tools - 1))
            self._every_before = made[:, BEFORE]
            self._rows = dict(enumerate(self._pairs(made)))

    @staticmethod
    def _pairs(made: Array) -> list[Pairs]:
        return [Pairs(row[BEFORE], row[TOGETHER], row[USED_BY], row[USED_BY:]) for row in made]

    def _made(self, chosen: Sequence[int]) -> Array:
        tools, count = len(self.frequency), len(chosen)
        numbers = list(chosen)
        found = np.zeros((count, 6, tools), np.float32)
        both, ahead, used = (
            _dense(counts, numbers, tools) * self._scale
            for counts in (self._both, self._first_before, self._used_by)
        )
        own = (np.arange(count), numbers)
        found[:, BEFORE] = (ahead + 0.5) / (both + 1)
        found[:, BEFORE][own] = 0
        share = self._share * self._scale
        both[own] = share[numbers]
        expected = share[numbers][:, None] * share / max(self._total * self._scale, 1e-9)
        found[:, TOGETHER] = np.log((both + 0.3 + expected) / (expected + 0.3))
        found[:, USED_BY] = used / (self.frequency + 1)
        found[:, ALIKE, :-1] = _products(self._documents, numbers)
        found[:, ALIKE_NAMES, :-1] = _products(self._names, numbers)
        likeness = np.maximum(found[:, ALIKE].astype(np.float64), 0) ** 2
        likeness[own] = 0
        if self._rates is None:
            self._rates = self._following()
        mean = (self._rates @ likeness.T).T + 1e-3
        mean /= likeness.sum(axis=1, keepdims=True) + 1
        found[:, AFTER_ALIKE] = np.log(mean + 1e-5)
        return found

    def _following(self) -> csr_array:
        """Shape (tools, tools): how often the row follows the column."""
        tools = len(self.frequency)
        rows, columns, values = [], [], []
        for call, counts in self._follows.items():
            total = sum(counts.values()) + 1 / self._scale
            rows += list(counts)
            columns += [call] * len(counts)
            values += [count / total for count in counts.values()]
        return csr_array((values, (rows, columns)), shape=(tools, tools), dtype=np.float64)


def _add(counts: Counts, row: int, column: int, weight: float) -> None:
    found = counts.setdefault(row, {})
    found[column] = found.get(column, 0.0) + weight


def _dense(counts: Counts, chosen: Sequence[int], tools: int) -> Array:
    found = np.zeros((len(chosen), tools))
    for row, tool in zip(found, chosen, strict=True):
        known = counts.get(tool)
        if known:
            row[list(known)] = list(known.values())
    return found


def _products(rows: csr_array, chosen: Sequence[int]) -> Array:
    """Products of some rows with all; shape (chosen, rows)."""
    if len(chosen) > 1:
        return np.asarray((csr_array(rows[list(chosen)]) @ rows.T).toarray())
    part = slice(rows.indptr[chosen[0]], rows.indptr[chosen[0] + 1])
    dense = np.zeros(rows.shape[1], np.float32)
    dense[rows.indices[part]] = rows.data[part]
    return np.asarray(rows @ dense)[None]
