"""Run logs that tests make by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dtdr.evaluation.run_log import LoggedStep, RunHeader, RunLog, StepFactory

TOOLS = ("alpha", "beta", "gamma", "delta", "end")


def make_step(
    ranking: Sequence[int],
    acceptable: Sequence[str],
    *,
    plan: str = "p1",
    step: int = 0,
    plan_length: int = 1,
    tools: Sequence[str] = TOOLS,
) -> LoggedStep:
    """A step whose probabilities fall along the ranking."""
    weights = np.arange(len(ranking), 0, -1, dtype=float)
    return StepFactory(tools)(
        plan=plan,
        step=step,
        plan_length=plan_length,
        history=["alpha"] * step,
        acceptable=acceptable,
        ranking=ranking,
        probabilities=weights / weights.sum(),
    )


def make_log(steps: Sequence[LoggedStep], *, tools: Sequence[str] = TOOLS, **header) -> RunLog:
    """A log of those steps."""
    values: dict[str, Any] = {
        "dataset": "handmade",
        "synthetic": True,
        "split": {"name": "s", "sha256": "0" * 64, "train": 2, "test": 1},
        "retriever": "random",
        "encoder": None,
        "parameters": {"seed": 0},
        "seed": 0,
        "training_data": {"demonstrations": 2, "skipped_failures": 0, "sha256": "1" * 64},
        "versions": {"python": "3.11"},
        "fit_seconds": 0.5,
        "rank_microseconds_median": 12.5,
    }
    values.update(header)
    return RunLog(RunHeader(tools=tuple(tools), steps=len(steps), **values), tuple(steps))


@st.composite
def logs(draw, max_plans: int = 6, shape_of: RunLog | None = None):
    """Logs with any rankings and acceptable tools, some of which the retriever does not know.

    With ``shape_of``, a log over the same steps with other rankings.
    """
    names = st.sampled_from((*TOOLS, "unknown", "unheard of"))
    places = st.permutations(range(len(TOOLS)))
    if shape_of is not None:
        return make_log(
            [
                make_step(
                    draw(places),
                    step.acceptable,
                    plan=step.plan,
                    step=step.step,
                    plan_length=step.plan_length,
                )
                for step in shape_of.steps
            ]
        )
    steps = []
    for plan in range(draw(st.integers(1, max_plans))):
        length = draw(st.integers(0, 3))
        for number in range(length + 1):
            acceptable = draw(st.sets(names, min_size=1, max_size=4))
            steps.append(
                make_step(
                    draw(places),
                    sorted(acceptable),
                    plan=f"p{plan}",
                    step=number,
                    plan_length=length,
                )
            )
    return make_log(steps)
