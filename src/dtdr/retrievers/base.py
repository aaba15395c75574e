"""What a retriever is: learned from demonstrations, it ranks the tools for the next step."""

from __future__ import annotations

import html
import logging
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from dtdr import model_folder
from dtdr.arguments.model import ArgumentModel, ArgumentOptions, CallPrediction
from dtdr.arguments.state import RunState
from dtdr.calibration import NO_CALIBRATION, Calibration, Floats
from dtdr.demonstrations import (
    Demonstration,
    DemonstrationLike,
    Message,
    Tool,
    as_demonstrations,
    unique_tools,
)
from dtdr.errors import InputError, ModelError, check_at_least, unknown_choice
from dtdr.explanation import Explanation
from dtdr.jsonl import DemonstrationFile
from dtdr.plan import END, Plan, ToolCall
from dtdr.plans.beam import StepState
from dtdr.plans.held_out import HeldOutFold
from dtdr.plans.lookahead import SHARE, Lookahead, LookaheadWeights
from dtdr.plans.model import PlanModel
from dtdr.plans.prediction import PlanPrediction, PlanTemplate
from dtdr.ranking import Ranking
from dtdr.retrievers.estimator import Estimator
from dtdr.retrievers.folds import assign_folds
from dtdr.retrievers.notebook import fitted_html
from dtdr.retrievers.search import SEARCH_LIMIT, ToolSearch
from dtdr.retrievers.session import (
    NO_ARGUMENTS,
    NO_PLANS,
    NO_SURPRISE,
    UNKNOWN,
    History,
    HistoryState,
    Prepared,
    RankHistory,
    Session,
    details_of,
    predict_calls,
)
from dtdr.retrievers.surprise import Surprise, SurpriseModel
from dtdr.retrievers.training import TrainingData, select_training_data
from dtdr.retrievers.vectors import normalise, rule_out_end
from dtdr.run import BeforeLike, CallLike, Run, as_run

logger = logging.getLogger("dtdr")

END_TOOL = Tool(END, "Finish: everything the user asked for is planned, no further tool is needed.")

_TEXT = frozenset({str})

Demonstrations = str | Path | Iterable[DemonstrationLike]
"""What a retriever is fitted to: a file, or anything that can be iterated over."""


