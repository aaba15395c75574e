"""Compares a model in use with a new one, on runs that neither has learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import as_run
from dtdr.predict.gains import ToolGains, reciprocal_rank
from dtdr.predict.model import Model

FOLDS = 3
"""Parts of the new runs; for each, a model learns all other runs."""

MOST_JUDGED = 300
"""New runs that are judged by, the latest ones."""

GAIN = 0.3
"""In 1 / rank, on average over the steps where the runs did not call a tool. A tool that gains more
is first at a third of all steps where it is wrong: a person must look at the runs."""


@dataclass
class Trial:
    """Which of two models is better.

    Attributes:
        judged: runs.
        before: MRR of the model in use.
        after: MRR of the new ones.
        gains: by tool, what it gained where it was not called, if that is too much.
    """

    judged: int = 0
    before: float = 0.0
    after: float = 0.0
    gains: dict[str, float] = field(default_factory=dict)

    @property
    def is_better(self) -> bool:
        """Whether the new model is no worse."""
        return self.judged > 0 and self.after >= self.before

    @property
    def reason(self) -> str:
        """Why the new model is not taken; empty if it is."""
        if self.gains:
            tools = ", ".join(self.gains)
            return f"a new model was held back, since it ranks {tools} much higher at many steps"
        if not self.judged:
            return "there were too few runs to compare models"
        if not self.is_better:
            return f"a new model was worse: MRR {self.after:.3f} instead of {self.before:.3f}"
        return ""


def compare(
    served: Model,
    runs: Sequence[Demonstration],
    new: Sequence[Demonstration],
    learn: Callable[[Sequence[Demonstration]], Model],
) -> Trial:
    """Compare a model with those that ``learn`` makes of the runs without each part of the new.

    Args:
        served: the model in use, which has not learned the new runs.
        runs: all runs.
        new: some of them.
        learn: fits a model.
    """
    judged = [run for run in new if run.outcome != "failure" and run.plan.calls][-MOST_JUDGED:]
    if len(judged) < 2:
        return Trial()
    folds = min(FOLDS, len(judged))
    before, after = [], []
    all_gains = ToolGains()
    for fold in range(folds):
        held = judged[fold::folds]
        left_out = {id(run) for run in held}
        model = learn([run for run in runs if id(run) not in left_out])
        for (called, old), (_, ranked) in zip(_rank(served, held), _rank(model, held), strict=True):
            before.append(reciprocal_rank(old, called))
            after.append(reciprocal_rank(ranked, called))
            all_gains.add(old, ranked, called)
    gains = {tool: gain for tool, gain in all_gains.means().items() if gain > GAIN}
    return Trial(len(judged), fmean(before), fmean(after), gains)


def _rank(model: Model, held: Sequence[Demonstration]) -> Iterator[tuple[set[str], Sequence[str]]]:
    """The tool that each step called, and all tools as the model ranks them, best first."""
    for run in held:
        calls = run.plan.calls
        steps = range(len(calls))  # an end says little of what to list
        asked = [as_run(run.query, calls[:done], before=run.before) for done in steps]
        for done, ranking in zip(steps, model.rank_batch(asked), strict=True):
            yield {calls[done].tool}, ranking.tools
