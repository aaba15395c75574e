"""The contract of a block: one family of features of every tool, learned from demonstrations.

A fitted ``Block`` is shared and never changed. For each query it writes the features before any
call and returns its first ``BlockState``; a state is never changed, makes the one after a call, and
brings features up to date before each ranking. The ranker sees a block through this alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from dtdr.rankers.base import Arrays
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.observations import NEW_RUN, Context, RunReader
from dtdr.rankers.dtdr_f.outcomes import NO_OUTCOME, Outcome
from dtdr.rankers.dtdr_f.queries import QueryFeatures, QueryFeaturizer
from dtdr.rankers.dtdr_f.text import Hashes
from dtdr.rankers.dtdr_f.tool_texts import ToolTexts
from dtdr.rankers.dtdr_f.values import Values
from dtdr.rankers.dtdr_f.word_weights import WordWeights
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Indices, Matrix
from dtdr.rankers.remembered import Remembered
from dtdr.rankers.zero_shot.scorer import ZeroShotState

Key = TypeVar("Key", bound=Hashable)
Rows = TypeVar("Rows")

_CACHE_BYTES = 64_000_000


@dataclass(frozen=True)
class TrainingSet:
    """The data that a block learns from.

    Attributes:
        tools: the vocabulary and its texts.
        featurizer: reads queries.
        data: the demonstrations.
        seen: the tools that networks have outputs for, the end of plan last; weights are kept in
            this order, so that they do not move when tools do.
        word_weights: which tools each word of a query asks for.
        reference: counts are scaled as if they were of this many plans, so that they mean the same
            in a fold and in the whole; 0 leaves them as they are.
        seed: of random numbers; only what learns needs it.
    """

    tools: ToolTexts
    featurizer: QueryFeaturizer
    data: EncodedDemonstrations
    seen: Indices
    word_weights: WordWeights
    reference: float
    seed: int = 0

    @cached_property
    def slots(self) -> list[int]:
        """The place of each tool in ``seen``, -1 where it has none; one more -1 at the end."""
        slots = np.full(len(self.tools) + 1, -1)
        slots[self.seen] = np.arange(len(self.seen))
        return slots.tolist()

    @cached_property
    def new(self) -> Indices:
        """The tools without demonstrations, which are ranked by their texts."""
        return np.setdiff1d(np.arange(len(self.tools)), self.seen)

    @cached_property
    def scale(self) -> float:
        """Factor on counts of plans."""
        return self.reference / max(len(self.data), 1) if self.reference else 1.0

    @cached_property
    def frequency(self) -> Matrix:
        """Scaled number of calls of each tool; shape (tools,)."""
        return (self.data.frequency * self.scale).astype(np.float32)

    def cached(self, make: Callable[[Key], Rows]) -> Remembered[Rows]:
        """A function of rows over all tools, such as those about one tool, with a cache."""
        return Remembered(make, max(16, _CACHE_BYTES // (12 * len(self.tools))))


class CallEvent(NamedTuple):
    """One call.

    Attributes:
        tool: its index, -1 for one that is not known.
        calls: how often the tool was called by now; 0 for one that is not known.
        outcome: what became of it.
        zero_shot: what ranks without demonstrations, after this call.
        is_parallel: whether it is of the same step as the call before it.
    """

    tool: int
    calls: int
    zero_shot: ZeroShotState
    outcome: Outcome = NO_OUTCOME
    is_parallel: bool = False


class BlockState(Protocol):
    """A block's state after the calls of a plan; immutable, so that copies of a plan share it.

    ``rows`` are the block's features, ``Block.rows`` of them: those that ``Block.start`` wrote,
    along the same calls.
    """

    def call(self, event: CallEvent, rows: Any) -> BlockState:
        """The state after one more call."""
        return self

    def write(self, rows: Any) -> None:
        """Bring the rows up to date, if the calls did not."""
        return


@runtime_checkable
class TextBlockState(Protocol):
    """The state of a block that reads what the agent wrote before its next call."""

    def say(self, words: Hashes, rows: Any) -> None:
        """Write the features of a text by the hashed stems of its words; none: unknown."""


@dataclass(frozen=True, slots=True)
class Query:
    """All that is computed once a query.

    Attributes:
        features: what its text says.
        context: what came before it.
        values: the numbers and dates in its text.
        table: shape (features + 1, tools): before any call; the last row is ones.
        zero_shot: what ranks without demonstrations, before any call.
        states: of each block that changes with calls, before any; what names its rows; and which
            rows of the table these are.
        reader: of calls, before any; copied where one is read.
    """

    features: QueryFeatures
    context: Context
    values: Values
    table: Matrix
    zero_shot: ZeroShotState
    states: list[tuple[BlockState, Callable[[Matrix], Any], slice]] = field(default_factory=list)
    reader: RunReader = NEW_RUN


class Block(ABC):
    """One family of features.

    Attributes:
        name: in the registry, and before the names of its arrays.
        about: what it reads, in a few words for people.
        rows: its features, by their names.
        text_features: those that are valid for a tool without demonstrations.
        prior: weights of features that are logarithms of probabilities by themselves; the ranker
            starts there.
        shortlist: weights of features in the choice of candidates among many tools.
        learned: attributes, and arguments, that ``fit`` does not count from the plans alone.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    rows: ClassVar[type[FeatureRows]]
    text_features: ClassVar[tuple[str, ...]] = ()
    prior: ClassVar[Mapping[str, float]] = {}
    shortlist: ClassVar[Mapping[str, float]] = {}
    learned: ClassVar[tuple[str, ...]] = ()

    def __init__(self, training: TrainingSet) -> None:  # noqa: B027 - some count nothing
        """Count what the plans say; blocks that learn more have their own ``fit``."""

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Learn from demonstrations."""
        return cls(training)

    @abstractmethod
    def start(self, query: Query, rows: Any) -> BlockState | None:
        """Write the features before any call.

        Args:
            query: its text and what came before it.
            rows: its ``rows``, all zeros.

        Returns:
            The state of no call; None where calls change nothing.
        """

    def arrays(self) -> Arrays:
        """Arrays to save, in half precision, to which ``fit`` rounds them."""
        arrays = {name: getattr(self, name) for name in self.learned}
        return {name: _as_float(array, np.float16) for name, array in arrays.items()}

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The block whose ``arrays`` these are, for a vocabulary that may be another."""
        if not cls.learned:
            return cls.fit(training)
        learned = {name: _as_float(arrays[name], np.float32) for name in cls.learned}
        return cls(training=training, **learned)


