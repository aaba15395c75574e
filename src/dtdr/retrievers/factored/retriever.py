"""``dtdr-f``: query and history as blocks of features, weighed by a ranker on held-out plans."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
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
from dtdr.progress import progress_bar
from dtdr.ranking import Ranking
from dtdr.retrievers.base import Retriever
from dtdr.retrievers.factored import calibration, choice, ranker
from dtdr.retrievers.factored.ageing import Ageing
from dtdr.retrievers.factored.blocks import DEFAULT, block_types
from dtdr.retrievers.factored.encoded_plans import REMOVED, EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.familiarity import Familiarity
from dtdr.retrievers.factored.fitted_blocks import FittedBlocks, Layout, StepFeatures
from dtdr.retrievers.factored.held_out import HeldOut
from dtdr.retrievers.factored.model import FactoredModel, FactoredQuery, FactoredStepState
from dtdr.retrievers.factored.reasons import add_reasons
from dtdr.retrievers.folds import assign_folds
from dtdr.retrievers.nn import Indices
from dtdr.retrievers.session import History
from dtdr.retrievers.training import select_training_data
from dtdr.tools import Tool, unique_tools

_THREADS = 2
"""Fits that run side by side; each has its own random numbers, so their order does not matter."""
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
        seed: of weights, folds and order of examples.

    Raises:
        InputError: a number is out of range, or a block does not exist.
    """

    name = "dtdr-f"
    uses_encoder = True
    uses_calls = True
    has_folds = True

    model_: FactoredModel
    _folds: list[tuple[Indices, list[FactoredModel]]]
    """Between learning and ``_held_out`` of one fit: parts of the demonstrations, and models that
    have not seen them, nor plans with even numbers or those with odd ones."""

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
        self.seed = seed

    # -- fitting -------------------------------------------------------------------------------

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        from threadpoolctl import threadpool_limits

        # Threads of linear algebra would fight with the folds' own over the cores, and another
        # number of them adds in another order: the third decimal of a score would depend on it.
        with threadpool_limits(limits=1):
            self._install(self._learn(demonstrations))

    def _learn(self, demonstrations: Sequence[Demonstration]) -> FactoredModel:
        texts = [demonstration.query for demonstration in demonstrations]
        plans = EncodedPlans.of(
            demonstrations, self._index, self._ageing.weights(demonstrations, self.training_)
        )
        grouped = choice.are_grouped(demonstrations) if self.grouped is None else self.grouped
        fold = assign_folds(demonstrations, folds=self.folds, grouped=grouped, seed=self.seed)
        everything = np.arange(len(texts))
        inside = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
        rest = [np.setdiff1d(everything, part) for part in inside]
        if len(inside) == 1 and not len(rest[0]):
            inside, rest = [], []
        # The ranker learns what the blocks of a fold say, so all speak as if of its size.
        weights = plans.weights
        reference = float(np.mean([weights[part].sum() for part in rest])) if rest else 0.0
        steps = sum(int(plans.lengths[part].sum()) + len(part) for part in inside)
        budget = self._budget(len(plans), grouped)
        names, runs = self._runs(demonstrations, plans, budget)
        total = (len(rest) + 1) * len(names)

        layout = Layout(block_types(names))
        held = HeldOut(layout, len(self.tools_), steps, self.seed)
        with (
            progress_bar("learning", total) as advance,
            ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool,
        ):

            def fit_blocks(chosen: Indices) -> FittedBlocks:
                return FittedBlocks.fit(
                    names,
                    self.tools_,
                    [texts[position] for position in chosen],
                    plans.subset(chosen),
                    None if runs is None else runs.subset(chosen),
                    encoder=self.encoder,
                    width=self.width,
                    reference=reference,
                    seed=self.seed,
                    advance=advance,
                )

            jobs = [pool.submit(fit_blocks, part) for part in (*rest, everything)]
            for job, part in zip(jobs, inside, strict=False):
                held.add(
                    job.result(),
                    [texts[at] for at in part],
                    plans.subset(part),
                    None if runs is None else runs.subset(part),
                )
            trials = self._measure(held, names, budget, pool)
            taken = self._take(trials, names)
            if len(taken) < len(names):
                held.select(Layout(block_types(taken)), *layout.rows_of(names, taken))
            rankers, told, reworded, new_tools, measured, halves = held.learn(
                self.ranker_seeds, pool
            )
            fitted = [job.result().select(taken) for job in jobs]
        fitted[-1].warm()
        self._block_names = tuple(taken)
        if self.blocks is None or self.grouped is None:
            made = choice.record(grouped, taken, trials)
            self.training_ = replace(self.training_, choice=made)
        groups = [item.group for item in demonstrations] if grouped else None
        model = FactoredModel(
            fitted[-1],
            rankers,
            new_tools,
            Familiarity.fit(texts, groups, self.encoder),
            replace(measured, tokens=calibration.token_costs(self.tools_)),
            told,
            reworded,
        )
        self._folds = [
            (
                part,
                [
                    replace(model, blocks=blocks, rankers=named, told_rankers=told)
                    for named, told in halves
                ],
            )
            for blocks, part in zip(fitted, inside, strict=False)
        ]
        return model

    def _budget(self, plans: int, grouped: bool) -> choice.Budget:
        """What sets of blocks are compared; none where they were named."""
        if self.blocks is not None:
            return choice.Budget((), 0)
        candidates = ranker.count_candidates(len(self.tools_))
        features = len(Layout(block_types(choice.SETS[0])).names)
        sets = choice.candidate_sets(grouped=grouped)
        return choice.plan_budget(self.tune_seconds, plans, candidates, features, sets)

    def _measure(
        self, held: HeldOut, names: Sequence[str], budget: choice.Budget, pool: Executor
    ) -> list[choice.Trial]:
        sets = [tuple(name for name in names if name in blocks) for blocks in budget.sets]
        distinct = list(dict.fromkeys(sets))
        return held.measure(distinct, names, budget.steps, pool) if len(distinct) > 1 else []

    def _take(self, trials: Sequence[choice.Trial], names: Sequence[str]) -> Sequence[str]:
        """The blocks that the model keeps, of those that were fitted."""
        if trials:
            return choice.best_of(trials).blocks
        wanted = DEFAULT.split(",") if self.blocks is None else names
        return [name for name in names if name in wanted]

    def _add_phrases(self, phrases: npt.NDArray[np.uint32]) -> None:
        known = self.model_.familiarity.with_known(phrases)
        self._install(replace(self.model_, familiarity=known))

    def _held_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        folds, self._folds = self._folds, []
        return _held_out(demonstrations, folds)

    def _runs(
        self, demonstrations: Sequence[Demonstration], plans: EncodedPlans, budget: choice.Budget
    ) -> tuple[list[str], EncodedRuns | None]:
        """The blocks that have something to say, and what is known of runs besides names."""
        wanted = DEFAULT if self.blocks is None else self.blocks
        compared = {name for blocks in budget.sets for name in blocks}
        blocks = block_types(sorted(compared) if compared else wanted)
        if self.blocks is None:
            silent = choice.silent_blocks(plans)
            blocks = tuple(block for block in blocks if block.name not in silent)
        if any(block.reads_runs for block in blocks):
            runs = EncodedRuns.of(demonstrations, self._index)
            if not runs.is_empty:
                return [block.name for block in blocks], runs
        names = [block.name for block in blocks if not block.reads_runs]
        if not names:
            given = ", ".join(block.name for block in blocks)
            raise InputError(
                f"the blocks {given} read outputs and earlier turns, and the demonstrations have "
                "none; name another block too"
            )
        return names, None

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
        return add_reasons(explanation, self.model_, state.features)

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


def _held_out(
    demonstrations: Sequence[Demonstration],
    folds: Sequence[tuple[Indices, Sequence[FactoredModel]]],
) -> Iterator[HeldOutFold]:
    """The folds of a fit, each plan with blocks and a ranker that have not seen it."""
    before = 0
    for part, halves in folds:
        number = {position: before + place for place, position in enumerate(part.tolist())}
        before += len(part)

        def start(
            position: int,
            number: Mapping[int, int] = number,
            halves: Sequence[FactoredModel] = halves,
        ) -> FactoredStepState:
            item = demonstrations[position]
            model = halves[1 - number[position] % 2]
            return FactoredStepState(model.prepare(item.query, item.before), item.before, model)

        yield HeldOutFold(part.tolist(), start)


def _shapes(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """All dimensions of all arrays in the order of their names: what a cut array is told by."""
    return np.array(
        [size for name in sorted(arrays) for size in (arrays[name].ndim, *arrays[name].shape)],
        np.int64,
    )
