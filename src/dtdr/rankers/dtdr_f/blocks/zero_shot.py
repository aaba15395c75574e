"""The ranking without demonstrations, which the ranker weighs as it does the other blocks.

It matches the query's clauses with names and descriptions, by weights of other sets (see
``dtdr.rankers.zero_shot``). So it says most of tools that few demonstrations call, or none.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix
from dtdr.rankers.zero_shot.scorer import ZeroShotState

_LEAST = 1e-5
"""Less likely tools are equally unlikely."""


class ByTextsRows(FeatureRows):
    """The ranking of a model without demonstrations."""

    by_texts: Matrix  # logarithm of its probability


class ZeroShotBlock(Block):
    """Probabilities that a model without demonstrations gives; nothing learned."""

    name = "zero_shot"
    about = "what the query's clauses ask for and the calls leave open, by names and descriptions"
    rows = ByTextsRows
    text_features = ByTextsRows.names
    prior: ClassVar = {"by_texts": 0.3}
    shortlist: ClassVar = {"by_texts": 0.5}

    def start(self, query: Query, rows: ByTextsRows) -> BlockState:
        """The logarithm of the probability of each tool."""
        state = _ZeroShotBlockState(query.zero_shot)
        state.write(rows)
        return state


class _ZeroShotBlockState(NamedTuple):
    zero_shot: ZeroShotState

    def call(self, event: CallEvent, rows: ByTextsRows) -> BlockState:
        return _ZeroShotBlockState(event.zero_shot)

    def write(self, rows: ByTextsRows) -> None:
        rows.by_texts[:] = np.log(self.zero_shot.probabilities() + _LEAST)
