"""``bm25``: words that the query shares with a tool's name, description and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from dtdr.calibration import Floats
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError, check_at_least
from dtdr.retrievers.array_checks import require
from dtdr.retrievers.base import StaticRetriever
from dtdr.retrievers.descriptions import document
from dtdr.retrievers.search import WordIndex


class BM25Retriever(StaticRetriever):
    """BM25 (Robertson and Zaragoza, 2009) over tool documents, by the package bm25s.

    Nothing is learned from demonstrations but which tools there are. Probabilities are the
    scores' shares of their sum.

    Args:
        k1: how much a repeated word adds; at least 0.
        b: how much long documents are marked down, 0 to 1.
        threshold: the paper's α, used by ``Ranking.select()``.
        seed: not used; every retriever has one.

    Raises:
        InputError: ``k1`` or ``b`` is out of range.
    """

    name = "bm25"
    needs_descriptions = True

    def __init__(
        self, *, k1: float = 1.5, b: float = 0.75, threshold: float | None = None, seed: int = 0
    ) -> None:
        check_at_least(0, k1=k1)
        if not 0 <= b <= 1:
            raise InputError(f"b is {b}; it must be in [0, 1]")
        self.k1 = k1
        self.b = b
        self.threshold = threshold
        self.seed = seed

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        self._words = WordIndex(list(map(document, self.tools_)), k1=self.k1, b=self.b)

    def _scores(self, queries: Sequence[str]) -> Sequence[Floats]:
        return [self._words.scores(query) for query in queries]

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        # The folder's list of tools is all there is to know: indexing hundreds takes milliseconds.
        return {}

    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        require(state, set())
        self._fit(())
