"""``lr``: TinyAgent's learned retriever, the tools that a query as a whole needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from dtdr.demonstrations import Demonstration
from dtdr.ranking import Floats
from dtdr.retrievers.layered import PAPER, LayerRetriever
from dtdr.retrievers.linear_layer import Optimisation
from dtdr.retrievers.static import StaticRetriever
from dtdr.retrievers.steps import training_steps
from dtdr.retrievers.vectors import fitted


class LearnedRetriever(LayerRetriever, StaticRetriever):
    """LR: a linear layer on the query's vector (Erdogan et al., 2024; paper, App. F.2).

    ``recipe="paper"`` learns which tools the plan uses, the end of plan among them, with one
    binary cross-entropy a tool. The default learns, with one softmax, at how many of the plan's
    steps each tool is acceptable, at a higher rate for 20 epochs. MRR by 3-fold validation within
    the training sides of TinyAgent and T-Eval: lexical .434 and .390 with the paper's recipe, .638
    and .413 with the default; MiniLM .423 and .362, .588 and .423. Counting the steps at which a
    tool was called instead: .563 and .416, .547 and .419 (2 of the folds).
    """

    name = "lr"
    RECIPES: ClassVar[dict[str, Optimisation]] = {
        "paper": PAPER,
        "default": Optimisation(
            loss="softmax",
            epochs=20,
            learning_rate=0.03,
            decay=0.9,
            weight_decay=1e-4,
            batch_size=32,
        ),
    }

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        queries = [demonstration.query for demonstration in demonstrations]
        self.encoder = fitted(self.encoder, queries)
        steps = training_steps(demonstrations, self._index)
        rows = (steps.demonstration, range(len(steps.demonstration)))
        owner = csr_array((np.ones(len(steps.demonstration), np.float32), rows))
        if self.recipe == "paper":
            targets = ((owner @ steps.following) > 0).astype(np.float32)
        else:
            targets = owner @ steps.acceptable
        self._train(queries, csr_array(targets))

    def _scores(self, queries: Sequence[str]) -> Sequence[Floats]:
        return self._predict(queries)
