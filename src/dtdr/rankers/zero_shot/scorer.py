"""Probabilities of the next tool without demonstrations, by weights learned on public sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any, Self

import numpy as np

from dtdr.rankers.calibration import Calibration, Floats
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


@dataclass(frozen=True, eq=False)
class ZeroShotState:
    """A run and what its calls say of its kind; never changed.

    Attributes:
        progress: the calls.
        weights: of the features.
        kind: log odds that the run is a plan.
    """

    progress: RunProgress
    weights: Weights
    kind: float

    @classmethod
    def start(cls, match: QueryMatch, weights: Weights) -> ZeroShotState:
        """Before the first call."""
        share = float(weights.plans[int(match.is_later_turn)])
        return cls(RunProgress.start(match), weights, float(np.log(share / (1 - share))))

    def call(self, tool: int) -> ZeroShotState:
        """After one more call."""
        kind = self.kind
        if 0 <= tool < len(self.progress.called):
            plan, run = self._kinds[:, tool].tolist()
            kind += float(np.log((plan + _LEAST) / (run + _LEAST)))
            kind = min(max(kind, -_SUREST), _SUREST)
        return replace(self, progress=self.progress.call(tool), kind=kind)

    @cached_property
    def _kinds(self) -> Floats:
        """Probabilities of the tools by each kind of runs, given that one is called."""
        return self._by_kind()

    def _by_kind(self, without: Sequence[str] = ()) -> Floats:
        """The same without some features; shape (2, n)."""
        rows = self.progress.features()
        rows[[FEATURES.index(name) for name in without]] = 0
        return softmax(self.weights.tools @ rows) if rows.size else np.zeros((2, 0))

    @property
    def _shares(self) -> Floats:
        """Probabilities of the two kinds of runs."""
        plan = 1 / (1 + np.exp(-self.kind))
        return np.array([plan, 1 - plan])

    def tools(self, without: Sequence[str] = ()) -> Floats:
        """Probabilities of the tools, given that one is called; shape (n,), summing to 1.

        Args:
            without: features that are set to 0.
        """
        mixed: Floats = self._shares @ (self._by_kind(without) if without else self._kinds)
        return mixed

    def end(self) -> float:
        """The probability that the run ends here."""
        logits = self.weights.end @ self.progress.end_features()
        return float(self._shares @ (1 / (1 + np.exp(-logits))))

    def probabilities(self) -> Floats:
        """Probabilities of the tools and the end of plan; shape (n + 1,), summing to 1."""
        tools = self.tools()
        end = self.end() if len(tools) else 1.0
        return np.append((1 - end) * tools, end)
