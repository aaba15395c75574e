"""One query, and the calls made for it: what is encoded once, and what is ranked step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Self

from dtdr.arguments.prediction import CallPrediction
from dtdr.arguments.state import RunState
from dtdr.calls import END, Status, ToolCall, kind_of
from dtdr.demonstrations import Message
from dtdr.errors import InputError, check_at_least
from dtdr.explanation import Explanation
from dtdr.plans.beam import StepState
from dtdr.plans.lookahead import Lookahead
from dtdr.plans.prediction import PlanPrediction
from dtdr.ranking import Ranking
from dtdr.retrievers.search import SEARCH_LIMIT, SearchTools
from dtdr.retrievers.surprise import Surprise
from dtdr.run import CallLike, Run, as_run

UNKNOWN = -1
"""Index, in a history, of a tool that the retriever never saw."""

History = Sequence[int]
"""Indices of the called tools in the vocabulary, oldest first; ``UNKNOWN`` where there is none."""

RankHistory = Callable[[History], Ranking]
"""Ranks the next step of one query that is encoded already."""


FillCall = Callable[[str, RunState], CallPrediction]
"""Fills the arguments of a tool."""

Explain = Callable[
    [str, Sequence[Message | ToolCall], Sequence[str | ToolCall], str, str | None], Explanation
]
"""Explains the probability of a tool against another, after a query, what came before and calls."""

PredictPlans = Callable[[Run, StepState, int], list[PlanPrediction]]
"""Predicts the k most probable plans of a run, given its state; the state is not changed."""

JudgeCall = Callable[[ToolCall, Run, Ranking], Surprise]
"""Says how odd a call is after a run, given the ranking of its next step."""

LookAhead = Callable[[Run, StepState], Lookahead]
"""The plans of a run, given its state, that its next steps are seen from."""

NO_ARGUMENTS = "the model knows no arguments; fit it again with dtdr fit, or fit(…, arguments=True)"
NO_SURPRISE = (
    "the model does not know how odd a call is; fit it again with dtdr fit, or fit(…, plans=True)"
)
NO_PLANS = "the model knows no whole plans; fit it again with dtdr fit, or fit(…, plans=True)"


class HistoryState:
    """The state of a retriever that computes each step anew: the history."""

    def __init__(self, rank: RankHistory) -> None:
        self._rank = rank
        self._history: list[int] = []

    def call(self, tool: int, call: ToolCall | None = None) -> None:
        """One more call; of a call its tool counts alone."""
        self._history.append(tool)

    def rank(self) -> Ranking:
        """The ranking of the next step."""
        return self._rank(self._history)

    def copy(self) -> HistoryState:
        """The same history, to go on from in another way."""
        state = HistoryState(self._rank)
        state._history = self._history.copy()
        return state


class Prepared:
    """One query, encoded once, to be ranked for any history; keeps nothing of the histories.

    It ranks with what the retriever knew when it was made. ``Retriever.prepare`` makes it.

    Args:
        query: what is ranked.
        rank: ranks the query.
        index: positions of the known tools.
        explain: explains a ranking.
    """

    __slots__ = ("_explain", "_index", "_query", "_rank")

    def __init__(
        self, query: str, rank: RankHistory, index: Mapping[str, int], explain: Explain
    ) -> None:
        self._query = query
        self._rank = rank
        self._index = index
        self._explain = explain

    def rank(self, history: Sequence[str] = ()) -> Ranking:
        """What ``Retriever.rank`` gives for the query and this history."""
        index = self._index.get
        ranking = self._rank([index(name, UNKNOWN) for name in history])
        ranking.explainer = partial(self._explain, self._query, (), tuple(history))
        return ranking


class Session:
    """One query and the calls made for it; the query is encoded once.

    A session ranks with what the retriever knew when it was opened: an update in the meantime
    shows in the next session. It may be used from several threads. ``Retriever.session`` opens it.

    >>> session = retriever.session("Mail Ann the summary of q3.pdf")  # doctest: +SKIP
    >>> session.rank().best                                            # doctest: +SKIP
    >>> session.call("open_file", output={"pages": 3})                 # doctest: +SKIP

    Args:
        run: the query, what came before it and the calls made so far; the session adds to it.
        state: of this query and what came before it, before the first call.
        index: positions of the known tools.
        explain: explains a ranking.
        search: searches for tools beside a ranking.
        fill: fills the arguments of a tool; None where they were not learned.
        plans: predicts whole plans; None where they were not learned.
        look_ahead: the plans that steps are seen from; None ranks each step by itself.
        judge: says how odd a call is.
    """

    def __init__(
        self,
        run: Run,
        state: StepState,
        index: Mapping[str, int],
        explain: Explain,
        search: SearchTools,
        fill: FillCall | None = None,
        plans: PredictPlans | None = None,
        look_ahead: LookAhead | None = None,
        judge: JudgeCall | None = None,
    ) -> None:
        self.query = run.query
        self._run = run
        self._state = state
        self._index = index
        self._explain = explain
        self._fill = fill
        self._plans = plans
        self._look_ahead = look_ahead
        self._search = search
        self._judge = judge
        self._ahead: Lookahead | None = None  # from the first ranking on
        self._filled: RunState | None = None  # what arguments are filled from, once asked for
        self._called: list[str | ToolCall] = list(run.calls)
        self._names: list[str] = []
        self._lock = Lock()
        for call in run.calls:
            state.call(index.get(call.tool, UNKNOWN), details_of(call))

    @property
    def history(self) -> tuple[str, ...]:
        """Names called so far, oldest first; tools that are not known are left out."""
        names = (call if isinstance(call, str) else call.tool for call in self._called)
        return tuple(name for name in names if name in self._index)

    @property
    def run(self) -> Run:
        """The query, what came before it and the calls so far; to be read, not changed."""
        with self._lock:
            return self._written_run()

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        output: Any = None,
        status: Status | None = None,
        step: int | None = None,
        id: str | None = None,
    ) -> Self:
        """Tell the session that a tool was called, and as much of the call as is known.

        Args:
            tool: its name.
            arguments: by parameter.
            output: what it returned, any JSON value or text; of a long one, 2,000 characters count.
            status: what became of it; without it, the output says whether it is ``empty``.
            step: number of the agent's message that made the call; calls of one step are parallel.
            id: how arguments of later calls may refer to it.

        Raises:
            InputError: the name is not text, or something else of the call is not valid (see
                ``Run.call``); the session is as it was.
        """
        if not isinstance(tool, str):
            raise InputError(f"a call needs the name of a tool, not {kind_of(tool)}")
        has_details = (
            arguments is not None
            or output is not None
            or status is not None
            or step is not None
            or id is not None
        )
        with self._lock:
            call = None
            if has_details or not tool.isascii():
                call = self._written_run().call(
                    tool, arguments, output=output, status=status, step=step, id=id
                )
            else:  # writing a call takes longer than some retrievers rank a step
                self._names.append(tool)
            self._called.append(call or tool)
            position = self._index.get(tool, UNKNOWN)
            self._state.call(position, call and details_of(call))
            if self._ahead is not None:
                self._ahead.call(position, arguments)
        return self

    def rank(self) -> Ranking:
        """Probabilities of every known tool for the next step."""
        with self._lock:
            ranking = self._rank()
            called = tuple(self._called)
        ranking.explainer = partial(self._explain, self.query, self._run.before, called)
        return ranking

    def search(
        self, text: str, k: int = SEARCH_LIMIT, *, among: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """The tools that an agent means which says what it lacks; see ``Retriever.search``.

        Raises:
            InputError: the text is empty, or k is below 1.
        """
        return self._search(text, self.rank(), k, among)

    def surprise(self, call: CallLike) -> Surprise:
        """How odd a call is at this step, before it is told; see ``Retriever.surprise``.

        Raises:
            InputError: the model was fitted without plans, or it is not a call.
        """
        if self._judge is None:
            raise InputError(NO_SURPRISE)
        (made,) = as_run(self.query, [call]).calls
        with self._lock:
            return self._judge(made, self._written_run(), self._state.rank())

    def fill(self, tool: str) -> CallPrediction:
        """The most probable arguments of a tool at this step; see ``Retriever.fill``.

        Raises:
            InputError: the model was fitted without arguments.
        """
        if self._fill is None:
            raise InputError(NO_ARGUMENTS)
        with self._lock:
            return self._fill(tool, self._known())

    def next_calls(self, k: int = 3) -> list[CallPrediction]:
        """The next calls, with arguments and where they come from; see ``Retriever.next_calls``.

        Raises:
            InputError: the model was fitted without arguments, or k is below 1.
        """
        if self._fill is None:
            raise InputError(NO_ARGUMENTS)
        with self._lock:
            return predict_calls(self._rank(), self._known(), self._fill, k)

    def _rank(self) -> Ranking:
        ranking = self._state.rank()
        if self._look_ahead is None:
            return ranking
        if self._ahead is None:
            self._ahead = self._look_ahead(self._written_run(), self._state)
        return self._ahead.rank(ranking)

    def _known(self) -> RunState:
        """What arguments are filled from; what follows from the query is worked out once."""
        run = self._written_run()
        if self._filled is None:
            self._filled = RunState(run.query, run.before)
        self._filled.add_calls_of(run)
        return self._filled

    def plans(self, k: int = 5) -> list[PlanPrediction]:
        """What is left to do, the k most probable plans; see ``Retriever.plans``.

        Raises:
            InputError: the model was fitted without plans, or k is below 1.
        """
        if self._plans is None:
            raise InputError(NO_PLANS)
        with self._lock:
            return self._plans(self._written_run(), self._state, k)

    def _written_run(self) -> Run:
        """The run, with the calls that were told by name alone."""
        for name in self._names:
            if name and name != END:  # the end of plan is not a call
                self._run.call(name)
        self._names.clear()
        return self._run


def details_of(call: ToolCall) -> ToolCall | None:
    """The call where it says more than the name of its tool."""
    is_name = (
        call.output is None and call.status == "unknown" and call.step is None
    ) and not call.arguments
    return None if is_name else call


def predict_calls(
    ranking: Ranking, state: RunState, fill: FillCall, k: int
) -> list[CallPrediction]:
    """The calls of the first k tools of a ranking, ``end`` among them.

    Raises:
        InputError: k is below 1.
    """
    check_at_least(1, k=k)
    calls = []
    for tool, probability in ranking[:k]:
        call = CallPrediction(tool, {}, {}, 1.0) if tool == END else fill(tool, state)
        calls.append(replace(call, probability=call.probability * float(probability)))
    return calls
