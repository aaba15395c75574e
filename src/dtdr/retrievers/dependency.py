"""``dr``: ToolNet's dependency retriever, what usually follows the last call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.demonstrations import Demonstration
from dtdr.ranking import Floats
from dtdr.retrievers.base import Retriever
from dtdr.retrievers.markov import MarkovChains
from dtdr.retrievers.session import History
from dtdr.retrievers.state import require


class DependencyRetriever(Retriever):
    """First-order Markov chain over all demonstrations (Liu et al., 2024; paper, App. F.2).

    The paper's Algorithms 2 and 3 with N = 1 and one cluster. The query is not looked at; after a
    tool that was never seen all tools are equal.

    Args:
        weighted: rank the tools that followed by how often they did; otherwise all alike.
        threshold: the paper's α, used by ``Ranking.select()``.
        seed: not used; every retriever has one.
    """

    name = "dr"
    chain_: MarkovChains

    def __init__(
        self, *, weighted: bool = True, threshold: float | None = None, seed: int = 0
    ) -> None:
        self.weighted = weighted
        self.threshold = threshold
        self.seed = seed

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        plans = [[self._index[name] for name in item.plan.tools] for item in demonstrations]
        self.chain_ = MarkovChains.build(plans, 1, len(self.tools_))

    def _prepare(self, queries: Sequence[str]) -> Sequence[None]:
        return [None] * len(queries)

    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        return np.stack(
            [self.chain_.lookup(0, history, weighted=self.weighted) for history in histories]
        )

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return self.chain_.state("chain.")

    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        require(state, MarkovChains.array_names("chain."))
        self.chain_ = MarkovChains.restore(state, "chain.", order=1, tools=len(self.tools_))
