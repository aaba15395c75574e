"""The ranking without demonstrations, which the ranker weighs as it does the other blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query
from dtdr.rankers.nn import Matrix
from dtdr.rankers.zero_shot.scorer import ZeroShotState

_LEAST = 1e-5
"""Less likely tools are equally unlikely."""


class ZeroShot(Block):
    """What a model without demonstrations says of each tool; nothing learned."""

    name = "zero_shot"
    about = "what the query's clauses ask for and the calls leave open, by names and descriptions"
    names = ("zero_shot",)
    text_features = names
    prior: ClassVar = {"zero_shot": 0.3}
    shortlist: ClassVar = {"zero_shot": 0.5}

    def start(self, query: Query, out: Matrix) -> BlockState:
        """The logarithm of the probability of each tool."""
        state = _State(query.zero_shot)
        state.write(out)
        return state


@dataclass(frozen=True, slots=True)
class _State(BlockState):
    zero_shot: ZeroShotState

    def call(self, event: CallEvent, rows: Matrix) -> BlockState:
        return _State(event.zero_shot)

    def write(self, rows: Matrix) -> None:
        rows[0] = np.log(self.zero_shot.probabilities() + _LEAST)
