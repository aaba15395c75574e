"""Base of the retrievers that look at the query alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from dtdr.ranking import Floats
from dtdr.retrievers.base import Retriever
from dtdr.retrievers.session import History


class StaticRetriever(Retriever):
    """Ranks once a query and keeps that ranking for the whole plan (paper, App. F.3, Alg. 7)."""

    static = True

    def _prepare(self, queries: Sequence[str]) -> Sequence[Floats]:
        return self._scores(queries)

    @abstractmethod
    def _scores(self, queries: Sequence[str]) -> Sequence[Floats]:
        """For each query, scores of shape (tools,), at least 0."""

    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        return np.stack(prepared)
