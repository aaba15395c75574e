"""A model: a ranker with all that is learned in addition, and everything you can ask of it."""

from __future__ import annotations

import copy
import html
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END
from dtdr.data.demonstration_files import DemonstrationFile
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.data.plan import Plan
from dtdr.data.run import BeforeLike, CallLike, Run, as_run
from dtdr.data.tools import Tool, unique_tools
from dtdr.errors import DtdrError, InputError, ModelError
from dtdr.predict.arguments.model import ArgumentModel, ArgumentOptions
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.arguments.state import RunState
from dtdr.predict.plans.model import PlanModel
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.search import SEARCH_LIMIT, ToolSearch
from dtdr.predict.session import NO_ARGUMENTS, Fitted, Session
from dtdr.predict.steps import Prepared, RunRanker
from dtdr.rankers import model_folder
from dtdr.rankers.base import UNKNOWN, Arrays, HeldOutFold, Ranker, StepState
from dtdr.rankers.calibration import Calibration
from dtdr.rankers.folds import assign_folds
from dtdr.rankers.name_ranker import NameRanker
from dtdr.rankers.protocols import SupportsToolChanges, SupportsUpdates
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.training import TrainingData, select_training_data
from dtdr.text.encoders.base import Encoder

logger = logging.getLogger("dtdr")

END_TOOL = Tool(END, "Finish: everything the user asked for is planned, no further tool is needed.")

_SHOWN_TOOLS = 20
"""In a notebook."""

Demonstrations = str | Path | Iterable[DemonstrationLike]
"""What a model is fitted to: a file, or anything that can be iterated over."""


