"""Which part of the query each tool serves, and how far into the query the calls have come.

It knows, of each word, which tools the demonstrations with that word call, and which tools have the
word in their descriptions. It divides the query into 16 parts, finds the tools that each part
names, and follows the calls through the parts with a hidden Markov model: a call of a tool that
the first parts name means that the plan is there, and the parts after it are next.

Example, from the bundled set: "take me from Ghent to Accra by train tomorrow. [...] asked for the
February 2025 expenses put together, so send an email". The words for ``book_train`` are at .17 of
the query, those for ``expense_report`` at .82 (``centre``). Before any call the plan is expected
at .13 of the query (``position``), after ``search_trains`` at .25, after ``book_train`` at .36.
Parts there name ``book_train`` with a share of .34 after the first call (``named_here`` is -1.09).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.encoding import surface_of
from dtdr.rankers.dtdr_f.queries import QueryFeatures
from dtdr.rankers.dtdr_f.text import MAX_WORDS, SURFACE_FEATURES
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Indices, Matrix

PARTS = 16
"""Parts that a query is divided into; 32 are within .006 of validation MRR on three sets."""
_BLUR = 0.5
"""Standard deviation, in parts, of how far the weight of a word spreads."""
_SHAPE = 4.0
"""Shape of the gamma distribution of how far a call moves on: 2 is within .001."""
_NOT_AT_ZERO = 0.3
"""Parts added to distances, since the gamma distribution has nothing at 0 and the next call may be
for the same part."""
_FIRST = 0.6
"""The first call serves what comes this many steps after the beginning."""
_ANYWHERE = 0.02
"""Share of the calls that may serve any part of the query."""
_ELSEWHERE = 0.1
"""Share of what names a tool on average that each part counts for it."""
_UNSAID = 0.05
"""Weight of a part without a word for any tool; .01 is within .005."""
_FREQUENT = 0.2
"""Share of that which goes to the tools by how often they are called."""
_FEWEST, _MOST, _STEPS_PER_CALL = 1.0, 20.0, 4
"""Resolution of the expected number of calls: quarters of a call."""
_RIDGE = 1.0
_NEIGHBOUR = np.float32(0.5)
"""Weight of a pair of words for each of its words, and share of a word's weight that its right
neighbour has too: in "send the mail", "mail" also counts for what "send" names. 1 and .25 are
within two standard errors on T-Eval."""
_BY_TEXT = np.float32(0.2)
"""Weight of a word in a description, per unit of its rarity: .1 and .4 are within .001 of MRR."""
_DESCRIBED = np.float32(0.3)
"""Factor on what descriptions say: .1 and 1 are within .003 of MRR on T-Eval."""
_LEAST_TRUST, _HALF_TRUST = 0.1, 2
"""A description counts fully for a tool that no demonstration calls, .55 for one that two call, and
about a tenth for one that many call: its demonstrations say more."""
_SHARE, _SCORE = 1e-4, 1e-3
"""Added to shares and to scores before their logarithms."""


class PositionRows(FeatureRows):
    """How the parts of the query name each tool, and where the plan is.

    "Here" is the part that the next call serves, "ahead" and "behind" the parts after and before
    it. None is certain: each feature is a mean over all parts, by their probabilities.
    """

    named_here: Matrix  # log share of the tool among what the part names
    described_here: Matrix  # the same by descriptions alone
    named_ahead: Matrix  # log of how strongly this and later parts name the tool
    described_ahead: Matrix  # the same by descriptions alone
    named_behind: Matrix  # log of how strongly earlier parts name it
    said_here: Matrix  # log of how strongly the part names it
    relative_named_here: Matrix  # share here, divided by that of the best known tool
    centre: Matrix  # where in the query the words for the tool are, 0 to 1
    from_last: Matrix  # how far that is from the centre of the last call's tool
    position: Matrix  # where in the query the plan is, 0 to 1; the same for every tool
    at_end: Matrix  # log of the probability that the query is done; the same for every tool
    best_named_here: Matrix  # greatest named_here; the same for every tool
    best_ahead: Matrix  # greatest named_ahead; the same for every tool
    end_at_end: Matrix  # at_end for the end of plan alone
    end_best_ahead: Matrix  # best_ahead for the end of plan alone


_BY_PART = PositionRows.span("named_here", "said_here")
"""The features that are means over parts."""
_PRODUCTS = _BY_PART.stop


class Position(Block):
    """Tools that each part of the query asks for, and which part is probably served next.

    The hidden Markov model aligns words and tools (Vogel, Ney and Tillmann, 1996). A call moves on
    by about the length of the query over the number of calls that it seems to ask for.
    """

    name = "position"
    about = "the part of the query that comes next"
    rows = PositionRows
    text_features = ("described_here", "described_ahead")
    shortlist: ClassVar = {"named_ahead": 1.0}

    def __init__(self, training: TrainingSet) -> None:
        self._weights, self._seen = training.word_weights.weights[:, 0], training.seen
        surface = _with_constant(surface_of(training.data.columns))
        kernel = surface.T @ surface + _RIDGE * np.eye(surface.shape[1])
        self._lengths = np.linalg.solve(kernel, surface.T @ training.data.lengths)
        """Weights of the surface features, and of a constant, for the number of calls of a plan."""
        # A last 0, for words that are not known.
        self._idf = np.append(training.featurizer.words.idf, np.float32(0))[:, None]
        self._tools = tools = training.tools
        self._rarity = (_BY_TEXT * tools.stems.idf)[:, None]
        trust = _LEAST_TRUST + (1 - _LEAST_TRUST) / (1 + training.frequency / _HALF_TRUST)
        self._trust = (_DESCRIBED * trust).astype(np.float32)
        calls = max(float(training.frequency.sum()), 1e-9)
        self._frequent: Matrix = training.frequency * np.float32(_UNSAID * _FREQUENT / calls)

    def start(self, query: Query, rows: PositionRows) -> BlockState | None:
        """Before the first call the plan is at the beginning of the query."""
        features, seen = query.features, self._seen
        words = min(len(features.stems), MAX_WORDS)
        if not words:
            return None
        blur = _blur(words)
        evidence, by_text = self._read_words(features, words)
        said, described = blur @ evidence, blur @ by_text
        # The rows of ``_BY_PART`` in each part of the query, and at its end.
        parts = np.zeros((PARTS + 1, _PRODUCTS, len(self._trust)), np.float32)
        named, _, ahead, described_ahead, behind, said_here = parts.swapaxes(0, 1)
        shares = parts[:-1, :2]  # named and described here
        np.add(said, self._frequent, out=shares[:, 0])
        shares[:, 1] = described
        # The features of the others must not depend on a new tool.
        others = shares.copy()
        others[:, :, seen] = 0
        shares /= shares[:, :, seen].sum(axis=2, keepdims=True) + others + np.float32(_UNSAID)
        if words < PARTS:  # several parts share a word
            said, described = said * (words / PARTS), described * (words / PARTS)
        np.cumsum(said[::-1], axis=0, out=ahead[-2::-1])
        np.cumsum(described[::-1], axis=0, out=described_ahead[-2::-1])
        np.cumsum(said, axis=0, out=behind[1:])
        said_here[:-1] = said

        likely = named + np.float32(_SHARE)
        likely[:-1] += shares[:, 0].mean(axis=0) * np.float32(_ELSEWHERE)
        # At the end of the query only the end of plan comes next.
        named[-1, -1] = likely[-1, -1] = 1
        rows.centre[:] = (_CENTRES @ said) / (ahead[0] + np.float32(1e-6))
        rows.centre[-1] = 1
        parts += _ADDED
        expected = float(_with_constant(features.text.surface[None])[0] @ self._lengths)
        first, moves = _moves(round(min(max(expected, _FEWEST), _MOST) * _STEPS_PER_CALL))
        return _PositionState(parts.reshape(PARTS + 1, -1), likely, seen[:-1], moves, first)

    def _read_words(self, features: QueryFeatures, words: int) -> tuple[Matrix, Matrix]:
        """How strongly each word names each tool, and by descriptions alone; (words, tools)."""
        length = len(features.stems)
        single, pairs = features.terms[:words], features.terms[length : length + words - 1]
        learned = self._weights[single] * self._idf[single]
        of_pairs = self._weights[pairs] * self._idf[pairs]
        of_pairs *= _NEIGHBOUR
        learned[:-1] += of_pairs
        learned[1:] += of_pairs
        learned = _spread(learned)
        stems = features.stems[:MAX_WORDS]
        by_text = _spread(self._tools.rows(stems) * self._rarity[stems])
        # Squares: a word that names one tool clearly counts more than many that hint at it.
        by_text *= by_text
        evidence = by_text * self._trust
        known = np.maximum(learned, 0)
        known *= known
        evidence[:, self._seen] += known
        evidence[:, -1] = 0  # no word names the end of plan
        by_text *= _DESCRIBED
        return evidence, by_text


class _PositionState(NamedTuple):
    """The forward probabilities along the calls of one plan.

    Attributes:
        parts: shape (PARTS + 1, 6 * tools): of each part, and of the end, the features that are
            means over parts before their logarithms. As probabilities of the parts sum to 1, what
            is added before logarithms is in every part.
        likely: shape (PARTS + 1, tools): how likely a call of each tool serves each part.
        known: columns of tools with demonstrations.
        moves: probabilities of the parts for the call after one that served each part.
        at: those for the next call.
        centre: of the tool that was called last.
    """

    parts: Matrix
    likely: Matrix
    known: Indices
    moves: Matrix
    at: Matrix
    centre: float = 0.0

    def call(self, event: CallEvent, rows: PositionRows) -> _PositionState:
        parts, likely, known, moves, at, _ = self
        centre = 0.0
        if event.tool >= 0:
            at = at * likely[:, event.tool]
            centre = float(rows.centre[event.tool])
        at = at @ moves
        at *= 1 / float(at @ _ONES)
        return _PositionState(parts, likely, known, moves, at, centre)

    def write(self, rows: PositionRows) -> None:
        at, by_part = self.at, rows.table[_BY_PART]
        np.matmul(at, self.parts, out=by_part.reshape(-1))
        named, ahead = rows.named_here[self.known], rows.named_ahead[self.known]
        best = float(named[named.argmax()]) if len(named) else _SHARE
        best_ahead = float(ahead[ahead.argmax()]) if len(ahead) else _SCORE
        relative = rows.relative_named_here
        np.multiply(rows.named_here, 1 / best, out=relative)
        np.minimum(relative, 1, out=relative)  # a new tool may be named above all
        relative[-1] = 0
        np.log(by_part, out=by_part)
        rows.position.fill(at @ _PLACES)
        at_end, log_best_ahead = math.log(float(at[-1]) + _SHARE), math.log(best_ahead)
        rows.at_end.fill(at_end)
        rows.end_at_end[-1] = at_end
        rows.best_named_here.fill(math.log(best))
        rows.best_ahead.fill(log_best_ahead)
        rows.end_best_ahead[-1] = log_best_ahead
        np.subtract(rows.centre, self.centre, out=rows.from_last)
        np.abs(rows.from_last, out=rows.from_last)


_ONES = np.ones(PARTS + 1, np.float32)
_PLACES = (np.arange(PARTS + 1) / PARTS).astype(np.float32)
_CENTRES = ((np.arange(PARTS) + 0.5) / PARTS).astype(np.float32)
_ADDED = np.array([[_SHARE], [_SHARE], *[[_SCORE]] * 4], np.float32)


def _with_constant(surface: Matrix) -> npt.NDArray[np.float64]:
    """Surface features, without the vector of a further encoder, and ones."""
    features = surface[:, :SURFACE_FEATURES].astype(np.float64)
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


def _spread(rows: Matrix) -> Matrix:
    """Let each word speak for what its left neighbour names too."""
    rows[1:] += _NEIGHBOUR * rows[:-1]
    return rows


@lru_cache(maxsize=512)
def _blur(words: int) -> Matrix:
    """The share of each word that each part of a query takes; shape (PARTS, words)."""
    part = np.arange(PARTS)
    parts = np.zeros((PARTS, words), np.float32)
    if words < PARTS:  # several parts share a word
        parts[part, part * words // PARTS] = 1
    else:
        parts[np.arange(words) * PARTS // words, np.arange(words)] = 1
    near = np.exp(-(((part[:, None] - part) / _BLUR) ** 2) / 2)
    blur: Matrix = (near / near.sum(axis=1, keepdims=True) @ parts).astype(np.float32)
    return blur


@lru_cache(maxsize=int(_MOST * _STEPS_PER_CALL))
def _moves(calls: int) -> tuple[Matrix, Matrix]:
    """Where a plan of this many quarters of a call begins, and how it moves on.

    Returns:
        Shape (PARTS + 1,): probabilities of the parts, and of the end, for the first call; and
        (PARTS + 1, PARTS + 1): for the call after one that served the row's part.
    """
    step = PARTS * _STEPS_PER_CALL / calls
    distance = np.arange(PARTS + 1) + _NOT_AT_ZERO
    jump, first = (
        distance ** (_SHAPE - 1) * np.exp(-_SHAPE * distance / mean)
        for mean in (step, step * _FIRST)
    )
    jump /= jump.sum()
    moves = np.zeros((PARTS + 1, PARTS + 1))
    for part in range(PARTS):
        moves[part, part:PARTS] = jump[: PARTS - part]
        moves[part, PARTS] = max(1 - jump[: PARTS - part].sum(), _SHARE)
    moves[PARTS, PARTS] = 1
    moves[:, :PARTS] += _ANYWHERE / PARTS
    moves /= moves.sum(axis=1, keepdims=True)
    first[PARTS] = 0
    first[:PARTS] += _ANYWHERE / PARTS
    return (first / first.sum()).astype(np.float32), moves.astype(np.float32)
