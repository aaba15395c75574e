"""``zero-shot``: names and descriptions of tools, by weights that ship with the package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import ModelError
from dtdr.rankers.base import UNKNOWN, Arrays, Ranker, StepState
from dtdr.rankers.calibration import Floats
from dtdr.rankers.explanation import Explanation
from dtdr.rankers.zero_shot.features import QueryMatch
from dtdr.rankers.zero_shot.model import ZeroShotModel, ZeroShotStepState


class ZeroShot(Ranker):
    """Ranks tools by what a query asks for, clause by clause, and by the calls so far.

    It learns nothing from demonstrations but which tools there are. Features that are the same for
    any tools are weighed by less than 1 kB of weights, which were learned on public sets.

    Args:
        seed: not used; every ranker has one.
    """

    name = "zero-shot"
    needs_demonstrations = False

    model_: ZeroShotModel
    called_: npt.NDArray[np.int64]
    """Shape (tools,): demonstrated calls of each tool; of the end of plan, plans without a call."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, demonstrations: Sequence[Demonstration], tools: Sequence[Tool]) -> None:
        """See ``Ranker.fit``."""
        plans = [item.plan.tools for item in demonstrations]
        counts = Counter(chain.from_iterable(plans))
        counts[tools[-1].name] = sum(not plan for plan in plans)
        self._install(tools, np.array([counts[tool.name] for tool in tools], np.int64))

    def _install(self, tools: Sequence[Tool], called: npt.NDArray[np.int64]) -> None:
        self.model_, self.called_ = ZeroShotModel(tools, may_end_at_once=called[-1] > 0), called
        self.calibration_ = self.model_.calibration

    def prepare(self, query: str) -> QueryMatch:
        """See ``Ranker.prepare``."""
        return self.model_.prepare(query)

    def prepare_all(self, runs: Sequence[Run]) -> Sequence[QueryMatch]:
        """See ``Ranker.prepare_all``; the calls of earlier turns count."""
        return [self.model_.prepare(run.query, run.before) for run in runs]

    def start(self, prepared: QueryMatch, run: Run) -> ZeroShotStepState:
        """See ``Ranker.start``."""
        return self.model_.start(prepared)

    def probabilities(self, prepared: QueryMatch, run: Run) -> Floats:
        """See ``Ranker.probabilities``."""
        state = self.start(prepared, run)
        for call in run.calls:
            state.call(self.model_.index.get(call.tool, UNKNOWN), call)
        return state.state.probabilities()

    def explain(self, explanation: Explanation, run: Run, state: StepState) -> Explanation:
        """See ``Ranker.explain``: what the words and the calls add."""
        assert isinstance(state, ZeroShotStepState)
        return self.model_.explain(explanation, run.query, state)

    def change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """See ``Ranker.change_tools``."""
        counts = dict(zip(names, self.called_.tolist(), strict=True))
        called = [counts.get(tool.name, 0) for tool in tools]
        self._install(tools, np.array(called, np.int64))

    def arrays(self) -> Arrays:
        """See ``Ranker.arrays``: all else follows from the tools."""
        return {"called": self.called_}

    def restore(self, tools: Sequence[Tool], arrays: Arrays) -> None:
        """See ``Ranker.restore``."""
        if arrays.keys() != {"called"} or arrays["called"].shape != (len(tools),):
            raise ModelError("the arrays of the model are of another ranker; fit it again")
        self._install(tools, arrays["called"])
