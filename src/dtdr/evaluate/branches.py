"""Branches of an agent: a condition on outputs, the tool that follows, and how that is ranked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.known_values import (
    Condition,
    Conversation,
    Floats,
    read_columns,
    read_conversations,
    round_threshold,
)
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.statistics import Record, proportion
from dtdr.rankers.dtdr_f.values import FLAG, LENGTH

Flags = npt.NDArray[np.bool_]

_LEAST_CASES, _LEAST_GROUPS = 5, 3
"""Cases, and groups of runs, in which the agent took a branch."""
_LEAST_SHARE, _LEAST_RATIO = 0.25, 4.0
"""The share of its cases in which a branch is taken, and that share by the one of other cases."""
_LEAST_GAIN, _LEAST_GROUP_GAIN = 10.0, 7.0
"""Nats of log likelihood that a condition adds, more than chance; with one case for each group."""
_COMPARED, _NEGATED = 3.0, 1.0
"""Nats that two values must add above one, and the absence of a text above its presence."""
_MOST_NUMBERS, _FACTOR = 24, 20.0
"""Numbers of a tool that are compared, and how far apart the medians of two are at most."""


@dataclass(frozen=True, slots=True)
class Branch(Record):
    """A condition on values of outputs, and the tool that the agent calls where it is true.

    A case lasts from the call that returned the values until its tool is called again.

    Attributes:
        condition: such as ``get_claim claim.amount >= 10,000``.
        tool: what the agent then calls.
        cases: where the condition is true.
        agent: of these, those in which the agent called the tool.
        model: of those, the ones in which the tool was ranked first when the agent called it.
        other_cases: where the condition is false.
        agent_otherwise: of these, those in which the agent called the tool.
        model_otherwise: of the rest, those in which the tool was ranked first at some step.
    """

    condition: str
    tool: str
    cases: int
    agent: int
    model: int
    other_cases: int
    agent_otherwise: int
    model_otherwise: int


class _Cases(NamedTuple):
    """The cases of a tool, or of two: conversations, and the calls that returned the values.

    Attributes:
        at: of each case, its conversation and the place of its call, or of two.
        groups: shape (cases,): the group of runs.
        outcomes: shape (4, cases, tools): whether a case counts for a tool, which it does not if an
            earlier turn called it; whether the agent called the tool; whether the tool was then
            ranked first; whether it was at another step.
    """

    at: Sequence[tuple[Conversation, tuple[int, ...]]]
    groups: npt.NDArray[Any]
    outcomes: Flags


class _BranchCandidate(NamedTuple):
    """A condition for a tool: its gain, and the cases where it is true."""

    gain: float
    condition: Condition
    inside: Flags
    cases: _Cases


def find_branches(log: RunLog, demonstrations: Sequence[Demonstration]) -> list[Branch]:
    """Branches of the agent at the steps of a run log, those that the ranking misses most first.

    For each tool, the one condition on a number, a date, a text or a flag of an output, or on two
    of them, that says best when the agent calls it.

    Args:
        log: of one ranker.
        demonstrations: those that the log is about; others are left out.
    """
    logged = zip(log.plan.tolist(), log.step.tolist(), log.best.tolist(), strict=True)
    best = {(log.plan_ids[plan], step): log.names[tool] for plan, step, tool in logged}
    talks = read_conversations([item for item in demonstrations if (item.id, 0) in best])
    tools = sorted({tool for talk in talks for item, *_ in talk.steps for tool in item.plan.tools})
    places = {tool: at for at, tool in enumerate(tools)}
    candidates: dict[int, list[_BranchCandidate]] = defaultdict(list)
    known = sorted({tool for talk in talks for *_, latest in talk.steps for tool in latest})
    for names in [*((tool,) for tool in known), *combinations(known, 2)]:
        cases = _collect(talks, names, best, places)
        for values, numbers, penalty in _iter_values(cases, names):
            for tool, gain, condition, inside in _best_splits(numbers, values, cases, penalty):
                candidates[tool].append(_BranchCandidate(gain, condition, inside, cases))
    branches: dict[tuple[str, int, int], tuple[float, Branch]] = {}
    for tool, listed in candidates.items():
        for candidate in sorted(listed, key=lambda item: -item.gain):
            gain = _group_gain(candidate, tool)
            if gain > _LEAST_GROUP_GAIN:
                branch = _to_branch(tools[tool], tool, candidate)
                # Of tools that follow the same condition, the one that it explains best.
                key = branch.condition, branch.cases, branch.other_cases
                if key not in branches or branches[key][0] < gain:
                    branches[key] = gain, branch
                break
    # By the highest plausible share that is ranked first: few cases prove little.
    kept = [branch for _, branch in branches.values()]
    ranked = {item.tool: [at < item.model for at in range(item.agent)] for item in kept}
    return sorted(kept, key=lambda item: (proportion(ranked[item.tool]).high, item.tool))


def _collect(
    talks: Sequence[Conversation],
    tools: tuple[str, ...],
    best: Mapping[tuple[str, int], str],
    places: Mapping[str, int],
) -> _Cases:
    """The cases of these tools: steps at which their latest calls are the same."""
    at, groups, rows = [], [], []
    for talk in talks:
        steps: dict[tuple[int, ...], list[tuple[Demonstration, int]]] = defaultdict(list)
        for item, done, latest in talk.steps:
            if all(tool in latest for tool in tools):
                steps[tuple(latest[tool] for tool in tools)].append((item, done))
        for calls, during in steps.items():
            flags = np.zeros((4, len(places)), bool)
            flags[0] = True
            since = talk.calls[max(calls) + 1 : talk.earlier] if max(calls) >= 0 else ()
            flags[0, [places[call.tool] for call in since if call.tool in places]] = False
            for item, done in during:
                called, first = item.plan.next_in_log(range(done)) - {END}, best[item.id, done]
                flags[1, [places[tool] for tool in called]] = True
                if first in places:
                    flags[2 if first in called else 3, places[first]] = True
            at.append((talk, calls))
            groups.append(talk.group)
            rows.append(flags)
    outcomes = np.array(rows, bool).reshape(-1, 4, len(places)).swapaxes(0, 1)
    return _Cases(at, np.unique(groups, return_inverse=True)[1], outcomes)


def _iter_values(
    cases: _Cases, tools: tuple[str, ...]
) -> Iterator[tuple[tuple[tuple[str, int], ...], Floats, float]]:
    """Values, or pairs of them: the number of each case, and the gain that they must add."""
    columns = [read_columns(cases.at, at, _LEAST_CASES) for at in range(len(tools))]
    if len(tools) == 1:
        for key, numbers in columns[0].items():
            yield ((tools[0], key),), numbers, 0.0
    sides = [
        [((tool, key), numbers) for key, numbers in _compared(part)]
        for tool, part in zip(tools, columns, strict=True)
    ]
    pairs = product(*sides) if len(sides) > 1 else combinations(sides[0], 2)
    for (value, numbers), (other, others) in pairs:
        known = ~np.isnan(numbers - others)
        if known.sum() < 2 * _LEAST_CASES:
            continue
        low, high = sorted(float(np.median(np.abs(part[known]))) for part in (numbers, others))
        if high <= _FACTOR * max(low, 1e-9):
            yield (value, other), numbers - others, _COMPARED


def _compared(columns: Mapping[int, Floats]) -> list[tuple[int, Floats]]:
    """The numbers that may be compared with others: those of most cases."""
    numbers = [
        (key, column)
        for key, column in columns.items()
        if key < LENGTH and len(np.unique(column[~np.isnan(column)])) > _LEAST_CASES
    ]
    return sorted(numbers, key=lambda item: int(np.isnan(item[1]).sum()))[:_MOST_NUMBERS]


def _best_splits(
    numbers: Floats, values: tuple[tuple[str, int], ...], cases: _Cases, penalty: float
) -> Iterator[tuple[int, float, Condition, Flags]]:
    """For each tool with one: its place, the gain of the best condition, and where that is true."""
    known = np.flatnonzero(~np.isnan(numbers))
    counted, agent = cases.outcomes[0], cases.outcomes[1]
    whole, whole_taken = counted.sum(axis=0), (counted & agent).sum(axis=0)
    for is_above in (True, False):
        order = known[np.argsort(-numbers[known] if is_above else numbers[known], kind="stable")]
        ordered = numbers[order]
        ends = np.flatnonzero(ordered[1:] != ordered[:-1])
        inside = counted[order].cumsum(axis=0)[ends]
        taken = (counted & agent)[order].cumsum(axis=0)[ends]
        gains = _gains(inside, taken, whole, whole_taken) - penalty
        if values[0][1] >= FLAG and not is_above:
            gains -= _NEGATED
        for tool in np.flatnonzero((gains > _LEAST_GAIN).any(axis=0)).tolist():
            at = int(gains[:, tool].argmax())
            end = int(ends[at])
            threshold = round_threshold(float(ordered[end]), float(ordered[end + 1]))
            is_true = np.zeros(len(numbers), bool)
            is_true[order[: end + 1]] = True
            yield tool, float(gains[at, tool]), Condition(values, threshold, is_above), is_true


def _gains(inside: Any, taken: Any, whole: Any, whole_taken: Any) -> Floats:
    """The gain of each split in the log likelihood that the agent calls each tool; shape of inside.

    Minus infinity where a split is no branch: too few cases, or too few of them taken.
    """
    outside, rest = whole - inside, whole_taken - taken
    share, other = taken / np.maximum(inside, 1), rest / np.maximum(outside, 1)
    is_branch = (taken >= _LEAST_CASES) & (outside >= _LEAST_CASES)
    is_branch &= (share >= _LEAST_SHARE) & (share >= _LEAST_RATIO * other)
    gains = _likelihood(inside, taken) + _likelihood(outside, rest)
    return np.where(is_branch, gains - _likelihood(whole, whole_taken), -np.inf)


def _group_gain(candidate: _BranchCandidate, tool: int) -> float:
    """The gain where all cases of a group on one side of the condition count as one."""
    inside, members = candidate.inside, candidate.cases.groups
    counts, agent = candidate.cases.outcomes[:2, :, tool]
    if len(np.unique(members[inside & counts & agent])) < _LEAST_GROUPS:
        return 0.0
    sides = np.zeros((2, 2))
    for at, side in enumerate((inside & counts, ~inside & counts)):
        sizes = np.bincount(members[side])
        shares = np.bincount(members[side], agent[side]) / np.maximum(sizes, 1)
        sides[at] = np.count_nonzero(sizes), shares.sum()
    return float(_likelihood(*sides.T).sum() - _likelihood(*sides.sum(axis=0)))


def _likelihood(cases: Any, taken: Any) -> Any:
    """Log likelihood of whether a tool is called, by its share of the cases."""
    from scipy.special import xlogy  # a tenth of a second, which not all results need

    return xlogy(taken, taken) + xlogy(cases - taken, cases - taken) - xlogy(cases, cases)


def _to_branch(tool: str, at: int, candidate: _BranchCandidate) -> Branch:
    counts, agent, right, wrong = candidate.cases.outcomes[:, :, at]
    here, otherwise = candidate.inside & counts, ~candidate.inside & counts
    # First those where it is true; where a text is absent, the others have its path.
    order = np.argsort(~candidate.inside, kind="stable").tolist()
    cases = (candidate.cases.at[case] for case in order)
    condition = candidate.condition.describe((talk.calls, calls) for talk, calls in cases)
    parts = [here, here & agent, here & agent & right]
    parts += [otherwise, otherwise & agent, otherwise & ~agent & wrong]
    return Branch(condition, tool, *(int(part.sum()) for part in parts))
