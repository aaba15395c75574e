"""Run logs that tests make by hand."""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from dtdr.evaluate.run_log import RunHeader, RunLog, RunLogBuilder

TOOLS = ("alpha", "beta", "gamma", "delta", "end")


Step = dict[str, Any]
"""Arguments of ``RunLogBuilder.add``."""


def make_step(
    ranking: npt.ArrayLike,
    acceptable: Sequence[str],
    *,
    plan: str = "p1",
    step: int = 0,
    plan_length: int = 1,
    **more: Any,
) -> Step:
    """A step whose probabilities fall along the ranking."""
    weights = np.arange(np.size(ranking), 0, -1, dtype=float)
    return {
        "plan": plan,
        "step": step,
        "plan_length": plan_length,
        "called": acceptable[0],
        "acceptable": acceptable,
        "ranking": ranking,
        "probabilities": weights / weights.sum(),
        **more,
    }


def make_log(steps: Sequence[Step], *, tools: Sequence[str] = TOOLS, **header) -> RunLog:
    """A log of those steps."""
    values: dict[str, Any] = {
        "dataset": "handmade",
        "synthetic": True,
        "split": {"name": "s", "sha256": "0" * 64, "train": 2, "test": 1},
        "ranker": "random",
        "encoder": None,
        "parameters": {"seed": 0},
        "seed": 0,
        "training_data": {"demonstrations": 2, "skipped_failures": 0, "sha256": "1" * 64},
        "versions": {"python": "3.11"},
        "fit_seconds": 0.5,
        "rank_microseconds_median": 12.5,
    }
    values.update(header)
    builder = RunLogBuilder(tools)
    for step in steps:
        builder.add(**step)
    return builder.build(RunHeader(tools=tuple(tools), **values))


def records_of(log: RunLog) -> list[dict[str, Any]]:
    """Each step as a JSON object with names of tools."""
    names = log.names
    records: list[dict[str, Any]] = []
    for i in range(len(log)):
        count = int(log.accepted[i])
        confidence = float(log.confidence[i])
        records.append(
            {
                "plan": log.plan_ids[log.plan[i]],
                "step": int(log.step[i]),
                "plan_length": int(log.plan_length[i]),
                "called": names[log.called[i]],
                "acceptable": [names[place] for place in log.acceptable[i, :count]],
                "ranks": [int(rank) or None for rank in log.ranks[i, :count]],
                "probabilities": log.probabilities[i, :count].tolist(),
                "next_in_log": [names[place] for place in log.acceptable[i, log.in_log[i] > 0]],
                "best": names[log.best[i]],
                "best_probability": float(log.best_probability[i]),
                "confidence": None if math.isnan(confidence) else confidence,
            }
        )
    return records


def is_same(first: RunLog, second: RunLog) -> bool:
    """Whether two logs hold the same."""
    for item in fields(RunLog):
        left, right = getattr(first, item.name), getattr(second, item.name)
        if isinstance(left, np.ndarray):
            if left.dtype != right.dtype or not np.array_equal(
                left, right, equal_nan=left.dtype.kind == "f"
            ):
                return False
        elif left != right:
            return False
    return True


@st.composite
def steps_of_plans(draw, max_plans: int = 6, like: Sequence[Step] | None = None):
    """Steps with any rankings and acceptable tools, some of which the ranker does not know.

    With ``like``, the same steps with other rankings.
    """
    names = st.sampled_from((*TOOLS, "unknown", "unheard of"))
    places = st.permutations(range(len(TOOLS)))
    if like is not None:
        return [{**step, "ranking": draw(places)} for step in like]
    steps = []
    for plan in range(draw(st.integers(1, max_plans))):
        length = draw(st.integers(0, 3))
        for number in range(length + 1):
            acceptable = sorted(draw(st.sets(names, min_size=1, max_size=4)))
            steps.append(
                make_step(
                    draw(places), acceptable, plan=f"p{plan}", step=number, plan_length=length
                )
            )
    return steps


def logs(max_plans: int = 6):
    """Logs of such steps."""
    return steps_of_plans(max_plans).map(make_log)
