"""One query, and the calls made for it: what is encoded once, and what is ranked step by step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Self

from dtdr.data.calls import END, Status, ToolCall, read_text
from dtdr.data.demonstrations import read_offered
from dtdr.data.run import NO_CALLS, Run
from dtdr.deprecated import renamed_keywords
from dtdr.errors import InputError, check_at_least
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.arguments.state import RunState
from dtdr.predict.plans.plan_model import PlanModel
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.search import SEARCH_LIMIT, ToolSearch
from dtdr.predict.steps import RunRanker
from dtdr.rankers.base import UNKNOWN
from dtdr.rankers.ranking import Ranking

NO_ARGUMENTS = (
    "the model was fitted without arguments; fit it again with dtdr fit, or fit(…, arguments=True)"
)
NO_PLANS = (
    "the model was fitted without whole plans; fit it again with dtdr fit, or fit(…, plans=True)"
)


class Session:
    """One query and the calls made for it; the query is encoded once.

    A session uses the model as it was when the session was opened; later updates affect only new
    sessions. Several threads may use one session. ``Model.session`` opens it.

    >>> import dtdr
    >>> model = dtdr.fit([("Mail Ann q3.pdf", ["open", "mail"])] * 3, ranker="markov-1")
    >>> session = model.session("Mail Ann the summary of q3.pdf")
    >>> session.rank().best
    'open'
    >>> session.call("open", output={"pages": 3}).rank().best
    'mail'

    Args:
        run: the query, what came before it and the calls made so far; the session adds calls.
        steps: ranks its steps.
        tool_search: searches the tools.
        arguments: fills calls; None: not learned.
        plans: predicts whole plans; None: not learned.
    """

    def __init__(
        self,
        run: Run,
        steps: RunRanker,
        tool_search: ToolSearch,
        arguments: ArgumentModel | None,
        plans: PlanModel | None,
    ) -> None:
        self.query = run.query
        self._run, self._steps, self._tool_search = run, steps, tool_search
        self._arguments, self._plans = arguments, plans
        self._state = self._steps.state_of(run)
        self._filled: RunState | None = None  # created when arguments are first filled
        self._lock = Lock()

    @property
    def history(self) -> tuple[str, ...]:
        """Names of the known tools called so far, oldest first."""
        return tuple(name for name in self._run.history if name in self._steps.index)

    @property
    def run(self) -> Run:
        """The query, what came before it and the calls so far; do not change it."""
        return self._run

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
        """Add a call that was made, with everything known about it.

        Args:
            tool: its name, or the whole call.
            arguments: by parameter.
            output: any JSON value or text, which is cut to 2,000 characters.
            status: of the call; None derives it from the output.
            step: number of the agent's message that made the call; calls of one step are parallel.
            id: for references from later calls.

        Raises:
            InputError: the name is not text, or the call is not valid (see ``Run.call``); the
                session does not change.
        """
        if tool in NO_CALLS and output is None:
            return self
        with self._lock:
            call = self._run.call(tool, arguments, output=output, status=status, step=step, id=id)
            self._state.call(self._steps.index.get(call.tool, UNKNOWN), call)
        return self

    def say(self, text: str | None) -> Self:
        """Add what the agent wrote before its next call, where that is known before the call.

        The next call takes it. Of a longer text, the last 500 characters are read.

        Raises:
            InputError: it is not text; the session does not change.
        """
        with self._lock:
            self._run.text = read_text(text, "the text before a call")
            self._steps.say(self._state, self._run.text)
        return self

    def rank(self, offered: Collection[str] | None = None) -> Ranking:
        """Probabilities of the known tools for the next step.

        Args:
            offered: names of the tools that can be called from now on; None: no change.

        Raises:
            InputError: ``offered`` is not a collection of names.
        """
        with self._lock:
            if offered is not None:
                self._run.offered = read_offered(offered)
            return self._steps.finish(self._state.rank(), self._run)

    @renamed_keywords(k="top_k", among="offered")
    def search(
        self, text: str, top_k: int = SEARCH_LIMIT, *, offered: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """Search for tools by a description of what the agent wants; see ``Model.search``.

        Raises:
            InputError: the text is empty, or top_k is below 1.
        """
        asked = self._steps.rank([Run(text)])[0] if isinstance(text, str) else None
        with self._lock:
            state = self._state.copy()
            if isinstance(text, str):
                self._steps.say(state, text)
            ranking = self._steps.finish(state.rank(), self._run)
        return self._tool_search.find(text, top_k, run=ranking, asked=asked, offered=offered)

    def fill(self, tool: str) -> CallPrediction:
        """The most probable arguments of a tool at this step; see ``Model.fill``.

        Raises:
            InputError: the model was fitted without arguments.
        """
        with self._lock:
            arguments, state = self._prepare_filling()
            return arguments.fill(tool, state)

    @renamed_keywords(k="top_k")
    def next_calls(self, top_k: int = 3) -> list[CallPrediction]:
        """The next calls, with arguments and where they come from; see ``Model.next_calls``.

        Raises:
            InputError: the model was fitted without arguments, or top_k is below 1.
        """
        with self._lock:
            arguments, state = self._prepare_filling()
            check_at_least(1, top_k=top_k)
            calls = []
            for tool, probability in self._steps.finish(self._state.rank(), self._run)[:top_k]:
                is_end = tool == END
                call = CallPrediction(tool, {}, {}, 1.0) if is_end else arguments.fill(tool, state)
                calls.append(replace(call, probability=call.probability * float(probability)))
        return calls

    def _prepare_filling(self) -> tuple[ArgumentModel, RunState]:
        """The model of arguments, and its state, which keeps what was computed from the query."""
        if self._arguments is None:
            raise InputError(NO_ARGUMENTS)
        if self._filled is None:
            self._filled = RunState(self._run.query, self._run.before)
        self._filled.add_calls_of(self._run)
        return self._arguments, self._filled

    @renamed_keywords(k="top_k")
    def plans(self, top_k: int = 5) -> list[PlanPrediction]:
        """The ``top_k`` most probable plans of the remaining calls; see ``Model.plans``.

        Raises:
            InputError: the model was fitted without plans, or top_k is below 1.
        """
        check_at_least(1, top_k=top_k)
        with self._lock:
            if self._plans is None:
                raise InputError(NO_PLANS)
            return self._plans.predict(self._run, self._state, self._steps, top_k, self._arguments)
