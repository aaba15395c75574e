"""A cache of whole plans that says how likely each is right, and learns whether it was."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.data.run import Run
from dtdr.errors import InputError
from dtdr.predict.model import Model
from dtdr.predict.plans.prediction import PlanPrediction, PlanWriter
from dtdr.predict.session import NO_PLANS

Value = TypeVar("Value")

MIN_PROBABILITY = 0.8

_OUTCOMES = 200
"""Latest runs by which probabilities are corrected."""
_PRIOR = 1.0
"""Precision of the normal prior of that correction, in log-odds."""
_SAME_QUERY = (4, 1)
"""Runs of a repeated query that count as seen before any was: with the same plan, with another."""
_MOST_QUERIES = 10_000
"""Queries whose plans, or predicted plans, are remembered: the last ones."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What became of the queries that a cache was asked about.

    Attributes:
        asked: how many.
        hits: those that a plan was given for.
        unfamiliar: those unlike anything learned, for which none was given.
        right: hits whose run was put later, with the tools of the plan, each as often.
        wrong: those whose run had others.
        expected: sum of the probabilities of the right and the wrong ones: about ``right`` where
            the cache is honest.
    """

    asked: int = 0
    hits: int = 0
    unfamiliar: int = 0
    right: int = 0
    wrong: int = 0
    expected: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Share of the queries that a plan was given for; 0 before the first."""
        return self.hits / self.asked if self.asked else 0.0

    @property
    def precision(self) -> float | None:
        """Share of right hits among those whose run is known; None before the first."""
        known = self.right + self.wrong
        return self.right / known if known else None


@dataclass(frozen=True, slots=True)
class _Guess:
    """What was predicted for a query: the plan, and how likely it is before and after correction.

    ``is_repeat`` says that the plan is that of the same query's last run.
    """

    plan: PlanPrediction
    probability: float
    corrected: float
    is_repeat: bool
    is_hit: bool


