"""``bm25``: words that the query shares with a tool's name, description and parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.base import Arrays
from dtdr.rankers.calibration import Floats
from dtdr.rankers.descriptions import document
from dtdr.rankers.name_ranker import StaticRanker
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.words import words


class WordIndex:
    """BM25 (Robertson and Zaragoza, 2009) over n documents, by the package bm25s."""

    def __init__(self, documents: Sequence[str]) -> None:
        import bm25s  # slow to import, and needed here only

        self._size = len(documents)
        terms = [_terms(text) for text in documents]
        self._scorer = bm25s.BM25(k1=1.5, b=0.75) if any(terms) else None
        if self._scorer is not None:
            self._scorer.index(terms, show_progress=False)

    def scores(self, text: str, leave_out: Collection[str] = ()) -> Floats:
        """Shape (n,): what each document scores for a text, 0 where they share no word.

        Args:
            text: of which the first 32,768 characters are read.
            leave_out: words of the text that do not count.
        """
        if self._scorer is not None:
            known = self._scorer.vocab_dict
            terms = _terms(text[:MAX_CHARACTERS])
            asked = [word for word in terms if word in known and word not in leave_out]
            if asked:
                return np.asarray(self._scorer.get_scores(asked), np.float64)
        return np.zeros(self._size)


class BM25Retriever(StaticRanker):
    """BM25 (Robertson and Zaragoza, 2009) over tool documents, by the package bm25s.

    Nothing is learned from demonstrations but which tools there are. Probabilities are the
    scores' shares of their sum.

    Args:
        threshold: the paper's α, used by ``Ranking.select()``.
        seed: not used; every ranker has one.
    """

    name = "bm25"
    needs_descriptions = True
    needs_demonstrations = False

    def __init__(self, *, threshold: float | None = None, seed: int = 0) -> None:
        self.threshold = threshold
        self.seed = seed

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        self._words = WordIndex(list(map(document, self.tools_)))

    def _prepare(self, queries: Sequence[str]) -> Sequence[Floats]:
        return [self._words.scores(query) for query in queries]

    def _restore(self, arrays: Arrays) -> None:
        self._fit(())  # indexing hundreds of tools takes milliseconds


def _terms(text: str) -> list[str]:
    return [word for word in words(text) if word[0].isalnum()]
