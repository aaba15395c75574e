"""Tools that a run itself called and that the model does not know, as candidates of this run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from dtdr.rankers.calibration import Floats
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.dtdr_f.outcomes import ERROR
from dtdr.rankers.dtdr_f.text import stems_of
from dtdr.rankers.dtdr_f.tool_texts import server_of
from dtdr.text.words import name_words

FEATURES = (
    *("one", "is_last", "since", "count", "followed_last", "in_query", "same_server"),
    *("last_is_unknown", "unknown_share", "failed_last", "is_repeated", "calls"),
)
"""Features of an unknown tool of a run."""
_DRAWS, _HIDDEN = 2, 0.5
"""How often a run is read with some of its tools hidden, and the share that is hidden."""
_MOST_STEPS = 6_000
_DECAY = 1.0


class CallSequence:
    """The calls of a run by their tools, known and unknown, oldest first.

    Args:
        words: hashed stems of the query.
    """

    def __init__(self, words: npt.NDArray[np.uint32]) -> None:
        self._words = frozenset(words.tolist())
        self._calls: list[Hashable] = []
        self._last: dict[Hashable, int] = {}
        # No counters, which take ten times as long to copy.
        self._counts: dict[Hashable, int] = {}
        self._follows: dict[tuple[Hashable, Hashable], int] = {}
        self._names: dict[Hashable, tuple[float, str]] = {}
        """Share of the words of unknown tools' names that the query has, and their servers."""
        self._servers: dict[Hashable, str] = {}
        self._unknown = 0
        self._has_failed = False

    def add(self, tool: Hashable, name: str, *, is_unknown: bool, has_failed: bool) -> None:
        """One more call of a tool; the name of a tool is the same each time."""
        if self._calls:
            pair = self._calls[-1], tool
            self._follows[pair] = self._follows.get(pair, 0) + 1
        if tool not in self._servers:
            self._servers[tool] = server_of(name)
        if is_unknown and tool not in self._names:
            stems = set(stems_of([name_words(name)]).values.tolist())
            share = len(stems & self._words) / max(len(stems), 1)
            self._names[tool] = share, self._servers[tool]
        self._calls.append(tool)
        self._last[tool] = len(self._calls)
        self._counts[tool] = self._counts.get(tool, 0) + 1
        self._unknown += is_unknown
        self._has_failed = has_failed

    def copy(self) -> CallSequence:
        """The same calls, to go on from in another way."""
        other = copy(self)
        for name in ("_calls", "_last", "_counts", "_follows", "_names", "_servers"):
            setattr(other, name, getattr(self, name).copy())
        return other

    @property
    def unknown(self) -> list[Hashable]:
        """The unknown tools that were called, in the order of their first calls."""
        return list(self._names)

    def features(self) -> Floats:
        """Features of each unknown tool; shape (unknown, features)."""
        calls, total = self._calls, len(self._calls)
        last = calls[-1]
        after_last = self._counts[last] - 1
        is_repeated = total > 1 and calls[-2] == last
        rows = []
        for tool, (share, server) in self._names.items():
            is_last = tool == last
            followed = self._follows.get((last, tool), 0) / after_last if after_last else 0.0
            rows.append((
                1.0,
                is_last,
                np.log1p(total - self._last[tool]),
                np.log1p(self._counts[tool] - 1),
                followed,
                share,
                server != "" and server == self._servers[last],
                last in self._names,
                self._unknown / total,
                is_last and self._has_failed,
                is_last and is_repeated,
                np.log1p(total),
            ))  # fmt: skip
        return np.array(rows, np.float64).reshape(-1, len(FEATURES))


@dataclass(frozen=True, eq=False)
class RunTools:
    """How likely the next call is one of a tool that this run called and that no model knows.

    A softmax over these tools and all else, learned from demonstrations in which half of the tools
    are hidden.

    Attributes:
        weights: shape (features,).
    """

    weights: Floats

    @classmethod
    def fit(cls, data: EncodedDemonstrations, names: Sequence[str], seed: int) -> Self:
        """Learn from the calls of the demonstrations.

        Args:
            data: the demonstrations.
            names: of the vocabulary.
            seed: of which tools are hidden.
        """
        rng = np.random.default_rng(seed)
        rows: list[Floats] = []
        sizes: list[int] = []
        right: list[int] = []
        for plan in rng.permutation(len(data)).tolist() * _DRAWS:
            if len(sizes) >= _MOST_STEPS:
                break
            for features, wanted in _hidden_steps(data, plan, names, rng):
                rows.append(features)
                sizes.append(len(features))
                right.append(wanted)
        if not rows:
            return cls(np.array([-3.0, *[0.0] * (len(FEATURES) - 1)]))
        return cls(_fit_softmax(np.concatenate(rows), np.array(sizes), np.array(right)))

    def odds(self, sequence: CallSequence) -> Floats:
        """The odds of each unknown tool against all else; shape (unknown,)."""
        odds: Floats = np.exp(np.clip(sequence.features() @ self.weights, -30, 8))
        return odds


def _hidden_steps(
    data: EncodedDemonstrations, plan: int, names: Sequence[str], rng: np.random.Generator
) -> list[tuple[Floats, int]]:
    """Features at each step after the first hidden call, and which hidden tool is next or -1."""
    calls = data.plan(plan)
    before = data.columns["before"][plan][::2].tolist()
    statuses = data.columns["status"].values[data.starts[plan] : data.starts[plan + 1]].tolist()
    tools = np.unique([tool for tool in (*before, *calls) if tool != REMOVED])
    hidden = set(tools[rng.random(len(tools)) < _HIDDEN].tolist())
    if not hidden:
        return []
    sequence, steps = CallSequence(data.columns["stems"][plan]), []
    all_calls = [*((tool, 0) for tool in before), *zip(calls, statuses, strict=True)]
    following = [tool for tool, _ in all_calls[1:]] + [REMOVED]
    for at, ((tool, status), wanted) in enumerate(zip(all_calls, following, strict=True), start=1):
        sequence.add(
            tool,
            "" if tool == REMOVED else names[tool],
            is_unknown=tool in hidden,
            has_failed=status == ERROR,
        )
        if at >= len(before) and sequence.unknown:
            unknown = sequence.unknown
            steps.append((sequence.features(), unknown.index(wanted) if wanted in unknown else -1))
    return steps


def _fit_softmax(rows: Floats, sizes: npt.NDArray[np.intp], right: npt.NDArray[np.intp]) -> Floats:
    """Weights of a softmax over the rows of each step and one more class of score 0."""
    # A process that loads a model and ranks does not need it.
    from scipy.optimize import minimize

    starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(len(sizes)), sizes)
    is_right = np.zeros(len(rows))
    is_right[(starts + right)[right >= 0]] = 1

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = np.clip(rows @ weights, -30, 30)
        odds = np.exp(scores)
        totals = 1 + np.bincount(owner, odds, len(sizes))
        error = odds / totals[owner] - is_right
        value = np.log(totals).sum() - (scores * is_right).sum() + 0.5 * _DECAY * weights @ weights
        return float(value), error @ rows + _DECAY * weights

    start = np.zeros(rows.shape[1])
    weights: Floats = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return weights
