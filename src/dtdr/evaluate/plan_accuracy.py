"""How many whole plans come out right when an agent is left to itself."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import track
from dtdr.errors import InputError
from dtdr.evaluate.reliability import BINS, Bin, confidence_bins, expected_calibration_error
from dtdr.evaluate.statistics import Proportion, permutation_p_value, proportion
from dtdr.evaluate.tables import Column, Table, count, numeric, p_value
from dtdr.predict.model import Model
from dtdr.predict.plans.beam import MOST_CALLS

PREDICTED = 5
"""Plans that are asked for."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """One held-out query.

    Attributes:
        length: calls of the demonstrated plan.
        rank: place of the plan with the demonstrated calls, from 1; 0 where it is not among the
            first five.
        dag: whether the first plan is the demonstrated one but for ids and arguments.
        log: whether it calls the tools in the very order of the log.
        greedy: whether the best tool of each step of a session, one after the other, makes the
            demonstrated calls.
        probabilities: of the predicted plans, the first one's first.
        milliseconds: that predicting them took.
    """

    length: int
    rank: int
    dag: bool
    log: bool
    greedy: bool
    probabilities: tuple[float, ...]
    milliseconds: float


SHARES: Mapping[str, Callable[[PlanResult], bool]] = {
    "greedy": lambda result: result.greedy,
    "tools": lambda result: result.rank == 1,
    "tools@5": lambda result: result.rank > 0,
    "dag": lambda result: result.dag,
    "log": lambda result: result.log,
}
"""What makes a plan right: the best tool of each step makes the right calls; the right tools, each
as often as demonstrated, come first, or are among the first five; the first plan is isomorphic to
the demonstrated one by names, or calls the tools in the order of the log."""


@dataclass(frozen=True, slots=True)
class PlanScores:
    """Free-running plans against the demonstrated ones.

    Attributes:
        results: one a query.
    """

    results: tuple[PlanResult, ...]

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
        return proportion(map(SHARES[name], self.results))

    @property
    def p_value(self) -> float:
        """Of ``tools`` against ``greedy``: a permutation test paired by query."""
        return _p_value((result.rank == 1) - result.greedy for result in self.results)

    def p_value_against(self, other: PlanScores) -> float:
        """Of the difference of ``tools`` from another method's on the same queries."""
        pairs = zip(self.results, other.results, strict=True)
        return _p_value((own.rank == 1) - (one.rank == 1) for own, one in pairs)

    def bins(self, most: int = PREDICTED) -> list[Bin]:
        """The first predicted plans of each query by their probability, and how many are right."""
        pairs = [
            (probability, result.rank == place)
            for result in self.results
            for place, probability in enumerate(result.probabilities[:most], 1)
        ]
        return confidence_bins([one for one, _ in pairs], [right for _, right in pairs], BINS)

    @property
    def ece(self) -> float:
        """Expected calibration error of the first plans' probabilities; NaN without any plan."""
        return expected_calibration_error(self.bins(1))

    def by_length(self) -> dict[int, PlanScores]:
        """The same for the plans of each length, sorted."""
        groups: dict[int, list[PlanResult]] = defaultdict(list)
        for result in self.results:
            groups[result.length].append(result)
        return {length: PlanScores(tuple(groups[length])) for length in sorted(groups)}

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        shares = {name: self.share(name) for name in SHARES}
        first = [sum(result.probabilities[:1]) for result in self.results]
        return {
            "plans": len(self.results),
            **{name: round(share.value, 6) for name, share in shares.items()},
            "intervals": {name: _bounds(share) for name, share in shares.items()},
            "p_value_against_greedy": round(self.p_value, 6),
            "mean_probability": round(statistics.fmean(first), 6),
            "ece": None if math.isnan(self.ece) else round(self.ece, 6),
            "bins": [
                {
                    "probability": round(item.confidence, 6),
                    "right": round(item.accuracy, 6),
                    "plans": item.steps,
                }
                for item in self.bins()
            ],
            "milliseconds_median": round(self.milliseconds_median, 4),
            "by_length": {
                str(length): {
                    "plans": len(part.results),
                    **{n: round(part.share(n).value, 6) for n in ("tools", "tools@5", "greedy")},
                    "interval": _bounds(part.share("tools")),
                    "p_value_against_greedy": round(part.p_value, 6),
                }
                for length, part in self.by_length().items()
            },
        }


def _bounds(share: Proportion) -> list[float]:
    return [round(share.low, 6), round(share.high, 6)]


def _p_value(differences: Iterable[int]) -> float:
    return permutation_p_value(np.array([*map(float, differences)]), np.random.default_rng(0))


