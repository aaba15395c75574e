"""Steps of held-out plans: what rankers are trained on, and calibrated with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.calibration import Calibration, Floats
from dtdr.retrievers.factored import calibration, choice, new_tools, ranker
from dtdr.retrievers.factored.blocks import block_types
from dtdr.retrievers.factored.choice import Trial
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.fitted_blocks import FittedBlocks
from dtdr.retrievers.factored.layout import Layout
from dtdr.retrievers.factored.new_tools import NewToolScorer
from dtdr.retrievers.factored.observations import NO_CONTEXT, NO_OUTCOME
from dtdr.retrievers.factored.ranker import CandidateRanker, Scorer, StepScorers
from dtdr.retrievers.factored.step_features import StepFeatures
from dtdr.retrievers.nn import Indices, Matrix
from dtdr.retrievers.vectors import rule_out_end

_NEW_TOOL_STEPS = 3_000
"""Steps in which tools are looked at as if they were new, of more: a dozen features are weighed."""
_UNFAMILIAR_PLANS = 100
"""Plans of each fold whose queries are ranked in unknown words too: a second of a fit."""
_REWORDED_PLANS, _REWORDED_EPOCHS = 500, 40
"""Plans of each fold whose queries are ranked with some words unknown, and passes over their steps:
a second of a fit."""
_MANY_CHECKED = 2_000
"""Rankers of every other plan, which calibrate, make half of the passes over more steps than this.
On three validation quarters each, TinyAgent's calibration error (2,500 steps a half) is .018 by
half and .017 by all of them, T-Eval's (800 steps) .040 and .035."""

Rankers: TypeAlias = tuple[CandidateRanker, ...]
Halves: TypeAlias = tuple[tuple[Rankers, ...], tuple[Rankers, ...]]
"""Of the plans with even numbers and of those with odd ones: rankers of steps of which names are
told, and of those of which more is told."""


@dataclass(frozen=True, slots=True)
class HeldOutStep:
    """One step of a plan that the blocks have not seen.

    Attributes:
        plan: its number.
        table: shape (features + 1, k): the candidates.
        right: shape (k,): whether each is acceptable.
        chosen: the columns of the candidates; None where they are all tools in view.
        order: shape (tools in view,): what they were chosen by; empty where they are all.
        all_right: shape (tools in view,): whether each is acceptable.
        is_told: whether more is known of the run than names.
        is_first: whether no call was made yet.
        new: the columns of tools in view that the blocks have not seen.
        described: shape (new tool features + 1, new): what is known of these.
    """

    plan: int
    table: Matrix
    right: npt.NDArray[np.bool_]
    chosen: Indices | None
    order: npt.NDArray[np.float16]
    all_right: npt.NDArray[np.bool_]
    is_told: bool
    is_first: bool
    new: Indices
    described: Matrix

    def probabilities(self, scorer: Scorer, *, may_end_at_once: bool) -> Floats:
        """Of the tools in view."""
        order = self.order.astype(np.float32)
        row = ranker.probabilities(scorer, self.table, self.chosen, order)
        if self.is_first and not may_end_at_once:
            rule_out_end(row)
        return row

    def among_new(self, row: Floats) -> new_tools.NewToolStep:
        """What ``probabilities`` gave, for the tools that the blocks have not seen."""
        probabilities: Matrix = row.astype(np.float32)
        return new_tools.NewToolStep(self.described, self.new, probabilities, self.all_right)

    def judge(self, row: Floats) -> calibration.Judged:
        """Of what ``probabilities`` gave: that of the best acceptable tool, and of the best.

        And whether they are one. Tools out of view count as impossible.
        """
        best, right = int(row.argmax()), self.all_right
        return float(row[right].max(initial=0.0)), float(row[best]), bool(right[best])


@dataclass(frozen=True, slots=True)
class _Fold:
    """Plans, and blocks that have not seen them.

    Attributes:
        fitted: the blocks.
        texts: the queries.
        plans: theirs.
        numbers: shape (plans,): of the plans.
    """

    fitted: FittedBlocks
    texts: Sequence[str]
    plans: EncodedPlans
    numbers: Indices