class Model:
    """A ranker, and what is learned in addition; ``dtdr.fit`` and ``dtdr.load`` return it.

    Whatever changes it works on a copy, whose attributes then replace the model's in one
    assignment (``_change``). Whoever uses it begins with ``_snapshot`` and goes on with the
    attributes of that moment. So any number of threads may use it while others change it.

    Args:
        ranker: scores the tools of the next step; fitted by ``fit``.
        arguments: which value each argument takes; None where that was not learned.
        plans: what makes a whole plan; None where that was not learned.

    Attributes:
        tools_: the tool vocabulary, sorted by name, end of plan last.
        training_: what was learned from.
    """

    tools_: tuple[Tool, ...]
    training_: TrainingData

    def __init__(
        self,
        ranker: Ranker,
        arguments: ArgumentModel | None = None,
        plans: PlanModel | None = None,
    ) -> None:
        self.ranker = ranker
        self.arguments_ = arguments
        self.plans_ = plans

    # -- parameters ----------------------------------------------------------------------------

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
    def seed(self) -> int:
        """Of all that is drawn."""
        return int(self.get_params().get("seed", 0))

    @property
    def failure_weight(self) -> float:
        """How much a failed demonstration counts; 0 leaves it out."""
        return float(self.get_params().get("failure_weight", 0.0))

    @property
    def may_end_at_once(self) -> bool:
        """Whether the end of plan is possible before the first call.

        Only where a demonstration called no tool; a request that is unlike all others would end
        at once otherwise.
        """
        return self.ranker.may_end_at_once or self.training_.empty_plans != 0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The ranker's keywords and their values; ``deep`` makes no difference."""
        return self.ranker.get_params()

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; a model that was fitted has to be fitted again.

        Only a new ``threshold`` takes effect at once.

        Raises:
            InputError: there is no such parameter, or a value is out of range; nothing changes.
        """
        accepted = self.get_params()
        for name in parameters:
            if name not in accepted:
                raise InputError(
                    f"retriever {self.name!r} has no parameter {name!r}; it takes "
                    f"{', '.join(accepted)}"
                )
        changed = type(self.ranker)(**accepted | self.ranker.expand_params(parameters))
        with self._change() as draft:
            if parameters.keys() <= {"threshold"} and isinstance(self.ranker, NameRanker):
                draft.ranker = copy.copy(draft.ranker)
                vars(draft.ranker).update(parameters)
            else:
                draft.__dict__ = Model(changed).__dict__
        return self

    def clone(self) -> Model:
        """A model of the same parameters that is not fitted."""
        return Model(type(self.ranker)(**self.get_params()))

    __sklearn_clone__ = clone

    def parameters(self) -> dict[str, Any]:
        """Those of ``get_params`` that are JSON: what model folders and run logs record."""
        given = self.get_params()
        return {name: given[name] for name in given if name not in self.ranker.not_saved}

    def __repr__(self) -> str:
        default = self.ranker.default_params()
        given = ", ".join(
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not default[name] and value != default[name]
        )
        return f"{type(self.ranker).__name__}({given})"

    def _repr_html_(self) -> str:
        """What was learned from, as notebooks show it; all texts escaped."""
        if "tools_" not in vars(self):
            return f"<code>{html.escape(repr(self))}</code>, not fitted yet"
        names = ", ".join(self._names[:_SHOWN_TOOLS])
        more = ", …" if len(self._names) > _SHOWN_TOOLS + 1 else ""
        return (
            f"<p><code>{html.escape(repr(self))}</code></p><p>learned from "
            f"{self.training_.demonstrations:,} demonstrations of {len(self._names) - 1:,} tools: "
            f"{html.escape(names)}{more}</p>"
        )

    # -- changes -------------------------------------------------------------------------------

    @contextmanager
    def _change(self) -> Iterator[Self]:
        """A copy to change; it takes this model's place when the block ends without error."""
        lock = self.__dict__.setdefault("_lock", Lock())
        with lock:
            draft = copy.copy(self)
            yield draft
            draft.__dict__["_lock"] = lock
            self.__dict__ = draft.__dict__

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

    def __getstate__(self) -> dict[str, Any]:
        """What ``copy`` and ``pickle`` take along: everything but the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

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
                takes those of the log, or of the ``tools.json`` in the folder of the file.
            arguments: whether to learn also which value each argument takes, for ``next_calls``
                and ``fill``, from failures too; ``ArgumentOptions`` say which values are kept.
            plans: whether to learn also which whole plans are right, for ``plans``. A ranker other
                than dtdr-f is fitted once more for each of three folds.

        Raises:
            InputError: there is nothing to learn from, something is not a demonstration, two tools
                share a name, or the ranker needs descriptions and there are none; or the seed
                is not one that numpy and scikit-learn take.
        """
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; it must be between 0 and 4,294,967,295")
        if isinstance(demonstrations, (str, Path)):
            from dtdr.logs import open_demonstrations

            demonstrations = open_demonstrations([demonstrations])
        source, everything = demonstrations, list[Demonstration]()
        started = time.perf_counter()
        if arguments:
            demonstrations = everything = list(as_demonstrations(demonstrations))
        with self._change() as draft:
            usable, record = select_training_data(
                demonstrations, failures=bool(draft.failure_weight)
            )
            if tools is None and isinstance(source, DemonstrationFile):
                tools = source.tools
            draft._set_vocabulary(unique_tools(tools or ()), usable)
            draft.ranker = ranker = copy.copy(self.ranker)
            ranker.fit(usable, draft.tools_)
            draft.training_ = record
            draft.arguments_ = None
            if arguments:
                options = arguments if isinstance(arguments, ArgumentOptions) else None
                # Most calls of a failed run are right. Without those runs, of tau-bench's airline
                # 39 % of calls were filled exactly, with them 44 %.
                draft.arguments_ = ArgumentModel.fit(
                    everything, draft.tools_[:-1], options, seed=draft.seed
                )
            draft.plans_ = None
            if plans:
                held_out = ranker.held_out(usable)
                folds = list(draft._hold_out(usable) if held_out is None else held_out)
                draft.plans_ = PlanModel.fit(
                    usable,
                    draft.tools_[:-1],
                    folds,
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

    def _set_vocabulary(self, known: dict[str, Tool], usable: Sequence[Demonstration]) -> None:
        if self.ranker.needs_descriptions and not any(tool.description for tool in known.values()):
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

    def _hold_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        """Parts of the demonstrations, each with a model that has not seen it."""
        fold = assign_folds(demonstrations, folds=3, grouped=True, seed=self.seed)
        for number in range(int(fold.max()) + 1):
            rest = [item for item, own in zip(demonstrations, fold, strict=True) if own != number]
            if not rest:
                return
            other = self.clone().fit(rest, self.tools_[:-1])

            def start(position: int, other: Model = other) -> StepState:
                item = demonstrations[position]
                return other._steps.state_of(Run(item.query, item.before))

            yield HeldOutFold(np.flatnonzero(fold == number).tolist(), start)

    def record_counts(self, training: TrainingData, phrases: npt.NDArray[np.uint32] | None) -> None:
        """Say of what the demonstrations were a sample that ``fit`` learned from.

        Args:
            training: what was counted.
            phrases: hashed phrases of all counted queries, by which queries are familiar; None
                leaves those of the sample.
        """
        with self._change() as draft:
            draft.training_ = training
            if phrases is not None:
                draft.ranker = copy.copy(draft.ranker)
                draft.ranker.add_phrases(phrases)

    def demonstrated_plans(self) -> list[Plan] | None:
        """The plans that were learned from, by names alone; None where they are not kept."""
        return self._snapshot().ranker.demonstrated_plans()

    # -- learning on ---------------------------------------------------------------------------

    @property
    def can_update(self) -> bool:
        """Whether ``update`` learns from further demonstrations."""
        return isinstance(self.ranker, SupportsUpdates)

    @property
    def can_change_tools(self) -> bool:
        """Whether ``add_tools``, ``remove_tools`` and ``rename_tool`` work."""
        return isinstance(self.ranker, SupportsToolChanges)

    def update(self, demonstrations: Iterable[DemonstrationLike]) -> int:
        """Learn from further demonstrations; survives save and load.

        Sessions that are open keep what they were opened with. Tools that are not known yet are
        added. dtdr-f is fitted again, to the demonstrations that it keeps as arrays and to these:
        it ranks as if it had been fitted to all of them, and that takes as long as a fit.

        Args:
            demonstrations: as ``fit`` takes them, but not a path; failures are left out where
                ``failure_weight`` is 0.

        Returns:
            How many were learned from.

        Raises:
            InputError: something is not a demonstration.
            DtdrError: the model is not fitted, or its ranker cannot learn on.
        """
        self._snapshot()
        with self._change() as draft:
            return draft._update(demonstrations)

    def _update(self, demonstrations: Iterable[DemonstrationLike]) -> int:
        if not self.can_update:
            raise DtdrError(f"{self.name} cannot learn after it was fitted; fit it again")
        usable, record = select_training_data(
            demonstrations, failures=bool(self.failure_weight), learned=self.training_.sha256
        )
        if not usable:
            return 0
        names = {call.tool for item in usable for call in item.plan.calls}
        new = sorted(names - set(self._index) - {END})
        if new:
            if not self.can_change_tools:
                raise InputError(f"no tool is named {new[0]!r}; fit {self.name} again with it")
            self._change_tools([*self.tools_[:-1], *map(Tool, new)], self._names)
        if self.arguments_ is not None:
            self.arguments_ = self.arguments_.update(usable, seed=self.seed)
        if self.plans_ is not None:
            self.plans_ = self.plans_.update(usable)
        ranker = self.ranker = copy.copy(self.ranker)
        assert isinstance(ranker, SupportsUpdates)
        ranker.update(usable)
        self.training_ = self.training_.add(record)
        return len(usable)

    def update_copy(self, demonstrations: Iterable[DemonstrationLike]) -> tuple[Model, int]:
        """A copy that learned from further demonstrations, and from how many.

        ``update`` replaces what was learned and changes nothing in place, so that the copy may
        share everything with the model that goes on ranking.

        Raises:
            DtdrError: see ``update``.
        """
        updated = copy.copy(self)
        return updated, updated.update(demonstrations)

    def add_tools(self, tools: Iterable[Tool]) -> None:
        """Add tools that no demonstration uses yet, ranked by their descriptions.

        Raises:
            InputError: a name is known already.
            DtdrError: the model is not fitted, or its tools cannot change.
        """
        self._snapshot()
        new = unique_tools(tools)
        with self._change() as draft:
            for name in new:
                if name in draft._index:
                    raise InputError(f"tool {name!r} is known already; rename_tool changes it")
            draft._change_tools([*draft.tools_[:-1], *new.values()], draft._names)

    def remove_tools(self, names: Iterable[str]) -> None:
        """Remove tools; their calls in what was learned count as calls of unknown tools.

        dtdr-f is fitted again without them, which takes as long as a fit.

        Raises:
            InputError: a name is not known.
            DtdrError: the model is not fitted, or its tools cannot change.
        """
        self._snapshot()
        gone = set(names)
        with self._change() as draft:
            for name in sorted(gone):
                draft._require_tool(name)
            left = [tool for tool in draft.tools_[:-1] if tool.name not in gone]
            draft._change_tools(left, draft._names)

    def rename_tool(self, old: str, tool: str | Tool) -> None:
        """Give a tool another name, and another description where a ``Tool`` is given.

        Raises:
            InputError: the old name is not known, or the new one is taken.
            DtdrError: the model is not fitted, or its tools cannot change.
        """
        self._snapshot()
        with self._change() as draft:
            draft._require_tool(old)
            known = draft.tools_[draft._index[old]]
            new = replace(known, name=tool) if isinstance(tool, str) else tool
            if new.name != old and new.name in draft._index:
                raise InputError(f"tool {new.name!r} is known already; choose another name")
            tools = [new if item.name == old else item for item in draft.tools_[:-1]]
            draft._change_tools(tools, [new.name if name == old else name for name in draft._names])
            if draft.plans_ is not None:
                draft.plans_ = draft.plans_.rename_tool(old, new.name)

    def _require_tool(self, name: str) -> None:
        if name not in self._index or name == END:
            raise InputError(f"tool {name!r} is not known; see the names in vocabulary")

    def _change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """Take another vocabulary; ``names`` are today's names of the old one, in its order."""
        ranker = self.ranker = copy.copy(self.ranker)
        if not isinstance(ranker, SupportsToolChanges):
            raise DtdrError(f"the tools of {self.name} cannot change; fit it again with others")
        if self.arguments_ is not None:
            renamed = {a: b for a, b in zip(self._names, names, strict=True) if a != b}
            removed = {*self._names, END} - {*renamed, END} - {tool.name for tool in tools}
            self.arguments_ = self.arguments_.with_tools(tools, renamed, removed)
        self._install_tools((*sorted(tools, key=lambda tool: tool.name), self.tools_[-1]))
        ranker.change_tools(self.tools_, names)

    # -- ranking -------------------------------------------------------------------------------

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
        }
        model_folder.write(folder, config, model.ranker.arrays(), parts, force=force)

    def restore(self, tools: Iterable[Tool], training: TrainingData, arrays: Arrays) -> Self:
        """Take back what ``save`` wrote of the ranker; ``dtdr.load`` calls it.

        Args:
            tools: the vocabulary, in its order.
            training: what the model was fitted on.
            arrays: those of the ranker; its encoder has its own already.

        Raises:
            ModelError: the arrays do not fit the ranker, its encoder or its tools.
            KeyError: an array is missing.
        """
        tools = tuple(tools)
        names = [tool.name for tool in tools]
        if len({*names}) < len(names) or names[-1:] != [END]:
            raise ModelError(f"its tools are not unique, or do not end with {END!r}; fit it again")
        with self._change() as draft:
            draft._install_tools(tools)
            draft.training_ = training
            draft.ranker = copy.copy(draft.ranker)
            draft.ranker.restore(tools, arrays)
        return self
