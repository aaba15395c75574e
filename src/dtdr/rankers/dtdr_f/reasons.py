"""Why dtdr-f gives a tool its probability: what each block adds, and similar demonstrations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f import ranker
from dtdr.rankers.dtdr_f.model import FactoredModel
from dtdr.rankers.dtdr_f.queries import QueryFeatures
from dtdr.rankers.dtdr_f.step_features import StepFeatures
from dtdr.rankers.explanation import Contribution, Explanation, SimilarDemonstration
from dtdr.rankers.nn import Matrix
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.encoders.lexical import words as words_of

_SIMILAR = 5
_TERMS = 4


def add_reasons(
    explanation: Explanation, model: FactoredModel, step: StepFeatures, query: str
) -> Explanation:
    """The explanation with contributions and similar demonstrations.

    A block is left out by giving its features, of every tool, the means that they had in training,
    which the ranker standardises to 0. What a block adds is what the log odds lose without it.
    """
    names = model.names
    tool, rival = names.index(explanation.tool), names.index(explanation.rival)
    values, note = _contributions(model, step, tool, rival)
    contributions = []
    means = _means(model)
    for number, (block, value) in enumerate(zip(model.blocks.blocks, values, strict=False)):
        probabilities = model.probabilities(step.without(number, means))
        contributions.append(
            Contribution(
                block=block.name,
                about=block.about,
                adds=round(float(value), 6),
                probability_without=round(float(probabilities[tool]), 6),
                best_without=names[int(probabilities.argmax())],
            )
        )
    return replace(
        explanation,
        contributions=tuple(contributions),
        similar=similar_demonstrations(model, step.query.features, query),
        note=f"{explanation.note} {note}".strip(),
    )


def _means(model: FactoredModel) -> Matrix:
    """What features are where their block is left out."""
    # Without a ranker, probabilities are those of some features, which count as they are.
    if model.ranker is None:
        return np.zeros(len(model.blocks.layout.names), np.float32)
    return model.ranker.parameters["mean"]


def _contributions(
    model: FactoredModel, step: StepFeatures, tool: int, rival: int
) -> tuple[npt.NDArray[np.float64], str]:
    """What each block adds to a tool against its rival, and what has to be said of that."""
    layout, view = step.layout, step.query.view
    name, other = model.names[tool], model.names[rival]
    columns = [at if view.places is None else view.places.get(at, -1) for at in (tool, rival)]
    means, table = _means(model), step.write()
    if columns[0] < 0:
        return np.zeros(0), (
            f"With this many tools, a query keeps {view.size} in view, and {name!r} is not one of "
            "them: nothing in the query speaks for it."
        )
    if model.new_tools is not None and columns[0] in view.new:
        text_rows = layout.text_rows[:-1]
        scorer = model.new_tools

        def score(full: Matrix) -> Matrix:
            return scorer.logits(full[layout.text_rows])

        base = means.copy()
        base[text_rows] = scorer.parameters["mean"]
        values = losses_without_each(layout.rows, table[:-1, columns[0]].copy(), base, score)
        return values, (
            f"No demonstration calls {name!r}, so its name and description decide: the blocks add "
            "to the logarithm of its odds, whatever the other tools are. Tools without "
            "demonstrations together get about the share that further runs give them."
        )
    note = ""
    chosen = None
    if model.ranker is not None:
        chosen, _ = ranker.shortlist(layout, table, view.new)
    if chosen is not None and columns[0] not in chosen:
        note = (
            f"{name!r} is not among the {len(chosen)} candidates of this step, which share nearly "
            "all of the probability; the blocks are weighed as if it were."
        )
    rows = table[:-1, columns[0]].copy()
    if columns[1] < 0 or (model.new_tools is not None and columns[1] in view.new):
        against = means
        note = f"{note} {other!r} is not ranked by the blocks; an average tool takes its place."
    else:
        against = table[:-1, columns[1]].copy()
    own = losses_without_each(layout.rows, rows, means, model.weights)
    theirs = losses_without_each(layout.rows, against, means, model.weights)
    return own - theirs, note.strip()


def losses_without_each(
    rows: list[slice], features: Matrix, means: Matrix, score: Callable[[Matrix], Matrix]
) -> npt.NDArray[np.float64]:
    """What a score loses without each block, the others as they are.

    Args:
        rows: of each of the n blocks.
        features: shape (features,): of the tool.
        means: shape (features,): what they are where their block is left out.
        score: of columns, shape (features + 1, columns), whose last row is ones.

    Returns:
        Shape (n,).
    """
    table = np.ones((len(features) + 1, len(rows) + 1), np.float32)
    table[:-1] = features[:, None]
    for block, part in enumerate(rows):
        table[part, block] = means[part]
    scores = score(table).astype(np.float64)
    losses: npt.NDArray[np.float64] = scores[-1] - scores[:-1]
    return losses


def similar_demonstrations(
    model: FactoredModel, query: QueryFeatures, text: str
) -> tuple[SimilarDemonstration, ...]:
    """The demonstrations whose words are most like those of the query."""
    featurizer, plans = model.blocks.training.featurizer, model.encoded.plans
    vectors = featurizer.vectors
    columns, values = query.words
    own = np.zeros(vectors.shape[1], np.float32)
    own[columns] = values
    similarity = vectors @ own
    # The model keeps hashes; the words are those of the query.
    words = words_of(text[:MAX_CHARACTERS])
    terms = dict(
        zip(query.terms.tolist(), [*words, *(f"{a} {b}" for a, b in pairwise(words))], strict=True)
    )
    similar = []
    for place in np.argsort(-similarity, kind="stable")[:_SIMILAR].tolist():
        if similarity[place] <= 0:
            break
        part = slice(vectors.indptr[place], vectors.indptr[place + 1])
        shared = vectors.indices[part]
        weights = vectors.data[part] * own[shared]
        best = [terms[shared[at]] for at in np.argsort(-weights) if weights[at] > 0]
        similar.append(
            SimilarDemonstration(
                position=place,
                similarity=round(min(float(similarity[place]), 1.0), 4),
                tools=tuple(model.names[tool] for tool in plans.plan(place) if tool >= 0),
                terms=_longest(best)[:_TERMS],
            )
        )
    return tuple(similar)


def _longest(terms: list[str]) -> tuple[str, ...]:
    """The terms without words that are in one of the pairs."""
    within = {word for term in terms if " " in term for word in term.split()}
    return tuple(term for term in terms if term not in within)
