"""Steps of held-out plans: what the ranker is trained on, and calibrated with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.rankers.calibration import Calibration, Floats
from dtdr.rankers.dtdr_f import calibration, ranker
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.fitted_blocks import FittedBlocks, Layout
from dtdr.rankers.dtdr_f.new_tools import NewToolScorer, draw_example
from dtdr.rankers.dtdr_f.ranker import CandidateRanker, RankerFit, Steps
from dtdr.rankers.dtdr_f.step_features import StepFeatures
from dtdr.rankers.nn import Indices, Matrix
from dtdr.rankers.vectors import rule_out_end

_NEW_TOOL_STEPS = 2_000
"""Steps in which tools are looked at as if they were new, of more: a dozen features are weighed."""
AS_IT_IS, REWORDED, UNKNOWN = range(3)
_REWORDED_EVERY, _UNKNOWN_PLANS = 8, 40
"""Of how many plans one is ranked with some words of its query unknown too; and how many plans of
a fold with all of them unknown."""
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.9
"""Of the words that are replaced in a query with some words unknown."""


@dataclass(frozen=True, slots=True)
class HeldOutStep:
    """One step of a plan that the blocks have not seen.

    Attributes:
        half: that its plan belongs to, 0 or 1.
        kind: whether its query was read as it is, or with unknown words.
        table: shape (features + 1, k): the candidates.
        right: shape (k,): 1 where a candidate is acceptable, else 0.
        chosen: the columns of the candidates; None where they are all tools in view.
        order: shape (tools in view,): what they were chosen by; empty where they are all.
        all_right: shape (tools in view,): whether each is acceptable.
        is_first: whether no call was made yet.
        described: shape (text features + 1, new): tools that the blocks have not seen.
        new_share: share of the acceptable tools that is among these.
    """

    half: int
    kind: int
    table: Matrix
    right: Matrix
    chosen: Indices | None
    order: npt.NDArray[np.float16]
    all_right: npt.NDArray[np.bool_]
    is_first: bool
    described: Matrix
    new_share: float

    def judge(self, scorer: CandidateRanker, *, may_end_at_once: bool) -> calibration.Judged:
        """The probability of the best acceptable tool, of the best, and whether they are one.

        Tools out of view count as impossible.
        """
        order = self.order.astype(np.float32)
        row: Floats = ranker.probabilities(scorer, self.table, self.chosen, order)
        if self.is_first and not may_end_at_once:
            rule_out_end(row)
        best, right = int(row.argmax()), self.all_right
        return float(row[right].max(initial=0.0)), float(row[best]), bool(right[best])


@dataclass(frozen=True)
class LearnedRanker:
    """What held-out steps teach.

    Attributes:
        ranker: None where too little was demonstrated.
        halves: rankers that learned from either half of the plans.
        new_tools: ranks tools without demonstrations; None where that was not learned.
        calibration: of rankings.
    """

    ranker: CandidateRanker | None
    halves: Sequence[CandidateRanker | None]
    new_tools: NewToolScorer | None
    calibration: Calibration


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
        self._new_tool_share = _NEW_TOOL_STEPS / max(steps, 1) if len(layout.text_rows) > 1 else 0.0
        self._rng = np.random.default_rng(seed)
        self._examples: list[tuple[Matrix, Matrix, Matrix]] = []
        self.steps: list[HeldOutStep] = []
        self._may_end_at_once = False

    def add(self, fitted: FittedBlocks, encoded: EncodedDemonstrations, halves: Indices) -> None:
        """The steps of some plans, with blocks that were fitted without them.

        If more is known of the runs than names, every other plan is ranked by names alone too: a
        model is not given the outputs of every run that it ranks.

        Args:
            fitted: has not seen the plans.
            encoded: the plans.
            halves: shape (plans,): 0 or 1, the half of each.
        """
        every = np.arange(len(encoded))
        self._may_end_at_once |= bool((encoded.lengths == 0).any())
        unknown = max(2, len(encoded) // _UNKNOWN_PLANS)
        for kind, step in ((AS_IT_IS, 1), (REWORDED, _REWORDED_EVERY), (UNKNOWN, unknown)):
            self._add(fitted, encoded, every[::step], halves, kind)
            if kind == AS_IT_IS and not encoded.has_names_only:
                self._add(fitted, encoded.without_runs(), every[::2], halves, kind)

    def _add(
        self,
        fitted: FittedBlocks,
        encoded: EncodedDemonstrations,
        rows: Indices,
        halves: Indices,
        kind: int,
    ) -> None:
        part = encoded.subset(rows)
        text_rows = self._layout.text_rows
        step, plan, done = None, -1, 0
        for each in part.steps():
            if step is None or each.plan != plan:
                plan, done = each.plan, 0
                text = part.text(plan)
                if kind:
                    low = _LEAST_SHARE if kind == REWORDED else 1.0
                    share = self._rng.uniform(low, _MOST_SHARE if kind == REWORDED else 1.0)
                    text = text.reworded(self._rng, share)
                features = fitted.training.featurizer.read(text)
                step = StepFeatures(fitted, fitted.prepare(features, part.contexts[plan]))
                start, outcomes = int(part.starts[plan]), part.outcomes[plan]
            for place in range(done, len(each.history)):
                step.call(
                    each.history[place],
                    outcomes[place],
                    is_parallel=bool(part.parallel[start + place]),
                )
            done = len(each.history)
            table, view = step.write(), step.query.view
            right = np.zeros(view.size, np.bool_)
            right[view.find_columns(each.acceptable)] = True
            if not kind and view.size > 2 and self._rng.random() < self._new_tool_share:
                known = np.flatnonzero(right[:-1])
                self._examples.append(draw_example(self._rng, table[text_rows], known))
            chosen, order = ranker.shortlist(self._layout, table, view.new)
            wanted = right.astype(np.float32)
            self.steps.append(
                HeldOutStep(
                    int(halves[rows[plan]]),
                    kind,
                    table.copy() if chosen is None else table[:, chosen],
                    wanted if chosen is None else wanted[chosen],
                    chosen,
                    _NONE if chosen is None else order.astype(np.float16),
                    right,
                    not done,
                    table[np.ix_(text_rows, view.new)],
                    float(right[view.new].sum() / max(right.sum(), 1)),
                )
            )

    def learn(self, new_tool_share: float) -> LearnedRanker:
        """The ranker, and how far its probabilities can be trusted.

        Args:
            new_tool_share: Good's estimate of the calls to tools that no demonstration calls.
        """
        usable = [step for step in self.steps if step.right.any()]
        mix = (1.0, 1.0)
        whole: RankerFit | None = None
        checks: list[CandidateRanker | None] = [None, None]
        if usable:
            steps, prior = self._stack(usable), self._layout.prior
            half = np.array([step.half for step in usable])
            parts = [steps.part(half == number) for number in (0, 1) if (half == number).any()]
            decay = ranker.DECAYS[0]
            if len(parts) == 2:
                paths = [ranker.fit_linear(part, prior, ranker.DECAYS) for part in parts]
                decay = ranker.choose_decay(paths, parts[::-1])
                fits = [
                    self._fit(part, path[decay]) for part, path in zip(parts, paths, strict=True)
                ]
                mix = ranker.choose_mix(fits, parts[::-1])
                checks = [fit.mix(*mix) for fit in fits]
            # As large as what follows.
            del parts
            linear = ranker.fit_linear(steps, prior, [decay])[decay]
            whole = self._fit(steps, linear)
        judged: list[list[calibration.Judged]] = [[], [], []]
        for step in self.steps:
            check = checks[1 - step.half]
            if check is not None:
                result = step.judge(check, may_end_at_once=self._may_end_at_once)
                judged[step.kind].append(result)
        return LearnedRanker(
            None if whole is None else whole.mix(*mix),
            checks,
            self._new_tools(new_tool_share),
            calibration.calibrate(judged[AS_IT_IS]) if judged[AS_IT_IS] else Calibration(),
        )

    def _stack(self, steps: Sequence[HeldOutStep]) -> Steps:
        features = np.stack([step.table[:-1] for step in steps]).transpose(0, 2, 1)
        return Steps.of(features, np.stack([step.right for step in steps]))

    def _fit(self, steps: Steps, linear: Matrix) -> RankerFit:
        return RankerFit.of(steps, linear, tools=self._tools, seed=self._seed)

    def _new_tools(self, share: float) -> NewToolScorer | None:
        """What the steps say about tools as if they had no demonstrations; None without any."""
        if not self._examples:
            return None
        rows, right, weights = map(np.concatenate, zip(*self._examples, strict=True))
        if not right.any():
            return None
        varies = np.max([part.std(axis=0) for part, _, _ in self._examples], axis=0) > 0
        scorer = NewToolScorer.fit(rows, right, weights, varies)
        steps = [
            (step.described, step.new_share)
            for step in self.steps
            if step.kind == AS_IT_IS and step.described.size
        ]
        return scorer.with_share(steps, share)


_NONE = np.empty(0, np.float16)
