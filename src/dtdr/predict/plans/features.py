"""Finds the plans of a run, and says what a ranker sees of each from end to end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dtdr.predict.plans.beam import MOST_CALLS, BeamSearch, Candidate, Multiset, StepState
from dtdr.predict.plans.spans import SpanTagger, SpanTexts

Floats = npt.NDArray[np.float64]

SIGNS = {
    "log_probability": 1,
    "tools_asked_for": 1,
    "counts_asked_for": 1,
    "parts_unserved": -1,
    "calls": 0,
    "different_tools": 0,
}
"""Each feature, and whether more of it speaks for a plan (1), against it (-1), or either (0)."""
BY_TOOL = 2
"""Features of each tool: what names and numbers say of its calls, and what the parts say."""

_JOINED = 4
"""Plans of each half of a request for two things that are joined with those of the other."""
_JOINT = re.compile(r"[.!?;]\s|,?\s(?:and|then)\s")
_MOST_CALLS = 4
"""More calls of one tool count as this many where parts are read."""
_LEAST, _MOST_PROBABILITY = 0.002, 0.99


@runtime_checkable
class ReadsParts(Protocol):
    """A state that knows what each part of its query asks for, as dtdr-f's does."""

    def asked(self) -> npt.NDArray[np.float32] | None:
        """Presence and number of calls of each tool in each part; shape (2, parts, tools)."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanFeatures:
    """n plans of one query, whose calls are of m tools.

    Attributes:
        dense: shape (n, len(SIGNS)).
        tools: shape (m,), sorted.
        by_tool: shape (n, m, BY_TOOL).
        greedy: the place of the plan that takes the best tool of each step.
    """

    dense: Floats
    tools: npt.NDArray[np.intp]
    by_tool: Floats
    greedy: int

    def __len__(self) -> int:
        return len(self.dense)


def describe_plans(
    candidates: Mapping[Multiset, Candidate],
    state: StepState,
    span_scores: Floats,
    greedy: int,
) -> PlanFeatures:
    """Describe the plans of a run.

    Args:
        candidates: by their tools, calls already made among them.
        state: of the run.
        span_scores: of the query; see ``SpanTagger.count_scores``.
        greedy: see ``PlanFeatures``.
    """
    tools = np.unique(np.array([tool for key in candidates for tool in key], np.intp))
    counts = np.zeros((len(candidates), len(tools)), np.intp)
    for row, key in zip(counts, candidates, strict=True):
        np.add.at(row, np.searchsorted(tools, key), 1)
    spans = np.take_along_axis(
        span_scores[:, tools], np.minimum(counts, len(span_scores) - 1), axis=0
    )
    present = counts > 0
    read = state.asked() if isinstance(state, ReadsParts) else None
    asked = np.zeros((2, 0, len(span_scores[0]))) if read is None else read.astype(np.float64)
    part = np.clip(asked[0], 0, _MOST_PROBABILITY)
    # How likely the part that asks most for a tool does; even odds where nothing reads parts.
    likely = np.maximum(part[:, tools].max(axis=0, initial=_LEAST), 0.5 * (read is None))
    expected = asked[1][:, tools].sum(axis=0)
    away = (np.minimum(counts, _MOST_CALLS) - expected) ** 2 * (read is not None)
    served = 1 - np.exp(np.log1p(-part[:, tools]) @ present.T.astype(float))
    wanted = part.max(axis=1, initial=0)[:, None]
    by_name = {
        "log_probability": np.array([one.total for one in candidates.values()]),
        "tools_asked_for": present @ np.log(likely / (1 - likely)),
        "counts_asked_for": -away.sum(axis=1),
        "parts_unserved": np.maximum(wanted - served, 0).sum(axis=0),
        "calls": counts.sum(axis=1),
        "different_tools": present.sum(axis=1),
    }
    dense = np.stack([by_name[name] for name in SIGNS], axis=1).astype(np.float64)
    by_tool = np.stack([spans / 3, expected**2 - away], axis=2)
    return PlanFeatures(dense, tools, by_tool, greedy)


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """n plans that were found for one run.

    Attributes:
        plans: the tools of each, calls already made among them.
        candidates: what is left to do of each.
        features: of them.
    """

    plans: list[Multiset]
    candidates: list[Candidate]
    features: PlanFeatures


def propose_plans(
    texts: SpanTexts,
    tagger: SpanTagger,
    state: StepState,
    made: Sequence[int],
    names: Sequence[str],
    longest: int,
    *,
    may_be_empty: bool,
    halves: Sequence[StepState] = (),
) -> Proposal | None:
    """The plans of a run; None where no plan comes to an end.

    Args:
        texts: the query and its spans.
        tagger: knows which tools the spans are meant for.
        state: of the run, with its calls; it is not changed.
        made: tools of the calls made so far.
        names: of the tools, as the state numbers them.
        longest: calls that a whole plan may have.
        may_be_empty: whether nothing may be left to do.
        halves: states of the two halves of a request for two things, whose plans are joined.
    """
    beam = BeamSearch(state, max(longest - len(made), 2), may_be_empty=may_be_empty)
    found = beam.run()
    greedy = beam.follow_best()
    place = 0
    if greedy is not None:
        key = tuple(sorted(greedy.tools))
        found.setdefault(key, greedy)
        place = list(found).index(key)
    best = [
        list(BeamSearch(half, longest, may_be_empty=may_be_empty).run().values())[:_JOINED]
        for half in halves
    ]
    for parts in product(*best) if best else ():
        tools = tuple(tool for part in parts for tool in part.tools)
        key, total = tuple(sorted(tools)), sum(part.total for part in parts)
        if len(tools) <= MOST_CALLS and (key not in found or found[key].total < total):
            found[key] = Candidate(tools, total)
    if not found:
        return None
    whole = {tuple(sorted([*made, *key])): one for key, one in found.items()}
    features = describe_plans(whole, state, tagger.count_scores(texts, names), place)
    return Proposal(list(whole), list(found.values()), features)


def cut_in_two(query: str) -> list[str]:
    """The halves of a query, cut at the "and", "then" or end of a sentence nearest its middle.

    Empty where there is none.
    """
    middle = len(query) / 2
    joints = list(_JOINT.finditer(query))
    if not joints:
        return []
    joint = min(joints, key=lambda one: abs(one.start() - middle))
    halves = [query[: joint.start()].strip(), query[joint.end() :].strip()]
    return halves if all(halves) else []
