"""How many whole plans are right, from the query alone."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import track
from dtdr.errors import InputError
from dtdr.evaluate.statistics import (
    Proportion,
    calibration_error,
    permutation_p_value,
    proportion,
    rounded,
)
from dtdr.evaluate.tables import Cell, Column, Table, numeric, p_value
from dtdr.predict.model import Model
from dtdr.predict.plans.best_first import MOST_CALLS

PREDICTED = 5
"""Plans per query."""


SHARES = ("greedy", "tools", "tools@5", "dag", "log")
"""Criteria of a right plan: the best tool of each step of a session makes the demonstrated calls;
the right tools, each as often as demonstrated, come first, or are among the first five; the first
plan is isomorphic to the demonstrated one by names, or calls the tools in the order of the log."""


@dataclass(frozen=True, slots=True)
class PlanScore:
    """One held-out query.

    Attributes:
        right: whether the plan is right, by each of ``SHARES``.
        probability: of the first plan; None without any.
        milliseconds: that predicting the plans took.
    """

    right: Mapping[str, bool]
    probability: float | None
    milliseconds: float


@dataclass(frozen=True, slots=True)
class PlanScores:
    """Free-running plans against the demonstrated ones.

    Attributes:
        results: one a query.
    """

    results: tuple[PlanScore, ...]

    @classmethod
    def join(cls, parts: Iterable[PlanScores]) -> PlanScores:
        """Those of several test sides together."""
        return cls(tuple(result for part in parts for result in part.results))

    @property
    def milliseconds_median(self) -> float:
        """For the five plans of one query."""
        return statistics.median(result.milliseconds for result in self.results)

    def share(self, name: str) -> Proportion:
        """How often plans are right, by a name of ``SHARES``."""
        return proportion(result.right[name] for result in self.results)

    @property
    def p_value(self) -> float:
        """P-value of ``tools`` against ``greedy``: a permutation test paired by query."""
        pairs = [(result.right["tools"], result.right["greedy"]) for result in self.results]
        differences = np.array([float(tools - greedy) for tools, greedy in pairs])
        return permutation_p_value(differences, np.random.default_rng(0))

    @property
    def ece(self) -> float:
        """Expected calibration error of the first plans' probabilities; NaN without any plan."""
        first = [(result.probability, result.right["tools"]) for result in self.results]
        known = [pair for pair in first if pair[0] is not None]
        return calibration_error(*np.array(known, np.float64).reshape(-1, 2).T)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        shares = {name: self.share(name) for name in SHARES}
        record: dict[str, Any] = rounded(
            {
                "plans": len(self.results),
                **{name: share.value for name, share in shares.items()},
                "intervals": {name: (share.low, share.high) for name, share in shares.items()},
                "p_value_against_greedy": self.p_value,
                "ece": None if math.isnan(self.ece) else self.ece,
                "milliseconds_median": self.milliseconds_median,
            }
        )
        return record


def plans_table(scores: Mapping[str, PlanScores], *, title: str) -> Table:
    """Methods as rows, how many of their plans come out right as columns."""
    first = next(iter(scores.values()))
    caption = (
        f"{len(first.results):,} plans, nothing but the query given. Right: the demonstrated "
        "tools, each as often.\nGreedy: the best tool of each step of a session; first: of the "
        "predicted plans,\nwith its 95 % interval; p: first against greedy, paired by query. DAG: "
        "isomorphic by names;\nlog: in its order. ECE: calibration error of the first plan."
    )
    columns = [
        Column("Ranker"),
        *numeric("greedy", "first", "95 %", "among five", "DAG", "log", best=True),
        *numeric("p", "ECE", "ms"),
    ]
    rows: list[list[Any]] = []
    for name, item in scores.items():
        greedy, tools, *others = (item.share(share) for share in SHARES)
        interval = Cell(f"{tools.low:.3f} to {tools.high:.3f}")
        figures = [greedy.value, tools.value, interval, *(share.value for share in others)]
        milliseconds = Cell(f"{item.milliseconds_median:.1f}")
        rows.append([name, *figures, Cell(p_value(item.p_value)), item.ece, milliseconds])
    return Table(columns, rows, title=title, caption=caption)


def score_plans(model: Model, demonstrations: Sequence[Demonstration]) -> PlanScores:
    """Predict a plan for each query of held-out demonstrations, nothing else given.

    Args:
        model: fitted with plans.
        demonstrations: held out; failures are left out.

    Raises:
        InputError: there is no demonstration, or the model was fitted without plans.
    """
    results: list[PlanScore] = []
    held_out = [item for item in demonstrations if item.outcome != "failure"]
    if not held_out:
        raise InputError("there are no held-out plans to predict; give others")
    for item in track(held_out, "plans", len(held_out)):
        started = time.perf_counter()
        plans = model.plans(item.query, before=item.before, top_k=PREDICTED)
        milliseconds = 1000 * (time.perf_counter() - started)
        wanted = sorted(item.plan.tools)
        has_tools = [sorted(plan.tools) == wanted for plan in plans]
        right = {
            "greedy": sorted(greedy_plan(model, item)) == wanted,
            "tools": has_tools[:1] == [True],
            "tools@5": any(has_tools),
            "dag": bool(plans) and plans[0].to_plan().is_isomorphic(item.plan),
            "log": bool(plans) and plans[0].tools == item.plan.tools,
        }
        results.append(PlanScore(right, plans[0].probability if plans else None, milliseconds))
    return PlanScores(tuple(results))


def greedy_plan(model: Model, demonstration: Demonstration) -> list[str]:
    """The best tool of each step, until the end of plan or 64 calls."""
    session = model.session(demonstration.query, before=demonstration.before)
    tools: list[str] = []
    while len(tools) < MOST_CALLS:
        best = session.rank().best
        if best == END:
            break
        tools.append(best)
        session.call(best)
    return tools