class Retriever(Estimator):
    """Base of every retriever (the paper's ω, Section 3).

    Attributes that end in ``_`` are learned by ``fit``. A subclass keeps each constructor keyword
    in an attribute of the same name, and never changes in place what an attribute holds.

    Any number of threads may rank while others fit or update; see ``Estimator``.

    Attributes:
        static: ranks once a query and keeps that ranking for the whole plan; only the end of plan
            has another probability after the first call than before it.
        needs_descriptions: cannot work without tool descriptions.
        uses_encoder: takes an ``encoder``.
        uses_calls: ranks by what calls were given and returned, and by what came before the query;
            others by the names of the calls alone.
        has_folds: learns from parts of the demonstrations in turn, so that models which have not
            seen them cost nothing.
        failure_weight: how much a failed demonstration counts; 0 leaves it out.
        tools_: the tool vocabulary, sorted by name, end of plan last.
        calibration_: what was learned about its own rankings on held-out plans.
        arguments_: which value each argument takes; None where that was not learned.
        plans_: what makes a whole plan; None where that was not learned.
        surprise_: which calls are odd; None where that was not learned.
    """

    static: ClassVar[bool] = False
    needs_descriptions: ClassVar[bool] = False
    uses_encoder: ClassVar[bool] = False
    uses_calls: ClassVar[bool] = False
    has_folds: ClassVar[bool] = False

    failure_weight: float = 0.0
    seed: int = 0

    tools_: tuple[Tool, ...]
    training_: TrainingData
    calibration_: Calibration = NO_CALIBRATION
    arguments_: ArgumentModel | None = None
    plans_: PlanModel | None = None
    surprise_: SurpriseModel | None = None

    def _repr_html_(self) -> str:
        if not hasattr(self, "tools_"):
            return f"<code>{html.escape(repr(self))}</code>, not fitted yet"
        calibrated = self.calibration_.has_coverage
        return fitted_html(repr(self), self.tools_, self.training_.demonstrations, calibrated)

    # -- fitting -------------------------------------------------------------------------------

    def fit(
        self,
        demonstrations: Demonstrations,
        tools: Iterable[Tool] | None = None,
        *,
        arguments: bool | ArgumentOptions = False,
        plans: bool = False,
    ) -> Self:
        """Learn from demonstrations; failures are left out where ``failure_weight`` is 0.

        Args:
            demonstrations: the path of a ``demonstrations.jsonl`` or of an agent's log, whose
                format is found; or any iterable, read once, of ``Demonstration`` objects, their
                JSON objects, or pairs ``(query, [tool names])``.
            tools: descriptions and parameters, and tools that no demonstration uses yet; None
                takes those that the log or the ``tools.json`` beside the file holds.
            arguments: whether to learn also which value each argument takes, for ``next_calls``
                and ``fill``, from failures too; ``ArgumentOptions`` say which values are kept.
            plans: whether to learn also which whole plans are right, for ``plans``, and how odd a
                call is, for ``surprise``, which dtdr-f learns in any case. Another retriever is
                fitted once more for each of three folds.

        Raises:
            InputError: there is nothing to learn from, something is not a demonstration, two tools
                share a name, or the retriever needs descriptions and there are none; or the seed
                is not one that numpy and scikit-learn take.
        """
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; it must be between 0 and 4,294,967,295")
        if isinstance(demonstrations, (str, Path)):
            from dtdr.traces import open_demonstrations

            demonstrations = open_demonstrations([demonstrations])
        source, everything = demonstrations, list[Demonstration]()
        started = time.perf_counter()
        if arguments:
            demonstrations = everything = list(as_demonstrations(demonstrations))
        with self._change() as draft:
            usable, draft.training_ = select_training_data(
                demonstrations, failures=bool(draft.failure_weight)
            )
            if tools is None and isinstance(source, DemonstrationFile):
                tools = source.tools
            draft._set_vocabulary(unique_tools(tools or ()), usable)
            draft._fit(usable)
            draft.arguments_ = None
            if arguments:
                options = arguments if isinstance(arguments, ArgumentOptions) else None
                # Most calls of a failed run are right. Without those runs, of tau-bench's airline
                # 39 % of calls were filled exactly, with them 44 %.
                draft.arguments_ = ArgumentModel.fit(
                    everything, draft.tools_[:-1], options, seed=draft.seed
                )
            held_out = draft._held_out(usable)
            draft.plans_ = draft.surprise_ = None
            folds = list(held_out) if plans or draft.has_folds else []
            if folds:
                draft.surprise_ = SurpriseModel.fit(usable, folds, draft._index)
            if plans:
                draft.plans_ = PlanModel.fit(
                    usable,
                    draft.tools_[:-1],
                    iter(folds),
                    may_be_empty=draft.may_end_at_once,
                    seed=draft.seed,
                )
        logger.info(
            "fitted %s on %d demonstrations of %d tools in %.2f s",
            self.name,
            self.training_.demonstrations,
            len(self.tools_) - 1,
            time.perf_counter() - started,
        )
        return self

    def record_counts(self, training: TrainingData, phrases: npt.NDArray[np.uint32] | None) -> None:
        """Say of what the demonstrations were a sample that ``fit`` learned from.

        Args:
            training: what was counted.
            phrases: hashes of what all counted queries hold, by which queries are familiar; None
                leaves those of the sample.
        """
        with self._change() as draft:
            draft.training_ = replace(training, choice=draft.training_.choice)
            if phrases is not None:
                draft._add_phrases(phrases)

    def _add_phrases(self, phrases: npt.NDArray[np.uint32]) -> None:
        """Nothing, where queries are familiar by something else than their phrases."""

    def _held_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        """Parts of the demonstrations, each with a retriever that has not seen it."""
        fold = assign_folds(demonstrations, folds=3, grouped=True, seed=self.seed)
        for number in range(int(fold.max()) + 1):
            rest = [item for item, own in zip(demonstrations, fold, strict=True) if own != number]
            if not rest:
                return
            other = self.clone().fit(rest, self.tools_[:-1])

            def start(position: int, other: Retriever = other) -> StepState:
                return other._start(demonstrations[position].query, demonstrations[position].before)

            yield HeldOutFold(np.flatnonzero(fold == number).tolist(), start)

    def _set_vocabulary(self, known: dict[str, Tool], usable: Sequence[Demonstration]) -> None:
        if self.needs_descriptions and not any(tool.description for tool in known.values()):
            raise InputError(
                f"retriever {self.name!r} needs tool descriptions; pass tools (--tools tools.json) "
                "or choose a retriever that learns from demonstrations alone, such as dtdr-c"
            )
        names = {call.tool for demonstration in usable for call in demonstration.plan.calls}
        names.update(known)
        names.discard(END)
        ordered = [known.get(name, Tool(name)) for name in sorted(names)]
        self._install_tools((*ordered, known.get(END, END_TOOL)))

    def _install_tools(self, tools: tuple[Tool, ...]) -> None:
        self.tools_ = tools
        self._names = tuple(tool.name for tool in tools)
        self._index = {name: position for position, name in enumerate(self._names)}
        self._search = ToolSearch.of(tools[:-1])

    @abstractmethod
    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        """Learn; ``tools_`` is set and no demonstration is a failure."""

    # -- ranking -------------------------------------------------------------------------------

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
            _check_alone(history, before)
            return self.rank_batch([query.query], [query.calls], [query.before])[0]
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
        if isinstance(query, Run):
            _check_alone((), before)
            run = Run(query.query, query.before, query.calls)  # the session adds to it
        else:
            run = as_run(query, (), before) if before else Run(query)
        fill = None if model.arguments_ is None else model.arguments_.fill
        state = model._start(run.query, run.before)
        plans = None if model.plans_ is None else model._predict_plans
        weights = LookaheadWeights() if model.plans_ is None else model.plans_.lookahead
        if lookahead is not None:
            if lookahead and model.plans_ is None:
                raise InputError(NO_PLANS)
            share = max(weights.share, SHARE) if lookahead else 0.0
            weights = weights._replace(share=share)
        look_ahead = partial(model._look_ahead, weights) if weights.share else None
        return Session(
            run,
            state,
            model._index,
            model._explain,
            model._search_beside,
            fill,
            plans,
            look_ahead,
            model._judge,
        )

    def _look_ahead(self, weights: LookaheadWeights, run: Run, state: StepState) -> Lookahead:
        if self.plans_ is None:
            raise InputError(NO_PLANS)
        found = self.plans_.candidates(run, state, self._names, may_be_empty=self.may_end_at_once)
        used = [call.arguments for call in run.calls]
        return Lookahead(found, len(self._names) - 1, weights, used)

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

    def demonstrated_plans(self) -> list[Plan] | None:
        """The plans that were learned from, by names alone; None where they are not kept."""
        self._snapshot()
        return None

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
        if self.plans_ is None:
            raise InputError(NO_PLANS)
        return self.plans_.predict(
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
        if model.plans_ is None:
            raise InputError(NO_PLANS)
        if isinstance(query, Run):
            _check_alone((), before)
        run = query if isinstance(query, Run) else as_run(query, (), before)
        state = model._start(run.query, run.before)
        for call in run.calls:
            state.call(model._index.get(call.tool, UNKNOWN), details_of(call))
        return model.plans_.templates(
            run,
            state,
            model._names,
            k,
            arguments=model.arguments_,
            may_be_empty=model.may_end_at_once,
        )

    def prepare(self, query: str) -> Prepared:
        """The query, encoded once, to be ranked for several histories."""
        model = self._snapshot()
        return Prepared(query, model._ranker(query), model._index, model._explain)

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

    # -- saving --------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a model folder: ``config.json`` and ``model.safetensors``, no pickle.

        Raises:
            OutputError: the folder exists and ``force`` is False, or it cannot be written; what
                was there before is intact.
        """
        model = self._snapshot()
        config = {
            "retriever": model.name,
            "parameters": model.parameters(),
            "encoder": None,
            "seed": model.seed,
            "tools": [tool.to_dict() for tool in model.tools_],
            "training_data": vars(model.training_),
        }
        parts = {
            "encoder": model.encoder,
            "arguments": model.arguments_,
            "plans": model.plans_,
            "surprise": model.surprise_,
        }
        model_folder.write(folder, config, model._state(), parts, force=force)

    def restore(
        self,
        tools: Iterable[Tool],
        training: TrainingData,
        arrays: Mapping[str, npt.NDArray[Any]],
        arguments: ArgumentModel | None = None,
        plans: PlanModel | None = None,
        surprise: SurpriseModel | None = None,
    ) -> Self:
        """Take back what ``save`` wrote; ``dtdr.load`` calls it.

        Args:
            tools: the vocabulary, in its order.
            training: what the model was fitted on.
            arrays: those of the retriever; its encoder has its own already.
            arguments: what fills arguments, where that was learned.
            plans: what makes whole plans, where that was learned.
            surprise: what knows odd calls, where that was learned.

        Raises:
            ModelError: the arrays do not fit the retriever, its encoder or its tools.
            KeyError: an array is missing.
        """
        tools = tuple(tools)
        names = [tool.name for tool in tools]
        if len({*names}) < len(names) or names[-1:] != [END]:
            raise ModelError(f"its tools are not unique, or do not end with {END!r}; fit it again")
        with self._change() as draft:
            draft._install_tools(tools)
            draft.training_ = training
            draft._restore(arrays)
            draft.arguments_ = arguments
            draft.plans_ = plans
            draft.surprise_ = surprise
        return self

    @abstractmethod
    def _state(self) -> dict[str, npt.NDArray[Any]]:
        """What was learned, as named arrays."""

    @abstractmethod
    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take back what ``_state`` gave; ``tools_`` and the encoder are set."""


class StaticRetriever(Retriever):
    """Ranks once a query, for the whole plan (paper, Appendix I.3, Algorithm 7)."""

    static = True

    def _prepare(self, queries: Sequence[str]) -> Sequence[Floats]:
        return self._scores(queries)

    @abstractmethod
    def _scores(self, queries: Sequence[str]) -> Sequence[Floats]:
        """For each query, scores of shape (tools,), at least 0."""

    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        return np.stack(prepared)


def _check_alone(history: Sequence[Any], before: Sequence[Any]) -> None:
    if len(history) or len(before):
        raise InputError("a run has its own calls and what came before it; give the run alone")
