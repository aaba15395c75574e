"""The text that the agent wrote before its next call: which tools it names or precedes.

It knows the texts of the tools, and, where demonstrations have such texts, which words agents write
before which call. Agents that think aloud often name the tool they will call. The features are 0
where no text is known.

Example: two tools are ``read_file`` and ``delete_file``, and the agent wrote "I'll now read the
file". Both words of the first name are in the text, so ``name_in_text`` is 1 and ``named_in_text``
is 1. The second has one of two: .5 and 0. If no text is known before the next call, all are 0 again
and ``has_text`` is 0, so that the ranker relies on the other blocks.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.ragged import count_rows
from dtdr.rankers.dtdr_f.text import Hashes, stems_of
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix, log_softmax, stack_rows
from dtdr.rankers.softmax_regression import fit_softmax
from dtdr.rankers.sorted_keys import find_sorted
from dtdr.text.words import name_words

_LEAST_RUNS, _MOST_WORDS = 2, 4_000
"""A word counts if this many demonstrations have it before a call; the most frequent ones."""
_EPOCHS, _LEAST_UPDATES, _BATCH, _RATE, _DECAY, _DROPPED = 20, 300, 64, 0.02, 0.3, 0.2
_UNSEEN = np.float32(-9)
"""Log probability of a tool that no demonstration calls."""
_NO_SIMILARITY = 0.01
"""Added to the best similarity: a text that no tool resembles must not make one stand out."""
_MOST_RELATIVE = 2
"""Limit of ``relative_text_similarity``: a new tool may be the only one that is similar at all."""


class StepTextRows(FeatureRows):
    """How the text fits each tool; all 0 where there is none."""

    text_similarity: Matrix  # cosine of the tool's text and what the agent wrote
    relative_text_similarity: Matrix  # the same, divided by that of the most similar known tool
    name_in_text: Matrix  # share of the words of the tool's name that are in the text
    named_in_text: Matrix  # 1 where all of them are
    text_log_probability: Matrix  # log probability of the tool by the regression on words
    has_text: Matrix  # 1 where a text is known; the same for every tool
    end_has_text: Matrix  # the same for the end of plan alone


class StepText(Block):
    """Similarity of the text with tools' texts and names, and a regression on its words.

    Args:
        words: shape (words,), sorted: hashed stems that the regression reads.
        weights: shape (words + 1, seen), the last row is the bias.
        training: what they were learned from.
    """

    name = "step_text"
    about = "what the agent wrote before the call"
    rows = StepTextRows
    text_features = StepTextRows.names[StepTextRows.span("text_similarity", "named_in_text")]
    shortlist: ClassVar = {"relative_text_similarity": 2.0, "text_log_probability": 0.5}
    learned = ("words", "weights")

    def __init__(self, words: Hashes, weights: Matrix, training: TrainingSet) -> None:
        self.words, self.weights = words, weights
        self.tools, self.seen = training.tools, training.seen
        names = stems_of(name_words(tool.name) for tool in training.tools.tools[:-1])
        distinct = np.unique(names.owner.astype(np.int64) << 32 | names.values)
        self._owner = distinct >> 32
        self._stems = (distinct & 0xFFFFFFFF).astype(np.uint32)
        self._sizes = np.maximum(np.bincount(self._owner, minlength=len(training.tools) - 1), 1)

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Train on the calls that have a text."""
        data, slots, outputs = training.data, training.slots, len(training.seen)
        texts = data.texts
        places = np.flatnonzero((texts.sizes > 0) & (data.calls >= 0))
        empty = cls(np.empty(0, np.uint32), np.zeros((1, outputs), np.float32), training)
        if not len(places):
            return empty
        some, plans = texts.subset(places), data.columns["calls"].owner[places]
        words, counts = count_rows(some.values, plans[some.owner])
        best = np.argsort(-counts, kind="stable")
        words = np.sort(words[best[counts[best] >= _LEAST_RUNS][:_MOST_WORDS]])
        block = cls(words, np.zeros((len(words) + 1, outputs), np.float32), training)
        rows = []
        for at in range(len(some)):
            columns = block._columns(some[at])
            share = 1 / max(len(columns), 1) ** 0.5
            rows.append(([*columns, len(words)], [*[share] * len(columns), 1.0]))
        block.weights, _ = fit_softmax(
            stack_rows(rows, len(words) + 1),
            [[slots[tool]] for tool in data.calls[places]],
            np.arange(len(places)),
            outputs,
            smoothing=0.0,
            epochs=max(_EPOCHS, _LEAST_UPDATES * _BATCH // len(places)),
            batch_size=_BATCH,
            rate=_RATE,
            weight_decay=_DECAY,
            dropped=_DROPPED,
            seed=training.seed,
        )
        return block

    def _columns(self, words: Hashes) -> npt.NDArray[np.intp]:
        places, known = find_sorted(self.words, np.unique(words))
        return places[known]

    def start(self, query: Query, rows: StepTextRows) -> BlockState | None:
        """Nothing is written before the first text."""
        return _StepTextState(self) if len(self.weights) > 1 else None

    def write_text(self, words: Hashes, rows: StepTextRows) -> None:
        """Write the features of a text; ``words`` are its hashed stems in order."""
        stems = self.tools.stems
        columns, values = stems.row(stems.columns(words))
        similarity = rows.text_similarity
        similarity[:-1] = values @ self.tools.rows(columns)[:, :-1]
        best = float(similarity[self.seen].max(initial=0))
        relative = similarity * np.float32(1 / (best + _NO_SIMILARITY))
        np.minimum(relative, _MOST_RELATIVE, out=rows.relative_text_similarity)
        is_named = np.isin(self._stems, words)
        named = np.bincount(self._owner[is_named], minlength=len(self._sizes)) / self._sizes
        rows.name_in_text[:-1], rows.named_in_text[:-1] = named, named >= 1
        places = self._columns(words)
        logits = self.weights[places].sum(axis=0) * np.float32(1 / max(len(places), 1) ** 0.5)
        rows.text_log_probability.fill(_UNSEEN)
        learned = np.maximum(log_softmax(logits + self.weights[-1]), _UNSEEN)
        rows.text_log_probability[self.seen] = learned
        rows.has_text.fill(1)
        rows.end_has_text[-1] = 1


class _StepTextState(BlockState):
    def __init__(self, block: StepText) -> None:
        self._block = block

    def call(self, event: CallEvent, rows: StepTextRows) -> BlockState:
        rows.table.fill(0)
        return self

    def say(self, words: Hashes, rows: StepTextRows) -> None:
        """The agent wrote a text; without words, none is known."""
        rows.table.fill(0)
        if len(words):
            self._block.write_text(words, rows)
