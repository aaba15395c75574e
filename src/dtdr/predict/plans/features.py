"""What a ranker sees of the candidate plans of one query, each from end to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dtdr.predict.plans.beam import Candidate, Multiset
from dtdr.predict.plans.expected import MOST_COUNT, ExpectedCalls
from dtdr.predict.plans.memory import PlanMemory
from dtdr.predict.plans.spans import SpanTexts, count_probabilities

Floats = npt.NDArray[np.float64]

LEVELS = 3
"""A third call of a tool and each further one have the same weights."""
_MOST_COUNT = 8
_LITTLE = 1e-3
_LEAST_ODDS = -6.0
_NUMBERS = {
    word: number
    for number, word in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), start=2
    )
}
SURFACE = ("names", "quotations", "numbers", "addresses", "commas", "ands", "words", "sentences")
DENSE = (
    # of the beam
    "log_probability",
    "log_total",
    "is_most_probable",
    "log_rank",
    "log_probability_per_call",
    "is_from_beam",
    # of the demonstrations: nearest ones with these calls, with these tools, all of them
    "nearest_same_calls",
    "nearest_same_tools",
    "shared_with_nearest",
    "differs_from_nearest",
    "is_known_set",
    "is_known_multiset",
    "log_known",
    # of the spans of the query
    "span_counts",
    "spans_unused",
    "spans_used",
    # of the parts of the query
    "tools_by_parts",
    "counts_by_parts",
    "least_likely_tool",
    "likeliest_missing_tool",
    "unlikely_tools",
    "likely_tools_missing",
    "parts_unserved",
    "parts_served",
    "least_served_part",
    # of counts and length
    "calls",
    "calls_squared",
    "repeated_calls",
    "repeated_tools",
    "repeats_said",
    "repeats_not_said",
    "calls_by_commas",
    "calls_by_ands",
    "calls_by_words",
    "calls_by_sentences",
)


@dataclass(frozen=True, slots=True, eq=False)
class PlanFeatures:
    """n candidate plans of one query, whose calls are of m tools.

    Attributes:
        tools: shape (m,), rising.
        counts: shape (n, m): calls of each.
        dense: shape (n, len(DENSE)).
        spans: shape (n, m): what the spans of the query say of so many calls.
        surface: shape (len(SURFACE),).
    """

    tools: npt.NDArray[np.intp]
    counts: npt.NDArray[np.intp]
    dense: Floats
    spans: Floats
    surface: Floats

    def __len__(self) -> int:
        return len(self.counts)

    def select(self, plans: Sequence[int]) -> PlanFeatures:
        """Those of some of the candidates."""
        rows = list(plans)
        return replace(
            self, counts=self.counts[rows], dense=self.dense[rows], spans=self.spans[rows]
        )


def describe_plans(
    texts: SpanTexts,
    candidates: Mapping[Multiset, Candidate],
    memory: PlanMemory,
    nearest: Sequence[tuple[int, float]],
    span_probabilities: Floats,
    expected: ExpectedCalls,
    own: Multiset | None = None,
) -> PlanFeatures:
    """Describe the candidates of a query.

    Args:
        texts: the query and its spans.
        candidates: by their tools, calls already made among them.
        memory: the demonstrated plans.
        nearest: numbers of the most similar demonstrations, and how similar they are.
        span_probabilities: shape (values, tools): how likely each tool is given each value of the
            query; of all tools that candidates have.
        expected: what the words of the query say of the same tools.
        own: the plan of the query, where it is one of the demonstrations: it is not counted there.
    """
    keys = list(candidates)
    tools = np.unique(np.array([tool for key in keys for tool in key], np.intp))
    column = {tool: number for number, tool in enumerate(tools.tolist())}
    counts = np.zeros((len(keys), len(tools)), np.intp)
    for number, key in enumerate(keys):
        for tool in key:
            counts[number, column[tool]] += 1
    bounded = np.minimum(counts, _MOST_COUNT)
    given = span_probabilities[:, tools]
    by_count = np.log(count_probabilities(given, _MOST_COUNT) + _LITTLE)
    spans = np.take_along_axis(by_count, bounded, axis=0) - by_count[0]
    surface = read_surface(texts)
    dense = np.stack(
        [
            *_of_the_beam(list(candidates.values())),
            *_of_demonstrations(keys, counts, column, memory, nearest, own),
            spans.sum(axis=1),
            *_of_spans(counts, given, span_probabilities),
            *_of_parts(counts, tools, expected),
            *_of_counts(counts, surface, _numbers_said(texts)),
        ],
        axis=1,
    )
    return PlanFeatures(tools, counts, dense, spans, surface)


def _of_the_beam(candidates: Sequence[Candidate]) -> list[Floats]:
    best = np.array([item.log_probability for item in candidates])
    total = np.array([item.total for item in candidates])
    place = np.empty(len(best))
    place[np.argsort(-best, kind="stable")] = np.arange(len(best))
    best -= best.max()
    calls = np.array([len(item.tools) for item in candidates])
    return [
        best,
        total - total.max(),
        (place == 0).astype(float),
        np.log1p(place),
        best / (calls + 1),
        np.array([float(item.is_from_beam) for item in candidates]),
    ]


def _of_demonstrations(
    keys: Sequence[Multiset],
    counts: npt.NDArray[np.intp],
    column: Mapping[int, int],
    memory: PlanMemory,
    nearest: Sequence[tuple[int, float]],
    own: Multiset | None,
) -> list[Floats]:
    whole = sum(cosine for _, cosine in nearest) or 1.0
    by_multiset: dict[Multiset, float] = {}
    by_set: dict[frozenset[int], float] = {}
    expected = np.zeros(counts.shape[1])
    elsewhere = 0.0
    for number, cosine in nearest:
        plan = memory.plans[number]
        share = cosine / whole
        key = tuple(sorted(plan))
        by_multiset[key] = by_multiset.get(key, 0.0) + share
        tools = frozenset(plan)
        by_set[tools] = by_set.get(tools, 0.0) + share
        for tool, count in Counter(plan).items():
            if tool in column:
                expected[column[tool]] += share * min(count, LEVELS)
            else:
                elsewhere += share * min(count, LEVELS)
    sets = [frozenset(key) for key in keys]
    own_set = None if own is None else frozenset(own)
    known_sets = np.array([memory.sets[one] - (one == own_set) for one in sets])
    known = np.array([memory.multisets[key] - (key == own) for key in keys])
    shared = np.minimum(expected, counts).sum(axis=1)
    differs = np.abs(expected - counts).sum(axis=1) + elsewhere
    return [
        np.array([by_multiset.get(key, 0.0) for key in keys]),
        np.array([by_set.get(one, 0.0) for one in sets]),
        shared,
        differs,
        (known_sets > 0).astype(float),
        (known > 0).astype(float),
        np.log1p(known),
    ]


def _of_spans(counts: npt.NDArray[np.intp], given: Floats, every: Floats) -> list[Floats]:
    if not len(every):
        return [np.zeros(len(counts)), np.zeros(len(counts))]
    used, unused = _compute_served(counts, given, every)
    return [unused.sum(axis=0), used.sum(axis=0)]


def _compute_served(
    counts: npt.NDArray[np.intp], given: Floats, every: Floats
) -> tuple[Floats, Floats]:
    """Of each span or part and plan, how likely the plan has a tool for it; and how likely not.

    Args:
        counts: shape (plans, m).
        given: shape (parts, m): how likely each of these tools is meant.
        every: shape (parts, tools): of all tools.

    Returns:
        Both of shape (parts, plans).
    """
    served = 1 - np.exp(np.log1p(-np.minimum(given, 1 - 1e-9)) @ (counts > 0).T.astype(float))
    return served, np.maximum(every.max(axis=1)[:, None] - served, 0)


def _of_parts(
    counts: npt.NDArray[np.intp], tools: npt.NDArray[np.intp], expected: ExpectedCalls
) -> list[Floats]:
    odds = expected.log_odds[tools]
    present = counts > 0
    by_tool = present @ odds
    distance = (
        expected.precision[tools] * (np.minimum(counts, MOST_COUNT) - expected.counts[tools]) ** 2
    )
    by_count = -distance.sum(axis=1)
    elsewhere = np.delete(expected.log_odds, tools)
    likeliest = elsewhere.max(initial=_LEAST_ODDS)
    served, unserved = _compute_served(counts, expected.by_part[:, tools], expected.by_part)
    return [
        by_tool - by_tool[0],
        by_count - by_count[0],
        np.where(present, odds, -_LEAST_ODDS).min(axis=1, initial=-_LEAST_ODDS),
        np.where(present, likeliest, odds).max(axis=1, initial=likeliest),
        present @ np.minimum(odds, 0),
        ~present @ np.maximum(odds, 0) + np.maximum(elsewhere, 0).sum(),
        unserved.sum(axis=0),
        served.sum(axis=0),
        unserved.max(axis=0),
    ]


def _of_counts(
    counts: npt.NDArray[np.intp], surface: Floats, said: Collection[int]
) -> list[Floats]:
    calls = counts.sum(axis=1) / 5
    repeated = counts > 1
    is_said = np.isin(counts, list(said)) & repeated
    by_name = dict(zip(SURFACE, surface.tolist(), strict=True))
    return [
        calls,
        calls**2,
        np.where(repeated, counts - 1, 0).sum(axis=1) / 3,
        repeated.sum(axis=1),
        is_said.sum(axis=1),
        (repeated & ~is_said).sum(axis=1),
        *(calls * by_name[name] for name in ("commas", "ands", "words", "sentences")),
    ]


def read_surface(texts: SpanTexts) -> Floats:
    """What is counted in a query, about 1 where there is much; shape (len(SURFACE),)."""
    kinds = Counter(kind for kind, _ in set(zip(texts.kinds, texts.forms, strict=True)))
    marks = Counter(texts.text.lower)
    sentences = sum(marks[mark] for mark in ".!?。")
    counted = (
        *(min(kinds[kind], 9) / 4 for kind in ("name", "quoted", "number", "address")),
        min(marks[","] + marks["、"], 9) / 4,
        min(marks["and"], 9) / 4,
        min(len(texts.text.tokens), 80) / 40,
        min(sentences, 9) / 4,
    )
    return np.array(counted)


def _numbers_said(texts: SpanTexts) -> set[int]:
    """Numbers from 2 to 10 that a query says."""
    said = set()
    for word in texts.text.lower:
        number = int(word) if word.isdecimal() and len(word) < 3 else _NUMBERS.get(word, 0)
        if 2 <= number <= 10:
            said.add(number)
    return said
