"""The contract of a block: one family of features of every tool, learned from demonstrations.

A fitted ``Block`` is shared and never changed. For each query it writes the features before any
call and returns how a ``BlockState`` begins; a state belongs to one plan, takes its calls, and
brings its features up to date before each ranking. The ranker sees a block through this alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.retrievers.descriptions import document
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.observations import (
    NO_CONTEXT,
    NO_OUTCOME,
    Context,
    Outcome,
)
from dtdr.retrievers.factored.query_features import (
    FEW_QUERIES,
    EncodedQueries,
    QueryFeatures,
    QueryFeaturizer,
    ReplayBuffer,
)
from dtdr.retrievers.factored.ridge import RidgeRegression, Weights
from dtdr.retrievers.factored.tool_texts import ToolTexts
from dtdr.retrievers.nn import Indices, Matrix

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

_CACHE_BYTES = 64_000_000
_HALF_TRUST = 50
"""Plans beside which a description counts half as much as a plan."""
MOST_DESCRIBED = 1_024
"""Tools up to which their descriptions are regressed on: the dual problem is cubic in them."""


@dataclass(frozen=True)
class TrainingSet:
    """What a block learns from.

    Attributes:
        tools: the vocabulary and its texts.
        featurizer: reads queries.
        plans: of the demonstrations.
        queries: of the demonstrations, one a plan; of some only, or of none, where a block is
            updated or restored.
        seen: the tools that demonstrations call, rising, and the end of plan.
        reference: counts are scaled as if they were of so many plans, so that they mean the same
            to the ranker however many are added; 0 leaves them as they are.
        width: hidden units of networks.
        seed: of random numbers.
        runs: what is known of the demonstrations besides names, one a query; None where that is
            nothing.
    """

    tools: ToolTexts
    featurizer: QueryFeaturizer
    plans: EncodedPlans
    queries: EncodedQueries
    seen: Indices
    reference: float
    width: int
    seed: int
    runs: EncodedRuns | None = None

    @cached_property
    def slots(self) -> npt.NDArray[np.intp]:
        """The place of each tool in ``seen``, -1 where it has none; one more -1 at the end."""
        slots = np.full(len(self.tools) + 1, -1, np.intp)
        slots[self.seen] = np.arange(len(self.seen))
        return slots

    @cached_property
    def scale(self) -> float:
        """Factor on weighted counts of plans."""
        total = float(self.plans.weights.sum())
        return self.reference / max(total, 1e-9) if self.reference else 1.0

    @cached_property
    def word_regression(self) -> RidgeRegression:
        """Of what plans call on the words and pairs of words of their queries."""
        plans, described = self.plans, None
        trust = _HALF_TRUST / (_HALF_TRUST + len(plans))
        if len(plans) < FEW_QUERIES and len(self.seen) <= MOST_DESCRIBED:
            texts = [*map(document, self.tools.tools[:-1]), ""]  # the end of plan has none
            described = self.featurizer.words.encode(texts)[self.seen]
        queries = self.queries.word_vectors
        return RidgeRegression(queries, plans.weights, self.seed, described, trust)

    @cached_property
    def frequency(self) -> Matrix:
        """Scaled number of calls of each tool; shape (tools,)."""
        return (self.plans.frequency * self.scale).astype(np.float32)


@dataclass(frozen=True)
class PlanUpdate:
    """Further demonstrations.

    Attributes:
        training: everything after the update; ``queries`` are those of the replay buffer.
        plans: the further plans.
        queries: their queries.
        replay: the replay buffer, the further demonstrations included.
        rehearsal: positions in the replay buffer of what networks learn now; None while too few
            new demonstrations have come.
        has_grown: whether there are so many more demonstrations that networks are trained anew.
    """

    training: TrainingSet
    plans: EncodedPlans
    queries: EncodedQueries
    replay: ReplayBuffer
    rehearsal: Indices | None
    has_grown: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the replay buffer holds every demonstration there is, and it is time to learn."""
        return self.rehearsal is not None and len(self.replay.plans) == len(self.training.plans)

    @property
    def is_refit(self) -> bool:
        """Whether networks are trained anew from every demonstration there is."""
        return self.has_grown and self.is_complete


@dataclass(frozen=True, slots=True)
class View:
    """The tools that a query keeps in view: the columns of its features.

    Attributes:
        size: how many there are, the end of plan, which is last, among them.
        tools: shape (size,): their indices, rising; None where all tools are in view.
        places: the column of each of them; None where all are.
        seen: the columns of tools with demonstrations; None for all.
        new: the columns of the others that may be ranked by their texts.
    """

    size: int
    tools: Indices | None
    places: dict[int, int] | None
    seen: Indices | None
    new: Indices

    def find_columns(self, tools: Sequence[int]) -> list[int]:
        """The columns of those of the tools that are in view."""
        places = self.places
        return list(tools) if places is None else [places[tool] for tool in tools if tool in places]

    def of(self, values: Matrix) -> Matrix:
        """The part in view of values whose last axis is that of all tools."""
        return values if self.tools is None else values.take(self.tools, axis=-1)

    def write(self, values: Matrix, out: Matrix) -> None:
        """Write that part."""
        if self.tools is None:
            out[:] = values
        else:  # the mode spares numpy a copy
            values.take(self.tools, axis=-1, out=out, mode="clip")


