"""``dtdr-f``: query and history as blocks of features, weighed by a ranker on held-out plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.calibration import Floats
from dtdr.calls import END, ToolCall
from dtdr.demonstrations import Demonstration, DemonstrationLike, Message
from dtdr.encoders.base import Encoder
from dtdr.encoders.lexical import LexicalEncoder
from dtdr.errors import InputError, ModelError, check_at_least
from dtdr.explanation import Explanation
from dtdr.plan import Plan
from dtdr.plans.beam import StepState
from dtdr.plans.held_out import HeldOutFold
from dtdr.ranking import Ranking
from dtdr.retrievers.base import Retriever
from dtdr.retrievers.factored.ageing import Ageing
from dtdr.retrievers.factored.blocks import DEFAULT, block_types
from dtdr.retrievers.factored.encoded_plans import REMOVED, EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.fitting import FactoredFit, FittedFold, iter_held_out
from dtdr.retrievers.factored.model import FactoredModel, FactoredQuery, FactoredStepState
from dtdr.retrievers.factored.reasons import add_reasons
from dtdr.retrievers.factored.step_features import StepFeatures
from dtdr.retrievers.factored.synonyms import ENGLISH
from dtdr.retrievers.session import History
from dtdr.retrievers.training import select_training_data
from dtdr.tools import Tool, unique_tools

_SHAPES = "shapes_of_arrays"


class DTDRFactored(Retriever):
    """DTDR-F: blocks of features that know the demonstrations, and a ranker that weighs them.

    Each block (``dtdr.retrievers.factored.blocks``) says something about every tool: a network on
    query and history, counts of the calls made, relations of tools, their descriptions, and an
    alignment of the calls with the words of the query. One small ranker, shared by all tools, turns
    that into probabilities. It is trained on plans that the blocks have not seen: the
    demonstrations are divided into folds, and the blocks are fitted again without each.

    Args:
        blocks: names of the blocks, separated by commas or one by one; None: ``fit`` takes those
            that rank held-out steps best.
        width: hidden units of the next-tool network; 192 changed validation MRR by less than .002
            on TinyAgent, T-Eval and UltraTool.
        folds: parts of the demonstrations that are held out in turn; fewer than 20 take two.
        ranker_seeds: rankers whose log probabilities are averaged.
        grouped: keep demonstrations of one ``group`` in one fold. For queries whose groups were
            never demonstrated: on TRAJECT split by tool sequence, validation MRR is .660 with it
            and .589 without, and the error of ``Ranking.confidence`` .04 and .36. None: where most
            demonstrations share a group with others.
        tune_seconds: time for choosing blocks, by an estimate from sizes; None: less than the rest
            of the fit; 0 takes the default blocks.
        failure_weight: how much a failed demonstration counts, in [0, 1]; 0 leaves it out.
        half_life: after how much one counts half: a number of further demonstrations, which are
            taken to be in the order of their time; or a time before the newest one, such as
            ``"30d"`` (s, m, h, d, w), for demonstrations that all have one. None: all count alike.
        encoder: a further encoder whose vectors stand beside the words, such as ``"minilm"``; words
            and pairs of words are always used.
        synonyms: groups of words that mean about the same, by which a query that is worded
            otherwise than the demonstrations is said in their words: ``"english"``, the path of a
            file like ``synonyms_english.txt``, or None. Kept with the model.
        seed: of weights, folds and order of examples.

    Raises:
        InputError: a number is out of range, or a block does not exist.
    """

    name = "dtdr-f"
    uses_encoder = True
    uses_calls = True
    has_folds = True

    model_: FactoredModel
    _folds: Sequence[FittedFold]
    """Between learning and ``_held_out`` of one fit."""

    def __init__(
        self,
        *,
        blocks: str | Sequence[str] | None = None,
        width: int = 128,
        folds: int = 3,
        ranker_seeds: int = 1,
        grouped: bool | None = None,
        tune_seconds: float | None = None,
        failure_weight: float = 0.0,
        half_life: float | str | None = None,
        encoder: str | Encoder = "lexical",
        synonyms: str | None = ENGLISH,
        seed: int = 0,
    ) -> None:
        check_at_least(1, width=width, ranker_seeds=ranker_seeds)
        check_at_least(2, folds=folds)
        self._ageing = Ageing(half_life, failure_weight)
        if tune_seconds is not None and not tune_seconds >= 0:
            raise InputError(f"tune_seconds is {tune_seconds}; it must be at least 0, or None")
        self._block_names = tuple(
            block.name for block in block_types(DEFAULT if blocks is None else blocks)
        )
        self.blocks = blocks
        self.tune_seconds = tune_seconds
        self.width = width
        self.folds = folds
        self.ranker_seeds = ranker_seeds
        self.grouped = grouped
        self.failure_weight = failure_weight
        self.half_life = half_life
        chosen = self._choose_encoder(encoder)
        # Words by TF-IDF are always there, fitted without each fold's own plans.
        self.encoder = None if isinstance(chosen, LexicalEncoder) else chosen
        self.synonyms = synonyms
        self.seed = seed

    # -- fitting -------------------------------------------------------------------------------

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        from threadpoolctl import threadpool_limits

        # Threads of linear algebra would fight with the folds' own over the cores, and another
        # number of them adds in another order: the third decimal of a score would depend on it.
        with threadpool_limits(limits=1):
            learned = FactoredFit(
                self.tools_,
                self._index,
                blocks=self.blocks,
                width=self.width,
                folds=self.folds,
                ranker_seeds=self.ranker_seeds,
                grouped=self.grouped,
                tune_seconds=self.tune_seconds,
                encoder=self.encoder,
                synonyms=self.synonyms,
                seed=self.seed,
            ).learn(demonstrations, self._ageing.weights(demonstrations, self.training_))
        self._install(learned.model)
        self._block_names = learned.blocks
        self._folds = learned.folds
        if learned.choice is not None:
            self.training_ = replace(self.training_, choice=learned.choice)

    def _add_phrases(self, phrases: npt.NDArray[np.uint32]) -> None:
        known = self.model_.familiarity.with_known(phrases)
        self._install(replace(self.model_, familiarity=known))

    def _held_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        folds, self._folds = self._folds, []
        return iter_held_out(demonstrations, folds)

    def _install(self, model: FactoredModel) -> None:
        self.model_ = model
        self.calibration_ = model.calibration

    # -- updates -------------------------------------------------------------------------------

    def update(self, demonstrations: Iterable[DemonstrationLike]) -> int:
        """Learn from further demonstrations; see ``SupportsUpdates``.

        What is counted (dependencies, frequencies) is as after a refit. The weights of words, those
        that no earlier query held among them, learn from each demonstration; the network once 32
        have come, beside some that it knows, and from random weights each time that there are 15 %
        more, as long as there are at most 2,000. How the blocks are weighed and the confidence
        stay, and pairs of words that are new stay unknown: fit again once much has changed.
        """
        self._snapshot()
        with self._change() as draft:
            return draft._update(demonstrations)

    def _update(self, demonstrations: Iterable[DemonstrationLike]) -> int:
        usable, record = select_training_data(
            demonstrations, failures=bool(self.failure_weight), learned=self.training_.sha256
        )
        if not usable:
            return 0
        names = {call.tool for item in usable for call in item.plan.calls}
        new = sorted(names - set(self._index) - {END})
        if new:
            self._change_tools([*self.tools_[:-1], *map(Tool, new)], self._names)
        if self.arguments_ is not None:
            self.arguments_ = self.arguments_.update(usable, seed=self.seed)
        if self.plans_ is not None:
            self.plans_ = self.plans_.update(usable, seed=self.seed)
        self._install(
            self.model_.update(
                [item.query for item in usable],
                EncodedPlans.of(usable, self._index, self._ageing.weights(usable, self.training_)),
                EncodedRuns.of(usable, self._index) if self.model_.blocks.reads_runs else None,
                decay=self._ageing.decay(self.training_, record),
                seed=self.seed + self.training_.demonstrations,
            )
        )
        self.training_ = self.training_.add(record)
        return len(usable)

    def add_tools(self, tools: Iterable[Tool]) -> None:
        """Add tools that no demonstration uses yet; see ``SupportsToolChanges``."""
        self._snapshot()
        new = unique_tools(tools)
        with self._change() as draft:
            for name in new:
                if name in draft._index:
                    raise InputError(f"tool {name!r} is known already; rename_tool changes it")
            draft._change_tools([*draft.tools_[:-1], *new.values()], draft._names)

    def remove_tools(self, names: Iterable[str]) -> None:
        """Remove tools; see ``SupportsToolChanges``."""
        self._snapshot()
        gone = set(names)
        with self._change() as draft:
            for name in sorted(gone):
                draft._require_tool(name)
            left = [tool for tool in draft.tools_[:-1] if tool.name not in gone]
            draft._change_tools(left, draft._names)

    def rename_tool(self, old: str, tool: str | Tool) -> None:
        """Give a tool another name; see ``SupportsToolChanges``."""
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
            if draft.surprise_ is not None:
                draft.surprise_ = draft.surprise_.rename_tool(old, new.name)

    def _require_tool(self, name: str) -> None:
        if name not in self._index or name == END:
            raise InputError(f"tool {name!r} is not known; see the names in vocabulary")

    def _change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """Take another vocabulary; ``names`` are today's names of the old one, in its order."""
        ordered = (*sorted(tools, key=lambda tool: tool.name), self.tools_[-1])
        if self.arguments_ is not None:
            renamed = {a: b for a, b in zip(self._names, names, strict=True) if a != b}
            removed = {*self._names, END} - {*renamed, END} - {tool.name for tool in tools}
            self.arguments_ = self.arguments_.with_tools(tools, renamed, removed)
        self._install_tools(ordered)
        position = [self._index.get(name, REMOVED) for name in names]
        self._install(self.model_.with_tools(ordered, position))

    # -- ranking -------------------------------------------------------------------------------

    def _prepare(self, queries: Sequence[str]) -> Sequence[FactoredQuery]:
        return [self.model_.prepare(query) for query in queries]

    def _familiarity(self, prepared: Sequence[Any]) -> Sequence[float]:
        return [query.familiarity for query in prepared]

    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        model = self.model_
        rows = np.empty((len(prepared), len(self.tools_)))
        step: StepFeatures | None = None
        done: list[int] = []
        before: Any = None
        for row, query, history in zip(rows, prepared, histories, strict=True):
            calls = list(history)
            # Steps of one plan in their order go on where the one before ended.
            if step is None or query is not before or calls[: len(done)] != done:
                step, done, before = StepFeatures(model.blocks, query.prepared), [], query
            for tool in calls[len(done) :]:
                step.call(tool)
            done = calls
            row[:] = model.probabilities(step)
        return rows

    def _rankings(self, prepared: Sequence[Any], histories: Sequence[History]) -> list[Ranking]:
        # Rows sum to 1 already; dividing again would set a session apart in the last bit.
        return [
            Ranking(self._names, row, calibration=self.calibration_, familiarity=familiarity)
            for row, familiarity in zip(
                self._probabilities(prepared, histories), self._familiarity(prepared), strict=True
            )
        ]

    def _start(self, query: str, before: Sequence[Message | ToolCall] = ()) -> FactoredStepState:
        return FactoredStepState(self.model_.prepare(query, before), before, self.model_)

    def _add_reasons(
        self, explanation: Explanation, query: str, history: History, state: StepState
    ) -> Explanation:
        if not isinstance(state, FactoredStepState):
            raise TypeError(f"dtdr-f does not rank by a {type(state).__name__}")
        return add_reasons(explanation, self.model_, state.features, query)

    def demonstrated_plans(self) -> list[Plan]:
        """The plans that were learned from, by names; calls of removed tools are left out."""
        model = self._snapshot()
        plans = model.model_.blocks.training.plans
        found = []
        for number, edges in enumerate(plans.edges_of_plans()):
            tools = plans.plan(number)
            calls = [
                ToolCall(str(at), model._names[tool])
                for at, tool in enumerate(tools)
                if tool != REMOVED
            ]
            links = [pair for pair in edges if REMOVED not in (tools[pair[0]], tools[pair[1]])]
            found.append(Plan(tuple(calls), tuple((str(one), str(two)) for one, two in links)))
        return found

    # -- saving --------------------------------------------------------------------------------

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        arrays = self.model_.arrays()
        return {**arrays, _SHAPES: _shapes(arrays)}

    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        arrays = {name: array for name, array in state.items() if name != _SHAPES}
        if not np.array_equal(_shapes(arrays), state[_SHAPES]):
            raise ModelError("the arrays of the model do not fit together; fit it again")
        made = self.training_.choice
        if self.blocks is None and made is not None:
            self._block_names = tuple(block.name for block in block_types(made["blocks"]))
        self._install(
            FactoredModel.restore(
                self._block_names,
                self.tools_,
                arrays,
                encoder=self.encoder,
                width=self.width,
                seed=self.seed,
            )
        )


def _shapes(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """All dimensions of all arrays in the order of their names: what a cut array is told by."""
    return np.array(
        [size for name in sorted(arrays) for size in (arrays[name].ndim, *arrays[name].shape)],
        np.int64,
    )
