"""Everything you can ask of a fitted model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self

from dtdr.data.run import BeforeLike, CallLike, Run, as_run
from dtdr.data.tools import Tool
from dtdr.deprecated import renamed_keywords
from dtdr.errors import DtdrError, check_lists
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.new_tools import NewTools
from dtdr.predict.plans.plan_model import PlanModel
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.search import SEARCH_LIMIT, ToolSearch
from dtdr.predict.session import Session
from dtdr.predict.steps import RunRanker
from dtdr.rankers.base import UNKNOWN, Ranker
from dtdr.rankers.calibration import Calibration
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.training import TrainingData


class Predictor:
    """A fitted ranker with arguments and plans: rankings, sessions, searches, calls, plans.

    Each answer begins with ``_snapshot`` and uses the attributes of that moment, so that any number
    of threads may ask while another changes the model.

    Attributes:
        ranker: scores the tools of the next step.
        arguments_: which value each argument takes; None if that was not learned.
        plans_: whole plans; None if they were not learned.
        tools_: the tool vocabulary, sorted by name, end of plan last.
        tool_search: searches the tools, end of plan left out.
        training_: the training record.
        calls_: how many calls of each tool were learned from, by name; None if unknown.
    """

    ranker: Ranker
    arguments_: ArgumentModel | None
    plans_: PlanModel | None
    tools_: tuple[Tool, ...]
    training_: TrainingData
    calls_: Mapping[str, int] | None
    _names: tuple[str, ...]
    _index: dict[str, int]
    _new_tools: NewTools
    tool_search: ToolSearch

    @property
    def name(self) -> str:
        """The name of the ranker, as users type it."""
        return self.ranker.name

    @property
    def uses_calls(self) -> bool:
        """Whether rankings depend on more than the query and the names of its calls."""
        return self.ranker.uses_calls

    @property
    def calibration_(self) -> Calibration:
        """The calibration of its rankings, from held-out plans."""
        return self.ranker.calibration_

    @property
    def may_end_at_once(self) -> bool:
        """Whether the end of plan is possible before the first call.

        Only if some demonstration called no tool. Otherwise a request unlike all others would end
        at once.
        """
        return self.ranker.may_end_at_once or self.training_.empty_plans != 0

    def _snapshot(self) -> Self:
        """The fitted model at this moment, unaffected by changes.

        Raises:
            DtdrError: the model is not fitted.
        """
        attributes = self.__dict__
        if "tools_" not in attributes:
            raise DtdrError(f"ranker {self.name!r} is not fitted; call fit(demonstrations) first")
        snapshot = object.__new__(type(self))
        snapshot.__dict__ = attributes  # shared, never copied: a change replaces all of it
        return snapshot

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Names of the known tools, end of plan last; the order of every probability vector."""
        return self._snapshot()._names

    def index(self, tool: str) -> int:
        """Position of a tool in the vocabulary, or ``UNKNOWN``."""
        return self._snapshot()._index.get(tool, UNKNOWN)

    @property
    def steps(self) -> RunRanker:
        """Ranks runs; it does not change."""
        return RunRanker(
            self.ranker, self._names, self._index, self.may_end_at_once, self._new_tools
        )

    def rank(
        self,
        query: str | Run,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        offered: Collection[str] | None = None,
        text: str | None = None,
    ) -> Ranking:
        """Rank the known tools for the next step.

        Args:
            query: what the user asked for, or a ``Run``, which contains all of these.
            history: the calls made so far, oldest first: names of tools, ``ToolCall`` objects, or
                their JSON objects, which may have an ``"output"`` and a ``"status"``. Unknown tools
                are allowed.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.
            offered: names of the tools that can be called, known or not; None: all.
            text: what the agent wrote before its next call, such as a thought; None if unknown.

        Returns:
            Probabilities that sum to 1 over the tools, end of plan included.

        Raises:
            InputError: the query is not text, or something is not a call, a message or a name.
            DtdrError: the model is not fitted.
        """
        return self._snapshot().steps.rank([as_run(query, history, before, offered, text)])[0]

    def rank_batch(self, runs: Sequence[str | Run]) -> list[Ranking]:
        """Rank many steps at once; each distinct query is encoded once.

        Args:
            runs: the query of each step, or its ``Run``, which also contains the calls so far.

        Raises:
            InputError: one is not valid for ``rank``.
            DtdrError: the model is not fitted.
        """
        check_lists(runs=runs)
        return self._snapshot().steps.rank([as_run(run) for run in runs])

    def prepare(self, query: str | Run) -> Callable[[Sequence[CallLike]], Ranking]:
        """Encode a query and what came before it once.

        Returns:
            A function that ranks like ``rank``, after the calls that it is given; it uses the model
            as it is now, and has no state.
        """
        steps, run = self._snapshot().steps, as_run(query).first(0)
        (prepared,) = steps.ranker.prepare_all([run])

        def rank(history: Sequence[CallLike]) -> Ranking:
            now = run.with_calls(history)
            return steps.finish(steps.start(prepared, now).rank(), now)

        return rank

    def session(self, query: str | Run, *, before: Sequence[BeforeLike] = ()) -> Session:
        """A session that encodes the query once and ranks after each call.

        Args:
            query: what the user asked for, or a ``Run`` to continue.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.

        Raises:
            InputError: the query is not text, or something is not a message or a call.
            DtdrError: the model is not fitted.
        """
        model, run = self._snapshot(), as_run(query, before=before).copy()
        return Session(run, model.steps, model.tool_search, model.arguments_, model.plans_)

    @renamed_keywords(k="top_k", among="offered")
    def search(
        self,
        text: str,
        run: str | Run | None = None,
        top_k: int = SEARCH_LIMIT,
        *,
        offered: Collection[str] | None = None,
    ) -> list[tuple[str, float]]:
        """Search for tools by a description of what the agent wants to do, best first.

        Combines BM25 over names, descriptions and parameters with the ranking of the run's next
        step and of the text as a query; see ``dtdr.predict.search``.

        Args:
            text: what the agent wants to do, in its words.
            run: the query or the run of the agent; None if unknown.
            top_k: limit of tools, at least 1.
            offered: names of the tools that may be returned, such as hidden ones; None: all.

        Returns:
            At most ``top_k`` tools that match, with their shares of all scores. The shares are not
            calibrated.

        Raises:
            InputError: the text is empty, top_k is below 1, or the run is not text or a ``Run``.
            DtdrError: the model is not fitted.
        """
        model = self._snapshot()
        if run is not None:
            return model.session(run).search(text, top_k, offered=offered)
        asked = model.rank(text) if isinstance(text, str) else None
        return model.tool_search.find(text, top_k, asked=asked, offered=offered)

    def fill(self, tool: str, run: Run) -> CallPrediction:
        """The most probable arguments of a tool, each with its source.

        Args:
            tool: its name; an unknown tool is filled from earlier calls alone.
            run: the query, what came before it, and the calls made so far with their arguments and
                outputs.

        Returns:
            The call; its probability is that of the arguments, given the tool.

        Raises:
            InputError: the model was fitted without arguments.
            DtdrError: the model is not fitted.
        """
        return self.session(run).fill(tool)

    @renamed_keywords(k="top_k")
    def next_calls(self, run: Run, top_k: int = 3) -> list[CallPrediction]:
        """The next calls: the ``top_k`` most probable tools, each with its arguments.

        Args:
            run: the query, what came before it, and the calls made so far.
            top_k: number of tools, ``end`` included, at least 1.

        Returns:
            Calls in the order of their tools' probabilities. The probability of a call is that of
            its tool times that of its arguments; 0 if an argument is unknown.

        Raises:
            InputError: the model was fitted without arguments, or top_k is below 1.
            DtdrError: the model is not fitted.
        """
        return self.session(run).next_calls(top_k)

    @renamed_keywords(k="top_k")
    def plans(
        self, query: str | Run, *, before: Sequence[BeforeLike] = (), top_k: int = 5
    ) -> list[PlanPrediction]:
        """The ``top_k`` most probable plans, most probable first.

        Args:
            query: what the user asked for, or a ``Run``, whose remaining calls are predicted.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.
            top_k: limit of plans, at least 1.

        Returns:
            Plans that differ in which tools they call how often, with arguments if the model
            learned them. The list is empty if no plan ends.

        Raises:
            InputError: the model was fitted without plans, top_k is below 1, the query is not text,
                or something is not a message.
            DtdrError: the model is not fitted.
        """
        return self.session(query, before=before).plans(top_k)
