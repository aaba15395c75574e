"""What ranks the tools for the next step: its contract, and ``rank`` in all its forms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

from dtdr.calibration import NO_CALIBRATION, Calibration, Floats
from dtdr.calls import END, ToolCall
from dtdr.demonstrations import Message
from dtdr.errors import InputError, unknown_choice
from dtdr.explanation import Explanation
from dtdr.plans.beam import StepState
from dtdr.ranking import Ranking
from dtdr.retrievers.estimator import Estimator
from dtdr.retrievers.search import ToolSearch
from dtdr.retrievers.session import (
    UNKNOWN,
    History,
    HistoryState,
    Prepared,
    RankHistory,
    details_of,
)
from dtdr.retrievers.training import TrainingData
from dtdr.retrievers.vectors import normalise, rule_out_end
from dtdr.run import BeforeLike, CallLike, Run, as_run
from dtdr.tools import Tool

_TEXT = frozenset({str})


class ToolRanker(Estimator):
    """Ranks every known tool for the next step of a run (the paper's ω, Section 3).

    A subclass implements ``_prepare``, once a query, and ``_probabilities``, once a step; all that
    ranks calls this pair, so it agrees.

    Attributes:
        static: ranks once a query and keeps that ranking for the whole plan; only the end of plan
            has another probability after the first call than before it.
        uses_calls: ranks by what calls were given and returned, and by what came before the query;
            others by the names of the calls alone.
        tools_: the tool vocabulary, sorted by name, end of plan last.
        training_: what was learned from.
        calibration_: what was learned about its own rankings on held-out plans.
    """

    static: ClassVar[bool] = False
    uses_calls: ClassVar[bool] = False

    tools_: tuple[Tool, ...]
    training_: TrainingData
    calibration_: Calibration = NO_CALIBRATION

    # -- ranking -------------------------------------------------------------------------------

    def _install_tools(self, tools: tuple[Tool, ...]) -> None:
        self.tools_ = tools
        self._names = tuple(tool.name for tool in tools)
        self._index = {name: position for position, name in enumerate(self._names)}
        self._search = ToolSearch.of(tools[:-1])

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Names of the known tools, end of plan last; the order of every probability vector."""
        return self._snapshot()._names

    def index(self, tool: str) -> int:
        """Position of a tool in the vocabulary, or ``UNKNOWN``."""
        return self._snapshot()._index.get(tool, UNKNOWN)

    def rank(
        self,
        query: str | Run,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
    ) -> Ranking:
        """Rank every known tool for the next step.

        Args:
            query: what the user asked for, or a ``Run``, which has all three.
            history: the calls made so far, oldest first, each the name of its tool, a ``ToolCall``
                or its JSON object, with an ``"output"`` and a ``"status"``, say; unknown tools are
                allowed.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.

        Returns:
            Probabilities that sum to 1 over the tool vocabulary, end of plan included.

        Raises:
            InputError: the query is not text, or something is not a call or a message.
            DtdrError: the retriever is not fitted.
        """
        if isinstance(query, Run):
            run = as_run(query, history, before)
            return self.rank_batch([run.query], [run.calls], [run.before])[0]
        return self.rank_batch([query], [history], [before] if before else None)[0]

    def rank_batch(
        self,
        queries: Sequence[str],
        histories: Sequence[Sequence[CallLike]],
        befores: Sequence[Sequence[BeforeLike]] | None = None,
    ) -> list[Ranking]:
        """Rank many steps at once; each distinct query is encoded once.

        Args:
            queries: one a step.
            histories: one a step, as ``rank`` takes them.
            befores: one a step, as ``rank`` takes them; None where nothing came before any.

        Raises:
            InputError: they differ in length, or hold something else than ``rank`` takes.
            DtdrError: the retriever is not fitted.
        """
        model = self._snapshot()
        if len(queries) != len(histories):
            raise InputError(f"{len(queries)} queries but {len(histories)} histories were given")
        if befores is not None and len(queries) != len(befores):
            raise InputError(f"{len(queries)} queries but {len(befores)} befores were given")
        has_details = befores is not None
        for query, history in zip(queries, histories, strict=True):
            if not isinstance(query, str):
                raise InputError(f"a query must be text, not {type(query).__name__}")
            if isinstance(history, str):
                raise InputError(f"a history must be a list of calls, not {history!r}")
            has_details = has_details or not _TEXT.issuperset(map(type, history))
        if not queries:
            return []
        if has_details:
            runs = list(map(as_run, queries, histories, befores or [()] * len(queries)))
            if model.uses_calls:
                return model._rank_runs(runs)
            histories = [run.history for run in runs]
        distinct = list(dict.fromkeys(queries))
        prepared = model._prepare(distinct)
        position = {query: index for index, query in enumerate(distinct)}
        index: Mapping[Any, int] = model._index
        rankings = model._rankings(
            [prepared[position[query]] for query in queries],
            [[index.get(name, UNKNOWN) for name in history] for history in histories],
        )
        names = cast(Sequence[Sequence[str]], histories)
        for ranking, query, history in zip(rankings, queries, names, strict=True):
            ranking.explainer = partial(model._explain, query, (), tuple(history))
        return rankings

    def _rank_runs(self, runs: Sequence[Run]) -> list[Ranking]:
        rankings: list[Ranking] = []
        state: StepState | None = None
        last: Run | None = None
        for run in runs:
            done = 0 if last is None else len(last.calls)
            # Steps of one run in their order go on where the one before ended.
            goes_on = (
                last is not None
                and (run.query, run.before) == (last.query, last.before)
                and run.calls[:done] == last.calls
            )
            if state is None or not goes_on:
                state, done = self._start(run.query, run.before), 0
            for call in run.calls[done:]:
                state.call(self._index.get(call.tool, UNKNOWN), details_of(call))
            ranking = state.rank()
            ranking.explainer = partial(self._explain, run.query, run.before, tuple(run.calls))
            rankings.append(ranking)
            last = run
        return rankings

    def prepare(self, query: str) -> Prepared:
        """The query, encoded once, to be ranked for several histories."""
        model = self._snapshot()
        return Prepared(query, model._ranker(query), model._index, model._explain)

    # -- what a subclass implements or may override ---------------------------------------------

    def _start(self, query: str, before: Sequence[Message | ToolCall] = ()) -> StepState:
        """What a session keeps of a query, what came before it, and its calls.

        A retriever that overrides it to read more than names sets ``uses_calls``.
        """
        return HistoryState(self._ranker(query))

    def _ranker(self, query: str) -> RankHistory:
        prepared = self._prepare([query])
        return lambda history: self._rankings(prepared, [history])[0]

    @abstractmethod
    def _prepare(self, queries: Sequence[str]) -> Sequence[Any]:
        """What is computed once a query, one item a query: its vector, its cluster, its ranking."""

    @abstractmethod
    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        """Shape (steps, tools): scores that are at least 0; rows are normalised by the caller."""

    def _rankings(self, prepared: Sequence[Any], histories: Sequence[History]) -> list[Ranking]:
        scores = self._probabilities(prepared, histories)
        rows = normalise(scores)
        first = [row for row, history in zip(rows, histories, strict=True) if not len(history)]
        if first and not self.may_end_at_once:
            for row in first:
                rule_out_end(row)
        familiarity = self._familiarity(prepared)
        rankings = [
            Ranking(
                self._names,
                row,
                threshold=self.cut,
                calibration=self.calibration_,
                familiarity=value,
            )
            for row, value in zip(rows, familiarity, strict=True)
        ]
        if self.cuts_by_score:
            for ranking, row in zip(rankings, scores, strict=True):
                ranking.scores = row
        return rankings

    @property
    def cut(self) -> float | None:
        """The cut of ``Ranking.select()`` without arguments: the threshold, or a recipe's own."""
        return self.threshold

    @property
    def cuts_by_score(self) -> bool:
        """Whether thresholds are about the scores as they are, before they are made to sum to 1."""
        return False

    @property
    def may_end_at_once(self) -> bool:
        """Whether the end of plan is possible before the first call.

        Only where a demonstration called no tool; a request that is unlike all others would end
        at once otherwise. The paper's recipes are left as they are.
        """
        is_papers = getattr(self, "recipe", None) == "paper"
        return is_papers or self.training_.empty_plans != 0

    def _familiarity(self, prepared: Sequence[Any]) -> Sequence[float | None]:
        """How much each query is like the demonstrations' queries; None where it cannot tell."""
        return [None] * len(prepared)

    def _explain(
        self,
        query: str,
        before: Sequence[Message | ToolCall],
        calls: Sequence[str | ToolCall],
        tool: str,
        against: str | None,
    ) -> Explanation:
        """Why a tool has its probability after these calls; see ``Ranking.explain``."""
        for name in (tool, against):
            if name is not None and name not in self._index:
                raise unknown_choice("tool", name[:80], self._names[:20])
        if tool == against:
            raise InputError(f"{tool!r} cannot be compared with itself; name another tool")
        state = self._start(query, before)
        history = []
        for call in calls:
            name = call if isinstance(call, str) else call.tool
            history.append(self._index.get(name, UNKNOWN))
            state.call(history[-1], None if isinstance(call, str) else details_of(call))
        ranking = state.rank()
        if against is None:
            # A vocabulary always has another tool: the end of plan beside one that is called.
            against = next((name for name in ranking.tools if name != tool), tool)
        explanation = Explanation(
            tool=tool,
            rank=ranking.tools.index(tool) + 1,
            probability=ranking.probability(tool),
            rival=against,
            rival_probability=ranking.probability(against),
        )
        if tool == END and not history and not ranking.probability(END):
            note = "Every demonstration calls a tool, so the plan cannot end before the first call."
            explanation = replace(explanation, note=note)
        return self._add_reasons(explanation, query, history, state)

    def _add_reasons(
        self, explanation: Explanation, query: str, history: History, state: StepState
    ) -> Explanation:
        """The explanation with what the retriever can say beside the probabilities.

        Args:
            explanation: of a tool and its rival, which are known.
            query: what was ranked.
            history: the calls.
            state: after them.
        """
        note = f"{self.name} gives no reasons beside its probabilities."
        return replace(explanation, note=f"{explanation.note} {note}".strip())
