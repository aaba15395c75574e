"""One fit of dtdr-f: blocks fitted without each fold, the choice among them, and the ranker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dtdr.demonstrations import Demonstration
from dtdr.encoders.base import Encoder
from dtdr.errors import InputError
from dtdr.plans.held_out import HeldOutFold
from dtdr.progress import progress_bar
from dtdr.retrievers.factored import calibration, choice, ranker
from dtdr.retrievers.factored.blocks import DEFAULT, block_types
from dtdr.retrievers.factored.blocks.clauses import Clauses
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.familiarity import Familiarity
from dtdr.retrievers.factored.fitted_blocks import FittedBlocks
from dtdr.retrievers.factored.held_out import HeldOut
from dtdr.retrievers.factored.layout import Layout
from dtdr.retrievers.factored.model import FactoredModel, FactoredStepState
from dtdr.retrievers.factored.synonyms import Synonyms, read_groups
from dtdr.retrievers.folds import assign_folds
from dtdr.retrievers.nn import Indices
from dtdr.tools import Tool

_THREADS = 2
"""Fits that run side by side among more tools than a ranker sees at once; each has its own random
numbers, so their order does not matter. Among fewer, steps of training are so short that threads
mostly wait for the interpreter: two rankers of 17 tools took 66 ms side by side and 54 ms one after
the other, for half of the processor time; of 300 tools 109 and 156 ms."""

FittedFold = tuple[Indices, list[FactoredModel]]
"""Part of the demonstrations, and two models that have not seen it: their rankers learned from its
plans with even numbers, and from those with odd ones."""


@dataclass(frozen=True)
class LearnedModel:
    """What a fit gives.

    Attributes:
        model: of all demonstrations.
        blocks: names of those that it has.
        choice: what was chosen and measured, as JSON; None where all was named.
        folds: models of parts of the demonstrations.
    """

    model: FactoredModel
    blocks: tuple[str, ...]
    choice: dict[str, Any] | None
    folds: list[FittedFold]


@dataclass(frozen=True)
class FactoredFit:
    """How dtdr-f is fitted; the parameters are those of ``DTDRFactored``.

    Attributes:
        tools: the vocabulary.
        index: positions of its names.
    """

    tools: tuple[Tool, ...]
    index: Mapping[str, int]
    blocks: str | Sequence[str] | None
    width: int
    folds: int
    ranker_seeds: int
    grouped: bool | None
    tune_seconds: float | None
    encoder: Encoder | None
    synonyms: str | None
    seed: int

    def learn(
        self, demonstrations: Sequence[Demonstration], weights: Sequence[float]
    ) -> LearnedModel:
        """Fit the blocks without each fold and with all of them, choose among them, weigh them.

        Args:
            demonstrations: to learn from.
            weights: how much each counts.
        """
        texts = [demonstration.query for demonstration in demonstrations]
        plans = EncodedPlans.of(demonstrations, self.index, weights)
        grouped = choice.are_grouped(demonstrations) if self.grouped is None else self.grouped
        fold = assign_folds(demonstrations, folds=self.folds, grouped=grouped, seed=self.seed)
        everything = np.arange(len(texts))
        inside = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
        rest = [np.setdiff1d(everything, part) for part in inside]
        if len(inside) == 1 and not len(rest[0]):
            inside, rest = [], []
        # The ranker learns what the blocks of a fold say, so all speak as if of its size.
        reference = float(np.mean([plans.weights[part].sum() for part in rest])) if rest else 0.0
        steps = sum(int(plans.lengths[part].sum()) + len(part) for part in inside)
        budget = self._budget(len(plans), grouped)
        names, runs = self._runs(demonstrations, plans, budget)
        seen = choice.tools_to_learn(plans)
        total = (len(rest) + 1) * len(names)

        layout = Layout(block_types(names))
        held = HeldOut(layout, len(self.tools), steps, self.seed)
        with (
            progress_bar("learning", total) as advance,
            ThreadPoolExecutor(self._count_threads()) as pool,
        ):

            def fit_blocks(chosen: Indices) -> FittedBlocks:
                return FittedBlocks.fit(
                    names,
                    self.tools,
                    [texts[position] for position in chosen],
                    plans.subset(chosen),
                    None if runs is None else runs.subset(chosen),
                    encoder=self.encoder,
                    width=self.width,
                    reference=reference,
                    seed=self.seed,
                    advance=advance,
                    seen=seen,
                )

            jobs = [pool.submit(fit_blocks, part) for part in (*rest, everything)]
            groups = [item.group for item in demonstrations] if grouped else None
            familiarity = pool.submit(Familiarity.fit, texts, groups, self.encoder)
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
                held.select(names, taken)
            rankers, told, reworded, new_tools, measured, halves = held.learn(
                self.ranker_seeds, pool
            )
            fitted = [job.result().select(taken) for job in jobs]
        fitted[-1].warm()
        made = None
        if self.blocks is None or self.grouped is None:
            made = choice.record(grouped, taken, trials)
        model = FactoredModel(
            fitted[-1],
            rankers,
            new_tools,
            familiarity.result(),
            replace(measured, tokens=calibration.token_costs(self.tools)),
            told,
            reworded,
            None if self.synonyms is None else Synonyms.fit(read_groups(self.synonyms), texts),
        )
        halved = [
            (
                part,
                [
                    replace(model, blocks=blocks, rankers=named, told_rankers=told)
                    for named, told in halves
                ],
            )
            for blocks, part in zip(fitted, inside, strict=False)
        ]
        return LearnedModel(model, tuple(taken), made, halved)

    def _count_threads(self) -> int:
        tools = len(self.tools)
        return min(_THREADS, os.cpu_count() or 1) if ranker.uses_shortlist(tools) else 1

    def _budget(self, plans: int, grouped: bool) -> choice.Budget:
        """What sets of blocks are compared; none where they were named."""
        if self.blocks is not None:
            return choice.Budget((), 0)
        candidates = ranker.count_candidates(len(self.tools))
        standard = [
            name for name in choice.SETS[0] if name != Clauses.name or self.encoder is not None
        ]
        features = len(Layout(block_types(standard)).names)
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

    def _runs(
        self, demonstrations: Sequence[Demonstration], plans: EncodedPlans, budget: choice.Budget
    ) -> tuple[list[str], EncodedRuns | None]:
        """The blocks that have something to say, and what is known of runs besides names."""
        wanted = DEFAULT if self.blocks is None else self.blocks
        compared = {name for blocks in budget.sets for name in blocks}
        blocks = block_types(sorted(compared) if compared else wanted)
        if self.blocks is None:
            silent = choice.silent_blocks(plans, has_encoder=self.encoder is not None)
            blocks = tuple(block for block in blocks if block.name not in silent)
        if any(block.reads_runs for block in blocks):
            runs = EncodedRuns.of(demonstrations, self.index)
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


def iter_held_out(
    demonstrations: Sequence[Demonstration],
    folds: Sequence[FittedFold],
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
