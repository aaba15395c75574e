"""Did the agent change? What two sets of its runs differ in, with tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.errors import InputError
from dtdr.evaluate.statistics import PERMUTATIONS, holm
from dtdr.predict.arguments.prediction import iter_sources
from dtdr.rankers.selection import count_tokens

Floats = npt.NDArray[np.float64]
Kind = Literal["mean", "distance", "tool", "source", "transition"]

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
"""Measures of whole runs, with their titles in tables."""


@dataclass(frozen=True, slots=True)
class Change:
    """One measure, before and after.

    Attributes:
        name: of the measure, the tool, the source of arguments, or ``A → B`` of a transition.
        kind: ``mean`` per run; ``distance`` between two distributions (total variation, from 0 to
            1); ``tool``, its calls per run; ``source`` and ``transition``, its share.
        before, after: what was measured; None for a distance.
        change: ``after - before``, or the distance.
        p_value: of the permutation test, two-sided for differences; None of shares, and of tools
            with fewer than ``FEWEST_CALLS`` calls.
        adjusted: the same, corrected (Holm 1979) for all measures of whole runs, or for all tools.
    """

    name: str
    kind: Kind
    before: float | None
    after: float | None
    change: float
    p_value: float | None = None
    adjusted: float | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """How the runs after differ from those before.

    Attributes:
        runs_before, runs_after: how many there are.
        paired: whether both are runs of the same queries, compared one by one.
        changes: measures of whole runs; then tools, those that only one side calls first; sources
            of arguments; and transitions. The largest change of a kind comes first.
    """

    runs_before: int
    runs_after: int
    paired: bool
    changes: tuple[Change, ...]

    def of_kind(self, *kinds: Kind) -> list[Change]:
        """The changes of some kinds, in their order."""
        return [change for change in self.changes if change.kind in kinds]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def compare_runs(
    before: Iterable[DemonstrationLike],
    after: Iterable[DemonstrationLike],
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Drift:
    """Compare an agent's runs before and after something changed.

    A run is the unit of every test, since calls of one run are not independent. If both sides have
    the same queries, their runs are pairs and each pair is swapped at random; otherwise all runs
    are shuffled. Runs that share a query are pairs by their ids.

    Args:
        before: runs of the agent as it was; failed runs count like the others.
        after: runs of the agent as it is.
        seed: of the permutations.
        permutations: how many; p-values are at least 1 / (permutations + 1).

    Raises:
        InputError: one side has no run.
    """
    first, second = list(as_demonstrations(before)), list(as_demonstrations(after))
    for runs, side in ((first, "before"), (second, "after")):
        if not runs:
            raise InputError(f"there is no run {side}; give demonstrations of both")
    paired = _pair(first, second)
    table = _RunTable([*first, *(paired or second)], len(first))
    labels = _labels(
        table.is_after, np.random.default_rng(seed), permutations, paired=paired is not None
    )
    p_values = table.test(labels, permutations)
    measured = table.columns["run"] | table.column_of_distance
    calls = dict(sorted(table.columns["tool_mix"].items()))
    tested = {tool: column for tool, column in calls.items() if table.calls(tool) >= FEWEST_CALLS}
    rare = {tool: column for tool, column in calls.items() if tool not in tested}
    tools = table.changes("tool", tested, p_values)
    tools += [
        replace(change, p_value=None, adjusted=None)
        for change in table.changes("tool", rare, p_values)
    ]
    tools.sort(key=_largest)
    of_runs = {name: measured[name] for name in MEASURES if name in measured}
    listed = [
        *table.changes("mean", of_runs, p_values),
        # Those that only one side calls come first; the order is kept otherwise.
        *sorted(tools, key=lambda change: bool(change.before and change.after)),
        *sorted(table.shares("source", "sources"), key=_largest),
        *sorted(table.shares("transition", "transitions"), key=_largest),
    ]
    return Drift(len(first), len(second), paired is not None, tuple(listed))


class _RunTable:
    """Counts of runs, one a row, with one side below the other; what the tests compare.

    Attributes:
        columns: the column of each name, by what is counted, such as ``tool_mix``.
        column_of_distance: the columns after all of these, which are distances between the
            distributions of the two sides.
        is_after: 1 for each run after, 0 for each before.
    """

    def __init__(self, runs: Sequence[Demonstration], before: int) -> None:
        from sklearn.feature_extraction import DictVectorizer

        vectorizer = DictVectorizer(sort=False)
        self._counts = vectorizer.fit_transform(map(_count, runs))  # sparse
        self.columns: dict[str, dict[str, int]] = defaultdict(dict)
        for (block, name), column in vectorizer.vocabulary_.items():
            self.columns[block][name] = column
        self._total: Floats = np.asarray(self._counts.sum(axis=0)).reshape(1, -1)
        self._sizes = before, len(runs) - before
        distributions = [name for name in MEASURES if name in self.columns]
        self.column_of_distance = {
            name: self._total.size + position for position, name in enumerate(distributions)
        }
        self.is_after = np.repeat([0.0, 1.0], self._sizes)
        self._sides = self._sums(self.is_after[None, :])
        self._observed = self._measure(*self._sides)[0]

    def calls(self, tool: str) -> float:
        """Calls of a tool, on both sides together."""
        return float(self._total[0, self.columns["tool_mix"][tool]])

    def _sums(self, labels: Floats) -> tuple[Floats, Floats]:
        """Sums over the runs before and after, each of shape (labellings, columns)."""
        after = np.asarray(labels @ self._counts)
        return self._total - after, after

    def _measure(self, first: Floats, second: Floats) -> Floats:
        """Differences of the means of all columns, then distances of the distributions."""
        differences = second / self._sizes[1] - first / self._sizes[0]
        blocks = [[*self.columns[name].values()] for name in self.column_of_distance]
        shares = [(_shares(first[:, block]), _shares(second[:, block])) for block in blocks]
        distances = [np.abs(after - before).sum(axis=1) / 2 for before, after in shares]
        return np.column_stack([differences, *distances])

    def test(self, labellings: Iterable[Floats], permutations: int) -> Floats:
        """The p-value of each column: how often permuted sides differ as much as these."""
        as_far = np.zeros(len(self._observed))
        # Sums of the same numbers in another order may differ in the last bits.
        bars = np.abs(self._observed) * (1 - 1e-9) - 1e-12
        for labels in labellings:
            as_far += (np.abs(self._measure(*self._sums(labels))) >= bars).sum(axis=0)
        return np.asarray((as_far + 1) / (permutations + 1))

    def changes(self, kind: Kind, tested: Mapping[str, int], p_values: Floats) -> list[Change]:
        """Changes of columns, then distances; their p-values are corrected together."""
        adjusted = holm({name: float(p_values[column]) for name, column in tested.items()})
        listed = []
        for name, column in tested.items():
            rest = float(self._observed[column]), float(p_values[column]), adjusted[name]
            if column < self._total.size:
                sides = zip(self._sides, self._sizes, strict=True)
                means = [float(side[0, column] / size) for side, size in sides]
                listed.append(Change(name, kind, means[0], means[1], *rest))
            else:
                listed.append(Change(name, "distance", None, None, *rest))
        return listed

    def shares(self, kind: Kind, block: str) -> list[Change]:
        """Changes of the shares of the columns of one block, which are not tested."""
        block_columns = self.columns[block]
        first, second = (
            _shares(side[:, [*block_columns.values()]])[0].tolist() for side in self._sides
        )
        named = zip(block_columns, first, second, strict=True)
        return [Change(name, kind, old, new, new - old) for name, old, new in named]


def _largest(change: Change) -> tuple[float, str]:
    return -abs(change.change), change.name


def _shares(sums: Floats) -> Floats:
    """Distributions, one a row."""
    return np.asarray(sums / np.maximum(sums.sum(axis=1, keepdims=True), 1))


def _count(run: Demonstration) -> Counter[tuple[str, str]]:
    calls = run.plan.calls
    counted: Counter[tuple[str, str]] = Counter()
    counted["run", "calls"] = len(calls)
    counted["run", "tokens"] = sum(map(_tokens, calls))
    counted["run", "failed_calls"] = sum(call.status == "error" for call in calls)
    counted["run", "failed_runs"] = int(run.outcome == "failure")
    counted.update(("tool_mix", name) for name in run.plan.tools)
    pairs = pairwise([START, *run.plan.tools, END])
    counted.update(("transitions", f"{first} → {second}") for first, second in pairs)
    counted.update(("sources", source) for _, _, source in iter_sources(run))
    return counted


def _labels(
    is_after: Floats, random: np.random.Generator, permutations: int, *, paired: bool
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
    """The runs after in the order of those before: by query and id, else by different queries."""
    for key in (attrgetter("query", "id"), attrgetter("query")):
        after_by_key = {key(run): run for run in after}
        wanted = [key(run) for run in before]
        if sorted(wanted) == sorted(map(key, after)) and len(after_by_key) == len(after):
            return [after_by_key[name] for name in wanted]
    return None


def _tokens(call: ToolCall) -> int:
    tokens = count_tokens(dict(call.arguments)) if call.arguments else 0
    return tokens + (0 if call.output is None else count_tokens(call.output))
