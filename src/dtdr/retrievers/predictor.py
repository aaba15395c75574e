"""What a fitted model says beside its rankings: whole calls, whole plans, odd calls, sessions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dtdr.arguments.model import ArgumentModel
from dtdr.arguments.prediction import CallPrediction
from dtdr.arguments.state import RunState
from dtdr.calls import ToolCall
from dtdr.errors import InputError, check_at_least
from dtdr.plans.beam import StepState
from dtdr.plans.lookahead import SHARE, Lookahead, LookaheadWeights
from dtdr.plans.model import PlanModel
from dtdr.plans.prediction import PlanPrediction, PlanTemplate
from dtdr.ranking import Ranking
from dtdr.retrievers.search import SEARCH_LIMIT
from dtdr.retrievers.session import (
    NO_ARGUMENTS,
    NO_PLANS,
    NO_SURPRISE,
    UNKNOWN,
    Session,
    details_of,
    predict_calls,
)
from dtdr.retrievers.surprise import Surprise, SurpriseModel
from dtdr.retrievers.tool_ranker import ToolRanker
from dtdr.run import BeforeLike, CallLike, Run, as_run


class Predictor(ToolRanker):
    """A ranker with what may be learned beside it.

    Attributes:
        arguments_: which value each argument takes; None where that was not learned.
        plans_: what makes a whole plan; None where that was not learned.
        surprise_: which calls are odd; None where that was not learned.
    """

    arguments_: ArgumentModel | None = None
    plans_: PlanModel | None = None
    surprise_: SurpriseModel | None = None

    # -- sessions ------------------------------------------------------------------------------

    def session(
        self,
        query: str | Run,
        *,
        before: Sequence[BeforeLike] = (),
        lookahead: bool | None = None,
    ) -> Session:
        """A session that encodes the query once and ranks after each call.

        Args:
            query: what the user asked for, or a ``Run``, whose calls it goes on after.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.
            lookahead: whether steps are ranked by the whole plans that agree with the calls so
                far, which are searched for once, at the first ranking; None: where ``fit`` found
                that held-out steps are ranked better so. ``rank`` never does.

        Raises:
            InputError: the query is not text, something is not a message or a call, or lookahead
                is asked for and the model was fitted without plans.
            DtdrError: the retriever is not fitted.
        """
        model = self._snapshot()
        run = as_run(query, before=before).copy()  # the session adds to it
        weights = LookaheadWeights() if model.plans_ is None else model.plans_.lookahead
        if lookahead is not None:
            if lookahead and model.plans_ is None:
                raise InputError(NO_PLANS)
            share = max(weights.share, SHARE) if lookahead else 0.0
            weights = weights._replace(share=share)
        return Session(model, run, weights)

    def _look_ahead(self, weights: LookaheadWeights, run: Run, state: StepState) -> Lookahead:
        candidates = self._plan_model().candidates(
            run, state, self._names, may_be_empty=self.may_end_at_once
        )
        used = [call.arguments for call in run.calls]
        return Lookahead(candidates, len(self._names) - 1, weights, used)

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
        next step and of the text as a query; see ``dtdr.retrievers.search``.

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
            DtdrError: the retriever is not fitted.
        """
        model = self._snapshot()
        ranking = None if run is None else model.rank(run)
        return model._search_beside(text, ranking, k, among)

    def _search_beside(
        self, text: str, ranking: Ranking | None, k: int, among: Collection[str] | None
    ) -> list[tuple[str, float]]:
        asked = self.rank(text) if isinstance(text, str) else None
        return self._search.find(text, k, run=ranking, asked=asked, among=among)

    # -- odd calls -----------------------------------------------------------------------------

    def surprise(self, call: CallLike, run: str | Run) -> Surprise:
        """How odd a call is at this step: of its tool, and of where its arguments come from.

        P-values by held-out plans: of calls like the demonstrations', a share p gets at most p.
        For a query unlike the demonstrations nothing is said. Advice, not a permission: a call
        can be usual and wrong, or odd and right.

        Args:
            call: the tool's name, or the call with its arguments.
            run: the query or the run before the call.

        Raises:
            InputError: the model was fitted without plans, or something is not a call or a run.
            DtdrError: the retriever is not fitted.
        """
        return self.session(run).surprise(call)

    def _judge(self, call: ToolCall, run: Run, ranking: Ranking) -> Surprise:
        if self.surprise_ is None:
            raise InputError(NO_SURPRISE)
        return self.surprise_.judge(call, run, ranking, self._index.get(call.tool, UNKNOWN))

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
            DtdrError: the retriever is not fitted.
        """
        return self._argument_model().fill(tool, run)

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
            DtdrError: the retriever is not fitted.
        """
        model = self._snapshot()
        state = RunState.from_run(run)
        return predict_calls(model.rank(run), state, model._argument_model().fill, k)

    def _argument_model(self) -> ArgumentModel:
        model = self._snapshot().arguments_
        if model is None:
            raise InputError(NO_ARGUMENTS)
        return model

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
            DtdrError: the retriever is not fitted.
        """
        return self.session(query, before=before).plans(k)

    def _predict_plans(self, run: Run, state: StepState, k: int) -> list[PlanPrediction]:
        check_at_least(1, k=k)
        return self._plan_model().predict(
            run,
            state,
            self._names,
            k,
            arguments=self.arguments_,
            may_be_empty=self.may_end_at_once,
        )

    def templates(
        self, query: str | Run, *, before: Sequence[BeforeLike] = (), k: int = 3
    ) -> list[PlanTemplate]:
        """Plans of the nearest demonstrations, most similar first, their slots filled anew.

        Args:
            query: what the user asked for, or a ``Run``: what is left of the plans that contain
                its calls then.
            before: messages and calls of the conversation before the query, oldest first, or
                their JSON objects.
            k: how many at most, at least 1; of eight demonstrations, those with one plan joined.

        Returns:
            Plans as demonstrations have them, each with its similarity and its probability, which
            that of ``plans`` is; none where no demonstration shares a word with the query.

        Raises:
            InputError: the model was fitted without plans, k is below 1, the query is not text, or
                something is not a message.
            DtdrError: the retriever is not fitted.
        """
        check_at_least(1, k=k)
        model = self._snapshot()
        plans = model._plan_model()
        run = as_run(query, before=before)
        state = model._start(run.query, run.before)
        for call in run.calls:
            state.call(model._index.get(call.tool, UNKNOWN), details_of(call))
        return plans.templates(
            run,
            state,
            model._names,
            k,
            arguments=model.arguments_,
            may_be_empty=model.may_end_at_once,
        )

    def _plan_model(self) -> PlanModel:
        if self.plans_ is None:
            raise InputError(NO_PLANS)
        return self.plans_
