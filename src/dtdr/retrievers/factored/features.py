"""What the ranker sees of each candidate tool at a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.retrievers.factored.alignment import BINS, Evidence
from dtdr.retrievers.factored.network import history_features, log_softmax, sigmoid
from dtdr.retrievers.factored.parts import NEED_LEVELS, Parts, PreparedQuery, Switches

Array = npt.NDArray[Any]

SHORTLIST = 32
"""Candidates a step; 40 changed validation MRR by less than .004 on three sets."""
MAX_CALLS = 256
"""Calls of a history that are walked, the last ones; the longest public plan has 19."""
_MAX_NEEDED = 64

_ALWAYS = [
    *("log_next", "last", "called_once", "called_twice", "called_often", "end", "steps"),
    *("steps_at_end", "log_frequency", "producers_missing", "uses_last", "together"),
]
_KERNEL = ["kernel", "markov"]
_NEED = ["need", "expected_left", "needed_before"]
_ALIGNMENT = [
    *("ahead", "ahead_relative", "near", "near_relative", "distance", "behind"),
    *("pointer_at_end", "best_ahead_at_end", "centre", "from_last", "from_last_absolute"),
]
_DESCRIPTIONS = [
    *("likeness", "likeness_relative", "like_last", "name_like_last", "after_tools_like_last"),
]


def feature_names(switches: Switches) -> list[str]:
    """The columns of ``Candidates.features``; the first is the network's log probability."""
    names = list(_ALWAYS)
    names += _KERNEL if switches.kernel else []
    names += _NEED if switches.need else []
    names += _ALIGNMENT if switches.alignment else []
    names += _DESCRIPTIONS if switches.descriptions else []
    names += ["needed_earlier_in_query"] if switches.alignment and switches.need else []
    names += ["described_ahead"] if switches.alignment and switches.descriptions else []
    return names


@dataclass(frozen=True)
class Candidates:
    """A shortlist of one step.

    Attributes:
        log_next: shape (tools,): log probabilities of the next-tool network.
        tools: shape (k,): the candidates.
        features: shape (k, features).
    """

    log_next: Array
    tools: npt.NDArray[np.intp]
    features: Array


@dataclass(frozen=True)
class _Need:
    """What is still to be called: logits (tools,), chances (tools,), and calls in total."""

    logits: Array
    chances: Array
    calls: float


def need_after(query: PreparedQuery, called: Array) -> Array:
    """Logits that each tool is needed beyond its calls so far; for the end, that none is."""
    return _need(query, called).logits


def _need(query: PreparedQuery, called: Array) -> _Need:
    tools = np.arange(len(called))
    logits = query.need[np.minimum(called, NEED_LEVELS - 1), tools] - 2.0 * (called >= NEED_LEVELS)
    chances = sigmoid(logits)
    chances[-1] = 0
    nothing = float(np.log1p(-chances.clip(0, 0.999)).sum())
    # The logit of the chance that nothing is needed.
    logits[-1] = np.clip(nothing - np.log(1 - min(np.exp(nothing), 0.9999)), -9, 9)
    calls = float(query.left[np.minimum(called, NEED_LEVELS), tools].sum())
    return _Need(logits, chances, calls)


def candidates(parts: Parts, query: PreparedQuery, history: Sequence[int]) -> Candidates:
    """The candidates for the next step, and what is known of each.

    Args:
        parts: fitted.
        query: prepared by ``parts``.
        history: indices of the calls, oldest first; those outside the tools count as unknown.
    """
    end = parts.tools - 1
    # The end of plan is no call.
    calls = [tool if 0 <= tool < end else -1 for tool in history[-MAX_CALLS:]]
    known = [tool for tool in calls if tool >= 0]
    called = np.bincount(known, minlength=parts.tools) if known else np.zeros(parts.tools, np.int64)
    log_next = log_softmax(
        parts.next_tool.outputs(query.hidden, history_features(calls, parts.tools))
    )
    order = log_next.copy()
    found: dict[str, Array | float] = {"log_next": log_next}
    if parts.kernel is not None and query.kernel is not None:
        found["kernel"], found["markov"] = parts.kernel.log_probabilities(query.kernel, calls)
        order += 0.5 * found["kernel"]
    need = _need(query, called) if parts.switches.need else None
    if need is not None:
        found["need"] = need.logits
        order += 0.1 * need.logits
    if parts.switches.descriptions:
        found["likeness"] = query.likeness
        found["likeness_relative"] = query.likeness / (query.likeness.max() + 1e-6)
        order += 2 * found["likeness_relative"]
    chosen = np.arange(parts.tools)
    if parts.tools > SHORTLIST:
        chosen = np.argpartition(-order, SHORTLIST - 1)[:SHORTLIST]
    found = {name: np.asarray(values)[chosen] for name, values in found.items()}
    at_end = (chosen == end).astype(np.float32)
    last = calls[-1] if calls else -1
    _add_history(found, parts, called, len(calls), last, chosen, at_end)
    if need is not None:
        _add_need(found, parts, need, chosen, at_end)
    if query.evidence is not None:
        _add_alignment(found, query.evidence, parts.switches, need, calls, chosen, at_end)
    if parts.switches.descriptions:
        relations = parts.relations
        for name, table in (
            ("like_last", relations.alike),
            ("name_like_last", relations.alike_names),
            ("after_tools_like_last", relations.after_alike),
        ):
            found[name] = table[last, chosen] if last >= 0 else 0.0
    names = feature_names(parts.switches)
    features = np.empty((len(chosen), len(names)), np.float32)
    for column, name in enumerate(names):
        features[:, column] = found[name]
    return Candidates(log_next, chosen, features)


