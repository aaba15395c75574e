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
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.statistics import Record, proportion
from dtdr.evaluate.tables import Column, Table
from dtdr.rankers.dtdr_f.value_cases import (
    Case,
    Conversation,
    Floats,
    collect_cases,
    iter_tools,
    read_columns,
    read_conversations,
)
from dtdr.rankers.dtdr_f.value_names import Condition, Value, round_threshold
from dtdr.rankers.dtdr_f.values import EQUAL, FLAG, LENGTH

Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.intp]

_LEAST_CASES, _LEAST_GROUPS = 5, 3
"""Cases, and groups of runs, in which the agent took a branch."""
_LEAST_SHARE, _LEAST_RATIO = 0.25, 4.0
"""The share of the cases of a branch in which the agent took it, and how many times the share of
the other cases that is."""
_LEAST_GAIN, _LEAST_GROUP_GAIN = 10.0, 7.0
"""Nats of log likelihood that a condition adds: with thousands of conditions, chance adds less. The
second where each group of runs counts once."""
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


class _Outcomes(NamedTuple):
    """The outcomes of cases, each of shape (cases, tools).

    Attributes:
        counts: whether a case counts: not if an earlier turn called the tool already.
        agent: whether the agent called the tool.
        right: whether the tool was then ranked first.
        wrong: whether it was ranked first at another step.
        groups: shape (cases,): the number of the group of runs.
    """

    counts: Flags
    agent: Flags
    right: Flags
    wrong: Flags
    groups: Counts


class _Candidate(NamedTuple):
    """A condition for a tool: its gain, and the cases where it is true."""

    gain: float
    condition: Condition
    inside: Flags
    cases: Sequence[Case]
    outcomes: _Outcomes


def find_branches(log: RunLog, demonstrations: Sequence[Demonstration]) -> list[Branch]:
    """Branches of the agent at the steps of a run log, those that the ranking misses most first.

    For each tool, the one condition on a number, a date, a text or a flag of an output, or on two
    of them, that says best when the agent calls it.

    Args:
        log: of one ranker.
        demonstrations: those that the log is about; others are left out.

    Returns:
        At most one branch for each tool; none where no outputs are known.
    """
    best = {
        (log.plan_ids[plan], step): log.names[tool]
        for plan, step, tool in zip(
            log.plan.tolist(), log.step.tolist(), log.best.tolist(), strict=True
        )
    }
    talks = read_conversations([item for item in demonstrations if (item.id, 0) in best])
    tools = sorted({tool for talk in talks for item, _ in talk.steps for tool in item.plan.tools})
    places = {tool: at for at, tool in enumerate(tools)}
    groups = {group: at for at, group in enumerate(dict.fromkeys(talk.group for talk in talks))}
    candidates: dict[int, list[_Candidate]] = defaultdict(list)
    for names in iter_tools(talks, 2 * _LEAST_CASES):
        cases = collect_cases(talks, names)
        if len(cases) < 2 * _LEAST_CASES:
            continue
        rows = np.array([_follow(case, best, places) for case in cases])
        members = np.array([groups[case.conversation.group] for case in cases])
        outcomes = _Outcomes(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], members)
        for values, numbers, penalty in _iter_values(cases, names):
            for tool, gain, condition, inside in _best_splits(numbers, values, outcomes, penalty):
                candidates[tool].append(_Candidate(gain, condition, inside, cases, outcomes))
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
    kept = [branch for _, branch in branches.values()]
    return sorted(kept, key=lambda item: (_highest_share(item), item.tool))


def branches_table(branches: Sequence[Branch], title: str, most: int = 12) -> Table:
    """The first branches, at most ``most`` of them."""
    rows = [
        (
            item.condition,
            item.tool,
            f"{item.agent} of {item.cases}",
            f"{item.model} of {item.agent}",
            f"{item.agent_otherwise} of {item.other_cases}",
        )
        for item in branches[:most]
    ]
    heads = ("Agent", "Ranked first", "Otherwise")
    columns = [Column("If"), Column("The agent calls", is_whole=True)]
    columns += [Column(head, numeric=True, is_whole=True) for head in heads]
    caption = (
        "Agent: in how many cases it called the tool; Ranked first: in how many of these the tool "
        "was ranked first when the agent called it; Otherwise: calls where the condition is false."
    )
    if len(branches) > most:
        caption += f"\n{len(branches) - most} more branches, ranked better, are in --json."
    if not branches:
        caption = "No value of an output says which tool comes next in enough of these runs."
    return Table(columns, rows, title, caption)


def _highest_share(branch: Branch) -> float:
    """The highest plausible share of the agent's calls that is ranked first."""
    return proportion([True] * branch.model + [False] * (branch.agent - branch.model)).high


def _follow(case: Case, best: Mapping[tuple[str, int], str], places: Mapping[str, int]) -> Flags:
    """Shape (4, tools): the rows of ``_Outcomes`` of a case."""
    talk: Conversation = case.conversation
    flags = np.zeros((4, len(places)), bool)
    flags[0] = True
    newest = max(case.calls)
    if 0 <= newest < talk.earlier:
        for call in talk.calls[newest + 1 : talk.earlier]:
            if call.tool in places:
                flags[0, places[call.tool]] = False
    for item, done in (talk.steps[at] for at in case.steps):
        called, first = item.plan.next_in_log(range(done)), best[item.id, done]
        for tool in called - {END}:
            flags[1, places[tool]] = True
        if first in places:
            flags[2 if first in called else 3, places[first]] = True
    return flags


