"""Blocks that were fitted on the same demonstrations, and the features they give of every tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.tools import Tool
from dtdr.rankers.dtdr_f.blocks import BLOCKS
from dtdr.rankers.dtdr_f.blocks.block import Begin, Block, Query, TrainingSet, View
from dtdr.rankers.dtdr_f.blocks.chain import COUNTS
from dtdr.rankers.dtdr_f.blocks.parts import Parts
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.observations import NO_CONTEXT, Context
from dtdr.rankers.dtdr_f.queries import QueryFeatures, QueryFeaturizer
from dtdr.rankers.dtdr_f.tool_texts import ToolTexts, documents_of
from dtdr.rankers.dtdr_f.word_weights import WordWeights
from dtdr.rankers.nn import Indices, Matrix

MOST_IN_VIEW = 256
"""Tools that a query keeps in view among more, so that a step costs the same with 20,000."""
_MOST_NEW = 16
"""Tools without demonstrations that a query keeps in view."""


class Layout:
    """Which rows of a table of features belong to which block.

    Attributes:
        names: all features; a row of ones follows theirs in a table.
        rows: the rows of each block.
        text_rows: the rows that are valid without demonstrations of the tool, and the row of ones.
        prior: shape (features,): the weights that the ranker starts from.
        shortlist: shape (features + 1,): weights that make the order of candidates.
        counts: the row that does not depend on the query.
    """

    def __init__(self) -> None:
        self.names = tuple(name for block in BLOCKS for name in block.names)
        ends = accumulate(len(block.names) for block in BLOCKS)
        self.rows = [
            slice(end - len(block.names), end) for block, end in zip(BLOCKS, ends, strict=True)
        ]
        self.prior = np.zeros(len(self.names), np.float32)
        self.shortlist = np.zeros(len(self.names) + 1, np.float32)
        by_text = []
        for block, rows in zip(BLOCKS, self.rows, strict=True):
            for at, name in enumerate(block.names, rows.start):
                self.prior[at] = block.prior.get(name, 0)
                self.shortlist[at] = block.shortlist.get(name, 0)
                by_text += [at] * (name in block.text_features)
        self.text_rows: Indices = np.array([*by_text, len(self.names)], np.intp)
        self.counts = self.names.index(COUNTS)


LAYOUT = Layout()


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """All that is computed once a query.

    Attributes:
        features: what the query says.
        view: the tools in view; "tools" below counts these only.
        table: shape (features + 1, tools): before any call; the last row is ones.
        begins: how the state of each block that changes with calls begins, and its rows.
        rest: shape (all tools,): how those out of view share what is left for them; None if there
            are none.
        familiarity: how much the query is like those of the demonstrations.
    """

    features: QueryFeatures
    view: View
    table: Matrix
    begins: list[tuple[Begin, slice]]
    rest: npt.NDArray[np.float64] | None
    familiarity: float


class FittedBlocks:
    """Everything learned from plans, but for how to weigh it. Never changed once made.

    Args:
        training: what the blocks were fitted on.
        blocks: one of each type in ``BLOCKS``, in their order.
    """

    def __init__(self, training: TrainingSet, blocks: Sequence[Block]) -> None:
        self.training, self.blocks = training, tuple(blocks)
        self._new = np.flatnonzero(training.slots[:-2] < 0)
        self._whole = self._view(np.arange(len(training.tools)), self._new)

    @classmethod
    def fit(
        cls,
        tools: Sequence[Tool],
        encoded: EncodedDemonstrations,
        *,
        reference: float,
        seed: int,
        seen: Indices | None = None,
        advance: Callable[[], None],
    ) -> Self:
        """Learn from queries and their plans.

        Args:
            tools: the vocabulary.
            encoded: the demonstrations.
            reference: see ``TrainingSet``.
            seed: see ``DTDRFactored``.
            seen: the tools that networks have outputs for; None: those that plans call.
            advance: called once a block.
        """
        featurizer = QueryFeaturizer.fit(encoded.columns, documents_of(tools))
        seen = encoded.seen if seen is None else seen
        training = TrainingSet(
            ToolTexts(tools, featurizer.stems),
            featurizer,
            encoded,
            seen,
            WordWeights.fit(featurizer, encoded, tools, seen, seed),
            reference,
            seed,
        )
        blocks = []
        for block in BLOCKS:
            blocks.append(block.fit(training))
            advance()
        return cls(training, blocks)

    def read_parts(self, features: QueryFeatures) -> Matrix:
        """Whether and how often each part of a query asks for each tool.

        Shape (2, parts, tools).
        """
        asked = next(block for block in self.blocks if isinstance(block, Parts)).read(features)
        every = np.zeros((*asked.shape[:2], len(self.training.tools)), np.float32)
        every[:, :, self.training.seen] = asked
        return every

    def _view(self, tools: Indices, new: Indices) -> View:
        """The view of some tools, sorted, of which some are new."""
        slots = self.training.slots[tools]
        seen = np.flatnonzero(slots >= 0)
        is_whole = len(tools) == len(self.training.tools)
        return View(
            len(tools),
            None if is_whole else tools,
            {tool: column for column, tool in enumerate(tools.tolist())},
            seen,
            slots[seen],
            np.searchsorted(tools, new),
        )

    def prepare(self, features: QueryFeatures, context: Context = NO_CONTEXT) -> PreparedQuery:
        """Everything that depends on the query and what came before it alone."""
        view, rest = self._in_view(features)
        query = Query(features, view, context)
        table = np.zeros((len(LAYOUT.names) + 1, view.size), np.float32)
        table[-1] = 1
        begins = []
        for block, rows in zip(self.blocks, LAYOUT.rows, strict=True):
            begin = block.start(query, table[rows])
            if begin is not None:
                begins.append((begin, rows))
        return PreparedQuery(features, view, table, begins, rest, features.familiar)

    def _in_view(self, features: QueryFeatures) -> tuple[View, npt.NDArray[np.float64] | None]:
        """The tools in view, and how the others share what is left for them."""
        tools, new = self._whole.size, self._new
        if tools <= MOST_IN_VIEW and len(new) <= _MOST_NEW:
            return self._whole, None
        relevance = np.zeros(tools, np.float32)
        for block in self.blocks:
            values = block.relevance(features)
            if values is not None:
                relevance += values
        if len(new) > _MOST_NEW:
            new = np.sort(new[np.argpartition(-relevance[new], _MOST_NEW - 1)[:_MOST_NEW]])
        if tools <= MOST_IN_VIEW:
            return self._view(np.arange(tools), new), None
        rest = np.exp((relevance - relevance.max()).astype(np.float64))
        relevance[new] = relevance[-1] = np.inf
        chosen = np.sort(np.argpartition(-relevance, MOST_IN_VIEW - 1)[:MOST_IN_VIEW])
        rest[chosen] = 0
        rest /= max(float(rest.sum()), 1e-300)
        return self._view(chosen, new), rest

    # -- other tools ---------------------------------------------------------------------------

    def with_tools(self, tools: Sequence[Tool], position: Sequence[int]) -> FittedBlocks:
        """The same blocks for a vocabulary in which tools are renamed or added; see ``renumber``.

        Weights are kept by the order of ``TrainingSet.seen``, so none of them moves.
        """
        before = self.training
        featurizer = before.featurizer.with_documents(documents_of(tools))
        training = replace(
            before,
            tools=ToolTexts(tools, featurizer.stems),
            featurizer=featurizer,
            data=before.data.renumber(position, len(tools)),
            seen=np.array(position, np.intp)[before.seen],
        )
        return FittedBlocks(
            training, [block.restore(block.arrays(), training) for block in self.blocks]
        )

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        training = self.training
        arrays = {
            **training.featurizer.arrays(),
            **training.asked.arrays(),
            **training.data.arrays(),
            "seen": training.seen.astype(np.int32),
            "reference": np.array([training.reference], np.float64),
        }
        for block in self.blocks:
            part = block.arrays()
            arrays.update({f"{block.name}.{name}": array for name, array in part.items()})
        return arrays

    @classmethod
    def restore(
        cls,
        tools: Sequence[Tool],
        arrays: Mapping[str, npt.NDArray[Any]],
    ) -> Self:
        """Rebuild from the output of ``arrays``.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        encoded = EncodedDemonstrations.restore(arrays, len(tools))
        featurizer = QueryFeaturizer.restore(arrays, encoded.columns)
        training = TrainingSet(
            ToolTexts(tools, featurizer.stems),
            featurizer,
            encoded,
            arrays["seen"].astype(np.intp),
            WordWeights.restore(arrays),
            float(arrays["reference"][0]),
        )
        blocks = [block.restore(arrays_of(f"{block.name}.", arrays), training) for block in BLOCKS]
        return cls(training, blocks)


def arrays_of(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The arrays whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
