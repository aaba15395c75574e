"""One fit of dtdr-f: blocks without each fold and of all demonstrations, and the ranker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dtdr.data.progress import progress_bar
from dtdr.data.tools import Tool
from dtdr.rankers.dtdr_f.blocks import BLOCKS
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.familiarity import fit_threshold
from dtdr.rankers.dtdr_f.held_out import HeldOut
from dtdr.rankers.dtdr_f.model import FactoredModel
from dtdr.rankers.dtdr_f.ranker import uses_shortlist
from dtdr.rankers.selection import token_costs
from dtdr.text.encoders.base import Encoder

_NEW_TOOLS = 0.01
"""Probability of a tool that no plan calls, from which networks have outputs for all tools: .23
with 20 plans of T-Eval, .008 with 100. Among 20, validation MRR of the steps that want such a tool
is .47, and .37 with outputs for the others alone."""

_FOLDS = 3
"""Parts of the demonstrations that are held out in turn."""

FittedFold = dict[int, FactoredModel]
"""By the position of a demonstration, a model whose blocks and ranker have not seen it."""


def fit(
    tools: Sequence[Tool], encoded: EncodedDemonstrations, encoder: Encoder | None, seed: int
) -> tuple[FactoredModel, list[FittedFold]]:
    """Fit the blocks without each fold and with all demonstrations, and weigh them.

    Args:
        tools: the vocabulary.
        encoded: the demonstrations.
        encoder: whose vectors are read in addition to words; or None.
        seed: see ``DTDRFactored``.

    Returns:
        The model, and models of parts of the demonstrations.
    """
    fold = encoded.assign_folds(_FOLDS, seed)
    halves, everything = encoded.halves, np.arange(len(encoded))
    inside = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
    rest = [np.setdiff1d(everything, part) for part in inside]
    if len(inside) == 1 and not len(rest[0]):
        inside, rest = [], []
    # The ranker learns what the blocks of a fold say, so all counts are scaled to its size.
    reference = float(np.mean([len(part) for part in rest])) if rest else 0.0
    steps = sum(int(encoded.lengths[part].sum()) + len(part) for part in inside)
    share, seen = encoded.new_tool_share, None
    if not uses_shortlist(encoded.tools) and share > _NEW_TOOLS:
        seen = np.arange(encoded.tools)
    held = HeldOut(len(tools), steps, seed)
    with progress_bar("learning", (len(rest) + 1) * len(BLOCKS)) as advance:
        fit_blocks = partial(
            FactoredModel.fit, tools, reference=reference, seed=seed, seen=seen, advance=advance
        )
        fitted = []
        for part, others in zip(inside, rest, strict=True):
            fitted.append(fit_blocks(encoded.subset(others)))
            held.add(fitted[-1], encoded.subset(part), halves[part])
        whole = fit_blocks(encoded)
    # A tool without calls counts as half a call.
    model, rankers = held.learn(whole, max(share, 0.5 / (len(encoded.calls) + 1)))
    threshold = fit_threshold(
        encoded.columns["words"],
        encoded.groups,
        encoder,
        None if encoder is None else model.training.featurizer.further_vectors,
    )
    calibration = replace(
        model.calibration, tokens=token_costs(tools), familiarity_threshold=threshold
    )
    model = replace(model, encoder=encoder, calibration=calibration)
    folds = []
    for one, part in zip(fitted, inside, strict=True):
        own = replace(model, training=one.training, blocks=one.blocks)
        unseen = [replace(own, ranker=half) for half in rankers]
        folds.append({at: unseen[1 - halves[at]] for at in part.tolist()})
    return model, folds
