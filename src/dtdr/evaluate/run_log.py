"""The run log: every teacher-forced step of one run as arrays, from which all metrics are computed.

It keeps the ranks and probabilities of the acceptable tools, and the best of each ranking.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DIGITS = 6
"""Decimals of a logged probability: enough for fifteen bins of calibration."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The origin of a run log: everything that is needed to repeat it.

    Attributes:
        dataset: name of the demonstrations, as users type it.
        synthetic: whether a generator wrote them.
        split: ``{"name", "sha256", "train", "test"}``: the hash of which demonstrations are on
            which side, and how many.
        ranker: its name.
        encoder: its encoder's configuration, or None.
        parameters: its constructor's keywords.
        seed: its seed.
        training_data: ``{"demonstrations", "skipped_failures", "sha256"}`` of what it learned from.
        versions: of Python and of the packages that a result depends on.
        tools: the tool vocabulary; ``RunLog.best`` has positions in it.
        fit_seconds: wall-clock time of fitting, encoding included; texts whose vectors are in
            the encoder's cache on disk cost nothing.
        rank_microseconds_median: median time to rank one more step of a session whose query is
            already encoded.
        details: what the program that made the run adds, such as a lab its description of the run.
    """

    dataset: str
    synthetic: bool
    split: Mapping[str, Any]
    ranker: str
    encoder: Mapping[str, Any] | None
    parameters: Mapping[str, Any]
    seed: int
    training_data: Mapping[str, Any]
    versions: Mapping[str, str]
    tools: tuple[str, ...]
    fit_seconds: float
    rank_microseconds_median: float
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogColumn:
    """One array of a log: how it is stored, its dimensions, and what fills up short rows."""

    name: str
    stored: str
    dimensions: int = 1
    fill: int = 0
    is_probability: bool = False

    @property
    def dtype(self) -> type[np.int64] | type[np.float64]:
        """In memory."""
        is_real = self.is_probability or "f" in self.stored
        return np.float64 if is_real else np.int64

    def array(self, rows: Sequence[Any]) -> npt.NDArray[Any]:
        """The rows of all steps as one array."""
        if self.dimensions == 1:
            return np.array(rows, self.dtype)
        lengths = np.array([len(row) for row in rows], np.int64)
        array = np.full((len(rows), int(lengths.max(initial=0))), self.fill, self.dtype)
        if array.size:
            array[np.arange(array.shape[1]) < lengths[:, None]] = np.concatenate(rows)
        return array


_INT, _INTS = {"stored": "<i4"}, {"stored": "<i4", "dimensions": 2}
_FLAG, _FLAGS = {"stored": "u1"}, {"stored": "u1", "dimensions": 2}
_SHARE = {"stored": "<u4", "is_probability": True}


@dataclass(frozen=True, eq=False)
class RunLog:
    """A run as arrays over its n steps.

    Attributes:
        header: what was run on what.
        plan_ids: id of each plan.
        names: the tool vocabulary, then the other tools that steps call or accept.
        plan: shape (n,): position in ``plan_ids``.
        step: shape (n,): how many calls were made before, from 0.
        plan_length: shape (n,): calls of the whole plan, end of plan not counted.
        called: shape (n,): position in ``names`` of the tool that the plan calls next.
        acceptable: shape (n, a): positions in ``names`` of the acceptable tools, sorted by name,
            then -1.
        ranks: shape (n, a): rank of each of them from 1; 0 where it is not ranked.
        probabilities: shape (n, a): probability of each of them; 0 where it is not ranked.
        in_log: shape (n, a): 1 for those that the log called next (``Plan.next_in_log``), else 0.
        best: shape (n,): position in the vocabulary of the tool that is ranked first.
        best_probability: shape (n,): of that tool.
        confidence: shape (n,): ``Ranking.confidence``; NaN where it is not known.
        end_rank: shape (n,): rank of the end of plan; 0 where it is not ranked.
        end_probability: shape (n,): of the end of plan.
        is_new: shape (n,): 1 where nothing learned from calls the tool called next, else 0.
    """

    header: RunHeader
    plan_ids: tuple[str, ...]
    names: tuple[str, ...]
    plan: Ints = field(metadata=_INT)
    step: Ints = field(metadata=_INT)
    plan_length: Ints = field(metadata=_INT)
    called: Ints = field(metadata=_INT)
    acceptable: Ints = field(metadata={**_INTS, "fill": -1})
    ranks: Ints = field(metadata=_INTS)
    probabilities: Floats = field(metadata={**_SHARE, "dimensions": 2})
    in_log: Ints = field(metadata=_FLAGS)
    best: Ints = field(metadata=_INT)
    best_probability: Floats = field(metadata=_SHARE)
    confidence: Floats = field(metadata={"stored": "<f8"})
    end_rank: Ints = field(metadata=_INT)
    end_probability: Floats = field(metadata=_SHARE)
    is_new: Ints = field(metadata=_FLAG)

    def __len__(self) -> int:
        return len(self.plan)

    @cached_property
    def accepted(self) -> Ints:
        """Shape (n,): how many tools are acceptable, at least 1."""
        return cast(Ints, (self.acceptable >= 0).sum(axis=1))

    @property
    def end(self) -> int:
        """Position of the end of plan in ``names``; -1 where it is none of them."""
        return self.names.index(END) if END in self.names else -1

    @cached_property
    def ends(self) -> npt.NDArray[np.bool_]:
        """Shape (n,): whether the plan ends at the step."""
        return cast(npt.NDArray[np.bool_], self.called == self.end)

    @cached_property
    def first_rank(self) -> Floats:
        """Shape (n,): rank of the best acceptable tool; infinite where none is ranked."""
        ranks = np.where(self.ranks > 0, self.ranks, np.inf)
        return cast(Floats, ranks.min(axis=1, initial=np.inf))

    @cached_property
    def log_rank(self) -> Floats:
        """Shape (n,): rank of the best tool that the log called next; infinite where it has none.

        A plan's next call, and the calls parallel to it where their steps are known.
        """
        ranks = np.where((self.in_log > 0) & (self.ranks > 0), self.ranks, np.inf)
        return cast(Floats, ranks.min(axis=1, initial=np.inf))


COLUMNS = tuple(LogColumn(item.name, **item.metadata) for item in fields(RunLog) if item.metadata)
"""The arrays of ``RunLog``."""


class RunLogBuilder:
    """Collects the steps of one run.

    Args:
        tools: the tool vocabulary of the ranker.
    """

    def __init__(self, tools: Sequence[str]) -> None:
        self.tools = tuple(tools)
        self._names = {name: index for index, name in enumerate(tools)}
        self._plans: dict[str, int] = {}
        self._rows: dict[str, list[Any]] = {column.name: [] for column in COLUMNS}

    def add(
        self,
        *,
        plan: str,
        step: int,
        plan_length: int,
        called: str,
        acceptable: Iterable[str],
        ranking: npt.ArrayLike,
        probabilities: npt.ArrayLike,
        next_in_log: Collection[str] | None = None,
        is_new: bool = False,
        confidence: float | None = None,
    ) -> None:
        """Add a step.

        Args:
            plan: id of the demonstration.
            step: how many calls were made before it.
            plan_length: calls of the whole plan.
            called: the tool that the plan calls next, or the end of plan.
            acceptable: names acceptable next; some may be unknown to the ranker.
            ranking: positions in the vocabulary, best first.
            probabilities: in the order of ``ranking``, rounded to what a log keeps.
            next_in_log: names that the log called next, all of them acceptable; None for the tool
                called alone.
            is_new: whether nothing learned from calls ``called``.
            confidence: ``Ranking.confidence``.
        """
        order = np.asarray(ranking, np.int64)
        rounded: Floats = np.asarray(probabilities, np.float64).round(DIGITS)
        allowed = sorted(acceptable)
        places = [self._place(name) for name in allowed]
        in_log = {called} if next_in_log is None else next_in_log
        rank_of = np.zeros(len(self._names), np.int64)
        rank_of[order] = np.arange(1, len(order) + 1)
        ranks = rank_of[places]
        end = int(rank_of[self._names[END]]) if END in self._names else 0
        row = {
            "plan": self._plans.setdefault(plan, len(self._plans)),
            "step": step,
            "plan_length": plan_length,
            "called": self._place(called),
            "acceptable": places,
            "ranks": ranks,
            "probabilities": np.where(ranks > 0, rounded[ranks - 1], 0.0),
            "in_log": [int(name in in_log) for name in allowed],
            "best": int(order[0]),
            "best_probability": float(rounded[0]),
            "confidence": math.nan if confidence is None else round(confidence, DIGITS),
            "end_rank": end,
            "end_probability": float(rounded[end - 1]) if end else 0.0,
            "is_new": int(is_new),
        }
        for name, value in row.items():
            self._rows[name].append(value)

    def build(self, header: RunHeader) -> RunLog:
        """The log of all steps that were added."""
        arrays = {column.name: column.array(self._rows[column.name]) for column in COLUMNS}
        return RunLog(header, tuple(self._plans), tuple(self._names), **arrays)

    def _place(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))
