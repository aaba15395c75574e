"""Why dtdr-f gives a tool its probability: what each block adds, and similar demonstrations."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from dtdr.rankers.calibration import Floats
from dtdr.rankers.dtdr_f import candidate_ranker
from dtdr.rankers.dtdr_f.blocks import LAYOUT
from dtdr.rankers.dtdr_f.blocks.block import StepFeatures
from dtdr.rankers.dtdr_f.factored_model import FactoredModel
from dtdr.rankers.dtdr_f.queries import QueryFeatures
from dtdr.rankers.explanation import Contribution, Explanation, SimilarDemonstration
from dtdr.rankers.vectors import rows
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.words import words as words_of

_SIMILAR = 5
_TERMS = 4
_LEAST = 1e-300
"""The end of plan has probability 0 at some steps."""


def add_reasons(
    explanation: Explanation, model: FactoredModel, step: StepFeatures, query: str
) -> Explanation:
    """The explanation with contributions and similar demonstrations.

    A block is left out by giving its features, of every tool, the means that they had in training,
    which the ranker standardises to 0. What a block adds is what the log odds lose without it.
    """
    names = model.names
    tool, rival = names.index(explanation.tool), names.index(explanation.rival)
    similar = similar_demonstrations(model, step.query.features, query)
    whole = _log_odds(model.probabilities(step), tool, rival)
    contributions = []
    # Without a ranker, probabilities are those of some features, which count as they are.
    means = np.zeros(len(LAYOUT.names)) if model.ranker is None else model.ranker.mean
    written = step.write()
    for block, part in zip(model.blocks, LAYOUT.rows, strict=True):
        table = written.copy()
        table[part] = means[part, None]
        rest = model.probabilities(step, table)
        contributions.append(
            Contribution(
                block=block.name,
                about=block.about,
                adds=round(whole - _log_odds(rest, tool, rival), 6),
                probability_without=round(float(rest[tool]), 6),
                best_without=names[int(rest.argmax())],
            )
        )
    return replace(
        explanation,
        contributions=tuple(contributions),
        similar=similar,
        note=f"{explanation.note} {_note(model, step, tool)}".strip(),
    )


def _log_odds(probabilities: Floats, tool: int, rival: int) -> float:
    chance, other_chance = np.maximum(probabilities[[tool, rival]], _LEAST)
    return float(np.log(chance / other_chance))


def _note(model: FactoredModel, step: StepFeatures, tool: int) -> str:
    """A note that helps to read the contributions of a tool."""
    name, new = model.names[tool], model.training.new
    if model.new_tools is not None and tool in new:
        return (
            f"No demonstration calls {name!r}, so its name and description decide. Tools without "
            "demonstrations together get about the share that further runs give them."
        )
    if model.ranker is not None:
        split = candidate_ranker.shortlist(step.write(), new)
        if split is not None and tool not in split[0]:
            return (
                f"{name!r} is not among the {len(split[0])} candidates of this step, which share "
                "nearly all of the probability."
            )
    return ""


def similar_demonstrations(
    model: FactoredModel, query: QueryFeatures, text: str
) -> tuple[SimilarDemonstration, ...]:
    """The demonstrations whose words are most like those of the query."""
    vectors = model.training.featurizer.vectors
    columns, values = query.words
    query_row = np.zeros(vectors.shape[1], np.float32)
    query_row[columns] = values
    similarity = vectors @ query_row
    plans = model.training.data
    # The model keeps hashes; the words are those of the query.
    words = words_of(text[:MAX_CHARACTERS])
    terms = dict(
        zip(query.terms.tolist(), [*words, *(f"{a} {b}" for a, b in pairwise(words))], strict=True)
    )
    similar = []
    for plan in np.argsort(-similarity, kind="stable")[:_SIMILAR].tolist():
        if similarity[plan] <= 0:
            break
        ((shared, weights),) = rows(vectors[[plan]])
        weights = weights * query_row[shared]
        best = [terms[shared[at]] for at in np.argsort(-weights) if weights[at] > 0]
        # A word that is in one of the pairs is not said again.
        within = {word for term in best if " " in term for word in term.split()}
        similar.append(
            SimilarDemonstration(
                id=plans.id(plan),
                similarity=round(min(float(similarity[plan]), 1.0), 4),
                tools=tuple(model.names[tool] for tool in plans.calls_as_made(plan) if tool >= 0),
                terms=tuple(term for term in best if term not in within)[:_TERMS],
            )
        )
    return tuple(similar)
