"""Choices that the paper leaves open, each against another reading: MRR on the test side.

    python benchmarks/paper_choices.py [--datasets tinyagent t_eval] [--data-dir DATA]
    python benchmarks/paper_choices.py --encoder lexical
    python benchmarks/paper_choices.py --smoke

Every row is of one ranker with the paper's recipe, in which one thing is read in another way. With
--thresholds, dtdr-l after batches of 1 and 32 at the paper's three values of the threshold: how
many tools are above it, at how many steps none is, and how often a right one is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, cast
from unittest.mock import patch

import numpy as np

from dtdr.evaluate import mean_score, run
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split
from dtdr.evaluate.harness import rank_after_calls
from dtdr.evaluate.lab.kinds.llm import ALPHAS
from dtdr.evaluate.planning.harness import choose_steps
from dtdr.evaluate.tables import Column, share
from dtdr.predict.model import Model
from dtdr.rankers import linear, optimiser, ranker_class, similarity
from dtdr.rankers.base import History, Ranker
from dtdr.rankers.calibration import Floats
from dtdr.rankers.clustering import DTDRClustering
from dtdr.rankers.out_of_distribution import Placed
from dtdr.text.sparse import csr_array
from printing import print_rows
from sets import load_sets, make_parser

BATCHES = (1, 32)

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

    original = optimiser.train
    return patch.object(linear, "train", train)


def decaying_bias() -> AbstractContextManager[Any]:
    """Train with the weight decay on the bias, too."""

    def train(parameters: Any, gradients: Any, *given: Any, **options: Any) -> None:
        def decayed(chosen: Any) -> Any:
            all_of_them = gradients(chosen)
            rate = np.float32(linear.PAPER.weight_decay)
            return all_of_them | {"bias": all_of_them["bias"] + rate * parameters["bias"]}

        original(parameters, decayed, *given, **options)

    original = optimiser.train
    return patch.object(linear, "train", train)


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


def above_thresholds(dataset: Dataset, split: Split, encoder: str) -> Iterator[dict[str, Any]]:
    """The rows of ``--thresholds``."""
    steps = choose_steps(split.testing(dataset.demonstrations))
    for size in BATCHES:
        model = Model(linear.DTDRLinear(recipe="paper", encoder=encoder, batch_size=size))
        model.fit(
            split.training(dataset.demonstrations),
            dataset.tools or None,
            arguments=False,
            plans=False,
        )
        rankings = rank_after_calls(model, steps)
        for threshold in ALPHAS:
            above = [
                {
                    ranking.vocabulary[place]
                    for place in np.flatnonzero(ranking.scores > threshold).tolist()
                }
                for ranking in rankings
            ]
            right = [
                bool(names.intersection(item.plan.acceptable_next(range(at))))
                for names, (item, at) in zip(above, steps, strict=True)
            ]
            yield {
                "dataset": dataset.name,
                "batch": size,
                "threshold": threshold,
                "tools": fmean(map(len, above)),
                "none": fmean(not names for names in above),
                "right": fmean(right),
            }


def main() -> None:
    """Measure every row on every set."""
    parser = make_parser(__doc__, ["tinyagent", "t_eval"])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--retriever", nargs="+", metavar="NAME", help="only rows of these")
    parser.add_argument("--thresholds", action="store_true", help="the sweep of the threshold")
    given = parser.parse_args()
    encoder = "lexical" if given.smoke else given.encoder
    caption = f"Encoder: {encoder}."
    if given.thresholds or given.smoke:
        swept = (
            row
            for dataset, split in load_sets(given, smoke=60)
            for row in above_thresholds(dataset, split, encoder)
        )
        columns = [
            Column("Set", "dataset"),
            Column("Batch", "batch", numeric=True),
            Column("Threshold", "threshold", numeric=True),
            Column("Tools above", "tools", share, numeric=True),
            Column("Steps with none", "none", share, numeric=True),
            Column("Steps with a right tool", "right", share, numeric=True),
        ]
        print_rows(swept, columns, as_json=given.json, caption=caption)
    if given.thresholds:
        return

    def measured() -> Iterator[dict[str, Any]]:
        for dataset, split in load_sets(given, smoke=60):
            for choice in CHOICES:
                if given.retriever and choice.ranker not in given.retriever:
                    continue
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
    print_rows(measured(), columns, as_json=given.json, caption=caption)


if __name__ == "__main__":
    main()
