"""Choices that the paper leaves open, each against another reading: MRR on the test side.

    python benchmarks/paper_choices.py [--datasets tinyagent t_eval] [--data-dir DATA]
    python benchmarks/paper_choices.py --encoder lexical
    python benchmarks/paper_choices.py --smoke

Every row is of one ranker with the paper's recipe, in which one thing is read in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import patch

import numpy as np

from dtdr.evaluate import mean_score, run
from dtdr.evaluate.tables import Column, share
from dtdr.predict.model import Model
from dtdr.rankers import linear, nn, ranker_class, similarity
from dtdr.rankers.base import History, Ranker
from dtdr.rankers.calibration import Floats
from dtdr.rankers.clustering import DTDRClustering
from dtdr.rankers.out_of_distribution import Placed
from dtdr.text.sparse import csr_array
from printing import print_rows
from sets import load_sets, make_parser

Patch = Callable[[], AbstractContextManager[Any]]


class Shorter(DTDRClustering):
    """An unseen history is looked up again without its oldest call, down to none."""

    def _row(self, prepared: Placed, history: History) -> Floats:
        (cluster, *_) = prepared.prepared
        chains = self.cluster_chains_
        node = chains.path(cluster, history)[-1]
        row = np.zeros(len(self.tools_))
        part = slice(chains.offsets[node], chains.offsets[node + 1])
        row[chains.next_tools[part]] = chains.counts[part] / chains.totals[node]
        return row


class WithoutEnd(linear.LearnedRetriever):
    """The end of the plan is not among the tools that a plan uses."""

    def _train(self, texts: Sequence[str], targets: csr_array) -> None:
        without = targets.tolil()
        without[:, -1] = 0
        super()._train(texts, csr_array(without))


def directed(graph: Floats) -> Any:
    """``D^-1 (A + I)``: each tool mixes with those called after it."""
    linked = graph + np.eye(len(graph))
    return (linked / linked.sum(axis=1, keepdims=True)).astype(np.float32)


class DataOrder:
    """Examples in the order of the data, in every epoch."""

    def permutation(self, count: int) -> Any:
        """All of them, in their order."""
        return np.arange(count)


def in_data_order() -> AbstractContextManager[Any]:
    """Train without shuffling."""

    def train(*given: Any, rng: Any, **options: Any) -> None:
        original(*given, rng=cast(Any, DataOrder()), **options)

    original = nn.train
    return patch.object(nn, "train", train)


def decaying_bias() -> AbstractContextManager[Any]:
    """Train with the weight decay on the bias, too."""

    def train(parameters: Any, gradients: Any, *given: Any, **options: Any) -> None:
        def decayed(chosen: Any) -> Any:
            all_of_them = gradients(chosen)
            rate = np.float32(linear.PAPER.weight_decay)
            return all_of_them | {"bias": all_of_them["bias"] + rate * parameters["bias"]}

        original(parameters, decayed, *given, **options)

    original = nn.train
    return patch.object(nn, "train", train)


@dataclass(frozen=True)
class Choice:
    """One row: a ranker, what is read in another way, and how."""

    ranker: str
    reading: str = "as in `recipe=paper`"
    settings: dict[str, Any] = field(default_factory=dict)
    other: type[Ranker] | None = None
    patched: Patch = nullcontext


CHOICES = (
    Choice("dtdr-c"),
    Choice("dtdr-c", "unseen history: without its oldest call", other=Shorter),
    Choice("dtdr-c", "order 2", {"order": 2}),
    Choice("dtdr-c", "order 1", {"order": 1}),
    Choice("tgr"),
    Choice(
        "tgr",
        "directed graph",
        patched=lambda: patch.object(similarity, "convolution", directed),
    ),
    Choice("lr"),
    Choice("lr", "end of plan not learned", other=WithoutEnd),
    Choice("lr", "batches of 32", {"batch_size": 32}),
    Choice("dtdr-l"),
    Choice("dtdr-l", "batches of 32", {"batch_size": 32}),
    Choice("dtdr-l", "one softmax over all tools", {"loss": "softmax"}),
    Choice("dtdr-l", "examples in the order of the data", patched=in_data_order),
    Choice("dtdr-l", "bias decays like the weights", patched=decaying_bias),
    Choice("dtdr-l", "learning rate does not decay", {"decay": 1.0}),
    Choice("dtdr-l", "another seed", {"seed": 1}),
)


def main() -> None:
    """Measure every row on every set."""
    parser = make_parser(__doc__, ["tinyagent", "t_eval"])
    parser.add_argument("--encoder", default="minilm")
    given = parser.parse_args()
    encoder = "lexical" if given.smoke else given.encoder

    def measured() -> Iterator[dict[str, Any]]:
        for dataset, split in load_sets(given, smoke=60):
            for choice in CHOICES:
                kind = choice.other or ranker_class(choice.ranker)
                with choice.patched():
                    ranker = kind(recipe="paper", encoder=encoder, **choice.settings)
                    mrr = mean_score(run(Model(ranker), dataset, split), "mrr")
                yield {
                    "dataset": dataset.name,
                    "ranker": choice.ranker,
                    "reading": choice.reading,
                    "mrr": mrr,
                }

    columns = [
        Column("Set", "dataset"),
        Column("Ranker", "ranker"),
        Column("Reading", "reading"),
        Column("MRR", "mrr", share, numeric=True),
    ]
    print_rows(measured(), columns, as_json=given.json, caption=f"Encoder: {encoder}.")


if __name__ == "__main__":
    main()
