"""One query, and the calls made for it: what is encoded once, and what is ranked step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Protocol, Self

from dtdr.arguments.model import ArgumentModel
from dtdr.arguments.prediction import CallPrediction
from dtdr.arguments.state import RunState
from dtdr.calls import END, Status, ToolCall, kind_of
from dtdr.demonstrations import Message
from dtdr.errors import InputError, check_at_least
from dtdr.explanation import Explanation
from dtdr.plans.beam import StepState
from dtdr.plans.lookahead import Lookahead, LookaheadWeights
from dtdr.plans.prediction import PlanPrediction
from dtdr.ranking import Ranking
from dtdr.retrievers.search import SEARCH_LIMIT
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


class SessionModel(Protocol):
    """What a session asks of its model, which refuses what it was not fitted for."""

    _index: dict[str, int]

    @property
    def _explain(self) -> Explain: ...

    def _start(self, query: str, before: Sequence[Message | ToolCall]) -> StepState: ...

    def _look_ahead(self, weights: LookaheadWeights, run: Run, state: StepState) -> Lookahead: ...

    def _search_beside(
        self, text: str, ranking: Ranking | None, k: int, among: Collection[str] | None
    ) -> list[tuple[str, float]]: ...

    def _judge(self, call: ToolCall, run: Run, ranking: Ranking) -> Surprise: ...

    def _argument_model(self) -> ArgumentModel: ...

    def _predict_plans(self, run: Run, state: StepState, k: int) -> list[PlanPrediction]: ...


class Session:
    """One query and the calls made for it; the query is encoded once.

    A session ranks with what the retriever knew when it was opened: an update in the meantime
    shows in the next session. It may be used from several threads. ``Retriever.session`` opens it.

    >>> session = retriever.session("Mail Ann the summary of q3.pdf")  # doctest: +SKIP
    >>> session.rank().best                                            # doctest: +SKIP
    >>> session.call("open_file", output={"pages": 3})                 # doctest: +SKIP

    Args:
        model: what ranks; it stays as it is.
        run: the query, what came before it and the calls made so far; the session adds to it.
        lookahead: how much the plans count that steps are seen from.
    """

    def __init__(self, model: SessionModel, run: Run, lookahead: LookaheadWeights) -> None:
        self.query = run.query
        self._model = model
        self._run = run
        self._state = model._start(run.query, run.before)
        self._weights = lookahead
        self._ahead: Lookahead | None = None  # from the first ranking on
        self._filled: RunState | None = None  # what arguments are filled from, once asked for
        self._called: list[str | ToolCall] = list(run.calls)
        self._names: list[str] = []
        self._lock = Lock()
        for call in run.calls:
            self._state.call(model._index.get(call.tool, UNKNOWN), details_of(call))

    @property
    def history(self) -> tuple[str, ...]:
        """Names called so far, oldest first; tools that are not known are left out."""
        names = (call if isinstance(call, str) else call.tool for call in self._called)
        return tuple(name for name in names if name in self._model._index)

    @property
    def run(self) -> Run:
        """The query, what came before it and the calls so far; to be read, not changed."""
        with self._lock:
            return self._write_run()

    def call(
        self,
        tool: str | ToolCall,
        arguments: Mapping[str, Any] | None = None,
        *,
        output: Any = None,
        status: Status | None = None,
        step: int | None = None,
        id: str | None = None,
    ) -> Self:
        """Tell the session that a tool was called, and as much of the call as is known.

        Args:
            tool: its name, or the whole call, which is added as it is.
            arguments: by parameter.
            output: what it returned, any JSON value or text; of a long one, 2,000 characters count.
            status: what became of it; without it, the output says whether it is ``empty``.
            step: number of the agent's message that made the call; calls of one step are parallel.
            id: how arguments of later calls may refer to it.

        Raises:
            InputError: the name is not text, or something else of the call is not valid (see
                ``Run.call``); the session is as it was.
        """
        name = tool.tool if isinstance(tool, ToolCall) else tool
        if not isinstance(name, str):
            raise InputError(f"a call needs the name of a tool, not {kind_of(name)}")
        has_details = (
            tool is not name
            or arguments is not None
            or output is not None
            or status is not None
            or step is not None
            or id is not None
        )
        with self._lock:
            call = None
            if has_details or not name.isascii():
                call = self._write_run().call(
                    tool, arguments, output=output, status=status, step=step, id=id
                )
            else:  # writing a call takes longer than some retrievers rank a step
                self._names.append(name)
            self._called.append(call or name)
            position = self._model._index.get(name, UNKNOWN)
            self._state.call(position, call and details_of(call))
            if self._ahead is not None:
                self._ahead.call(position, None if call is None else call.arguments)
        return self

    def rank(self) -> Ranking:
        """Probabilities of every known tool for the next step."""
        with self._lock:
            ranking = self._rank()
            called = tuple(self._called)
        ranking.explainer = partial(self._model._explain, self.query, self._run.before, called)
        return ranking

    def search(
        self, text: str, k: int = SEARCH_LIMIT, *, among: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """The tools that an agent means which says what it lacks; see ``Retriever.search``.

        Raises:
            InputError: the text is empty, or k is below 1.
        """
        return self._model._search_beside(text, self.rank(), k, among)

    def surprise(self, call: CallLike) -> Surprise:
        """How odd a call is at this step, before it is told; see ``Retriever.surprise``.

        Raises:
            InputError: the model was fitted without plans, or it is not a call.
        """
        (made,) = as_run(self.query, [call]).calls
        with self._lock:
            return self._model._judge(made, self._write_run(), self._state.rank())

    def fill(self, tool: str) -> CallPrediction:
        """The most probable arguments of a tool at this step; see ``Retriever.fill``.

        Raises:
            InputError: the model was fitted without arguments.
        """
        with self._lock:
            return self._model._argument_model().fill(tool, self._update_state())

    def next_calls(self, k: int = 3) -> list[CallPrediction]:
        """The next calls, with arguments and where they come from; see ``Retriever.next_calls``.

        Raises:
            InputError: the model was fitted without arguments, or k is below 1.
        """
        with self._lock:
            fill = self._model._argument_model().fill
            return predict_calls(self._rank(), self._update_state(), fill, k)

    def _rank(self) -> Ranking:
        ranking = self._state.rank()
        if not self._weights.share:
            return ranking
        if self._ahead is None:
            self._ahead = self._model._look_ahead(self._weights, self._write_run(), self._state)
        return self._ahead.rank(ranking)

    def _update_state(self) -> RunState:
        """What arguments are filled from; what follows from the query is worked out once."""
        run = self._write_run()
        if self._filled is None:
            self._filled = RunState(run.query, run.before)
        self._filled.add_calls_of(run)
        return self._filled

    def plans(self, k: int = 5) -> list[PlanPrediction]:
        """What is left to do, the k most probable plans; see ``Retriever.plans``.

        Raises:
            InputError: the model was fitted without plans, or k is below 1.
        """
        with self._lock:
            return self._model._predict_plans(self._write_run(), self._state, k)

    def _write_run(self) -> Run:
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
