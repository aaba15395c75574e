"""How often does a cache of whole plans hit, how often is it right, and what does that save?

    python benchmarks/plan_cache.py [--datasets tinyagent t_eval tau_airline] [--test]
    python benchmarks/plan_cache.py --smoke

Runs are replayed in the order of the set's records: each query is asked for, then the run that it
really had is put. A cache begins with what came before: the first 60 % of the groups of the
training side for the rest of it, or with ``--test`` the training side for the test side. Right
means the tools of the run, each as often.

``nearest`` is what semantic caches do: the plan of the most similar query so far, above a threshold
of cosine or BM25 (a share of the score of the query with itself). Its threshold is the one that
saves most requests in the replay of the training side. ``PlanCache`` gives plans by their
calibrated probability; ``believed`` is the mean probability of the hits.

Requests: an agent that goes step by step asks its LLM once a call and once for the end. A hit asks
once where something has to be written, else never; a wrong one costs that beside all steps.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import track
from dtdr.data.run import Run
from dtdr.evaluate.datasets.source import Dataset
from dtdr.evaluate.datasets.splits import Split
from dtdr.evaluate.tables import Column, count, share
from dtdr.llm.planning import PlanCache
from dtdr.predict import create
from dtdr.predict.model import Model
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.text import encoders
from dtdr.text.encoders.lexical import words
from printing import print_rows
from sets import load_sets, make_parser

Scores = npt.NDArray[np.float64]

EARLY = 0.6
LIMITS = (0.2, 0.5, 0.8)
"""Where a hit saves five requests or costs one, giving plans pays from .17 on."""


@dataclass(frozen=True)
class Answer:
    """What a cache had for one query; its score decides whether that is given.

    Attributes:
        score: probability or similarity.
        is_right: whether the plan has the tools of the run.
        asks: requests for what has to be written.
        calls: of the run.
    """

    score: float
    is_right: bool
    asks: int
    calls: int

    @property
    def saved(self) -> int:
        """Requests that giving it saves; negative where it is wrong."""
        return self.calls + 1 - self.asks if self.is_right else -self.asks


def replay_nearest(
    known: Sequence[Demonstration],
    replayed: Sequence[Demonstration],
    similarities: Callable[[Sequence[str]], Scores],
    unknown: Callable[[Demonstration], int],
) -> list[Answer]:
    """The plan of the most similar query before, for each query.

    Args:
        known: the runs before, in their order.
        replayed: the runs that are asked for, in their order.
        similarities: of each query with each, itself at 1; what comes later is not looked at.
        unknown: requests that filling the plan of a query takes.
    """
    every = [*known, *replayed]
    similar = similarities([item.query for item in every])
    answers = []
    for place, item in enumerate(replayed, len(known)):
        best = int(np.argmax(similar[place, :place]))
        is_right = sorted(every[best].plan.tools) == sorted(item.plan.tools)
        score = float(similar[place, best])
        answers.append(Answer(score, is_right, unknown(item), len(item.plan)))
    return answers


def cosines(encoder: str) -> Callable[[Sequence[str]], Scores]:
    """Cosines of texts in the space of an encoder that learned them all."""

    def similarities(texts: Sequence[str]) -> Scores:
        vectors = encoders.create(encoder).fit(list(texts)).encode(list(texts))
        vectors = np.asarray(vectors.toarray() if hasattr(vectors, "toarray") else vectors)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        similar: Scores = vectors @ vectors.T
        return similar

    return similarities


def bm25(texts: Sequence[str]) -> Scores:
    """Scores of BM25 (k1 1.5, b .75) as a share of that of the query with itself."""
    found = [words(text) for text in texts]
    index = {word: number for number, word in enumerate(sorted({w for one in found for w in one}))}
    counts = np.zeros((len(texts), len(index)))
    for row, one in zip(counts, found, strict=True):
        for word in one:
            row[index[word]] += 1
    holding = (counts > 0).sum(axis=0)
    idf = np.log1p((len(texts) - holding + 0.5) / (holding + 0.5))
    length = counts.sum(axis=1, keepdims=True)
    weights = counts * 2.5 / (counts + 1.5 * (0.25 + 0.75 * length / length.mean())) * idf
    scores = (counts > 0) @ weights.T
    shares: Scores = scores / np.maximum(np.diag(scores)[:, None], 1e-9)
    return shares


def replay_cache(cache: PlanCache, replayed: Sequence[Demonstration]) -> list[Answer]:
    """What the cache has, at whatever probability."""
    answers = []
    for item in track(replayed, "plan cache", len(replayed)):
        answers.append(_answer(cache.get(Run(item.query, item.before)), item))
        cache.put(item)
    return answers


def _answer(plan: PlanPrediction | None, item: Demonstration) -> Answer:
    score = -1.0 if plan is None else plan.probability
    is_right = plan is not None and sorted(plan.tools) == sorted(item.plan.tools)
    asks = int(plan is not None and not plan.is_complete)
    return Answer(score, is_right, asks, len(item.plan))


def best_threshold(answers: Sequence[Answer]) -> float:
    """The score from which giving plans saves most requests; infinite where none saves any."""
    order = sorted(answers, key=lambda answer: -answer.score)
    saved = np.cumsum([answer.saved for answer in order])
    best = int(np.argmax(saved))
    return order[best].score if saved[best] > 0 else float("inf")


def line(name: str, answers: Sequence[Answer], limit: float, *, honest: bool) -> dict[str, Any]:
    """One row: what a cache that gives plans from a score on does."""
    hits = [answer for answer in answers if answer.score >= limit]
    requests = sum(answer.calls + 1 for answer in answers)
    return {
        "method": name,
        "threshold": limit,
        "queries": len(answers),
        "hits": len(hits),
        "hit_rate": len(hits) / len(answers),
        "precision": statistics.fmean(hit.is_right for hit in hits) if hits else float("nan"),
        "believed": statistics.fmean(hit.score for hit in hits) if hits and honest else None,
        "saved": sum(hit.saved for hit in hits) / requests,
    }


def sides(
    dataset: Dataset, split: Split, *, test: bool
) -> tuple[list[Demonstration], list[Demonstration]]:
    """What the cache begins with, and what is replayed; failed runs are left out."""
    known, held = split.training(dataset.demonstrations), split.testing(dataset.demonstrations)
    known = [item for item in known if item.outcome != "failure"]
    if not test:
        groups = list(dict.fromkeys(item.group or item.id for item in known))
        early = set(groups[: int(EARLY * len(groups))])
        held = [item for item in known if (item.group or item.id) not in early]
        known = [item for item in known if (item.group or item.id) in early]
    held = [item for item in held if item.outcome != "failure"]
    return known, held


def replay(
    dataset: Dataset, split: Split, given: argparse.Namespace
) -> tuple[dict[str, list[Answer]], dict[str, list[Answer]]]:
    """Answers of the nearest query by each similarity, and of calibrated caches."""
    known, held = sides(dataset, split, test=given.test)
    retriever = create("dtdr-f", seed=given.seed)
    retriever.fit(known, dataset.tools, arguments=True, plans=True)
    answers = replay_cache(PlanCache(retriever, 0.0), held)
    needs = {item.id: _needs(retriever, item) for item in held}
    nearest = nearest_answers(known, held, given, lambda item: needs[item.id])
    return nearest, {"PlanCache": answers}


def nearest_answers(
    known: Sequence[Demonstration],
    held: Sequence[Demonstration],
    given: argparse.Namespace,
    unknown: Callable[[Demonstration], int],
) -> dict[str, list[Answer]]:
    """Answers of the nearest query by each similarity."""
    kinds = {"BM25": bm25, **{encoder: cosines(encoder) for encoder in given.encoders}}
    return {
        f"nearest, {kind}": replay_nearest(known, held, similarities, unknown)
        for kind, similarities in kinds.items()
    }


def _needs(retriever: Model, item: Demonstration) -> int:
    """Requests that filling the run's own plan takes: 1 where something is unknown."""
    run = Run(item.query, item.before)
    for call in item.plan.calls:
        if retriever.fill(call.tool, run).unknown:
            return 1
        run.call(call.tool, call.arguments, id=call.id)
    return 0


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line a set, method and threshold."""
    for dataset, split in load_sets(given, smoke=40):
        # What a plan asks for is not known without a model: once, says the choice.
        chosen = nearest_answers(*sides(dataset, split, test=False), given, lambda _: 1)
        shown, calibrated = replay(dataset, split, given)
        for method, answers in shown.items():
            limit = best_threshold(chosen[method])
            yield {"dataset": dataset.name, **line(method, answers, limit, honest=False)}
        for method, answers in calibrated.items():
            for limit in LIMITS:
                yield {"dataset": dataset.name, **line(method, answers, limit, honest=True)}


def main() -> None:
    """Print a table, or one JSON object a line."""
    parser = make_parser(__doc__, ["tinyagent", "t_eval", "tau_airline"])
    parser.add_argument("--encoders", nargs="*", default=["lexical", "minilm"])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.smoke:
        given.encoders = ["lexical"]
    columns = [
        Column("Set", "dataset"),
        Column("Cache", "method"),
        Column("from", "threshold", lambda one: f"{one:.2f}" if one < 9 else "never", numeric=True),
        Column("Queries", "queries", count, numeric=True),
        Column("Hits", "hit_rate", share, numeric=True),
        Column("Right", "precision", _share, numeric=True),
        Column("Believed", "believed", _share, numeric=True),
        Column("Saved", "saved", lambda one: f"{100 * one:.1f} %", numeric=True),
    ]
    side = "Test" if given.test else "Training"
    caption = (
        f"{side} side, in the order of its records. Right: hits with the tools of the run, each "
        "as often;\nbelieved: their mean probability; saved: of all requests to an LLM."
    )
    print_rows(measure(given), columns, as_json=given.json, caption=caption)


def _share(value: float | None) -> str:
    return "" if value is None or value != value else share(value)


if __name__ == "__main__":
    main()
