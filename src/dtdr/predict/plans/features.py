"""What a ranker sees of the candidate plans of one query, each from end to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.predict.plans.asked import MOST_COUNT, MOST_ODDS, AskedCalls
from dtdr.predict.plans.beam import Candidate, Multiset
from dtdr.predict.plans.spans import count_probabilities

Floats = npt.NDArray[np.float64]

SIGNS = {
    # of the beam
    "log_rank": -1,
    "is_from_beam": 1,
    # of the spans of the query
    "span_counts": 1,
    # of the parts of the query
    "tools_by_parts": 1,
    "counts_by_parts": 1,
    "least_likely_tool": 1,
    "likeliest_missing_tool": -1,
    "parts_unserved": -1,
    # of the plan alone
    "calls": 0,
    "repeated_calls": 0,
}
"""Each feature, and whether more of it speaks for a plan (1), against it (-1), or either (0)."""
_MOST_SPANS = 8
"""More calls of one tool count as this many where spans are counted."""
_LITTLE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class PlanFeatures:
    """n candidate plans of one query, whose calls are of m tools.

    Attributes:
        dense: shape (n, len(SIGNS)).
        tools: shape (m,), sorted.
        counts: shape (n, m): calls of each.
        spans: shape (n, m): what the spans of the query say of this many calls.
        greedy: the place of the plan that takes the best tool of each step.
    """

    dense: Floats
    tools: npt.NDArray[np.intp]
    counts: npt.NDArray[np.intp]
    spans: Floats
    greedy: int

    def __len__(self) -> int:
        return len(self.counts)


def describe_plans(
    candidates: Mapping[Multiset, Candidate],
    span_probabilities: Floats,
    asked: AskedCalls,
    greedy: int,
) -> PlanFeatures:
    """Describe the candidates of a query.

    Args:
        candidates: by their tools, calls already made among them.
        span_probabilities: shape (values, tools): how likely each tool is given each value of the
            query; of all tools that candidates have.
        asked: what the parts of the query ask for, of the same tools.
        greedy: see ``PlanFeatures``.
    """
    keys = list(candidates)
    tools = np.unique(np.array([tool for key in keys for tool in key], np.intp))
    column = {tool: number for number, tool in enumerate(tools.tolist())}
    counts = np.zeros((len(keys), len(tools)), np.intp)
    for row, key in zip(counts, keys, strict=True):
        for tool in key:
            row[column[tool]] += 1
    by_count = np.log(count_probabilities(span_probabilities[:, tools], _MOST_SPANS) + _LITTLE)
    spans = np.take_along_axis(by_count, np.minimum(counts, _MOST_SPANS), axis=0) - by_count[0]
    best = np.array([one.log_probability for one in candidates.values()])
    place = np.empty(len(best))
    place[np.argsort(-best, kind="stable")] = np.arange(len(best))
    by_name = {
        "log_rank": np.log1p(place),
        "is_from_beam": np.array([one.is_from_beam for one in candidates.values()], np.float64),
        "span_counts": spans.sum(axis=1),
        **_of_parts(counts, tools, asked),
        "calls": counts.sum(axis=1) / 5,
        "repeated_calls": np.maximum(counts - 1, 0).sum(axis=1) / 3,
    }
    dense = np.stack([by_name[name] for name in SIGNS], axis=1)
    return PlanFeatures(dense, tools, counts, spans, greedy)


def _of_parts(
    counts: npt.NDArray[np.intp], tools: npt.NDArray[np.intp], asked: AskedCalls
) -> dict[str, Floats]:
    odds, present = asked.log_odds[tools], counts > 0
    away = np.minimum(counts, MOST_COUNT) - asked.counts[tools]
    elsewhere = np.delete(asked.log_odds, tools).max(initial=-MOST_ODDS)
    given = np.minimum(asked.by_part[:, tools], 1 - 1e-9)
    served = 1 - np.exp(np.log1p(-given) @ present.T.astype(float))
    wanted = asked.by_part.max(axis=1, initial=0)[:, None]
    return {
        "tools_by_parts": present @ odds,
        "counts_by_parts": -(asked.precision[tools] * away**2).sum(axis=1),
        "least_likely_tool": np.where(present, odds, MOST_ODDS).min(axis=1, initial=MOST_ODDS),
        "likeliest_missing_tool": np.where(present, elsewhere, odds).max(axis=1, initial=elsewhere),
        "parts_unserved": np.maximum(wanted - served, 0).sum(axis=0),
    }