def _add_history(
    found: dict[str, Array | float],
    parts: Parts,
    called: Array,
    length: int,
    last: int,
    chosen: Array,
    at_end: Array,
) -> None:
    relations = parts.relations
    times = called[chosen]
    found["last"] = chosen == last
    found["called_once"], found["called_twice"] = times == 1, times == 2
    found["called_often"] = np.minimum(times, 6) * (times > 2) * 0.3
    found["end"] = at_end
    found["steps"] = min(length, 10) / 5
    found["steps_at_end"] = at_end * (min(length, 10) / 5)
    found["log_frequency"] = np.log1p(relations.frequency[chosen])
    found["producers_missing"] = relations.producers[chosen] @ (called == 0).astype(np.float32)
    found["uses_last"] = relations.producers[chosen, last] if last >= 0 else 0.0
    seen = np.flatnonzero(called)
    # As in training of the reference: nothing is said after a call of an unknown tool.
    found["together"] = relations.together[seen][:, chosen].mean(axis=0) if last >= 0 else 0.0


def _needed(need: _Need) -> tuple[Array, Array]:
    """Tools that are likely still needed, and how likely."""
    tools = np.flatnonzero(need.chances > 0.05)[:_MAX_NEEDED]
    return tools, need.chances[tools]


def _add_need(
    found: dict[str, Array | float], parts: Parts, need: _Need, chosen: Array, at_end: Array
) -> None:
    found["expected_left"] = at_end * need.calls
    tools, chances = _needed(need)
    earlier = chances @ parts.relations.before[tools]
    earlier[tools] -= 0.5 * chances  # no tool comes before itself
    earlier[-1] = need.calls
    found["needed_before"] = earlier[chosen]


def _add_alignment(
    found: dict[str, Array | float],
    evidence: Evidence,
    switches: Switches,
    need: _Need | None,
    calls: Sequence[int],
    chosen: Array,
    at_end: Array,
) -> None:
    pointer = evidence.pointer(calls)
    start = int(max(pointer - 1, 0))
    ahead = evidence.ahead[start]
    logs = np.log(ahead + 1e-3)
    distance = np.arange(BINS, dtype=np.float32) - np.float32(pointer)
    # What was just served fades within one part, what is to come within four.
    decay = np.where(
        distance >= 0, np.exp(-np.maximum(distance, 0) / 4), np.exp(np.minimum(distance, 0))
    )
    near = np.log(decay.astype(np.float32) @ evidence.parts + 1e-3)
    centre_ahead = evidence.moments[start, chosen] / (ahead[chosen] + 1e-6) - pointer
    found["ahead"] = logs[chosen]
    found["ahead_relative"] = logs[chosen] - logs.max()
    found["near"] = near[chosen]
    found["near_relative"] = near[chosen] - near.max()
    found["distance"] = np.where(ahead[chosen] > 1e-4, centre_ahead, BINS) / BINS
    behind = np.maximum(evidence.ahead[0, chosen] - ahead[chosen], 0)
    found["behind"] = np.log(behind + 1e-3)
    found["pointer_at_end"] = at_end * (pointer / BINS)
    found["best_ahead_at_end"] = at_end * logs.max()
    centre = evidence.centre
    last = calls[-1] if calls else -1
    found["centre"] = centre[chosen]
    found["from_last"] = centre[chosen] - (centre[last] if last >= 0 else 0)
    found["from_last_absolute"] = np.abs(found["from_last"])
    if switches.descriptions:
        found["described_ahead"] = np.log(evidence.described[start, chosen] + 1e-3)
    if need is not None:
        tools, chances = _needed(need)
        gap = (centre[chosen][None] - centre[tools][:, None]).clip(-1, 1) / 0.05
        earlier = chances @ sigmoid(gap)
        own = np.zeros(len(centre), np.float32)
        own[tools] = 0.5 * chances
        found["needed_earlier_in_query"] = earlier - own[chosen]
