"""One fit of dtdr-f: blocks without each fold and of all demonstrations, and the ranker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from dtdr.data.progress import track
from dtdr.data.tools import Tool
from dtdr.rankers.dtdr_f import candidate_ranker
from dtdr.rankers.dtdr_f.blocks import LAYOUT
from dtdr.rankers.dtdr_f.blocks.block import StepFeatures
from dtdr.rankers.dtdr_f.candidate_ranker import CandidateRanker, RankerFit, Steps
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.encoding import text_of
from dtdr.rankers.dtdr_f.factored_model import FactoredModel
from dtdr.rankers.dtdr_f.familiarity import fit_threshold
from dtdr.rankers.dtdr_f.hand_over import LEAST_STEPS, ZeroShotColumns, calibrate
from dtdr.rankers.dtdr_f.new_tools import NewToolScorer, draw_example
from dtdr.rankers.dtdr_f.observations import NO_CONTEXT
from dtdr.rankers.dtdr_f.outcomes import NO_OUTCOME
from dtdr.rankers.dtdr_f.run_tools import RunTools
from dtdr.rankers.dtdr_f.values import NO_VALUES
from dtdr.rankers.nn import Indices, Matrix
from dtdr.rankers.selection import token_costs
from dtdr.rankers.zero_shot.model import ZeroShotModel
from dtdr.text.encoders.base import Encoder

_NEW_TOOLS = 0.01
"""Probability of a tool that no plan calls, from which networks have outputs for all tools: .23
with 20 plans of T-Eval, .008 with 100. Among 20, validation MRR of the steps that want such a tool
is .47, and .37 with outputs for the others alone."""
_FOLDS = 3
"""Parts of the demonstrations that are held out in turn, at most; see ``divide``."""
_NEW_TOOL_STEPS = 2_000
"""Steps whose tools the scorer of new tools learns from: it weighs only a dozen features."""
_CALIBRATED = 2_000
"""Held-out steps that probabilities are calibrated on, drawn where there are more: each is also
ranked without demonstrations."""
_MOST_NEW = 1_024
"""New tools up to which the features of each of these steps are kept; with more, of fewer steps."""
_REWORDED_EVERY = 8
"""Every 8th plan is also ranked with masked words."""
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.9
"""Share of the words that are masked in such a query."""
_STATE_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
_NO_SHARE = 1e-6
_APART, _AS_KNOWN = 1, 2
"""Kinds of a step: the blocks saw no plan of its group; all that is known of its run was read.
Steps of both kinds say how good rankings of further runs are."""
_SIMILAR = ("similarity", "relative_similarity", "described_here", "described_ahead")
"""Features that compare the text of a tool with the query."""

FittedFold = dict[int, FactoredModel]
"""By the position of a demonstration, a model whose blocks and ranker have not seen it."""


def fit(
    tools: Sequence[Tool], encoded: EncodedDemonstrations, encoder: Encoder | None, seed: int
) -> tuple[FactoredModel, list[FittedFold]]:
    """Fit the blocks without each fold and with all demonstrations, and weigh them.

    Returns:
        The model, and models of parts of the demonstrations.
    """
    fold = encoded.assign_folds(_FOLDS, seed)
    halves, everything = encoded.halves, np.arange(len(encoded))
    apart = encoded.held_apart(fold)
    inside = [np.flatnonzero(fold == index) for index in range(int(fold.max()) + 1)]
    rest = [np.setdiff1d(everything, part) for part in inside]
    if len(inside) == 1 and not len(rest[0]):
        inside, rest = [], []
    # The ranker learns what the blocks of a fold say, so all counts are scaled to its size.
    reference = float(np.mean([len(part) for part in rest])) if rest else 0.0
    steps = int((encoded.lengths[fold >= 0] + 1).sum())
    share, seen = encoded.new_tool_share, None
    if not candidate_ranker.uses_shortlist(encoded.tools) and share > _NEW_TOOLS:
        seen = np.arange(encoded.tools)
    zero_shot = ZeroShotModel(tools)
    held = _HeldOutSteps(len(tools), steps, seed)
    *fitted, whole = (
        FactoredModel.fit(zero_shot, part, reference=reference, seed=seed, seen=seen)
        for part in track([*map(encoded.subset, rest), encoded], "learning", len(rest) + 1)
    )
    for model, part in zip(fitted, inside, strict=True):
        held.add(model, encoded.subset(part), halves[part], apart[part])
    # A tool without calls counts as half a call.
    model, rankers = held.learn(whole, max(share, 0.5 / (len(encoded.calls) + 1)))
    names = [tool.name for tool in tools]
    model = replace(model, run_tools=RunTools.fit(encoded, names, seed))
    vectors = model.training.featurizer.further_vectors
    threshold = fit_threshold(encoded.columns["words"], encoded.groups, vectors, encoder)
    calibration = replace(
        model.calibration, tokens=token_costs(tools), familiarity_threshold=threshold
    )
    model = replace(model, encoder=encoder, calibration=calibration)
    folds = []
    for from_fold, part in zip(fitted, inside, strict=True):
        fold_model = replace(model, training=from_fold.training, blocks=from_fold.blocks)
        unseen = [replace(fold_model, ranker=half) for half in rankers]
        folds.append({at: unseen[1 - halves[at]] for at in part.tolist()})
    return model, folds


class _HeldOutSteps:
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
        self._zero_shot: list[Callable[[], ZeroShotColumns]] = []
        """Gives those of a step; few steps are asked for theirs."""
        self._steps: list[tuple[int, bool, int, Matrix, Matrix, npt.NDArray[np.bool_]]] = []
        """The half of a step's plan, whether its query was read with unknown words, ``_APART`` and
        ``_AS_KNOWN``, and of its k candidates the features, shape (k, features), 1 where it is
        acceptable, shape (k,), and whether the run was not offered it, shape (k,)."""

    def add(
        self,
        fitted: FactoredModel,
        encoded: EncodedDemonstrations,
        halves: Indices,
        apart: npt.NDArray[np.bool_],
    ) -> None:
        """The steps of some plans, with blocks that were fitted without them.

        If the runs have outputs, every other plan is also ranked by names alone, because a model
        does not receive the outputs of every run that it ranks. ``halves`` and ``apart``, whether
        the blocks have seen no plan of its group, have shape (plans,).
        """
        self._add(fitted, encoded, halves, apart)
        if not encoded.has_names_only:
            other = np.arange(0, len(encoded), 2)
            some = encoded.subset(other), halves[other], apart[other]
            self._add(fitted, *some, names_only=True)
        with_text = np.unique(encoded.columns["calls"].owner[encoded.texts.sizes > 0])
        if len(with_text):
            some = encoded.subset(with_text), halves[with_text], apart[with_text]
            self._add(fitted, *some, with_text=True)
        reworded = np.arange(0, len(encoded), _REWORDED_EVERY)
        some = encoded.subset(reworded), halves[reworded], apart[reworded]
        self._add(fitted, *some, is_reworded=True)

    def _add(
        self,
        fitted: FactoredModel,
        encoded: EncodedDemonstrations,
        halves: Indices,
        apart: npt.NDArray[np.bool_],
        *,
        names_only: bool = False,
        is_reworded: bool = False,
        with_text: bool = False,
    ) -> None:
        new, text_rows = fitted.training.new, LAYOUT.text_rows
        for plan, steps in groupby(encoded.steps(), attrgetter("plan")):
            text = text_of(encoded.columns, plan)
            if is_reworded:
                text = text.reworded(self._rng, self._rng.uniform(_LEAST_SHARE, _MOST_SHARE))
            query = fitted.training.featurizer.read(text)
            context = NO_CONTEXT if names_only else encoded.contexts[plan]
            values = NO_VALUES if names_only else encoded.query_values[plan]
            features = StepFeatures(fitted.prepare_features(query, context, values))
            parallel, outcomes = encoded.columns["parallel"][plan], encoded.outcomes[plan]
            for step in steps:
                for at in range(features.calls, len(step.history)):
                    features.call(
                        step.history[at],
                        NO_OUTCOME if names_only else outcomes[at],
                        is_parallel=bool(parallel[at]),
                    )
                at = encoded.starts[plan] + len(step.history)
                if with_text and at < encoded.starts[plan + 1]:
                    features.say(encoded.texts[at])
                table = features.write()
                right = np.zeros(table.shape[1], np.float32)
                right[list(step.acceptable)] = 1
                absent = (right == 0) & (False if encoded.absent is None else encoded.absent[plan])
                is_drawn = not is_reworded and self._rng.random() < self._new_tool_share
                if is_drawn and len(right) > 2:
                    known = np.flatnonzero(right[:-1])
                    self._examples.append(draw_example(self._rng, table[text_rows], known))
                    if len(new) and len(self._examples) % (1 + len(new) // _MOST_NEW) == 0:
                        wanted = float(right[new].sum() / max(right.sum(), 1))
                        self._wanted.append((table[np.ix_(text_rows, new)], wanted))
                all_right = right
                split = candidate_ranker.shortlist(table, np.append(new, np.flatnonzero(absent)))
                candidates = None if split is None else split[0]
                columns = partial(
                    ZeroShotColumns.of, features.zero_shot, fitted.hand_over, candidates, all_right
                )
                self._zero_shot.append(columns)
                if candidates is not None:
                    table, right, absent = (
                        table[:, candidates],
                        right[candidates],
                        absent[candidates],
                    )
                kind = _APART * bool(apart[plan]) + _AS_KNOWN * (
                    not names_only and not is_reworded and not with_text
                )
                rows = table[:-1].T.copy()
                self._steps.append((int(halves[plan]), is_reworded, kind, rows, right, absent))

    def learn(
        self, model: FactoredModel, new_tool_share: float
    ) -> tuple[FactoredModel, list[CandidateRanker | None]]:
        """A model with a ranker, and how far its probabilities can be trusted.

        Returns:
            The model, and rankers that learned from either half of the plans; None where too
            little was demonstrated.
        """
        model = replace(
            model,
            new_tools=self._new_tools(new_tool_share),
            calibration=model.zero_shot.calibration,
        )
        checks: list[CandidateRanker | None] = [None, None]
        if not any(right.any() for *_, right, _ in self._steps):
            return model, checks
        half, is_reworded, kind, features, right, absent = map(
            np.array, zip(*self._steps, strict=True)
        )
        steps = Steps.of(features, right, absent)
        del features  # as large as what follows
        usable: npt.NDArray[np.bool_] = right.max(axis=1) > 0
        mix = (1.0, 1.0)
        calibration = model.zero_shot.calibration
        if all((usable & (half == side)).any() for side in (0, 1)):
            of_halves = [usable & (half == side) for side in (0, 1)]
            fits = [self._fit(steps.part(rows)) for rows in of_halves]
            others = _enough([rows & (kind & _APART > 0) for rows in of_halves], of_halves)
            mix = candidate_ranker.choose_mix(fits, [steps.part(rows) for rows in others[::-1]])
            checks = [fit.mix(*mix) for fit in fits]
            known = [(half != side) & ~is_reworded for side in (0, 1)]
            honest = [rows & (kind == _APART + _AS_KNOWN) for rows in known]
            unseen = list(map(np.flatnonzero, _enough(honest, known)))
            parts = [steps.part(rows) for rows in unseen]
            chances = np.concatenate([fits[n].chances(parts[n], *mix) for n in (0, 1)])
            by_state = np.concatenate([_of_state(part) for part in parts])
            unseen_right = right[np.concatenate(unseen)]
            share = _choose_share(chances, by_state, unseen_right > 0)
            chances += np.float32(share) * np.where(
                by_state.any(axis=1, keepdims=True), by_state - chances, 0
            )
            drawn = np.arange(len(chances))
            if len(drawn) > _CALIBRATED:
                drawn = np.sort(self._rng.choice(drawn, _CALIBRATED, replace=False))
            held = [self._zero_shot[at]() for at in np.concatenate(unseen)[drawn].tolist()]
            some = chances[drawn], unseen_right[drawn]
            calibration = calibrate(*some, held, model.hand_over, new_tool_share)
            model = replace(model, state_share=share)
        whole = self._fit(steps.part(usable)).mix(*mix)
        return replace(model, ranker=whole, calibration=calibration), checks

    def _fit(self, steps: Steps) -> RankerFit:
        return RankerFit.of(steps, LAYOUT.prior, tools=self._tools, seed=self._seed)

    def _new_tools(self, share: float) -> NewToolScorer | None:
        """Fit a scorer of tools as if they had no demonstrations; None without any."""
        if not any(right.any() for _, right, _ in self._examples):
            return None
        names = [LAYOUT.names[row] for row in LAYOUT.text_rows]
        scorer = NewToolScorer.fit(self._examples, np.isin(names, _SIMILAR))
        return scorer.with_share(self._wanted, share)


def _of_state(steps: Steps) -> Matrix:
    """The probabilities of the candidates by the block ``state`` alone; shape (steps, k)."""
    at = LAYOUT.state
    shares = np.full(steps.right.shape, steps.standard["mean"][at])
    for column in np.flatnonzero(steps.varying == at):
        shares += steps.features[:, :, column] * steps.standard["scale"][at]
    shares[(shares < _NO_SHARE) | (steps.penalty < 0)] = 0
    return shares


def _choose_share(chances: Matrix, by_state: Matrix, right: npt.NDArray[np.bool_]) -> float:
    """The weight of ``by_state`` in a mean with ``chances`` that is likeliest; all (steps, k)."""
    known = by_state.any(axis=1) & right.any(axis=1)
    if not known.any():
        return 0.0
    ranker, state = ((part * right)[known].sum(axis=1) for part in (chances, by_state))
    means = [
        float(np.log(np.maximum((1 - share) * ranker + share * state, 1e-6)).mean())
        for share in _STATE_SHARES
    ]
    return _STATE_SHARES[int(np.argmax(means))]


def _enough(
    some: list[npt.NDArray[np.bool_]], all_steps: list[npt.NDArray[np.bool_]]
) -> list[npt.NDArray[np.bool_]]:
    """Some of the steps of each half if they are enough to measure on, else all."""
    return some if min(int(rows.sum()) for rows in some) >= LEAST_STEPS else all_steps
