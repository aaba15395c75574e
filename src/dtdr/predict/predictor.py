"""Everything you can ask of a fitted model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Self

from dtdr.data.plan import Plan
from dtdr.data.run import BeforeLike, CallLike, Run, as_run
from dtdr.data.tools import Tool
from dtdr.errors import DtdrError, InputError
from dtdr.predict.arguments.model import ArgumentModel
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.arguments.state import RunState
from dtdr.predict.plans.model import PlanModel
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.search import SEARCH_LIMIT, ToolSearch
from dtdr.predict.session import NO_ARGUMENTS, Fitted, Session
from dtdr.predict.steps import Prepared, RunRanker
from dtdr.rankers.base import UNKNOWN, Ranker
from dtdr.rankers.calibration import Calibration
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.training import TrainingData
from dtdr.text.encoders.base import Encoder


class Predictor:
    """A fitted ranker with arguments and plans: rankings, sessions, searches, calls, plans.

    Each answer begins with ``_snapshot`` and uses the attributes of that moment, so that any number
    of threads may ask while another changes the model.

    Attributes:
        ranker: scores the tools of the next step.
        arguments_: which value each argument takes; None if that was not learned.
        plans_: whole plans; None if they were not learned.
        tools_: the tool vocabulary, sorted by name, end of plan last.
        training_: the training record.
    """

    ranker: Ranker
    arguments_: ArgumentModel | None
    plans_: PlanModel | None
    tools_: tuple[Tool, ...]
    training_: TrainingData
    _names: tuple[str, ...]
    _index: dict[str, int]
    _search: ToolSearch

    @property
    def name(self) -> str:
        """That of the ranker: what users type."""
        return self.ranker.name

    @property
    def uses_calls(self) -> bool:
        """Whether more of a run is read than the query and the names of its calls."""
        return self.ranker.uses_calls

    @property
    def encoder(self) -> Encoder | None:
        """Turns texts into vectors; None where none is used."""
        return self.ranker.encoder

    @property
    def calibration_(self) -> Calibration:
        """What was learned about its own rankings on held-out plans."""
        return self.ranker.calibration_

    @property
    def cut(self) -> float | None:
        """The cut of ``Ranking.select()`` without arguments; None where there is none."""
        return self.ranker.cut

    @property
    def may_end_at_once(self) -> bool:
        """Whether the end of plan is possible before the first call.

        Only where a demonstration called no tool; a request that is unlike all others would end
        at once otherwise.
        """
        return self.ranker.may_end_at_once or self.training_.empty_plans != 0

    def _snapshot(self) -> Self:
        """The fitted model as it is now, whatever others make of it meanwhile.

        Raises:
            DtdrError: the model is not fitted.
        """
        attributes = self.__dict__
        if "tools_" not in attributes:
            raise DtdrError(
                f"retriever {self.name!r} is not fitted; call fit(demonstrations) first"
            )
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
    def _steps(self) -> RunRanker:
        return RunRanker(self.ranker, self._names, self._index, self.may_end_at_once)

    def rank(
        self,
        query: str | Run,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        offered: Collection[str] | None = None,
    ) -> Ranking:
        """Rank every known tool for the next step, or those of them that can be called.

        Args:
            query: what the user asked for, or a ``Run``, which has all four.
            history: the calls made so far, oldest first, each the name of its tool, a ``ToolCall``
                or its JSON object, with an ``"output"`` and a ``"status"``, say; unknown tools are
                allowed.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.
            offered: names of the tools that can be called, known or not; None: all.

        Returns:
            Probabilities that sum to 1 over the tools, end of plan included.

        Raises:
            InputError: the query is not text, or something is not a call, a message or a name.
            DtdrError: the model is not fitted.
        """
        return self._snapshot()._steps.rank([as_run(query, history, before, offered)])[0]

    def rank_batch(
        self,
        queries: Sequence[str | Run],
        histories: Sequence[Sequence[CallLike]] | None = None,
        befores: Sequence[Sequence[BeforeLike]] | None = None,
    ) -> list[Ranking]:
        """Rank many steps at once; each distinct query is encoded once.

        Args:
            queries: one a step, or the ``Run`` of each step, which also says what was offered.
            histories: one a step, as ``rank`` takes them; None where nothing was called.
            befores: one a step, as ``rank`` takes them; None where nothing came before any.

        Raises:
            InputError: they differ in length, or ``rank`` does not take one of them.
            DtdrError: the model is not fitted.
        """
        model = self._snapshot()
        for name, given in (("histories", histories), ("befores", befores)):
            if given is not None and len(queries) != len(given):
                raise InputError(f"{len(queries)} queries but {len(given)} {name} were given")
        nothing: Sequence[Sequence[Any]] = [()] * len(queries)
        runs = map(as_run, queries, histories or nothing, befores or nothing)
        return model._steps.rank(list(runs))

    def prepare(self, query: str | Run) -> Prepared:
        """The query and what came before it, encoded once, to be ranked for several histories."""
        return Prepared(self._snapshot()._steps, as_run(query).first(0))

    def session(self, query: str | Run, *, before: Sequence[BeforeLike] = ()) -> Session:
        """A session that encodes the query once and ranks after each call.

        Args:
            query: what the user asked for, or a ``Run``, whose calls it goes on after.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.

        Raises:
            InputError: the query is not text, or something is not a message or a call.
            DtdrError: the model is not fitted.
        """
        model = self._snapshot()
        fitted = Fitted(model._steps, model._search, model.arguments_, model.plans_)
        return Session(fitted, as_run(query, before=before).copy())

    # -- search --------------------------------------------------------------------------------

    def search(
        self,
        text: str,
        run: str | Run | None = None,
        k: int = SEARCH_LIMIT,
        *,
        among: Collection[str] | None = None,
    ) -> list[tuple[str, float]]:
        """The tools that an agent means which says what it lacks, best first.

        Joins the words of names, descriptions and parameters (BM25) with the ranking of the run's
        next step and of the text as a query; see ``dtdr.predict.search``.

        Args:
            text: what the agent wants to do, in its words.
            run: the query or the run in which it asks; None where nothing is known of it.
            k: how many at most, at least 1.
            among: names of the tools that may be returned, such as those that are hidden; all by
                default.

        Returns:
            Tools with their shares of all scores, which are not calibrated; fewer than ``k`` where
            fewer match, and none where nothing does.

        Raises:
            InputError: the text is empty, k is below 1, or the run is neither text nor a ``Run``.
            DtdrError: the model is not fitted.
        """
        model = self._snapshot()
        if run is not None:
            return model.session(run).search(text, k, among=among)
        asked = model.rank(text) if isinstance(text, str) else None
        return model._search.find(text, k, asked=asked, among=among)

    # -- whole calls ---------------------------------------------------------------------------

    def fill(self, tool: str, run: Run | RunState) -> CallPrediction:
        """The most probable arguments of a tool, each with its source.

        Args:
            tool: its name; of one that is not known, only what earlier calls gave is known.
            run: the query, what came before it, and the calls made so far with their arguments and
                outputs. A ``RunState`` is filled from faster: it knows what was computed from the
                query for other tools and earlier calls, and can be copied where runs branch.

        Returns:
            The call; its probability is that of the arguments, given the tool.

        Raises:
            InputError: the model was fitted without arguments.
            DtdrError: the model is not fitted.
        """
        model = self._snapshot()
        if isinstance(run, Run):
            return model.session(run).fill(tool)
        if model.arguments_ is None:
            raise InputError(NO_ARGUMENTS)
        return model.arguments_.fill(tool, run)

    def next_calls(self, run: Run, k: int = 3) -> list[CallPrediction]:
        """The next calls: the k most probable tools, each with its arguments.

        Args:
            run: the query, what came before it, and the calls made so far.
            k: how many, at least 1; ``end`` is one of them.

        Returns:
            Calls in the order of their tools' probabilities. The probability of a call is that of
            its tool times that of its arguments; 0 where one has to be written.

        Raises:
            InputError: the model was fitted without arguments, or k is below 1.
            DtdrError: the model is not fitted.
        """
        return self.session(run).next_calls(k)

    # -- whole plans ---------------------------------------------------------------------------

    def plans(
        self, query: str | Run, *, before: Sequence[BeforeLike] = (), k: int = 5
    ) -> list[PlanPrediction]:
        """The k most probable plans, most probable first.

        Args:
            query: what the user asked for, or a ``Run``: what is left to do after its calls then.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.
            k: how many at most, at least 1.

        Returns:
            Plans that differ in which tools are called how often, with arguments where the model
            knows them; none where no plan comes to an end.

        Raises:
            InputError: the model was fitted without plans, k is below 1, the query is not text, or
                something is not a message.
            DtdrError: the model is not fitted.
        """
        return self.session(query, before=before).plans(k)

    def demonstrated_plans(self) -> list[Plan] | None:
        """The plans that were learned from, by names alone; None where they are not kept."""
        return self._snapshot().ranker.demonstrated_plans()