class PlanCache:
    """Gives the plan of a query where it is probable enough, and learns from what runs called.

    Plans are those of ``Model.plans``: of earlier runs, their slots filled for this query, or
    combined in a new way. Their probabilities are calibrated on held-out groups of demonstrations;
    each run that is put says whether its plan was right, and the latest of these outcomes shift the
    log-odds of further plans. A query that was put before, word for word, gets the plan of its last
    run, as probable as repeated queries had the same plan so far.

    It may be used from several threads, and learns on a copy: the retriever stays as it is.

    Args:
        retriever: fitted with plans, one that learns from further runs.
        min_probability: of a plan that is given; in [0, 1].

    Attributes:
        retriever: the copy that learns; save it to keep what was learned.

    Raises:
        InputError: the retriever was fitted without plans or cannot be updated, or the probability
            is outside of [0, 1].
    """

    def __init__(self, retriever: Model, min_probability: float = MIN_PROBABILITY) -> None:
        if not 0 <= min_probability <= 1:
            raise InputError(f"min_probability is {min_probability}; it must be between 0 and 1")
        if retriever.plans_ is None:
            raise InputError(NO_PLANS)
        if not retriever.can_update:
            raise InputError(
                f"a plan cache learns from runs, and {retriever.name!r} cannot; use dtdr-f"
            )
        self.min_probability = min_probability
        self.retriever = copy.copy(retriever)
        self._lock = Lock()
        self._plans: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()
        self._guesses: OrderedDict[bytes, _Guess] = OrderedDict()
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=_OUTCOMES)
        self._shift = 0.0
        self._same, self._other = _SAME_QUERY
        self._statistics = CacheStatistics()

    @property
    def statistics(self) -> CacheStatistics:
        """Hits so far, and how many of them were right."""
        return self._statistics

    def get(self, query: str | Run) -> PlanPrediction | None:
        """The plan of a query, with the probability that it is right; None where it is below.

        Args:
            query: what the user asked for, or a ``Run`` with what came before it and no calls.

        Raises:
            InputError: the query is not text, or the run has calls already.
        """
        run = query if isinstance(query, Run) else Run(query)
        if run.calls:
            raise InputError(
                "a plan cache is asked before the first call; plans(run) says what is left to do"
            )
        with self._lock:
            guess = self._guess(run)
            counts = self._statistics
            is_hit = guess is not None and guess.corrected >= self.min_probability
            self._statistics = replace(
                counts,
                asked=counts.asked + 1,
                hits=counts.hits + is_hit,
                unfamiliar=counts.unfamiliar + (guess is None),
            )
            if guess is None:
                return None
            _keep(self._guesses, _key(run), replace(guess, is_hit=is_hit))
        return replace(guess.plan, probability=guess.corrected) if is_hit else None

    def put(self, run: Run | DemonstrationLike) -> None:
        """Learn from what a query's run called in the end, whether a plan was given for it or not.

        Put what was right: the calls of a plan that was given and then failed are not. A run that
        is marked a failure is not learned from.

        Args:
            run: a finished run, or a demonstration as ``fit`` takes it.

        Raises:
            InputError: it is not one, or it has no query.
        """
        record = run.to_dict() if isinstance(run, Run) else run
        (item,) = as_demonstrations([record])
        if item.outcome == "failure":
            return
        start = Run(item.query, item.before)
        key = _key(start)
        with self._lock:
            guess = self._guesses.pop(key, None) or self._guess(start)
            if guess is not None:
                self._judge(guess, item)
            _keep(self._plans, key, item.plan.tools)
            self.retriever.update([item])

    def _guess(self, run: Run) -> _Guess | None:
        """The most probable plan; None of an unfamiliar query, or where no plan comes to an end."""
        tools = self._plans.get(_key(run), ())
        known = self.retriever
        if tools and known.plans_ is not None and all(known.index(tool) >= 0 for tool in tools):
            share = self._same / (self._same + self._other)
            writer = PlanWriter(run, known.arguments_, known.plans_.links)
            return _Guess(writer.predict(tools, share), share, share, True, False)
        session = self.retriever.session(run)
        if not session.rank().is_familiar:
            return None
        plans = session.plans(1)
        if not plans:
            return None
        (plan,) = plans
        corrected = 1 / (1 + math.exp(-_log_odds(plan.probability) - self._shift))
        return _Guess(plan, plan.probability, corrected, False, False)

    def _judge(self, guess: _Guess, item: Demonstration) -> None:
        """Learn whether a plan was right."""
        is_right = sorted(guess.plan.tools) == sorted(item.plan.tools)
        if guess.is_repeat:
            self._same += is_right
            self._other += not is_right
        else:
            self._outcomes.append((_log_odds(guess.probability), is_right))
            self._shift = _fit_shift(self._outcomes)
        if guess.is_hit:
            counts = self._statistics
            self._statistics = replace(
                counts,
                right=counts.right + is_right,
                wrong=counts.wrong + (not is_right),
                expected=counts.expected + guess.corrected,
            )


def _key(run: Run) -> bytes:
    """The query but for case and spaces, and what came before it."""
    record = run.to_dict()
    record["query"] = " ".join(run.query.casefold().split())
    return json_codec.dumps(record)


def _keep(store: OrderedDict[bytes, Value], key: bytes, value: Value) -> None:
    store[key] = value
    store.move_to_end(key)
    if len(store) > _MOST_QUERIES:
        store.popitem(last=False)


def _log_odds(probability: float) -> float:
    bounded = min(max(probability, 1e-3), 1 - 1e-3)
    return math.log(bounded / (1 - bounded))


def _fit_shift(outcomes: Sequence[tuple[float, bool]]) -> float:
    """What has to be added to log-odds so that they fit outcomes: MAP by Newton's method."""
    shift = 0.0
    for _ in range(8):
        shares = [1 / (1 + math.exp(-odds - shift)) for odds, _ in outcomes]
        gradient = sum(right for _, right in outcomes) - math.fsum(shares) - _PRIOR * shift
        shift += gradient / (math.fsum(share * (1 - share) for share in shares) + _PRIOR)
    return shift