def _iter_values(
    cases: Sequence[Case], tools: tuple[str, ...]
) -> Iterator[tuple[tuple[Value, ...], Floats, float]]:
    """Values, or pairs of them: the number of each case, and the gain that they must add."""
    columns = [read_columns(cases, at, _LEAST_CASES) for at in range(len(tools))]
    if len(tools) == 1:
        for key, numbers in columns[0].items():
            value = Value(tools[0], key)
            yield (value,), numbers, _COMPARED if value.kind == EQUAL else 0.0
    sides = [
        [(Value(tool, key), numbers) for key, numbers in _compared(part)]
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
    numbers: Floats, values: tuple[Value, ...], outcomes: _Outcomes, penalty: float
) -> Iterator[tuple[int, float, Condition, Flags]]:
    """For each tool with one: its place, the gain of the best condition, and where that is true."""
    known = np.flatnonzero(~np.isnan(numbers))
    whole = outcomes.counts.sum(axis=0)
    whole_taken = (outcomes.counts & outcomes.agent).sum(axis=0)
    for is_above in (True, False):
        order = known[np.argsort(-numbers[known] if is_above else numbers[known], kind="stable")]
        ordered = numbers[order]
        ends = np.flatnonzero(ordered[1:] != ordered[:-1])
        if not len(ends):
            continue
        counts = outcomes.counts[order]
        inside = counts.cumsum(axis=0)[ends]
        taken = (counts & outcomes.agent[order]).cumsum(axis=0)[ends]
        gains = _gains(inside, taken, whole, whole_taken) - penalty
        if values[0].kind == FLAG and not is_above:
            gains -= _NEGATED
        for tool in np.flatnonzero((gains > _LEAST_GAIN).any(axis=0)).tolist():
            at = int(gains[:, tool].argmax())
            end = int(ends[at])
            threshold = round_threshold(float(ordered[end]), float(ordered[end + 1]))
            is_true = np.zeros(len(numbers), bool)
            is_true[order[: end + 1]] = True
            yield tool, float(gains[at, tool]), Condition(values, threshold, is_above), is_true


def _gains(inside: Counts, taken: Counts, whole: Counts, whole_taken: Counts) -> Floats:
    """The gain of each split in the log likelihood that the agent calls each tool; shape of inside.

    Minus infinity where a split is no branch: too few cases, or too few of them taken.
    """
    outside, rest = whole - inside, whole_taken - taken
    share, other = taken / np.maximum(inside, 1), rest / np.maximum(outside, 1)
    is_branch = (taken >= _LEAST_CASES) & (outside >= _LEAST_CASES)
    is_branch &= (share >= _LEAST_SHARE) & (share >= _LEAST_RATIO * other)
    gains = _likelihood(inside, taken) + _likelihood(outside, rest)
    return np.where(is_branch, gains - _likelihood(whole, whole_taken), -np.inf)


def _group_gain(candidate: _Candidate, tool: int) -> float:
    """The gain where all cases of a group on one side of the condition count as one.

    Minus infinity where the agent took the branch in too few groups.
    """
    inside, outcomes = candidate.inside, candidate.outcomes
    counts, agent = outcomes.counts[:, tool], outcomes.agent[:, tool]
    if len(np.unique(outcomes.groups[inside & counts & agent])) < _LEAST_GROUPS:
        return -np.inf
    sides = []
    for side in (inside & counts, ~inside & counts):
        groups = outcomes.groups[side]
        sizes, taken = np.bincount(groups), np.bincount(groups, agent[side])
        share = taken[sizes > 0] / sizes[sizes > 0]
        sides.append((float(len(share)), float(share.sum())))
    whole = _likelihood(*np.sum(sides, axis=0))
    return float(sum(_likelihood(*side) for side in sides) - whole)


def _likelihood(cases: Any, taken: Any) -> Any:
    """Log likelihood of whether a tool is called, by its share of the cases."""

    def x_log_x(counts: Any) -> Any:
        return counts * np.log(np.maximum(counts, 1e-9))

    return x_log_x(taken) + x_log_x(cases - taken) - x_log_x(cases)


def _to_branch(tool: str, at: int, candidate: _Candidate) -> Branch:
    counts, agent, right, wrong = (part[:, at] for part in candidate.outcomes[:4])
    here, otherwise = candidate.inside & counts, ~candidate.inside & counts
    # First those where it is true; where a text is absent, the others have its path.
    order = np.argsort(~candidate.inside, kind="stable").tolist()
    cases = [candidate.cases[case] for case in order]
    return Branch(
        candidate.condition.describe((case.conversation.calls, case.calls) for case in cases),
        tool,
        int(here.sum()),
        int((here & agent).sum()),
        int((here & agent & right).sum()),
        int(otherwise.sum()),
        int((otherwise & agent).sum()),
        int((otherwise & ~agent & wrong).sum()),
    )
