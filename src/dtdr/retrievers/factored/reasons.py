"""Why dtdr-f gives a tool its probability: what each block adds, and similar demonstrations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import factorial

import numpy as np
import numpy.typing as npt

from dtdr.explanation import Contribution, Explanation, SimilarDemonstration
from dtdr.retrievers.factored import ranker
from dtdr.retrievers.factored.fitted_blocks import FittedBlocks
from dtdr.retrievers.factored.layout import Layout
from dtdr.retrievers.factored.model import FactoredModel
from dtdr.retrievers.factored.query_features import QueryFeatures
from dtdr.retrievers.factored.step_features import StepFeatures
from dtdr.retrievers.nn import Matrix

_SIMILAR = 5
_TERMS = 4


def add_reasons(
    explanation: Explanation, model: FactoredModel, step: StepFeatures, query: str
) -> Explanation:
    """The explanation with contributions and similar demonstrations.

    A block is left out by giving its features, of every tool, the means that they had in training,
    which the ranker standardises to 0. What a block adds is its Shapley value (Shapley 1953, "A
    value for n-person games"), computed exactly from all sets of blocks.
    """
    names = model.names
    tool, rival = names.index(explanation.tool), names.index(explanation.rival)
    values, note = _contributions(model, step, tool, rival)
    text = step.query.features.text.text
    if not query.startswith(text):  # of a long query only the beginning is read
        note = f'{note} Ranked by what the query says in words of the demonstrations: "{text}"'
    contributions = []
    means, described = _means(model, step)
    for number, (block, value) in enumerate(zip(model.blocks.blocks, values, strict=False)):
        probabilities = model.probabilities(step.without(number, means, described))
        contributions.append(
            Contribution(
                block=block.name,
                about=block.about,
                adds=round(value, 6),
                probability_without=round(float(probabilities[tool]), 6),
                best_without=names[int(probabilities.argmax())],
            )
        )
    return replace(
        explanation,
        contributions=tuple(contributions),
        similar=similar_demonstrations(model.blocks, step.query.features),
        note=f"{explanation.note} {note}".strip(),
    )


def _means(model: FactoredModel, step: StepFeatures) -> tuple[Matrix, Matrix]:
    """What features are where their block is left out, of known tools and of new ones."""
    rankers = model.rankers_of(step)
    # Without a ranker, probabilities are those of one feature, which counts as it is.
    means = rankers[0].parameters["mean"] if rankers else np.zeros(len(step.layout.names))
    new = model.new_tools
    described = np.zeros(len(step.layout.new_tool_names)) if new is None else new.parameters["mean"]
    return means.astype(np.float32), described.astype(np.float32)


def _contributions(
    model: FactoredModel, step: StepFeatures, tool: int, rival: int
) -> tuple[list[float], str]:
    """What each block adds to a tool against its rival, and what has to be said of that."""
    layout, view = step.layout, step.query.view
    name, other = model.names[tool], model.names[rival]
    columns = [at if view.places is None else view.places.get(at, -1) for at in (tool, rival)]
    means, described = _means(model, step)
    table = step.write()
    if columns[0] < 0:
        return [], (
            f"Among so many tools a query keeps {view.size} in view, and {name!r} is not one of "
            "them: nothing in the query speaks for it."
        )
    ranked = model.new_to_rankers(view)
    by_texts = view.new[: 0 if len(ranked) else None]
    if model.new_tools is not None and columns[0] in by_texts:
        rows = step.describe(np.array(columns[:1]))[:-1, 0]
        values = shapley_values(layout.new_tool_rows, rows, described, model.new_tools.logits)
        return values, (
            f"No demonstration calls {name!r}, so its name and description decide: the blocks add "
            "to the logarithm of its odds, whatever the other tools are."
        )
    note = ""
    chosen, _ = ranker.shortlist(layout, table, ranked)
    if chosen is not None and columns[0] not in chosen:
        note = (
            f"{name!r} is not among the {len(chosen)} candidates of this step, which share nearly "
            "all of the probability; the blocks are weighed as if it were."
        )
    rows = table[:-1, columns[0]].copy()
    if columns[1] < 0 or columns[1] in by_texts:
        against = means
        note = f"{note} {other!r} is not ranked by the blocks; an average tool stands for it."
    else:
        against = table[:-1, columns[1]].copy()
    score = _score(model, step, layout)
    own = shapley_values(layout.rows, rows, means, score)
    theirs = shapley_values(layout.rows, against, means, score)
    return [one - two for one, two in zip(own, theirs, strict=True)], note.strip()


def _score(model: FactoredModel, step: StepFeatures, layout: Layout) -> Callable[[Matrix], Matrix]:
    scorer = model.scorer(step)
    if scorer is not None:
        return scorer.scores
    prior = 0 if layout.prior is None else layout.prior
    return lambda table: table[prior]


def shapley_values(
    rows: list[slice], features: Matrix, means: Matrix, score: Callable[[Matrix], Matrix]
) -> list[float]:
    """What each block adds to a score: the mean over all orders in which blocks come in.

    Args:
        rows: of each of the n blocks.
        features: shape (features,): of the tool.
        means: shape (features,): what they are where their block is left out.
        score: of columns, shape (features + 1, columns), whose last row is ones.

    Returns:
        One a block; they sum to the score of the features less that of the means.
    """
    blocks = len(rows)
    sets = np.arange(1 << blocks)
    table = np.ones((len(features) + 1, len(sets)), np.float32)
    table[:-1] = means[:, None]
    has: list[npt.NDArray[np.bool_]] = []
    for block, part in enumerate(rows):
        has.append((sets >> block) & 1 == 1)
        table[part, has[-1]] = features[part, None]
    scores = score(table).astype(np.float64)
    size = np.sum(has, axis=0)
    # Of all orders, so many have exactly the blocks of a set before the next one.
    weight = np.array(
        [factorial(k) * factorial(blocks - k - 1) / factorial(blocks) for k in range(blocks)]
    )
    values = []
    for block in range(blocks):
        outside = sets[~has[block]]
        gain = scores[outside | (1 << block)] - scores[outside]
        values.append(float(weight[size[outside]] @ gain))
    return values


def similar_demonstrations(
    blocks: FittedBlocks, query: QueryFeatures
) -> tuple[SimilarDemonstration, ...]:
    """The demonstrations of the replay buffer whose words are most like those of the query."""
    replay, plans = blocks.replay, blocks.training.plans
    vectors = replay.queries.word_vectors
    columns, values = query.words
    own = np.zeros(vectors.shape[1], np.float32)
    own[columns] = values
    similarity = vectors @ own
    best = np.argsort(-similarity, kind="stable")[:_SIMILAR]
    terms = list(blocks.training.featurizer.words.vocabulary_)
    names = [tool.name for tool in blocks.training.tools.tools]
    similar = []
    for place in best:
        if similarity[place] <= 0:
            break
        part = slice(vectors.indptr[place], vectors.indptr[place + 1])
        weights = vectors.data[part] * own[vectors.indices[part]]
        shared = [
            terms[vectors.indices[part][at]] for at in np.argsort(-weights) if weights[at] > 0
        ]
        position = int(replay.plans[place])
        similar.append(
            SimilarDemonstration(
                position=position,
                similarity=round(min(float(similarity[place]), 1.0), 4),
                tools=tuple(names[tool] for tool in plans.plan(position) if tool >= 0),
                terms=_longest(shared)[:_TERMS],
            )
        )
    return tuple(similar)


def _longest(terms: list[str]) -> tuple[str, ...]:
    """The terms without words that stand in one of the pairs."""
    within = {word for term in terms if " " in term for word in term.split()}
    return tuple(term for term in terms if term not in within)
