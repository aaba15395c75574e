"""How much of the query and of the run is known; the ranker weighs the other blocks by it."""

from __future__ import annotations

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query
from dtdr.rankers.dtdr_f.observations import NO_CONTEXT, NO_OUTCOME
from dtdr.rankers.nn import Matrix


class Closeness(Block):
    """Share of known words and phrases, similarity to the nearest demonstration; nothing learned.

    These are the same for every tool, so they change what the others' features count.
    """

    name = "closeness"
    about = "how much of the query is known"
    names = ("known_words", "known_phrases", "nearest_query", "has_outputs")
    text_features = names

    def start(self, query: Query, out: Matrix) -> BlockState:
        """All that depends on the query."""
        features = query.features
        out[0], out[1], out[2] = features.known, features.familiar, features.nearest
        out[3] = query.context is not NO_CONTEXT
        return _ClosenessState()


class _ClosenessState(BlockState):
    def call(self, event: CallEvent, rows: Matrix) -> BlockState:
        if event.outcome is not NO_OUTCOME:
            rows[3] = 1
        return self
