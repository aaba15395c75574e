"""``qts``: cosine similarity of the query and each tool's description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr import encoders
from dtdr.demonstrations import Demonstration
from dtdr.encoders.base import Encoder
from dtdr.ranking import Floats
from dtdr.retrievers.base import choose_encoder, softmax
from dtdr.retrievers.descriptions import description
from dtdr.retrievers.state import require, require_shape
from dtdr.retrievers.static import StaticRetriever
from dtdr.retrievers.vectors import dense, fitted, product, rows, unit

TEMPERATURE = 0.15
"""Softmax temperature of cosines. Mean negative log of the probability of the acceptable tools on
the training sides of TinyAgent and T-Eval, lexical and MiniLM: 3.22 at 0.05, 2.79 at 0.1, 2.78 at
0.15, 2.81 at 0.2, 2.93 at 0.5. Cosines of words want a lower one, those of sentences a higher."""


class QueryToolSimilarity(StaticRetriever):
    """Vanilla query-tool similarity (paper, App. F.3, Alg. 7).

    Probabilities are a softmax of the cosines: the paper's shares of the cosines rank alike but
    leave tools of cosine 0 or less without an order, and are nearly uniform.

    Args:
        encoder: its name, or the encoder.
        threshold: the paper's α, used by ``Ranking.select()``; on probabilities.
        seed: not used; every retriever has one.
    """

    name = "qts"
    needs_descriptions = True
    uses_encoder = True

    encoder: Encoder
    tool_vectors_: npt.NDArray[np.float32]
    """Shape (tools, dimension), rows of length 1."""

    def __init__(
        self,
        *,
        encoder: str | Encoder = encoders.DEFAULT,
        threshold: float | None = None,
        seed: int = 0,
    ) -> None:
        self.encoder = choose_encoder(encoder)
        self.threshold = threshold
        self.seed = seed

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        texts = [description(tool) for tool in self.tools_]
        queries = [demonstration.query for demonstration in demonstrations]
        self.encoder = fitted(self.encoder, [*texts, *queries])
        self._set_vectors(self._adapt(dense(self.encoder.encode(texts)), demonstrations))

    def _adapt(
        self, vectors: npt.NDArray[np.float32], demonstrations: Sequence[Demonstration]
    ) -> npt.NDArray[np.float32]:
        """What is done to the description vectors before they are compared; here nothing."""
        return vectors

    def _set_vectors(self, vectors: npt.NDArray[np.float32]) -> None:
        self.tool_vectors_ = unit(vectors)
        self._columns = np.ascontiguousarray(self.tool_vectors_.T)

    def _texts(self, queries: Sequence[str]) -> Sequence[str]:
        """What is encoded for each query; here the query."""
        return queries

    def _scores(self, queries: Sequence[str]) -> Sequence[Floats]:
        vectors = self.encoder.encode(self._texts(queries))
        return [
            softmax(product(row, self._columns).astype(np.float64) / TEMPERATURE)
            for row in rows(vectors)
        ]

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return {"tool_vectors": self.tool_vectors_}

    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        require(state, {"tool_vectors"})
        shape = (len(self.tools_), self.encoder.dimension)
        self.tool_vectors_ = require_shape(state, "tool_vectors", shape)
        self._columns = np.ascontiguousarray(self.tool_vectors_.T)
