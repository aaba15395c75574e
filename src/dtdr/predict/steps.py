"""From runs to rankings: the one function that everything calls to rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dtdr.data.calls import END, ToolCall
from dtdr.data.run import Run
from dtdr.errors import InputError, unknown_choice
from dtdr.predict.evidence import find_evidence
from dtdr.predict.new_tools import NewTools
from dtdr.rankers.base import UNKNOWN, IncrementalRanker, Ranker, ReadsText, StepState
from dtdr.rankers.explanation import Explanation
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.vectors import normalise, rule_out_end


@dataclass(frozen=True, slots=True)
class RunRanker:
    """Ranks runs by a fitted ranker.

    Attributes:
        ranker: fitted.
        names: of its vocabulary.
        index: their positions.
        may_end_at_once: whether the end of plan is possible before the first call.
        new_tools: finds the tools that the demonstrations hardly call.
    """

    ranker: Ranker
    names: tuple[str, ...]
    index: Mapping[str, int]
    may_end_at_once: bool
    new_tools: NewTools

    def rank(self, runs: Sequence[Run]) -> list[Ranking]:
        """The rankings of runs."""
        if not runs:
            return []
        if isinstance(self.ranker, IncrementalRanker):
            rankings = self._rank_by_state(runs)
        else:
            distinct = {run.query: run for run in runs}  # equal queries share one object
            prepared_runs = self.ranker.prepare_all(list(distinct.values()))
            prepared = dict(zip(distinct, prepared_runs, strict=True))
            rankings = self.rank_prepared([prepared[run.query] for run in runs], runs)
        return list(map(self.finish, rankings, runs))

    def finish(self, ranking: Ranking, run: Run) -> Ranking:
        """Restrict a ranking to the offered tools, and let it explain itself."""
        ranking = ranking.restrict(run.offered)
        ranking.explainer = partial(self.explain, run.copy())
        ranking.newcomers = partial(self.new_tools.find, run.query)
        return ranking

    def rank_prepared(self, prepared: Sequence[Any], runs: Sequence[Run]) -> list[Ranking]:
        """The rankings of a ranker that computes each step separately."""
        ranker = self.ranker
        scores = np.asarray(ranker.score_all(prepared, runs), np.float64)
        rows = normalise(scores)
        cut, calibration = ranker.cut, ranker.calibration_
        rankings = []
        for row, raw, query, run in zip(rows, scores, prepared, runs, strict=True):
            if not run.calls and not self.may_end_at_once:
                rule_out_end(row)
            known = ranker.familiarity(query)
            ranking = Ranking(
                self.names, row, threshold=cut, calibration=calibration, familiarity=known
            )
            if ranker.cuts_by_score:
                ranking.scores = raw
            rankings.append(ranking)
        return rankings

    def _rank_by_state(self, runs: Sequence[Run]) -> list[Ranking]:
        """The rankings of a ranker that keeps a state along the calls of a run."""
        rankings: list[Ranking] = []
        last: Run | None = None
        for run in runs:
            if last is None or (run.query, run.before) != (last.query, last.before):
                (prepared,), last = self.ranker.prepare_all([run]), None
            if last is None or run.calls[: len(last.calls)] != last.calls:
                state = self.start(prepared, run)
            else:  # the next step of the same run
                self._add_calls(state, run.calls[len(last.calls) :])
            if run.text is not None or (last is not None and last.text is not None):
                self.say(state, run.text)
            rankings.append(state.rank())
            last = run
        return rankings

    def state_of(self, run: Run) -> StepState:
        """The state after the calls of a run."""
        return self.start(self.ranker.prepare_all([run])[0], run)

    def start(self, prepared: Any, run: Run) -> StepState:
        """The state after the calls of a run, by its prepared query."""
        state: StepState = (
            self.ranker.start(prepared, run)
            if isinstance(self.ranker, IncrementalRanker)
            else ReplayedState(self, prepared, run.first(0))
        )
        self._add_calls(state, run.calls)
        if run.text is not None:
            self.say(state, run.text)
        return state

    def say(self, state: StepState, text: str | None) -> None:
        """Tell a state what the agent wrote before its next call, if its ranker reads that."""
        if isinstance(state, ReadsText):
            state.say(text)

    def _add_calls(self, state: StepState, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            state.call(self.index.get(call.tool, UNKNOWN), call)

    def explain(self, run: Run, tool: str, against: str | None) -> Explanation:
        """Why a tool has its probability at this step; see ``Ranking.explain``."""
        if tool == against:
            raise InputError(f"{tool!r} cannot be compared with itself; name another tool")
        state = self.state_of(run)
        ranking = self.finish(state.rank(), run)
        for name in (tool, against):
            if name is not None and name not in ranking:
                raise unknown_choice("tool", name[:80], ranking.vocabulary[:20])
        if against is None:
            # A vocabulary always has another tool: the end of plan, and one that is called.
            against = next((name for name in ranking.tools if name != tool), tool)
        explanation = Explanation(
            tool=tool,
            rank=ranking.tools.index(tool) + 1,
            probability=ranking.probability(tool),
            rival=against,
            rival_probability=ranking.probability(against),
            evidence=find_evidence(self.rank, run, tool, against),
        )
        if tool == END and not run.calls and not ranking.probability(END):
            note = "Every demonstration calls a tool, so the plan cannot end before the first call."
            explanation = replace(explanation, note=note)
        if isinstance(self.ranker, IncrementalRanker):
            return self.ranker.explain(explanation, run, state)
        note = f"{self.ranker.name} gives no reasons for its probabilities."
        return replace(explanation, note=f"{explanation.note} {note}".strip())


class ReplayedState:
    """The state of a ranker that computes each step separately: the calls.

    Args:
        steps: the ranker of runs.
        prepared: the query.
        run: before its first call.
    """

    def __init__(self, steps: RunRanker, prepared: Any, run: Run) -> None:
        self._steps, self._prepared, self._run = steps, prepared, run

    def call(self, tool: int, call: ToolCall | None = None) -> None:
        """Add a call; None: a call of the tool at that position, without arguments."""
        if call is None:
            call = ToolCall("", self._steps.names[tool] if tool >= 0 else "")
        self._run.calls.append(call)
        self._run.text = None

    def say(self, text: str | None) -> None:
        """Read what the agent wrote before its next call."""
        self._run.text = text

    def rank(self) -> Ranking:
        """The ranking of the next step."""
        return self._steps.rank_prepared([self._prepared], [self._run])[0]

    def copy(self) -> ReplayedState:
        """A copy that can continue differently."""
        return ReplayedState(self._steps, self._prepared, self._run.copy())
