"""Blocks that were fitted on the same demonstrations, and the features they give of every tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.encoders.base import Encoder
from dtdr.errors import ModelError
from dtdr.retrievers.factored.blocks import block_types
from dtdr.retrievers.factored.blocks.base import (
    Arrays,
    Begin,
    Block,
    Query,
    TrainingSet,
    View,
)
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.layout import Layout
from dtdr.retrievers.factored.observations import (
    NO_CONTEXT,
    Context,
)
from dtdr.retrievers.factored.query_features import QueryFeatures, QueryFeaturizer, ReplayBuffer
from dtdr.retrievers.factored.tool_texts import ToolTexts, documents_of
from dtdr.retrievers.nn import Indices, Matrix
from dtdr.tools import Tool

MOST_IN_VIEW = 256
"""Tools that a query keeps in view among more, so that a step costs the same with 20,000."""
_MOST_NEW = 16
"""Tools without demonstrations that a query keeps in view."""
REPLAY = 2_000
"""Demonstrations that are kept to learn from again: .7 MB for 1,000 queries of 30 words."""
_WARM = 1_024
"""Tools up to which what is said of pairs of them is computed at once: 25 MB and half a second."""
_PLANS, _REPLAYED = "plans.", "replay."


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """All that is computed once a query.

    Attributes:
        features: what the query says.
        view: the tools in view; "tools" below counts these only.
        table: shape (features + 1, tools): before any call; the last row is ones.
        begins: how the state of each block that changes with calls begins, its rows, and those
            of what it says about new tools.
        rest: shape (all tools,): how those out of view share what is left for them; None where
            there are none.
        is_told: whether it is known what came before.
        is_reworded: whether the query is worded otherwise than the demonstrations.
    """

    features: QueryFeatures
    view: View
    table: Matrix
    begins: list[tuple[Begin, slice, slice]]
    rest: npt.NDArray[np.float64] | None
    is_told: bool = False
    is_reworded: bool = False


class FittedBlocks:
    """Everything learned from plans, but for how to weigh it. Never changed once made.

    Args:
        training: what the blocks were fitted on.
        blocks: in the order of the registry.
        replay: some of the demonstrations.
        pending: how many of the last plans networks have not learned yet.
        trained: how many plans there were when networks were trained from random weights; None:
            as many as there are, without those.
    """

    def __init__(
        self,
        training: TrainingSet,
        blocks: Sequence[Block],
        replay: ReplayBuffer,
        pending: int = 0,
        trained: int | None = None,
    ) -> None:
        self.training, self.blocks = training, tuple(blocks)
        self.replay, self.pending = replay, pending
        self.trained = len(training.plans) - pending if trained is None else trained
        self.layout = Layout([type(block) for block in blocks])
        self.reads_runs = any(block.reads_runs for block in blocks)
        tools = len(training.tools)
        unseen = training.slots[:-1] < 0
        self._new = np.flatnonzero(unseen)
        seen = None if len(training.seen) == tools else training.seen
        self._whole = View(tools, None, None, seen, self._new)

    @classmethod
    def fit(
        cls,
        names: Sequence[str],
        tools: Sequence[Tool],
        texts: Sequence[str],
        plans: EncodedPlans,
        runs: EncodedRuns | None = None,
        *,
        encoder: Encoder | None,
        width: int,
        reference: float,
        seed: int,
        advance: Callable[[], None],
        seen: Indices | None = None,
    ) -> Self:
        """Learn from queries and their plans.

        Args:
            names: of the blocks.
            tools: the vocabulary.
            texts: the queries.
            plans: theirs.
            runs: what else is known of them.
            encoder: see ``DTDRFactored``.
            width: see ``DTDRFactored``.
            reference: see ``TrainingSet``.
            seed: see ``DTDRFactored``.
            advance: called once a block.
            seen: the tools that are ranked as if plans called them, rising; None: those that do.
        """
        featurizer = QueryFeaturizer.fit(texts, documents_of(tools), encoder)
        queries = featurizer.read_all(texts)
        training = TrainingSet(
            ToolTexts(tools, featurizer.stems),
            featurizer,
            plans,
            queries,
            plans.seen if seen is None else seen,
            reference,
            width,
            seed,
            runs,
        )
        blocks = []
        for block in block_types(names):
            blocks.append(block.fit(training))
            advance()
        replay = ReplayBuffer(np.arange(len(plans)), queries, runs)
        # A copy does not keep what only fitting needed.
        training = replace(training)
        return cls(training, blocks, replay.sample(np.random.default_rng(seed), REPLAY))

    def select(self, names: Sequence[str]) -> FittedBlocks:
        """With the blocks of these names only."""
        blocks = [block for block in self.blocks if block.name in names]
        return FittedBlocks(self.training, blocks, self.replay, self.pending, self.trained)

    @property
    def new(self) -> Indices:
        """Indices of the tools that no demonstration calls."""
        return self._new

    def warm(self, most: int = _WARM) -> None:
        """Compute now what is otherwise computed when first asked for, among so many tools."""
        for block in self.blocks:
            block.warm(most)

    def prepare(self, query: str | QueryFeatures, context: Context = NO_CONTEXT) -> PreparedQuery:
        """Everything that depends on the query and what came before it alone.

        Args:
            query: its text, or what was read of it.
            context: what came before it.
        """
        features = self.training.featurizer.read(query) if isinstance(query, str) else query
        memo: dict[str, Matrix] = {}
        view, rest = self._in_view(features, memo)
        whole = Query(features, view, memo, context)
        table = np.zeros((len(self.layout.names) + 1, view.size), np.float32)
        table[-1] = 1
        begins = []
        layout = self.layout
        for block, rows, new in zip(self.blocks, layout.rows, layout.new_tool_rows, strict=True):
            begin = block.start(whole, table[rows])
            if begin is not None:
                begins.append((begin, rows, new))
        return PreparedQuery(features, view, table, begins, rest, context is not NO_CONTEXT)

    def _in_view(
        self, features: QueryFeatures, memo: dict[str, Matrix]
    ) -> tuple[View, npt.NDArray[np.float64] | None]:
        """The tools in view, and how the others share what is left for them."""
        tools, new = self._whole.size, self._new
        if tools <= MOST_IN_VIEW and len(new) <= _MOST_NEW:
            return self._whole, None
        relevance = np.zeros(tools, np.float32)
        for block in self.blocks:
            values = block.relevance(features, memo)
            if values is not None:
                relevance += values
        if len(new) > _MOST_NEW:
            new = np.sort(new[np.argpartition(-relevance[new], _MOST_NEW - 1)[:_MOST_NEW]])
        if tools <= MOST_IN_VIEW:
            return View(tools, None, None, self._whole.seen, new), None
        rest = np.exp((relevance - relevance.max()).astype(np.float64))
        relevance[new] = relevance[-1] = np.inf
        chosen = np.sort(np.argpartition(-relevance, MOST_IN_VIEW - 1)[:MOST_IN_VIEW])
        rest[chosen] = 0
        rest /= max(float(rest.sum()), 1e-300)
        places = {tool: column for column, tool in enumerate(chosen.tolist())}
        seen = np.flatnonzero(self.training.slots[chosen] >= 0)
        view = View(
            MOST_IN_VIEW,
            chosen,
            places,
            None if len(seen) == len(chosen) else seen,
            np.searchsorted(chosen, new),
        )
        return view, rest

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        training = self.training
        return {
            **training.featurizer.arrays(),
            **_add_prefix(_PLANS, training.plans.arrays()),
            **_add_prefix(_REPLAYED, self.replay.arrays()),
            "seen": training.seen.astype(np.int32),
            "reference": np.array([training.reference], np.float64),
            "pending": np.array([self.pending], np.int32),
            "trained": np.array([self.trained], np.int32),
            **{
                name: array
                for block in self.blocks
                for name, array in _add_prefix(f"{block.name}.", block.arrays()).items()
            },
        }

    @classmethod
    def restore(
        cls,
        names: Sequence[str],
        tools: Sequence[Tool],
        arrays: Arrays,
        *,
        encoder: Encoder | None,
        width: int,
        seed: int,
    ) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        seen, reference = arrays["seen"].astype(np.intp), float(arrays["reference"][0])
        rising = len(seen) > 0 and seen[0] >= 0 and (np.diff(seen) > 0).all()
        if not rising or seen[-1] != len(tools) - 1 or not reference >= 0:
            raise ModelError(f"the blocks of the model do not fit its {len(tools)} tools")
        featurizer = QueryFeaturizer.restore(arrays, encoder)
        replay = ReplayBuffer.restore(_part(_REPLAYED, arrays), featurizer, len(tools))
        training = TrainingSet(
            ToolTexts(tools, featurizer.stems),
            featurizer,
            EncodedPlans.restore(_part(_PLANS, arrays), len(tools)),
            replay.queries,
            seen,
            reference,
            width,
            seed,
            replay.runs,
        )
        blocks = [
            block.restore(_part(f"{block.name}.", arrays), training)
            for block in block_types(names)
            if replay.runs is not None or not block.reads_runs
        ]
        # Folders of versions that never trained networks anew do not say when that was.
        trained = int(arrays["trained"][0]) if "trained" in arrays else None
        return cls(training, blocks, replay, int(arrays["pending"][0]), trained)


def _add_prefix(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _part(prefix: str, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
