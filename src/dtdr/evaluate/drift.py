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


def compare_runs(  # noqa: PLR0915
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
    from sklearn.feature_extraction import DictVectorizer

    first, second = list(as_demonstrations(before)), list(as_demonstrations(after))
    for runs, side in ((first, "before"), (second, "after")):
        if not runs:
            raise InputError(f"there is no run {side}; give demonstrations of both")
    paired = _pair(first, second)
    vectorizer = DictVectorizer(sort=False)
    matrix = vectorizer.fit_transform(map(_count, [*first, *(paired or second)]))  # sparse
    places: dict[str, dict[str, int]] = defaultdict(dict)
    for (block, name), column in vectorizer.vocabulary_.items():
        places[block][name] = column
    total = np.asarray(matrix.sum(axis=0)).reshape(1, -1)
    sizes = len(first), len(second)
    distributions = [name for name in MEASURES if name in places]

    def sums(labels: Floats) -> tuple[Floats, Floats]:
        """Sums over the runs before and after, each of shape (labellings, columns)."""
        after = np.asarray(labels @ matrix)
        return total - after, after

    def measure(first: Floats, second: Floats) -> Floats:
        """Differences of the means of all columns, then distances of the distributions."""
        differences = second / sizes[1] - first / sizes[0]
        blocks = [[*places[name].values()] for name in distributions]
        shares = [(_shares(first[:, block]), _shares(second[:, block])) for block in blocks]
        distances = [np.abs(after - before).sum(axis=1) / 2 for before, after in shares]
        return np.column_stack([differences, *distances])

    is_after = np.repeat([0.0, 1.0], sizes)
    sides = sums(is_after[None, :])
    observed = measure(*sides)[0]
    as_far = np.zeros(len(observed))
    # Sums of the same numbers in another order may differ in the last bits.
    bars = np.abs(observed) * (1 - 1e-9) - 1e-12
    for labels in _labels(is_after, np.random.default_rng(seed), permutations, paired is not None):
        as_far += (np.abs(measure(*sums(labels))) >= bars).sum(axis=0)
    p_values = (as_far + 1) / (permutations + 1)

    def changes(kind: Kind, tested: Mapping[str, int]) -> list[Change]:
        """Changes of columns, then distances; their p-values are corrected together."""
        adjusted = holm({name: float(p_values[column]) for name, column in tested.items()})
        listed = []
        for name, column in tested.items():
            rest = float(observed[column]), float(p_values[column]), adjusted[name]
            if column < total.size:
                means = [float(side[0, column] / n) for side, n in zip(sides, sizes, strict=True)]
                listed.append(Change(name, kind, means[0], means[1], *rest))
            else:
                listed.append(Change(name, "distance", None, None, *rest))
        return listed

    def shares(kind: Kind, block: str) -> list[Change]:
        first, second = (_shares(side[:, [*places[block].values()]])[0].tolist() for side in sides)
        named = zip(places[block], first, second, strict=True)
        return [Change(name, kind, old, new, new - old) for name, old, new in named]

    measured = places["run"] | {name: total.size + at for at, name in enumerate(distributions)}
    calls = dict(sorted(places["tool_mix"].items()))
    tested = {tool: column for tool, column in calls.items() if total[0, column] >= FEWEST_CALLS}
    tools = changes("tool", tested)
    rare = changes("tool", {name: at for name, at in calls.items() if name not in tested})
    tools += [replace(change, p_value=None, adjusted=None) for change in rare]
    tools.sort(key=_largest)
    listed = [
        *changes("mean", {name: measured[name] for name in MEASURES if name in measured}),
        *sorted(tools, key=lambda change: bool(change.before and change.after)),
        *sorted(shares("source", "sources"), key=_largest),
        *sorted(shares("transition", "transitions"), key=_largest),
    ]
    return Drift(*sizes, paired is not None, tuple(listed))


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
