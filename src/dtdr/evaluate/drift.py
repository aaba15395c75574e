"""Did the agent change? What two sets of its runs differ in, with tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluate.statistics import PERMUTATIONS, holm
from dtdr.predict.arguments.prediction import iter_sources
from dtdr.rankers.selection import count_tokens

Floats = npt.NDArray[np.float64]
Kind = Literal["mean", "distance", "tool"]

START = "start"
"""Comes before the first call of a run, in transitions."""

FEWEST_CALLS = 5
"""Calls of a tool, on both sides together, from which it is tested: with fewer, no permutation is
as rare as a corrected test requires."""

_CHUNK = 4_000_000
"""Entries of one block of permutations, about 32 MB."""

MEASURES = {
    "calls": "Calls",
    "tokens": "Tokens of arguments and outputs",
    "failed_calls": "Failed calls",
    "failed_runs": "Failed runs",
    "tool_mix": "Tool mix",
    "transitions": "Transitions between tools",
    "sources": "Sources of arguments",
}
"""What is measured of whole runs, with the titles of tables."""


@dataclass(frozen=True, slots=True)
class Change:
    """One measure, before and after.

    Attributes:
        name: of the measure or the tool.
        kind: ``mean`` per run; ``distance`` between two distributions (total variation, from 0 to
            1); ``tool``, its calls per run.
        before, after: what was measured; None for a distance.
        change: ``after - before``, or the distance.
        p_value: of the permutation test, two-sided for differences.
        adjusted: the same, corrected (Holm 1979) for all measures of whole runs, or for all tools.
    """

    name: str
    kind: Kind
    before: float | None
    after: float | None
    change: float
    p_value: float
    adjusted: float


@dataclass(frozen=True, slots=True)
class Drift:
    """How the runs after differ from those before.

    Attributes:
        before, after: how many runs there are.
        is_paired: whether both are runs of the same queries, compared one by one.
        changes: by measure, then by tool, the largest change first.
        one_sided: calls before and after of tools that only one side calls, most calls first; they
            need no test.
        sources: shares of the arguments by where their values come from, before and after.
        transitions: pairs of successive tools with their shares before and after; those whose
            share changed most come first.
    """

    before: int
    after: int
    is_paired: bool
    changes: tuple[Change, ...]
    one_sided: Mapping[str, tuple[int, int]]
    sources: Mapping[str, tuple[float, float]]
    transitions: tuple[tuple[tuple[str, str], float, float], ...]

    def of_kind(self, *kinds: Kind) -> list[Change]:
        """The changes of some kinds, in their order."""
        return [change for change in self.changes if change.kind in kinds]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        sides = ("before", "after")
        return {
            "runs_before": self.before,
            "runs_after": self.after,
            "paired": self.is_paired,
            "changes": [asdict(change) for change in self.changes],
            "one_sided": {
                tool: dict(zip(sides, pair, strict=True)) for tool, pair in self.one_sided.items()
            },
            "sources": {
                name: dict(zip(sides, pair, strict=True)) for name, pair in self.sources.items()
            },
            "transitions": [
                {"from": pair[0], "to": pair[1], "before": first, "after": second}
                for pair, first, second in self.transitions
            ],
        }


def compare_runs(
    before: Sequence[Demonstration],
    after: Sequence[Demonstration],
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Drift:
    """Compare an agent's runs before and after something changed.

    A run is the unit of every test, since calls of one run are not independent. If both sides have
    the same ids and queries, their runs are pairs and each pair is swapped at random; otherwise all
    runs are shuffled.

    Args:
        before: runs of the agent as it was; failed runs count like the others.
        after: runs of the agent as it is.
        seed: of the permutations.
        permutations: how many; p-values are at least 1 / (permutations + 1).

    Raises:
        InputError: one side has no run.
    """
    for runs, side in ((before, "before"), (after, "after")):
        if not runs:
            raise InputError(f"there is no run {side}; give demonstrations of both")
    paired = _pair(before, after)
    matrix, blocks = _count_runs([*before, *(paired or after)])
    total = np.asarray(matrix.sum(axis=0)).reshape(1, -1)
    is_after = np.repeat([0.0, 1.0], [len(before), len(after)])

    def split(labels: Floats) -> tuple[Floats, Floats]:
        """Sums of the runs before and after, each of shape (labellings, columns)."""
        sums = np.asarray(labels @ matrix)
        return total - sums, sums

    first, second = split(is_after[None, :])
    sizes = len(before), len(after)
    tests = _tests(blocks, (first + second)[0], sizes)
    as_far = np.zeros(len(tests))
    # Sums of the same numbers in another order may differ in the last bits.
    bars = [abs(test.statistic(first, second)[0]) * (1 - 1e-9) - 1e-12 for test in tests]
    random = np.random.default_rng(seed)
    for labels in _labels(is_after, random, permutations, paired is not None):
        sides = split(labels)
        as_far += [
            (np.abs(test.statistic(*sides)) >= bar).sum()
            for test, bar in zip(tests, bars, strict=True)
        ]
    p_values = dict(zip(tests, ((as_far + 1) / (permutations + 1)).tolist(), strict=True))
    changes: list[Change] = []
    for kinds in (("mean", "distance"), ("tool",)):
        family = [test for test in tests if test.kind in kinds]
        adjusted = holm({test.name: p_values[test] for test in family})
        found = [test.change(first, second, p_values[test], adjusted[test.name]) for test in family]
        changes += found if "mean" in kinds else sorted(found, key=lambda one: -abs(one.change))
    calls = {
        tool: (int(first[0, column]), int(second[0, column]))
        for tool, column in blocks["tool_mix"].items()
    }
    moved = ((pair, *both) for pair, both in _shares(blocks["transitions"], first, second).items())
    return Drift(
        *sizes,
        paired is not None,
        tuple(changes),
        {
            tool: pair
            for tool, pair in sorted(calls.items(), key=lambda item: (-max(item[1]), item[0]))
            if not all(pair)
        },
        _shares(blocks["sources"], first, second),
        tuple(sorted(moved, key=lambda item: (-abs(item[2] - item[1]), item[0]))),
    )


@dataclass(frozen=True, eq=False)
class _Test:
    """A mean per run, or a distribution, of the runs before and after.

    Attributes:
        columns: the one of a mean, or those of a distribution.
        sizes: number of runs before and after.
    """

    name: str
    kind: Kind
    columns: list[int]
    sizes: tuple[int, int]

    def statistic(self, before: Floats, after: Floats) -> Floats:
        """Of sums of shape (permutations, columns) on both sides: shape (permutations,)."""
        if self.kind == "distance":
            difference = self._distribution(after) - self._distribution(before)
            return np.asarray(np.abs(difference).sum(axis=1) / 2)
        column = self.columns[0]
        return np.asarray(after[:, column] / self.sizes[1] - before[:, column] / self.sizes[0])

    def change(self, before: Floats, after: Floats, p_value: float, adjusted: float) -> Change:
        """What was measured, with its test."""
        change = float(self.statistic(before, after)[0])
        first = second = None
        if self.kind != "distance":
            first, second = (
                float(side[0, self.columns[0]] / size)
                for side, size in zip((before, after), self.sizes, strict=True)
            )
        return Change(self.name, self.kind, first, second, change, p_value, adjusted)

    def _distribution(self, sums: Floats) -> Floats:
        block = sums[:, self.columns]
        return np.asarray(block / np.maximum(block.sum(axis=1, keepdims=True), 1))


Blocks = Mapping[str, Mapping[Any, int]]
"""Columns of the counts by name, by block: means of runs, tools, pairs of tools, sources."""


def _tests(blocks: Blocks, totals: Floats, sizes: tuple[int, int]) -> list[_Test]:
    """What is tested, in the order of ``MEASURES``, then each tool."""
    run = blocks["run"]
    tests = [
        _Test(name, "mean", [run[name]], sizes)
        if name in run
        else _Test(name, "distance", [*blocks[name].values()], sizes)
        for name in MEASURES
        if name in run or blocks[name]
    ]
    for tool, column in sorted(blocks["tool_mix"].items()):
        if totals[column] >= FEWEST_CALLS:
            tests.append(_Test(tool, "tool", [column], sizes))
    return tests


def _count_runs(runs: Sequence[Demonstration]) -> tuple[Any, Blocks]:
    """A sparse matrix with a row per run, and what its columns count."""
    from sklearn.feature_extraction import DictVectorizer

    vectorizer = DictVectorizer(sort=False)
    matrix = vectorizer.fit_transform(map(_count, runs))
    blocks: dict[str, dict[Any, int]] = defaultdict(dict)
    for (block, name), column in vectorizer.vocabulary_.items():
        blocks[block][name] = column
    return matrix, blocks


def _shares(
    columns: Mapping[Any, int], before: Floats, after: Floats
) -> dict[Any, tuple[float, float]]:
    """A distribution before and after, by name."""
    sides = [side[0, [*columns.values()]] for side in (before, after)]
    shares = [(side / max(1.0, side.sum())).tolist() for side in sides]
    return dict(zip(columns, zip(*shares, strict=True), strict=True))


def _count(run: Demonstration) -> Counter[tuple[str, Any]]:
    calls = run.plan.calls
    counted: Counter[tuple[str, Any]] = Counter()
    counted["run", "calls"] = len(calls)
    counted["run", "tokens"] = sum(map(_tokens, calls))
    counted["run", "failed_calls"] = sum(call.status == "error" for call in calls)
    counted["run", "failed_runs"] = int(run.outcome == "failure")
    counted.update(("tool_mix", name) for name in run.plan.tools)
    counted.update(("transitions", pair) for pair in pairwise([START, *run.plan.tools, END]))
    counted.update(("sources", source) for _, _, source in iter_sources(run))
    return counted


def _labels(
    is_after: Floats, random: np.random.Generator, permutations: int, paired: bool
) -> Iterator[Floats]:
    """Permuted labels, block after block; each of shape (rows, runs)."""
    count = len(is_after)
    rows = max(1, _CHUNK // count)
    for start in range(0, permutations, rows):
        size = min(rows, permutations - start)
        if paired:
            swapped = random.integers(0, 2, (size, count // 2), dtype=np.int8)
            yield np.concatenate([swapped, 1 - swapped], axis=1).astype(np.float64)
        else:
            yield random.permuted(np.tile(is_after, (size, 1)), axis=1)


def _pair(
    before: Sequence[Demonstration], after: Sequence[Demonstration]
) -> list[Demonstration] | None:
    """The runs after in the order of those before, where both are of the same ids and queries."""
    by_id = {run.id: run for run in after}
    wanted = {run.id: run.query for run in before}
    if not len(by_id) == len(after) == len(before) == len(wanted):
        return None
    if any(by_id[i].query != query if i in by_id else True for i, query in wanted.items()):
        return None
    return [by_id[run.id] for run in before]


def _tokens(call: ToolCall) -> int:
    tokens = count_tokens(dict(call.arguments)) if call.arguments else 0
    return tokens + (0 if call.output is None else count_tokens(call.output))