def plans_table(scores: Mapping[str, PlanScores], *, title: str) -> Table:
    """Methods as rows, how many of their plans come out right as columns."""
    first = next(iter(scores.values()))
    caption = (
        f"{len(first.results):,} plans, nothing but the query given. Right: the demonstrated "
        "tools, each as often.\nGreedy: the best tool of each step of a session; first: of the "
        "predicted plans,\nwith its 95 % interval; p: first against greedy, paired by query. DAG: "
        "isomorphic by names;\nlog: in its order."
    )
    columns = [Column("Retriever"), *_columns(*SHARES, best=True)]
    columns.append(Column("ms", show=lambda value: f"{value:.1f}", numeric=True))
    rows = [
        [name, *_cells(item, *SHARES), item.milliseconds_median] for name, item in scores.items()
    ]
    return Table(columns, rows, title=title, caption=caption)


def lengths_table(scores: PlanScores, *, title: str) -> Table:
    """Lengths of plans as rows."""
    shown = ("greedy", "tools", "tools@5", "dag")
    columns = [Column("Calls"), Column("Plans", show=count, numeric=True), *_columns(*shown)]
    rows = [
        [str(length), len(part.results), *_cells(part, *shown)]
        for length, part in scores.by_length().items()
    ]
    return Table(columns, rows, title=title)


_TITLES = {"tools": "first", "tools@5": "among five", "dag": "DAG"}


def _columns(*names: str, best: bool = False) -> list[Column]:
    """A column for each share, the interval of the first plans after theirs, and p."""
    columns = numeric(*(_TITLES.get(name, name) for name in names), best=best)
    columns.insert(2, Column("95 %", numeric=True))
    return [*columns, Column("p", show=p_value, numeric=True)]


def _cells(scores: PlanScores, *names: str) -> list[Any]:
    tools = scores.share("tools")
    cells: list[Any] = [scores.share(name).value for name in names]
    cells.insert(2, f"{tools.low:.3f} to {tools.high:.3f}")
    return [*cells, scores.p_value]


def plan_calibration_table(scores: PlanScores, *, title: str) -> Table:
    """Probabilities of plans as rows, and how many such plans are right."""
    columns = [
        Column("Probability", show=lambda value: f"{value:.2f}", numeric=True),
        Column("Plans", show=count, numeric=True),
        *numeric("right"),
        Column("95 %", numeric=True),
    ]
    rows = []
    for item in scores.bins():
        low, high = item.interval()
        rows.append([item.confidence, item.steps, item.accuracy, f"{low:.3f} to {high:.3f}"])
    caption = (
        f"Up to {PREDICTED} plans of each query by their probability.\n"
        f"Expected calibration error of the first: {scores.ece:.3f}, {BINS} bins."
    )
    return Table(columns, rows, title=title, caption=caption)


def score_plans(retriever: Model, demonstrations: Sequence[Demonstration]) -> PlanScores:
    """Predict a plan for each query of held-out demonstrations, nothing else given.

    Args:
        retriever: fitted with plans.
        demonstrations: held out; failures are left out.

    Raises:
        InputError: there is no demonstration, or the retriever was fitted without plans.
    """
    results: list[PlanResult] = []
    held_out = [item for item in demonstrations if item.outcome != "failure"]
    if not held_out:
        raise InputError("there are no held-out plans to predict; give others")
    for item in track(held_out, "plans", len(held_out)):
        started = time.perf_counter()
        plans = retriever.plans(item.query, before=item.before, k=PREDICTED)
        milliseconds = 1000 * (time.perf_counter() - started)
        wanted = sorted(item.plan.tools)
        ranks = [place for place, plan in enumerate(plans, 1) if sorted(plan.tools) == wanted]
        results.append(
            PlanResult(
                len(item.plan),
                ranks[0] if ranks else 0,
                bool(plans) and plans[0].to_plan().is_isomorphic(item.plan),
                bool(plans) and plans[0].tools == item.plan.tools,
                sorted(greedy_plan(retriever, item)) == wanted,
                tuple(plan.probability for plan in plans),
                milliseconds,
            )
        )
    return PlanScores(tuple(results))


def greedy_plan(retriever: Model, demonstration: Demonstration) -> list[str]:
    """The best tool of each step, until the end of plan or 64 calls."""
    session = retriever.session(demonstration.query, before=demonstration.before)
    tools: list[str] = []
    while len(tools) < MOST_CALLS:
        best = session.rank().best
        if best == END:
            break
        tools.append(best)
        session.call(best)
    return tools
