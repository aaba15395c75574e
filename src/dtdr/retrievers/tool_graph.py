"""``tgr``: Tool Graph Retriever, query-tool similarity over a graph of learned dependencies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dtdr.demonstrations import Demonstration
from dtdr.ranking import Floats
from dtdr.retrievers.markov import MarkovChains
from dtdr.retrievers.similarity import QueryToolSimilarity


class ToolGraphRetriever(QueryToolSimilarity):
    """Description vectors smoothed over the tool graph (Gao et al., 2025; paper, App. F.3, Alg. 7).

    The graph is the first-order chain of the demonstrations (Alg. 2 with N = 1, one cluster), as
    the paper builds it for a fair comparison; one graph convolution ``D^-½ (A + I) D^-½`` mixes
    each tool's vector with those of the tools called before and after it.

    Args:
        encoder: its name, or the encoder.
        threshold: the paper's α, used by ``Ranking.select()``; on probabilities.
        seed: not used; every retriever has one.
    """

    name = "tgr"

    def _adapt(
        self, vectors: npt.NDArray[np.float32], demonstrations: Sequence[Demonstration]
    ) -> npt.NDArray[np.float32]:
        plans = [[self._index[name] for name in item.plan.tools] for item in demonstrations]
        mixed: npt.NDArray[np.float32] = convolution(transitions(plans, len(self.tools_))) @ vectors
        return mixed


def transitions(plans: Sequence[Sequence[int]], tools: int) -> Floats:
    """Shape (tools, tools): how often, of all calls of a row's tool, the column's came next."""
    chain = MarkovChains.build(plans, 1, tools)
    return np.stack([chain.lookup(0, [tool]) for tool in range(tools)])


def convolution(graph: Floats) -> npt.NDArray[np.float32]:
    """``D^-½ (A + I) D^-½`` with A the graph without directions (Kipf and Welling, 2017).

    Args:
        graph: shape (tools, tools), weights at least 0; either direction of an edge counts half.
    """
    linked = (graph + graph.T) / 2 + np.eye(len(graph))
    scale = 1 / np.sqrt(linked.sum(axis=1))
    result: npt.NDArray[np.float32] = (linked * scale[:, None] * scale).astype(np.float32)
    return result