class HeldOut:
    """Steps of plans that the blocks have not seen.

    Args:
        layout: of the blocks' features.
        tools: size of the vocabulary.
        steps: how many there will be.
        seed: of all that is drawn and trained.
    """

    def __init__(self, layout: Layout, tools: int, steps: int, seed: int) -> None:
        self._layout, self._tools, self._seed = layout, tools, seed
        self._new_tool_share = _NEW_TOOL_STEPS / max(steps, 1) if layout.new_tool_names else 0.0
        self._rng = np.random.default_rng(seed)
        self._folds: list[_Fold] = []
        self._new_tools: list[tuple[Matrix, Matrix, Matrix]] = []
        self._unfamiliar: list[HeldOutStep] = []
        self.reworded: list[HeldOutStep] = []
        self._words_rng = np.random.default_rng([seed, 1])
        self._may_end_at_once = False
        self.steps: list[HeldOutStep] = []

    def add(
        self,
        fitted: FittedBlocks,
        texts: Sequence[str],
        plans: EncodedPlans,
        runs: EncodedRuns | None = None,
    ) -> None:
        """The steps of some plans, with blocks that were fitted without them.

        Where more is known of the runs than names, they stand here twice, the second time told
        names only: a model is not told more of every run that it ranks.
        """
        first = (self.steps[-1].plan + 1) if self.steps else 0
        self._may_end_at_once |= bool((plans.lengths == 0).any())
        every = np.arange(first, first + len(plans))
        self._folds.append(_Fold(fitted, texts, plans, every))
        self._add(fitted, texts, plans, runs, every, self.steps)
        if runs is not None:
            self._add(fitted, texts, plans, None, every, self.steps)

    def add_reworded(self) -> None:
        """The steps of some of these plans in words that are partly or all unknown.

        Those of the latter say how often a query that nothing is known of goes wrong.
        """
        for fold in self._folds:
            count = len(fold.plans)
            some = np.arange(0, count, -(-count // _REWORDED_PLANS) or 1)
            meant = [fold.texts[at] for at in some.tolist()]
            reworded = [calibration.replace_some_words(text, self._words_rng) for text in meant]
            self._add_some(fold, some, reworded, self.reworded, meant)
            some = np.arange(0, count, max(1, count // _UNFAMILIAR_PLANS))
            unknown = [calibration.replace_words(fold.texts[at]) for at in some.tolist()]
            self._add_some(fold, some, unknown, self._unfamiliar)

    def _add_some(
        self,
        fold: _Fold,
        some: Indices,
        texts: Sequence[str],
        steps: list[HeldOutStep],
        meant: Sequence[str] | None = None,
    ) -> None:
        plans, numbers = fold.plans.subset(some), fold.numbers[some]
        self._add(fold.fitted, texts, plans, None, numbers, steps, meant)

    def _add(
        self,
        fitted: FittedBlocks,
        texts: Sequence[str],
        plans: EncodedPlans,
        runs: EncodedRuns | None,
        numbers: Indices,
        steps: list[HeldOutStep],
        meant: Sequence[str] | None = None,
    ) -> None:
        step, plan, done = None, -1, 0
        for each in plans.steps():
            if step is None or each.plan != plan:
                plan, done = each.plan, 0
                context = NO_CONTEXT if runs is None else runs.contexts[plan]
                encoded = texts[plan] if meant is None else meant[plan]
                features = fitted.training.featurizer.read(texts[plan], encoded)
                step = StepFeatures(fitted, fitted.prepare(features, context))
            for place in range(done, len(each.history)):
                outcome = NO_OUTCOME if runs is None else runs.outcomes[plan][place]
                step.call(each.history[place], outcome)
            done = len(each.history)
            if runs is not None and not step.is_told:
                continue  # it comes again, told names only
            table, view = step.write(), step.query.view
            right = np.zeros(view.size, np.bool_)
            right[view.find_columns(each.acceptable)] = True
            if steps is self.steps and view.size > 2 and self._rng.random() < self._new_tool_share:
                example = new_tools.example(self._rng, step, np.flatnonzero(right[:-1]))
                self._new_tools.append(example)
            chosen, order = ranker.shortlist(self._layout, table, view.new)
            candidates = table.copy() if chosen is None else table[:, chosen]
            steps.append(
                HeldOutStep(
                    int(numbers[plan]),
                    candidates,
                    right if chosen is None else right[chosen],
                    chosen,
                    _NONE if chosen is None else order.astype(np.float16),
                    right,
                    step.is_told,
                    not done,
                    view.new,
                    step.describe(view.new).copy() if len(view.new) else _NOTHING,
                )
            )

    def measure(
        self, sets: Sequence[tuple[str, ...]], names: Sequence[str], most: int, pool: Executor
    ) -> list[Trial]:
        """How well steps that are told names only are ranked with some of the blocks alone.

        Each ranker learns from every other plan and ranks the rest.

        Args:
            sets: names of blocks.
            names: of all blocks of the layout, in its order.
            most: steps that are looked at.
            pool: trains the rankers.
        """
        steps = [step for step in self.steps if not step.is_told and step.right.any()]
        if len(steps) > most:  # whole plans, of all folds
            plans = sorted({step.plan for step in steps})
            share = most / len(steps)
            drawn = np.random.default_rng(self._seed).random(len(plans)) < share
            kept = {plan for plan, is_drawn in zip(plans, drawn, strict=True) if is_drawn}
            steps = [step for step in steps if step.plan in kept]
        halves = _halves(steps)
        if not all(halves):
            return []
        layouts = [Layout(block_types(blocks)) for blocks in sets]
        rows = [self._layout.rows_of(names, blocks)[0] for blocks in sets]
        jobs = [
            [
                pool.submit(_fit_ranker, half, own[:-1], layout, self._tools, self._seed)
                for half in halves
            ]
            for own, layout in zip(rows, layouts, strict=True)
        ]
        trials = []
        for blocks, own, pair in zip(sets, rows, jobs, strict=True):
            ranks: dict[int, list[float]] = {}
            for half, job in enumerate(pair):
                scorer = Scorer([job.result()])
                for step in halves[1 - half]:
                    scores = scorer.scores(step.table[own])
                    place = 1 + int((scores > scores[step.right].max()).sum())
                    ranks.setdefault(step.plan, []).append(1 / place)
            means = np.array([np.mean(ranks[plan]) for plan in sorted(ranks)])
            trials.append(Trial(blocks, means, len(steps)))
        return trials

    def select(self, names: Sequence[str], blocks: Sequence[str]) -> None:
        """Go on with the features of some blocks alone.

        Args:
            names: of all blocks of the layout, in its order.
            blocks: names of those that remain.
        """
        rows, new_rows = self._layout.rows_of(names, blocks)
        self._layout = Layout(block_types(blocks))
        self._folds = [replace(fold, fitted=fold.fitted.select(blocks)) for fold in self._folds]
        self.steps = [
            replace(
                step,
                table=step.table[rows],
                described=step.described[new_rows] if len(step.new) else step.described,
            )
            for step in self.steps
        ]
        self._new_tools = [
            (features[:, new_rows[:-1]], right, weights)
            for features, right, weights in self._new_tools
        ]

    def learn(
        self, rankers: int, pool: Executor
    ) -> tuple[Rankers, Rankers, Rankers, NewToolScorer | None, Calibration, Halves]:
        """What is learned from the steps, side by side in the pool.

        Returns:
            Rankers of steps of which names are told, rankers of those of which more is told, and of
            those whose query is worded otherwise; what is said of new tools, the calibration, and
            rankers of the first two kinds that learned from every other plan.
        """
        jobs = [
            [pool.submit(self._ranker, steps, self._seed + number) for number in range(rankers)]
            for steps in _by_kind(self.steps)
        ]
        halves = _halves(self.steps)
        checks = [
            [
                pool.submit(self._ranker, steps, self._seed, _count_passes(len(steps)))
                for steps in _by_kind(half)
            ]
            for half in halves
        ]
        scorer = pool.submit(self._new_tool_scorer)
        self.add_reworded()  # while the pool learns from the others
        reworded, unfamiliar_steps = map(_halves, (self.reworded, self._unfamiliar))
        in_other_words = [
            pool.submit(self._ranker, half, self._seed, _REWORDED_EPOCHS) for half in reworded
        ]
        named, told = map(_results, jobs)
        judged: list[calibration.Judged] = []
        unfamiliar: list[calibration.Judged] = []
        among_new: list[new_tools.NewToolStep] = []
        for half, check in enumerate(checks):
            scorers = StepScorers(self._layout, *(_results([job]) for job in check))
            for step, row in self._rank(scorers, halves[1 - half]):
                judged.append(step.judge(row))
                if len(step.new):
                    among_new.append(step.among_new(row))
            scorers = StepScorers(self._layout, _results([in_other_words[half]]))
            steps = unfamiliar_steps[1 - half]
            unfamiliar += [step.judge(row) for step, row in self._rank(scorers, steps)]
        measured = calibration.calibrate(judged, unfamiliar) if judged else Calibration()
        known = scorer.result()
        if known is not None:
            known = known.with_caution(among_new)
        first, second = (
            tuple(() if (result := two[half].result()) is None else (result,) for two in checks)
            for half in (0, 1)
        )
        return named, told, _results(in_other_words), known, measured, (first, second)

    def _rank(
        self, scorers: StepScorers, steps: Sequence[HeldOutStep]
    ) -> Iterator[tuple[HeldOutStep, Floats]]:
        for step in steps:
            scorer = scorers.choose(is_told=step.is_told, is_first=step.is_first)
            if scorer is not None:
                row = step.probabilities(scorer, may_end_at_once=self._may_end_at_once)
                yield step, row

    def _ranker(
        self, steps: Sequence[HeldOutStep], seed: int, epochs: int = ranker.EPOCHS
    ) -> CandidateRanker | None:
        """A ranker of the steps whose shortlist holds an acceptable tool; None without any."""
        usable = [step for step in steps if step.right.any()]
        if not usable:
            return None
        features = np.stack([step.table[:-1] for step in usable]).transpose(0, 2, 1)
        return CandidateRanker.fit(
            features,
            np.stack([step.right for step in usable]),
            prior=self._layout.prior,
            tools=self._tools,
            seed=seed,
            told_prior=self._layout.told_prior if usable[0].is_told else None,
            epochs=epochs,
        )

    def _new_tool_scorer(self) -> NewToolScorer | None:
        """What the steps say about tools as if they had no demonstrations; None without any."""
        if not self._new_tools:
            return None
        rows, right, weights = map(np.concatenate, zip(*self._new_tools, strict=True))
        return NewToolScorer.fit(rows, right, weights, self._seed) if right.any() else None


def _fit_ranker(
    steps: Sequence[HeldOutStep], rows: Indices, layout: Layout, tools: int, seed: int
) -> CandidateRanker:
    features = np.stack([step.table[rows] for step in steps]).transpose(0, 2, 1)
    right = np.stack([step.right for step in steps])
    return CandidateRanker.fit(
        features, right, prior=layout.prior, tools=tools, seed=seed, epochs=choice.EPOCHS
    )


def _count_passes(steps: int) -> int:
    """Over so many steps, for a ranker that calibrates."""
    return ranker.EPOCHS // 2 if steps > _MANY_CHECKED else ranker.EPOCHS


def _by_kind(steps: Sequence[HeldOutStep]) -> list[list[HeldOutStep]]:
    """Steps that are told names only, and the others."""
    return [[step for step in steps if step.is_told == is_told] for is_told in (False, True)]


def _halves(steps: Sequence[HeldOutStep]) -> list[list[HeldOutStep]]:
    """Those of plans with even numbers, and the others."""
    return [[step for step in steps if step.plan % 2 == half] for half in (0, 1)]


def _results(jobs: Sequence[Future[CandidateRanker | None]]) -> Rankers:
    return tuple(ranker for job in jobs if (ranker := job.result()) is not None)


_NONE = np.empty(0, np.float16)
_NOTHING = np.empty((0, 0), np.float32)