def _as_float(array: npt.NDArray[Any], dtype: type) -> npt.NDArray[Any]:
    return array.astype(dtype) if array.dtype.kind == "f" else array


class StepFeatures:
    """The features of every tool along the calls of one plan.

    Args:
        query: shared and never written.

    Attributes:
        table: shape (features + 1, tools); current after ``write``.
        calls: how many were made.
        zero_shot: what ranks without demonstrations, after these calls.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self.table = query.table.copy()
        self._name_rows()
        self._states = [state for state, _, _ in query.states]
        self._called: dict[int, int] = {}
        self.calls = 0
        self.zero_shot = query.zero_shot

    def copy(self) -> StepFeatures:
        """The same features, to go on from in another way."""
        other = copy(self)
        other.table, other._called = self.table.copy(), self._called.copy()
        other._name_rows()
        return other

    def _name_rows(self) -> None:
        """Name the rows of the table, once for all steps."""
        states = self.query.states
        self._rows = [name_rows(self.table[part]) for _, name_rows, part in states]

    def call(self, tool: int, outcome: Outcome = NO_OUTCOME, *, is_parallel: bool = False) -> None:
        """One more call; an index outside the tools is an unknown one, and so is the end."""
        self.calls += 1
        self.zero_shot = self.zero_shot.call(tool)
        if 0 <= tool < self.table.shape[1] - 1:
            count = self._called[tool] = self._called.get(tool, 0) + 1
            event = CallEvent(tool, count, self.zero_shot, outcome, is_parallel)
        else:
            event = CallEvent(-1, 0, self.zero_shot, outcome, is_parallel)
        both = zip(self._states, self._rows, strict=True)
        self._states = [state.call(event, rows) for state, rows in both]

    def say(self, words: Hashes) -> None:
        """The agent wrote a text before its next call; without words, none is known."""
        for state, rows in zip(self._states, self._rows, strict=True):
            if isinstance(state, TextBlockState):
                state.say(words, rows)

    def write(self) -> Matrix:
        """Bring the table up to date; it is this object's own, to be read before the next call."""
        for state, rows in zip(self._states, self._rows, strict=True):
            state.write(rows)
        return self.table
