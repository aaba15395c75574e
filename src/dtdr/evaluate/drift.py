"""Did the agent change? What two sets of its runs differ in, with tests."""

from __future__ import annotations

from collections import Counter
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
Kind = Literal["mean", "distance", "tool", "group"]

START = "start"
"""What the first call of a run comes after, in transitions."""

FEWEST_RUNS = 5
"""Runs of a group, or calls of a tool, on both sides together from which it is tested: with fewer
no permutation can be as rare as a corrected test asks for."""

_ORDER: Mapping[Kind, int] = {"mean": 0, "distance": 0, "tool": 1, "group": 2}
"""Families of tests, each corrected separately, in the order of ``Drift.changes``."""

_CHUNK = 4_000_000
"""Entries of a block of permutations held at once, about 32 MB."""


@dataclass(frozen=True, slots=True)
class Change:
    """One measure, before and after.

    Attributes:
        name: of the measure; of the tool or group where it is about one.
        kind: ``mean`` a run; ``distance`` between two distributions (total variation, from 0 to
            1); ``tool``, calls of it a run; ``group``, calls a run of that group.
        before, after: what was measured; None for a distance.
        change: ``after - before``, or the distance.
        p_value: of the permutation test, two-sided for differences.
        adjusted: the same, corrected (Holm 1979) for all measures of whole runs, for all tools, or
            for all groups.
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
        changes: by measure, then by tool, then by group; tools and groups by the size of the
            change, largest first.
        one_sided: tools that are called before only or after only, most calls first: all calls of
            each, before and after.
        sources: shares of the arguments by where their values come from, before and after.
        transitions: the pairs of successive tools whose share changed most: the pair and its
            shares before and after.
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
        return {
            "runs_before": self.before,
            "runs_after": self.after,
            "paired": self.is_paired,
            "changes": [asdict(change) for change in self.changes],
            "one_sided": {
                tool: {"before": pair[0], "after": pair[1]} for tool, pair in self.one_sided.items()
            },
            "sources": {
                name: {"before": pair[0], "after": pair[1]} for name, pair in self.sources.items()
            },
            "transitions": [
                {"from": pair[0], "to": pair[1], "before": first, "after": second}
                for pair, first, second in self.transitions
            ],
        }


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


def compare_runs(
    before: Sequence[Demonstration],
    after: Sequence[Demonstration],
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Drift:
    """Compare an agent's runs before and after something changed.

    A run is the unit of every test, since calls of one run are not independent. Runs are taken for
    pairs where both sides have the same ids and queries: then each pair is swapped at random, else
    all runs are shuffled.

    Args:
        before: runs of the agent as it was; failed runs count like the others.
        after: runs of the agent as it is.
        seed: of the permutations.
        permutations: how many; p-values are at least 1 / (permutations + 1).

    Raises:
        InputError: one side holds no run.
    """
    for runs, side in ((before, "before"), (after, "after")):
        if not runs:
            raise InputError(f"there is no run {side}; give demonstrations of both")
    paired = _pair(before, after)
    if paired is not None:
        after = paired
    counts = _Counts([*before, *after])
    is_after = np.repeat([False, True], [len(before), len(after)])
    sides = _sides(counts.matrix, is_after[None, :].astype(np.float64))
    random = np.random.default_rng(seed)
    tests = counts.tests(is_after)
    observed = {test: test.statistic(*sides)[0] for test in tests}
    as_far = dict.fromkeys(tests, 0)
    for labels in _labels(is_after, random, permutations, paired is not None):
        dealt = _sides(counts.matrix, labels)
        for test in tests:
            # Sums of the same numbers in another order may differ in the last bits.
            bar = abs(observed[test]) * (1 - 1e-9) - 1e-12
            as_far[test] += int((np.abs(test.statistic(*dealt)) >= bar).sum())
    p_values = {test: (as_far[test] + 1) / (permutations + 1) for test in tests}
    families = [[test for test in tests if _ORDER[test.kind] == place] for place in range(3)]
    adjusted = {
        test: value
        for family in families
        for test, value in zip(
            family,
            holm({str(i): p_values[test] for i, test in enumerate(family)}).values(),
            strict=True,
        )
    }
    changes = [
        Change(
            test.name,
            test.kind,
            *test.values(*sides),
            observed[test],
            p_values[test],
            adjusted[test],
        )
        for test in tests
    ]
    changes.sort(
        key=lambda change: (_ORDER[change.kind], -abs(change.change) if _ORDER[change.kind] else 0)
    )
    first, second = (counts.shares(side[0]) for side in sides)
    return Drift(
        len(before),
        len(after),
        paired is not None,
        tuple(changes),
        counts.one_sided(*(side[0] for side in sides)),
        {
            source: (first["sources"][source], second["sources"][source])
            for source in counts.blocks["sources"]
        },
        tuple(
            sorted(
                (
                    (pair, first["transitions"][pair], second["transitions"][pair])
                    for pair in counts.blocks["transitions"]
                ),
                key=lambda item: (-abs(item[2] - item[1]), item[0]),
            )
        ),
    )


@dataclass(frozen=True, eq=False)
class _Test:
    """One number of each side, and how far apart the two are.

    Attributes:
        columns: those summed for a ratio, or those of a distribution.
        per: the column that a ratio is divided by.
    """

    name: str
    kind: Kind
    columns: slice
    per: int = -1

    def statistic(self, before: Floats, after: Floats) -> Floats:
        """Of sums of shape (permutations, columns) on both sides: shape (permutations,)."""
        if self.kind == "distance":
            distance: Floats = np.abs(self._distribution(after) - self._distribution(before))
            return np.asarray(distance.sum(axis=1) / 2)
        return self._ratio(after) - self._ratio(before)

    def values(self, before: Floats, after: Floats) -> tuple[float | None, float | None]:
        """What was measured on both sides; None for a distance."""
        if self.kind == "distance":
            return None, None
        return float(self._ratio(before)[0]), float(self._ratio(after)[0])

    def _ratio(self, sums: Floats) -> Floats:
        total: Floats = sums[:, self.columns].sum(axis=1)
        return total / np.maximum(sums[:, self.per], 1)

    def _distribution(self, sums: Floats) -> Floats:
        block = sums[:, self.columns]
        shares: Floats = block / np.maximum(block.sum(axis=1, keepdims=True), 1)
        return shares


class _Counts:
    """What is counted of each run: one row a run, one column a measure, tool, pair or group."""

    def __init__(self, runs: Sequence[Demonstration]) -> None:
        from scipy.sparse import csr_array

        self._names: dict[str, dict[Any, int]] = {}
        rows = [self._count(run) for run in runs]
        self.blocks: dict[str, list[Any]] = {}
        starts, width = {}, 0
        for block in ("run", "tool_mix", "transitions", "sources", "groups", "group_calls"):
            starts[block] = width
            self.blocks[block] = list(self._names.get(block, {}))
            width += len(self.blocks[block])
        self._starts = starts
        entries = [
            (row, starts[block] + self._names[block][name], count)
            for row, counted in enumerate(rows)
            for (block, name), count in counted.items()
        ]
        places = np.array([entry[:2] for entry in entries], np.int64).reshape(-1, 2).T
        values = np.array([entry[2] for entry in entries], np.float64)
        self.matrix = csr_array((values, (places[0], places[1])), shape=(len(runs), width))

    def _count(self, run: Demonstration) -> Counter[tuple[str, Any]]:
        calls = run.plan.calls
        counted: Counter[tuple[str, Any]] = Counter()
        counted["run", "runs"] = 1
        counted["run", "calls"] = len(calls)
        counted["run", "tokens"] = sum(map(_tokens, calls))
        counted["run", "failed_calls"] = sum(call.status == "error" for call in calls)
        counted["run", "failed_runs"] = int(run.outcome == "failure")
        names = [START, *run.plan.tools, END]
        counted.update(("tool_mix", name) for name in run.plan.tools)
        counted.update(("transitions", pair) for pair in pairwise(names))
        counted.update(("sources", source) for _, _, source in iter_sources(run))
        if run.group:
            counted["groups", run.group] = 1
            counted["group_calls", run.group] = len(calls)
        for block, name in counted:
            known = self._names.setdefault(block, {})
            known.setdefault(name, len(known))
        return counted

    def tests(self, is_after: npt.NDArray[np.bool_]) -> list[_Test]:
        """What is tested, in the order of ``MEASURES``, then each tool and each group."""
        runs = self._column("run", "runs")
        tests = []
        for name in MEASURES:
            if name in self.blocks["run"]:
                tests.append(_Test(name, "mean", self._slice("run", name), runs))
            elif self.blocks[name]:
                start = self._starts[name]
                tests.append(_Test(name, "distance", slice(start, start + len(self.blocks[name]))))
        totals = np.asarray(self.matrix.sum(axis=0)).ravel()
        for tool in sorted(self.blocks["tool_mix"]):
            place = self._slice("tool_mix", tool)
            if totals[place].sum() >= FEWEST_RUNS:
                tests.append(_Test(tool, "tool", place, runs))
        sides = [
            np.asarray(self.matrix[side].sum(axis=0)).ravel() for side in (~is_after, is_after)
        ]
        for group in sorted(self.blocks["groups"]):
            count = self._column("groups", group)
            if min(side[count] for side in sides) >= FEWEST_RUNS:
                tests.append(_Test(group, "group", self._slice("group_calls", group), count))
        return tests

    def one_sided(self, before: Floats, after: Floats) -> dict[str, tuple[int, int]]:
        """Calls before and after of the tools that only one side calls, most calls first.

        No test is needed to see them, and corrected for all tools it says little of a rare one.
        """
        calls = {
            tool: (int(before[column]), int(after[column]))
            for tool in self.blocks["tool_mix"]
            for column in [self._column("tool_mix", tool)]
        }
        only = [(tool, pair) for tool, pair in calls.items() if not all(pair)]
        return dict(sorted(only, key=lambda item: (-max(item[1]), item[0])))

    def shares(self, sums: Floats) -> dict[str, dict[Any, float]]:
        """The distributions of one side, by block and name."""
        result = {}
        for block in ("transitions", "sources"):
            start, names = self._starts[block], self.blocks[block]
            values = sums[start : start + len(names)]
            total = max(1.0, float(values.sum()))
            result[block] = dict(zip(names, (values / total).tolist(), strict=True))
        return result

    def _column(self, block: str, name: Any) -> int:
        return self._starts[block] + self._names[block][name]

    def _slice(self, block: str, name: Any) -> slice:
        column = self._column(block, name)
        return slice(column, column + 1)


def _sides(matrix: Any, is_after: Floats) -> tuple[Floats, Floats]:
    """Sums of the runs before and after, each of shape (labellings, columns)."""
    after = np.asarray(is_after @ matrix)
    total = np.asarray(matrix.sum(axis=0)).reshape(1, -1)
    return total - after, after


def _labels(
    is_after: npt.NDArray[np.bool_], random: np.random.Generator, permutations: int, paired: bool
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
            yield random.permuted(np.tile(is_after.astype(np.float64), (size, 1)), axis=1)


def _pair(
    before: Sequence[Demonstration], after: Sequence[Demonstration]
) -> list[Demonstration] | None:
    """The runs after in the order of those before, where both are of the same ids and queries."""
    by_id = {run.id: run for run in after}
    if len(by_id) != len(after) or len(before) != len(after):
        return None
    paired = [by_id.get(run.id) for run in before]
    if len({run.id for run in before}) != len(before):
        return None
    same = [
        run
        for run, other in zip(paired, before, strict=True)
        if run is not None and run.query == other.query
    ]
    return same if len(same) == len(before) else None


def _tokens(call: ToolCall) -> int:
    tokens = count_tokens(dict(call.arguments)) if call.arguments else 0
    return tokens + (0 if call.output is None else count_tokens(call.output))
