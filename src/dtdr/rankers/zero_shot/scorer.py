"""Probabilities of the next tool without demonstrations, by weights learned on public sets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, NamedTuple, Self

import numpy as np

from dtdr.rankers.calibration import Calibration, Floats
from dtdr.rankers.nn import Matrix
from dtdr.rankers.vectors import softmax
from dtdr.rankers.zero_shot.features import FEATURES, QueryMatch, RunProgress

_LEAST = 1e-4
"""Added to the probability of a call before two kinds of runs are compared by it."""
_SUREST = 6.0
"""Largest log odds of a kind: a long run may change."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights that were fitted on public sets; see ``benchmarks/zero_shot.py``.

    Runs are of two kinds. A plan answers each clause of its query in turn. An agent that reads what
    calls return calls tools again, and goes its own way. Each kind has its own weights, and the
    calls of a run tell the kinds apart.

    Attributes:
        tools: shape (2, features): of plans and of agents' runs.
        end: shape (2, end features): likewise, of the log odds of the end.
        plans: shape (2,): the probability that a run is a plan, of a first query and of a later
            turn.
        quantiles: shape (m,), ascending: of the probability of the right tool.
        confidence: shape (2, points): see ``Calibration``.
        familiarity: shape (1,): least share of known words of a query that some tool may answer.
    """

    tools: Floats
    end: Floats
    plans: Floats
    quantiles: Floats
    confidence: Floats
    familiarity: Floats

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """From the JSON object of the package."""
        return cls(**{name: np.array(value) for name, value in record.items()})

    def calibration(self) -> Calibration:
        """The calibration that held-out sets gave."""
        return Calibration(
            self.quantiles, self.confidence, familiarity_threshold=float(self.familiarity[0])
        )


@cache
def shipped_weights() -> Weights:
    """The weights of this package."""
    text = resources.files(__package__).joinpath("weights.json").read_text("utf-8")
    return Weights.of(json.loads(text))


class ZeroShotState:
    """A run and what its calls say of its kind; never changed, and read when it is asked for.

    Args:
        match: gives the query.
        weights: of the features.
    """

    def __init__(self, match: Callable[[], QueryMatch], weights: Weights) -> None:
        self._match, self._weights = match, weights
        self._before: ZeroShotState | None = None
        self._tool = -1
        self._run: tuple[RunProgress, float] | None = None

    def call(self, tool: int) -> ZeroShotState:
        """After one more call."""
        after = ZeroShotState(self._match, self._weights)
        after._before, after._tool = self, tool
        return after

    @property
    def progress(self) -> RunProgress:
        """The calls."""
        return self._read()[0]

    def _read(self) -> tuple[RunProgress, float]:
        """The calls, and the log odds that the run is a plan."""
        unread: list[ZeroShotState] = []
        state, run = self, None
        while True:
            # Another thread may read the same run: it forgets the way after it knows the run.
            before, run = state._before, state._run
            if run is not None or before is None:
                break
            unread.append(state)
            state = before
        if run is None:
            match, weights = self._match(), self._weights
            share = float(weights.plans[int(match.is_later_turn)])
            run = state._run = RunProgress.start(match), float(np.log(share / (1 - share)))
        for following in reversed(unread):
            run = following._run = state._after(run, following._tool)
            following._before, state = None, following
        return run

    def _after(self, run: tuple[RunProgress, float], tool: int) -> tuple[RunProgress, float]:
        progress, kind = run
        if 0 <= tool < len(progress.called):
            plan, agent = self._next.by_kind[:, tool].tolist()
            kind += float(np.log((plan + _LEAST) / (agent + _LEAST)))
            kind = min(max(kind, -_SUREST), _SUREST)
        return progress.call(tool), kind

    @cached_property
    def _next(self) -> _NextCall:
        """Read once, for a block and for the mixture."""
        progress, kind = self._read()
        by_kind = self._read_kinds(progress.features())
        plan = 1 / (1 + math.exp(-kind))
        shares = np.array([plan, 1 - plan])
        tools: Floats = shares @ by_kind
        tools.flags.writeable = False
        logits = self._weights.end @ progress.end_features()
        return _NextCall(by_kind, shares, tools, float(shares @ (1 / (1 + np.exp(-logits)))))

    def _read_kinds(self, rows: Matrix) -> Floats:
        """Probabilities of the tools by each kind of run, given that one is called; (2, n)."""
        return softmax(self._weights.tools @ rows) if rows.size else np.zeros((2, 0))

    def tools(self, without: Sequence[str] = ()) -> Floats:
        """Probabilities of the tools, given that one is called; shape (n,), summing to 1.

        Args:
            without: features that are set to 0.
        """
        if not without:
            return self._next.tools
        rows = self.progress.features()
        rows[[FEATURES.index(name) for name in without]] = 0
        tools: Floats = self._next.shares @ self._read_kinds(rows)
        return tools

    def end(self) -> float:
        """The probability that the run ends here."""
        return self._next.end

    def probabilities(self) -> Floats:
        """Probabilities of the tools and the end of plan; shape (n + 1,), summing to 1."""
        tools = self.tools()
        end = self.end() if len(tools) else 1.0
        both = np.empty(len(tools) + 1)
        np.multiply(tools, 1 - end, out=both[:-1])
        both[-1] = end
        return both


class _NextCall(NamedTuple):
    """The next call of a run, or its end.

    Attributes:
        by_kind: shape (2, n): of a plan and of an agent's run, the probability of each tool, given
            that one is called.
        shares: shape (2,): probabilities of the two kinds.
        tools: shape (n,): the probability of each tool, given that one is called.
        end: that the run ends here.
    """

    by_kind: Floats
    shares: Floats
    tools: Floats
    end: float
