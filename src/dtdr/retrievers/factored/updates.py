"""Further demonstrations for fitted blocks, and tools that come, go or change their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dtdr.retrievers.factored.blocks.base import PlanUpdate, TrainingSet
from dtdr.retrievers.factored.encoded_plans import REMOVED, EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.familiarity import Hashes
from dtdr.retrievers.factored.fitted_blocks import REPLAY, FittedBlocks
from dtdr.retrievers.factored.query_features import ReplayBuffer
from dtdr.retrievers.factored.tool_texts import ToolTexts, documents_of
from dtdr.retrievers.nn import Indices
from dtdr.tools import Tool

_ENOUGH = 32
"""Demonstrations that networks wait for. Learning each alone cost .004 (T-Eval) to .001 (TinyAgent)
of validation MRR and five times as long."""
_GROWTH = 1.15
"""Demonstrations that have become so many times as many train networks anew: beside a few more
passes over what is new, T-Eval's validation MRR stayed behind that of a refit."""
_AGAIN = 3
"""Earlier demonstrations learned again for each new one. Without any, validation MRR fell by .008
on TinyAgent below what it was before the update."""


def apply_update(
    fitted: FittedBlocks,
    texts: Sequence[str],
    plans: EncodedPlans,
    runs: EncodedRuns | None,
    *,
    phrases: Hashes,
    decay: float,
    seed: int,
) -> FittedBlocks:
    """The blocks after further plans, without a refit.

    Everything that is counted counts them at once, and the weights of words, new ones too, learn
    from each. Networks wait for ``_ENOUGH`` of them, and learn them together with earlier ones;
    they are trained anew each time that the demonstrations have grown by ``_GROWTH``, as long as
    the replay buffer holds all of them.

    Args:
        fitted: stays as it is.
        texts: the further queries.
        plans: their plans, in the vocabulary of ``fitted``.
        runs: what else is known of them; not read by blocks that were fitted on names alone.
        phrases: rising; hashes of the pairs of words that earlier queries held.
        decay: how much the earlier plans count from now on.
        seed: order of the examples and what is dropped.
    """
    fitted = _with_words_of(_with_outputs_for(fitted, plans), texts, phrases)
    before, rng = fitted.training, np.random.default_rng(seed)
    queries = before.featurizer.read_all(texts)
    replay = fitted.replay.add(len(before.plans), queries, runs)
    everything = before.plans.concatenate(plans, decay)
    pending = fitted.pending + len(texts)
    rehearsal, has_grown = None, False
    if pending >= _ENOUGH:
        rehearsal = _draw_rehearsal(replay, len(everything) - pending, pending, rng)
        has_grown = len(everything) >= _GROWTH * fitted.trained
    training = replace(
        before, plans=everything, queries=replay.queries, seed=seed, runs=replay.runs
    )
    update = PlanUpdate(training, plans, queries, replay, rehearsal, has_grown)
    blocks = [block.update(update) for block in fitted.blocks]
    trained = len(everything) if update.is_refit else fitted.trained
    if rehearsal is not None:
        replay, pending = replay.sample(rng, REPLAY), 0
    training = replace(training, queries=replay.queries, runs=replay.runs)
    return FittedBlocks(training, blocks, replay, pending, trained)


def _draw_rehearsal(
    replay: ReplayBuffer, first_new: int, pending: int, rng: np.random.Generator
) -> Indices:
    """Positions of what is new, and of some that is known."""
    is_new = replay.plans >= first_new
    again = np.flatnonzero(~is_new)
    if len(again) > _AGAIN * pending:
        again = rng.choice(again, _AGAIN * pending, replace=False)
    return np.sort(np.concatenate([again, np.flatnonzero(is_new)]))


def _with_outputs_for(fitted: FittedBlocks, plans: EncodedPlans) -> FittedBlocks:
    """With outputs for tools that plans call for the first time."""
    before = fitted.training
    seen = np.union1d(before.seen, plans.seen).astype(np.intp)
    if len(seen) == len(before.seen):
        return fitted
    return _renumber(fitted, replace(before, seen=seen), before.slots[seen])


def _with_words_of(fitted: FittedBlocks, texts: Sequence[str], phrases: Hashes) -> FittedBlocks:
    """With weights for words that no query held yet, and for pairs that are held again."""
    before = fitted.training
    featurizer = before.featurizer.with_queries(texts, phrases)
    if featurizer is before.featurizer:
        return fitted
    first, words = before.featurizer.words.dimension, featurizer.words.dimension
    replay = replace(fitted.replay, queries=fitted.replay.queries.widen(words))
    training = replace(before, featurizer=featurizer, queries=replay.queries)
    blocks = [block.widen(training, first, words - first) for block in fitted.blocks]
    return FittedBlocks(training, blocks, replay, fitted.pending, fitted.trained)


def change_tools(
    fitted: FittedBlocks, tools: Sequence[Tool], position: Sequence[int]
) -> FittedBlocks:
    """The same blocks for another vocabulary.

    Args:
        fitted: stays as it is.
        tools: the new vocabulary, end of plan last.
        position: for each old tool its index among the new ones, or ``REMOVED``.
    """
    before = fitted.training
    moved = np.array(position, np.intp)[before.seen]
    remaining = np.flatnonzero(moved != REMOVED)
    slots = remaining[np.argsort(moved[remaining])]
    featurizer = before.featurizer.with_documents(documents_of(tools))
    training = replace(
        before,
        tools=ToolTexts(tools, featurizer.stems),
        featurizer=featurizer,
        plans=before.plans.renumber(position, len(tools)),
        seen=moved[slots],
        runs=None,
    )
    changed = _renumber(fitted, training, slots)
    runs = fitted.replay.runs
    if runs is not None:
        changed.replay = replace(changed.replay, runs=runs.renumber(position))
    return changed


def _renumber(fitted: FittedBlocks, training: TrainingSet, slots: Indices) -> FittedBlocks:
    blocks = [block.renumber(training, slots) for block in fitted.blocks]
    return FittedBlocks(training, blocks, fitted.replay, fitted.pending, fitted.trained)
