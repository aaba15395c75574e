"""How much of a query is in words that demonstrations hold."""

from __future__ import annotations

from typing import Self

from dtdr.retrievers.factored.blocks.base import Block, Query, TrainingSet
from dtdr.retrievers.nn import Matrix


class Coverage(Block):
    """Shares of known words and of known pairs of words; nothing is learned.

    The same for all tools: the ranker reads from it how far blocks that know words can be trusted.
    """

    name = "coverage"
    about = "how many words of the query are known"
    names = ("known_words", "known_pairs")

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """A block without anything learned."""
        return cls()

    def start(self, query: Query, out: Matrix) -> None:
        """The shares; calls change nothing."""
        terms = query.features.terms
        words = (len(terms) + 1) // 2
        for row, part in zip(out, (terms[:words], terms[words:]), strict=True):
            row.fill(1 - part.count(-1) / len(part) if part else 0)
