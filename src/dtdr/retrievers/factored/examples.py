"""Queries as the encoders read them, and what the two networks are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from dtdr.encoders.base import Encoder
from dtdr.encoders.lexical import LexicalEncoder
from dtdr.retrievers.factored.history import history_features, history_width
from dtdr.retrievers.factored.network import Examples, stack_rows
from dtdr.retrievers.factored.plans import FORGOTTEN, PlanLog
from dtdr.retrievers.factored.text import (
    Reading,
    ShapeEncoder,
    StemEncoder,
    cues,
    shape_terms,
    stem,
)

Array = npt.NDArray[Any]
Row = tuple[Array, Array]
Encoders = tuple[LexicalEncoder, ShapeEncoder, StemEncoder]

NEED_LEVELS = 4
"""The need network says how likely a plan calls a tool at least once, twice, … so many times."""
_SMOOTHING = 0.02
"""Label smoothing: a plan that was not recorded can be as good."""


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query as the encoders read it.

    Attributes:
        reading: the query taken apart.
        terms: columns of its words and then of the pairs of neighbours, -1 where unknown.
        stems: columns of the stems of its words, -1 where unknown.
        row: columns and values of the words' vector.
        joined: columns and values of the vectors of words and shapes, side by side.
        cues: counts, and the vector of a further encoder where there is one.
    """

    reading: Reading
    terms: list[int]
    stems: list[int]
    row: Row
    joined: Row
    cues: Array


@dataclass(frozen=True, slots=True)
class Texts:
    """Many queries as the encoders read them.

    Attributes:
        rows: shape (queries, words + shapes), sparse.
        cues: shape (queries, cues).
    """

    rows: csr_array
    cues: Array

    def words(self, columns: int) -> csr_array:
        """The part of ``rows`` that are words."""
        return csr_array(self.rows[:, :columns])

    def subset(self, positions: Array) -> Texts:
        """The queries at some positions."""
        return Texts(csr_array(self.rows[positions]), self.cues[positions])

    def joined(self, other: Texts) -> Texts:
        """These queries and the others."""
        rows = vstack([self.rows, other.rows], format="csr")
        return Texts(csr_array(rows), np.concatenate([self.cues, other.cues]))


@dataclass(frozen=True, slots=True)
class Memory:
    """Demonstrations that are learned again beside new ones, lest they be forgotten.

    Attributes:
        plans: shape (n,), rising: their numbers in the log.
        texts: their queries.
    """

    plans: Array
    texts: Texts

    def chosen(self, rng: np.random.Generator, most: int) -> Memory:
        """At most so many of them, drawn evenly."""
        if len(self.plans) <= most:
            return self
        kept = np.sort(rng.choice(len(self.plans), most, replace=False))
        return Memory(self.plans[kept], self.texts.subset(kept))


def read_one(encoders: Encoders, encoder: Encoder | None, text: str) -> QueryText:
    """What one query says to the encoders."""
    words, shapes, stem_encoder = encoders
    reading = Reading.of(text)
    found = reading.words
    terms = words.columns(found + [f"{one} {two}" for one, two in pairwise(found)])
    row = words.row(terms)
    shape = shapes.row(shapes.columns(shape_terms(reading.shape)))
    columns = np.concatenate([row[0], shape[0] + words.dimension])
    counted = cues(reading)
    if encoder is not None:
        counted = np.concatenate([counted, _dense(encoder.encode([text]))[0]])
    stems = stem_encoder.columns(map(stem, found))
    return QueryText(
        reading, terms, stems, row, (columns, np.concatenate([row[1], shape[1]])), counted
    )


def read_all(encoders: Encoders, encoder: Encoder | None, texts: Sequence[str]) -> Texts:
    """What many queries say to the encoders."""
    words, shapes, _ = encoders
    read = [read_one(encoders, None, text) for text in texts]
    counted = np.stack([item.cues for item in read])
    if encoder is not None:
        counted = np.concatenate([counted, _dense(encoder.encode(list(texts)))], axis=1)
    rows = stack_rows([item.joined for item in read], words.dimension + shapes.dimension)
    # In half the bytes wherever they are kept, so rounded from the start.
    rows.data = rows.data.astype(np.float16).astype(np.float32)
    return Texts(rows, counted.astype(np.float16).astype(np.float32))


def examples_of(texts: Texts, seen: Array, log: PlanLog) -> Examples:
    """What the next-tool network is trained on.

    Args:
        texts: the queries.
        seen: the tools that the network knows.
        log: the plans, one a query.
    """
    slots = np.full(log.tools + 1, -1)  # the last is for calls that were forgotten
    slots[seen] = np.arange(len(seen))
    rows, targets, owner = [], [], []
    for step in log.steps():
        row = history_features(slots[list(step.history)].tolist(), len(seen))
        rows.append((np.array(row[0], np.int32), np.array(row[1], np.float32)))
        share = (1 - _SMOOTHING) / len(step.acceptable)
        targets.append((slots[list(step.acceptable)], [share] * len(step.acceptable)))
        owner.append(step.plan)
    weights = np.array(log.weights, np.float32)
    return Examples(
        texts.rows,
        texts.cues,
        stack_rows(rows, history_width(len(seen))),
        np.array(owner, np.intp),
        stack_rows(targets, len(seen)),
        smoothing=_SMOOTHING / len(seen),
        weights=None if (weights == 1).all() else weights[owner],
    )


def need_examples(examples: Examples, queries: csr_array, seen: Array, log: PlanLog) -> Examples:
    """What the need network is trained on; ``queries`` are the words of those of ``examples``."""
    slot = {tool: number for number, tool in enumerate(seen.tolist())}
    rows: list[tuple[list[int], list[float]]] = []
    for calls in log.calls:
        counts: dict[int, int] = {}
        columns = []
        for tool in calls:
            level = counts.get(tool, 0)
            if tool != FORGOTTEN and level < NEED_LEVELS:
                columns.append(level * len(seen) + slot[tool])
                counts[tool] = level + 1
        rows.append((columns, [1.0] * len(columns)))
    weights = np.array(log.weights, np.float32)
    return Examples(
        queries,
        examples.cues,
        None,
        np.arange(len(log)),
        stack_rows(rows, NEED_LEVELS * len(seen)),
        weights=None if examples.weights is None else weights,
    )


def _dense(vectors: Any) -> Array:
    result: Array = vectors if isinstance(vectors, np.ndarray) else vectors.toarray()
    return result
