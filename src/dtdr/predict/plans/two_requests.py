"""Queries that make two requests: how likely one is, and the plans for both."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import product
from typing import NamedTuple, Self

import numpy as np

from dtdr.predict.plans.best_first import MOST_CALLS

Ranked = list[tuple[tuple[int, ...], float]]
"""Plans and their probabilities, most probable first; a plan is its tools, in order."""

_SHARE = 0.1
"""Prior probability that a query makes two requests."""
_CUTS = 3
"""Places nearest the middle where a query is cut; each takes two more searches."""
_JOINED = 4
"""Plans of each half that are joined with those of the other."""
_JOINT = re.compile(r"[.!?;]\s|,?\s(?:and|then)\s")


class QueryLengths(NamedTuple):
    """Mean and standard deviation of the words in queries that make one request."""

    mean: float
    deviation: float

    @classmethod
    def fit(cls, queries: Iterable[str]) -> Self:
        """Measure queries."""
        words = [len(query.split()) for query in queries]
        return cls(float(np.mean(words)), max(float(np.std(words)), 1.0))

    def odds_of_two(self, query: str) -> float:
        """Log odds of two requests, whose words are normally distributed sums of two."""
        words = len(query.split())
        item = -0.5 * ((words - self.mean) / self.deviation) ** 2
        two = -0.25 * ((words - 2 * self.mean) / self.deviation) ** 2 - 0.5 * math.log(2)
        return two - item + math.log(_SHARE / (1 - _SHARE))


def cut_in_two(query: str) -> list[tuple[str, str]]:
    """Halves of a query around each "and", "then" or end of a sentence, the middlemost first."""
    middle = len(query) / 2
    joints = sorted(_JOINT.finditer(query), key=lambda joint: abs(joint.start() - middle))
    halves = [(query[: joint.start()].strip(), query[joint.end() :].strip()) for joint in joints]
    return [pair for pair in halves if all(pair)]


def add_plans_for_two(
    query: str, plans: Ranked, lengths: QueryLengths, rank: Callable[[str], Ranked]
) -> Ranked:
    """Mix the plans of one request with those of two, if the query may make two.

    Of some places to cut, the one with the most probable plans for both halves counts. The odds of
    two requests grow with the geometric mean of these probabilities, in comparison with the
    probability of the best plan for the whole query.

    Args:
        query: before its first call.
        plans: for the whole query as one request.
        lengths: of queries that make one request.
        rank: the plans of another query.
    """
    odds = lengths.odds_of_two(query)
    if plans:  # one request explains the query if its plan is probable
        odds -= math.log(plans[0][1])
    if odds < 0:  # even if both requests had certain plans
        return plans
    cuts = [(rank(first), rank(second)) for first, second in cut_in_two(query)[:_CUTS]]
    cuts = [halves for halves in cuts if all(halves)]
    if not cuts:
        return plans
    best = max(cuts, key=lambda halves: halves[0][0][1] * halves[1][0][1])
    odds += 0.5 * math.log(best[0][0][1] * best[1][0][1])
    chance = 1 / (1 + math.exp(-min(odds, 30.0)))
    orders = {tuple(sorted(plan)): plan for plan, _ in plans}
    mixed = defaultdict[tuple[int, ...], float](float)
    for plan, probability in plans:
        mixed[tuple(sorted(plan))] += (1 - chance) * probability
    for (first, item), (second, other) in product(*(half[:_JOINED] for half in best)):
        if len(first) + len(second) <= MOST_CALLS:
            key = tuple(sorted((*first, *second)))
            orders.setdefault(key, (*first, *second))
            mixed[key] += chance * item * other
    ranked = sorted(mixed, key=lambda key: -mixed[key])
    return [(orders[key], mixed[key]) for key in ranked]
