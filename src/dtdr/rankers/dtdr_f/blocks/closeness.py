"""How much of the query and of the run is known; the ranker weighs the other blocks by it.

It knows the words, pairs of words and queries of the demonstrations, and compares the query with
them. Its features are the same for every tool, so they change no order alone: they tell the ranker
how far to believe the blocks that read words, and whether outputs are there to be read.

Example, from the bundled set: for "Help me out and take me from Ghent to Accra by train tomorrow",
which goes on with two further requests, every word is known (``known_words`` is 1), .81 of its
phrases are, and the nearest query of the demonstrations has a similarity of only .32, since no
other asks for these three things. No call has an output, so ``has_outputs`` is 0.
"""

from __future__ import annotations

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query
from dtdr.rankers.dtdr_f.observations import NO_CONTEXT
from dtdr.rankers.dtdr_f.outcomes import NO_OUTCOME
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix


class ClosenessRows(FeatureRows):
    """How near the query and the run are to demonstrations; the same for every tool."""

    known_words: Matrix  # share of the query's words that demonstrations have
    known_phrases: Matrix  # the same of its phrases
    nearest_query: Matrix  # similarity of the nearest demonstration's query
    has_outputs: Matrix  # 1 where outputs or earlier turns are known


class Closeness(Block):
    """Share of known words and phrases, similarity to the nearest demonstration."""

    name = "closeness"
    about = "how much of the query is known"
    rows = ClosenessRows
    text_features = ClosenessRows.names

    def start(self, query: Query, rows: ClosenessRows) -> BlockState:
        """All that depends on the query."""
        features = query.features
        rows.known_words.fill(features.known)
        rows.known_phrases.fill(features.familiar)
        rows.nearest_query.fill(features.nearest)
        rows.has_outputs.fill(query.context is not NO_CONTEXT)
        return _ClosenessState()


class _ClosenessState(BlockState):
    def call(self, event: CallEvent, rows: ClosenessRows) -> BlockState:
        if event.outcome is not NO_OUTCOME:
            rows.has_outputs.fill(1)
        return self
