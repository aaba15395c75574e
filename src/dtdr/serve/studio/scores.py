"""How a model ranks the runs that the studio shows: the figures of ``dtdr evaluate --model``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import DtdrError
from dtdr.evaluate.branches import Branch, find_branches
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.harness import score_model
from dtdr.evaluate.metrics import mean_score
from dtdr.evaluate.next_calls import CAUSES, Mistake, find_causes, find_mistakes
from dtdr.evaluate.run_log import RunLog
from dtdr.net.threads import start_daemon
from dtdr.predict.model import Model

MISTAKES, BRANCHES = 50, 50
_KEPT = 4
"""Models with scores."""
CONFUSIONS = 20
METRICS = ("mrr", "top1", "recall@5", "log_top1")


@dataclass(frozen=True, slots=True)
class RunScore:
    """How the steps of one run were ranked, the end included.

    Attributes:
        steps: how many there are.
        right: at how many of them the best tool is right.
        lowest: the lowest rank of a first right tool; None if the model lacks a step's tools.
    """

    steps: int
    right: int
    lowest: int | None


@dataclass(frozen=True, slots=True)
class StepScore:
    """How one step of a run was ranked.

    Attributes:
        called: what the run called, or ``end``.
        predicted: the best tool of the ranking.
        probability: of the best tool.
        rank: of the first right tool; None if the model lacks it.
        cause: why the call was not first; see ``dtdr.evaluate.next_calls.CAUSES``.
    """

    called: str
    predicted: str
    probability: float
    rank: int | None
    cause: str


@dataclass(frozen=True, slots=True)
class Confusion:
    """A tool that was predicted where the run called another one.

    Attributes:
        predicted: the best tool of the ranking.
        called: what the run called.
        count: at how many steps.
    """

    predicted: str
    called: str
    count: int


class Scores:
    """The figures of a run log over the runs that did not fail."""

    def __init__(self, log: RunLog, demonstrations: Sequence[Demonstration]) -> None:
        self.log = log
        self._demonstrations = demonstrations

    @cached_property
    def _ranks(self) -> list[int | None]:
        return [int(rank) if np.isfinite(rank) else None for rank in self.log.first_rank]

    @cached_property
    def by_id(self) -> dict[str, RunScore]:
        """The score of each run, by its id."""
        ranks: dict[str, list[int | None]] = {}
        for plan, rank in zip(self.log.plan.tolist(), self._ranks, strict=True):
            ranks.setdefault(self.log.plan_ids[plan], []).append(rank)
        return {
            name: RunScore(
                len(items),
                items.count(1),
                None if None in items else max(rank for rank in items if rank is not None),
            )
            for name, items in ranks.items()
        }

    def steps(self, identifier: str) -> list[StepScore]:
        """The steps of one run in their order; none of a run that failed."""
        log = self.log
        if identifier not in self.by_id:
            return []
        plan = log.plan_ids.index(identifier)
        return [
            StepScore(
                log.names[log.called[at]],
                log.names[log.best[at]],
                round(float(log.best_probability[at]), 6),
                self._ranks[at],
                self._causes[at],
            )
            for at in np.flatnonzero(log.plan == plan).tolist()
        ]

    @cached_property
    def _causes(self) -> list[str]:
        return find_causes(self.log)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Means over all steps."""
        return {name: round(mean_score(self.log, name), 6) for name in METRICS}

    @cached_property
    def causes(self) -> dict[str, int]:
        """Steps at which the next call of the log was first, or missed, by cause."""
        counts = Counter(self._causes)
        return {cause: counts[cause] for cause in CAUSES if counts[cause]}

    @cached_property
    def mistakes(self) -> list[Mistake]:
        """The most confident steps whose best tool was not right."""
        return find_mistakes(self.log, self._demonstrations, MISTAKES)

    @cached_property
    def branches(self) -> list[Branch]:
        """Conditions on outputs that decide the next tool, those ranked worst first."""
        return find_branches(self.log, self._demonstrations)[:BRANCHES]

    @cached_property
    def confusions(self) -> list[Confusion]:
        """Tools that were predicted instead of others, most frequent pair first."""
        wrong = (self.log.first_rank != 1) & (self.log.called >= 0)
        pairs = zip(self.log.best[wrong].tolist(), self.log.called[wrong].tolist(), strict=True)
        names = self.log.names
        return [
            Confusion(names[predicted], names[called], count)
            for (predicted, called), count in Counter(pairs).most_common(CONFUSIONS)
        ]


class Scorer:
    """Scores the runs once for each model, in a thread.

    Args:
        demonstrations: the runs that are shown.
    """

    def __init__(self, demonstrations: Sequence[Demonstration]) -> None:
        self._demonstrations = list(demonstrations)
        # With the model, so that no other one gets its id.
        self._scores: dict[int, tuple[Model, Scores | str | float]] = {}
        self._lock = threading.Lock()

    def of(self, model: Model) -> Scores | str | float:
        """The scores; why there are none, as a sentence; or the share that is done."""
        with self._lock:
            if id(model) not in self._scores:
                while len(self._scores) >= _KEPT:
                    del self._scores[next(iter(self._scores))]
                self._scores[id(model)] = model, 0.0
                start_daemon(self._score, model)
            return self._scores[id(model)][1]

    def _score(self, model: Model) -> None:
        runs = self._demonstrations
        dataset = Dataset("these runs", "these runs", runs, model.tools_[:-1], False, "", "")
        total = sum(len(run.plan) + 1 for run in runs)

        def report(steps: int) -> None:
            with self._lock:
                self._scores[id(model)] = model, min(1.0, steps / total)

        scores: Scores | str
        try:
            scores = Scores(score_model(model, dataset, report), runs)
        except DtdrError as error:
            scores = str(error)
        except Exception as error:  # noqa: BLE001  # a ranker from outside may raise anything
            scores = f"the model cannot rank these runs ({type(error).__name__})"
        with self._lock:
            self._scores[id(model)] = model, scores
