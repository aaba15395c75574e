"""Steps of held-out plans: what the ranker is trained on, and calibrated with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dtdr.rankers.calibration import Calibration, fit_isotonic
from dtdr.rankers.dtdr_f import ranker
from dtdr.rankers.dtdr_f.blocks import LAYOUT
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations, text_of
from dtdr.rankers.dtdr_f.model import FactoredModel
from dtdr.rankers.dtdr_f.new_tools import NewToolScorer, draw_example
from dtdr.rankers.dtdr_f.ranker import CandidateRanker, RankerFit, Steps
from dtdr.rankers.dtdr_f.step_features import StepFeatures
from dtdr.rankers.nn import Indices, Matrix

_NEW_TOOL_STEPS = 2_000
"""Steps whose tools the scorer of new tools learns from: it weighs only a dozen features."""
_REWORDED_EVERY = 8
"""Of how many plans one is ranked with some words of its query unknown too."""
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.9
"""Of the words that are replaced in such a query."""

_SIMILAR = ("similarity", "relative_similarity", "described_here", "described_ahead")
"""Features that compare the text of a tool with the query."""


class HeldOut:
    """Steps of plans that the blocks have not seen.

    Args:
        tools: size of the vocabulary.
        steps: how many there will be.
        seed: of all that is drawn and trained.
    """

    def __init__(self, tools: int, steps: int, seed: int) -> None:
        self._tools, self._seed = tools, seed
        self._new_tool_share = _NEW_TOOL_STEPS / max(steps, 1)
        self._rng = np.random.default_rng(seed)
        self._examples: list[tuple[Matrix, Matrix, Matrix]] = []
        self._wanted: list[tuple[Matrix, float]] = []
        """See ``NewToolScorer.with_share``."""
        self._steps: list[tuple[int, bool, Matrix, Matrix, npt.NDArray[np.bool_]]] = []
        """The half of a step's plan, whether its query was read with unknown words, and of its k
        candidates the features, shape (k, features), 1 where it is acceptable, shape (k,), and
        whether the run was not offered it, shape (k,)."""

    def add(self, fitted: FactoredModel, encoded: EncodedDemonstrations, halves: Indices) -> None:
        """The steps of some plans, with blocks that were fitted without them.

        If the runs have outputs, every other plan is also ranked by names alone, because a model
        does not receive the outputs of every run that it ranks.

        Args:
            fitted: has not seen the plans.
            encoded: the plans.
            halves: shape (plans,): 0 or 1, the half of each.
        """
        self._add(fitted, encoded, halves)
        if not encoded.has_names_only:
            other = np.arange(0, len(encoded), 2)
            self._add(fitted, encoded.subset(other).without_runs(), halves[other])
        some = np.arange(0, len(encoded), _REWORDED_EVERY)
        self._add(fitted, encoded.subset(some), halves[some], is_reworded=True)

    def _add(
        self,
        fitted: FactoredModel,
        encoded: EncodedDemonstrations,
        halves: Indices,
        *,
        is_reworded: bool = False,
    ) -> None:
        text_rows = LAYOUT.text_rows
        step, plan, done = None, -1, 0
        for each in encoded.steps():
            if step is None or each.plan != plan:
                plan, done = each.plan, 0
                text = text_of(encoded.columns, plan)
                if is_reworded:
                    text = text.reworded(self._rng, self._rng.uniform(_LEAST_SHARE, _MOST_SHARE))
                query = fitted.training.featurizer.read(text)
                step = StepFeatures(fitted.prepare_features(query, encoded.contexts[plan]))
                start, outcomes = int(encoded.starts[plan]), encoded.outcomes[plan]
            for place in range(done, len(each.history)):
                step.call(
                    each.history[place],
                    outcomes[place],
                    is_parallel=bool(encoded.parallel[start + place]),
                )
            done = len(each.history)
            table, new = step.write(), fitted.training.new
            right = np.zeros(table.shape[1], np.float32)
            right[list(each.acceptable)] = 1
            absent = np.zeros(len(right), np.bool_)
            if encoded.absent is not None:
                absent = encoded.absent[plan] & (right == 0)
            is_drawn = not is_reworded and self._rng.random() < self._new_tool_share
            if is_drawn and len(right) > 2:
                known = np.flatnonzero(right[:-1])
                self._examples.append(draw_example(self._rng, table[text_rows], known))
                if len(new):
                    wanted = float(right[new].sum() / max(right.sum(), 1))
                    self._wanted.append((table[np.ix_(text_rows, new)], wanted))
            chosen, _ = ranker.shortlist(table, np.append(new, np.flatnonzero(absent)))
            candidates = table if chosen is None else table[:, chosen]
            if chosen is not None:
                right, absent = right[chosen], absent[chosen]
            features = candidates[:-1].T.copy()
            self._steps.append((int(halves[plan]), is_reworded, features, right, absent))

    def learn(
        self, model: FactoredModel, new_tool_share: float
    ) -> tuple[FactoredModel, list[CandidateRanker | None]]:
        """A model with a ranker, and how far its probabilities can be trusted.

        Args:
            model: fitted to all demonstrations.
            new_tool_share: Good's estimate of the calls to tools that no demonstration calls.

        Returns:
            The model, and rankers that learned from either half of the plans; None where too
            little was demonstrated.
        """
        model = replace(model, new_tools=self._new_tools(new_tool_share))
        checks: list[CandidateRanker | None] = [None, None]
        if not any(right.any() for *_, right, _ in self._steps):
            return model, checks
        half, is_reworded, features, right, absent = map(np.array, zip(*self._steps, strict=True))
        steps = Steps.of(features, right, absent)
        del features  # as large as what follows
        usable: npt.NDArray[np.bool_] = right.max(axis=1) > 0
        mix = (1.0, 1.0)
        calibration = Calibration()
        if all((usable & (half == number)).any() for number in (0, 1)):
            fits = [self._fit(steps.part(usable & (half == number))) for number in (0, 1)]
            others = [steps.part(usable & (half != number)) for number in (0, 1)]
            mix = ranker.choose_mix(fits, others)
            del others  # as large as what follows
            checks = [fit.mix(*mix) for fit in fits]
            unseen = [np.flatnonzero((half != number) & ~is_reworded) for number in (0, 1)]
            calibration = _calibrate(
                [
                    fit.chances(steps.part(part), *mix)
                    for fit, part in zip(fits, unseen, strict=True)
                ],
                [right[part] for part in unseen],
            )
        whole = self._fit(steps.part(usable)).mix(*mix)
        return replace(model, ranker=whole, calibration=calibration), checks

    def _fit(self, steps: Steps) -> RankerFit:
        return RankerFit.of(steps, LAYOUT.prior, tools=self._tools, seed=self._seed)

    def _new_tools(self, share: float) -> NewToolScorer | None:
        """What the steps say about tools as if they had no demonstrations; None without any."""
        if not any(right.any() for _, right, _ in self._examples):
            return None
        rows, right, weights = map(np.concatenate, zip(*self._examples, strict=True))
        varies = np.max([part.std(axis=0) for part, _, _ in self._examples], axis=0) > 0
        names = [LAYOUT.names[row] for row in LAYOUT.text_rows[:-1]]
        similar = np.isin(names, _SIMILAR)
        scorer = NewToolScorer.fit(rows, right, weights, varies, similar)
        return scorer.with_share(self._wanted, share)


def _calibrate(chances: Sequence[Matrix], right: Sequence[Matrix]) -> Calibration:
    """By rankings of steps, each shape (steps, k), and which candidates were acceptable."""
    every, is_right = np.concatenate(chances).astype(np.float64), np.concatenate(right) > 0
    acceptable = (every * is_right).max(axis=1)
    best = every.argmax(axis=1)
    rows = np.arange(len(best))
    confidence = fit_isotonic(every[rows, best], is_right[rows, best].astype(np.float64))
    return Calibration(np.sort(acceptable), confidence)