@dataclass(frozen=True, slots=True)
class Query:
    """A query for one set of fitted blocks.

    Attributes:
        features: what it says.
        view: the tools in view.
        memo: what a block computed for ``Block.relevance`` and needs again in ``Block.start``, by
            the name of the block.
        context: what came before it.
    """

    features: QueryFeatures
    view: View
    memo: dict[str, Matrix] = field(default_factory=dict)
    context: Context = NO_CONTEXT


@dataclass(frozen=True, slots=True)
class CallEvent:
    """One call.

    Attributes:
        tool: its index, -1 for one that is not known.
        column: its column in view, -1 where it has none.
        count: how often the tool was called by now; 0 for one that is not known.
        outcome: what became of it.
    """

    tool: int
    column: int
    count: int
    outcome: Outcome = NO_OUTCOME


class BlockState(Protocol):
    """The features of every tool in view along the calls of one plan."""

    def call(self, event: CallEvent) -> None:
        """One more call was made."""

    def write(self) -> None:
        """Bring the rows that the state was begun with up to date."""

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        """Write what ``Block.new_tool_names`` name, of some columns; after ``write``.

        Args:
            columns: of tools that are looked at as if they had no demonstrations.
            prior: shape (tools,): probabilities of the tools in view before the ranker.
            out: shape (new tool features, columns).
        """


Begin: TypeAlias = Callable[[Matrix], BlockState]
"""Makes a state that keeps the given rows, a copy of those that ``Block.start`` wrote."""


class Block(ABC):
    """One family of features.

    Attributes:
        name: in the registry, and before the names of its arrays.
        about: what it reads, in a few words for people.
        names: its features, in the order of their rows.
        new_tool_names: features of a tool for which nothing was learned from calls of the tool
            itself, so that tools with demonstrations can stand in for new ones.
        prior: the feature that is a logarithm of probabilities by itself; the ranker starts there.
        told_prior: where the ranker of runs that are told of starts, if few were demonstrated.
        shortlist: weights of features in the choice of candidates among many tools.
        reads_runs: says nothing unless something is known of runs besides names.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    new_tool_names: ClassVar[tuple[str, ...]] = ()
    prior: ClassVar[str | None] = None
    told_prior: ClassVar[str | None] = None
    shortlist: ClassVar[Mapping[str, float]] = {}
    reads_runs: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Learn from demonstrations."""

    def update(self, update: PlanUpdate) -> Block:
        """This block after further demonstrations; by default what ``fit`` gives."""
        return self.fit(update.training)

    def renumber(self, training: TrainingSet, slots: Indices) -> Block:
        """This block for another vocabulary; by default what ``fit`` gives.

        Args:
            training: with the vocabulary from now on.
            slots: the former place in ``seen`` of each tool that is seen now, -1 for a new one.
        """
        return self.fit(training)

    def widen(self, training: TrainingSet, first: int, count: int) -> Block:
        """This block where more words are known, which weigh nothing yet.

        Args:
            training: with the featurizer from now on.
            first: the column of the first new word, shapes standing behind the words.
            count: how many there are.
        """
        return self

    def relevance(self, query: QueryFeatures, memo: dict[str, Matrix]) -> Matrix | None:
        """How much a query speaks for each tool, on the scale of a log probability.

        What is in view among many tools is chosen by the sum over blocks; None says nothing.
        """
        return None

    @abstractmethod
    def start(self, query: Query, out: Matrix) -> Begin | None:
        """Write the features before any call.

        Args:
            query: with the tools in view.
            out: shape (features, tools in view), zeros.

        Returns:
            What begins a state; None where calls change nothing.
        """

    def warm(self, most: int) -> None:  # noqa: B027 - most blocks have nothing to compute
        """Compute what is otherwise computed when first asked for, among at most so many tools."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What is saved; what ``fit`` computes from the plans alone need not be."""
        return {}

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The block whose ``arrays`` these are.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        return cls.fit(training)


def read_word_weights(arrays: Arrays, training: TrainingSet, what: str) -> Weights:
    """Saved weights of words for tools, shape (words, seen).

    Raises:
        ModelError: they have another shape.
    """
    weights: Weights = arrays["weights"]
    expected = (training.featurizer.words.dimension, len(training.seen))
    if weights.shape != expected:
        raise ModelError(
            f"the weights of {what} have shape {weights.shape}, expected {expected}; fit it again"
        )
    return weights


class ToolRows:
    """Rows about one tool and all others, made when first asked for and kept while memory allows.

    Args:
        make: of some tools; shape (chosen, rows, tools).
        tools: size of the vocabulary, the end of plan, which has no rows, included.
    """

    def __init__(self, make: Callable[[Sequence[int]], Matrix], tools: int) -> None:
        self._make, self._tools = make, tools
        self._rows: dict[int, Matrix] = {}

    def __getitem__(self, tool: int) -> Matrix:
        rows = self._rows.get(tool)
        if rows is None:
            rows = self._make([tool])[0]
            if (len(self._rows) + 1) * rows.nbytes > _CACHE_BYTES:
                self._rows.clear()
            self._rows[tool] = rows
        return rows

    def warm(self, most: int) -> None:
        """Make all at once, for vocabularies of at most so many tools."""
        if 1 < self._tools <= most and len(self._rows) < self._tools - 1:
            self._rows = dict(enumerate(self._make(range(self._tools - 1))))
