"""Which tools a query's names, quotations and numbers are meant for.

"Mail John, Lisa and Emma" takes three addresses and one mail. How often a plan calls a tool follows
from how many spans of the query stand among the arguments of its calls, so each span gets, for each
tool, the probability that some call of it is given this span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import ModelError
from dtdr.predict.arguments.hashing import Hashes, feature
from dtdr.predict.arguments.texts import TokenizedText, tokenize
from dtdr.predict.arguments.values import canonical

Floats = npt.NDArray[np.float64]

MAX_SPANS = 48
"""Spans of a query that are looked at, the first ones."""
_LEFT, _RIGHT = 8, 6
"""Words beside a span that are read."""
_SENTENCE = 25
"""Words of its sentence before a span that are read."""
_LEAST_FEATURE = 2
"""A feature that fewer spans have is not kept."""
_LEAST_SPANS = 5
"""A tool that fewer spans are meant for is not learned."""
_EPOCHS, _BATCH, _RATE = 6, 32, 0.1
_PAUSES = frozenset(".,;:!?") | {"and", "then"}


class SpanTagger:
    """Log-linear probabilities that a tool is given a span; AdaGrad, one output a tool.

    Args:
        tools: names of the tools that are known.
        hashes: shape (features,), sorted.
        weights: shape (features + 1, tools); the last row is zero, for features not known.
        squares: sums of squared gradients, of the same shape.
    """

    def __init__(
        self,
        tools: Sequence[str],
        hashes: Hashes,
        weights: npt.NDArray[np.float32],
        squares: npt.NDArray[np.float32],
    ) -> None:
        self.tools = tuple(tools)
        self._index = {name: number for number, name in enumerate(self.tools)}
        self._hashes, self._weights, self._squares = hashes, weights, squares

    @classmethod
    def fit(cls, examples: Sequence[SpanExample], *, seed: int = 0) -> Self:
        """Learn from the arguments of demonstrations; without any, nothing is known."""
        meant: dict[str, int] = {}
        for example in examples:
            for form in example.texts.forms:
                for tool in example.tools.get(form, ()):
                    meant[tool] = meant.get(tool, 0) + 1
        tools = sorted(tool for tool, count in meant.items() if count >= _LEAST_SPANS)
        rows = [row for one in examples for row in one.texts.features] if tools else []
        hashes, counts = np.unique(
            np.concatenate(rows) if rows else np.empty(0, np.uint32), return_counts=True
        )
        hashes = hashes[counts >= _LEAST_FEATURE]
        shape = (len(hashes) + 1, len(tools))
        model = cls(tools, hashes, np.zeros(shape, np.float32), np.full(shape, 1e-2, np.float32))
        model._train(examples, seed)
        return model

    def update(self, examples: Sequence[SpanExample], *, seed: int = 0) -> SpanTagger:
        """A tagger that learned from further demonstrations too; no tools and features are new."""
        model = SpanTagger(
            self.tools, self._hashes, self._weights.copy(), np.maximum(self._squares, 1.0)
        )
        model._train(examples, seed)
        return model

    def rename_tool(self, old: str, new: str) -> SpanTagger:
        """With another name for a tool."""
        tools = [new if name == old else name for name in self.tools]
        return SpanTagger(tools, self._hashes, self._weights, self._squares)

    def _train(self, examples: Iterable[SpanExample], seed: int) -> None:
        rows: list[npt.NDArray[np.intp]] = []
        places: list[tuple[int, int]] = []
        for example in examples if self.tools else ():
            texts = example.texts
            for columns, form in zip(self._columns(texts), texts.forms, strict=True):
                places += [
                    (len(rows), self._index[tool])
                    for tool in sorted(example.tools.get(form, ()))
                    if tool in self._index
                ]
                rows.append(columns)
        if not rows:
            return
        targets = np.zeros((len(rows), len(self.tools)), np.float32)
        for row, tool in places:
            targets[row, tool] = 1
        width = max(map(len, rows))
        padded = np.full((len(rows), width), len(self._hashes), np.intp)
        for number, columns in enumerate(rows):
            padded[number, : len(columns)] = columns
        rng = np.random.default_rng(seed)
        for _ in range(_EPOCHS):
            order = rng.permutation(len(rows))
            for start in range(0, len(order), _BATCH):
                self._step(
                    padded[order[start : start + _BATCH]], targets[order[start : start + _BATCH]]
                )

    def _step(self, columns: npt.NDArray[np.intp], targets: npt.NDArray[np.float32]) -> None:
        error = _sigmoid(self._weights[columns].sum(axis=1)) - targets
        used, inverse = np.unique(columns, return_inverse=True)
        share = np.zeros((len(used), len(columns)), np.float32)
        np.add.at(share, (inverse.reshape(columns.shape), np.arange(len(columns))[:, None]), 1)
        gradient = share @ error
        if used[-1] == len(self._hashes):
            gradient[-1] = 0
        squares = self._squares[used] + gradient**2
        self._squares[used] = squares
        self._weights[used] -= np.float32(_RATE) * gradient / np.sqrt(squares)

    def _columns(self, texts: SpanTexts) -> list[npt.NDArray[np.intp]]:
        """Of each span, the rows of the weights that its features have."""
        result = []
        for features in texts.features:
            places = np.searchsorted(self._hashes, features)
            places = np.minimum(places, len(self._hashes) - 1)
            result.append(
                places[self._hashes[places] == features] if len(self._hashes) else places[:0]
            )
        return result

    def probabilities(self, texts: SpanTexts) -> Floats:
        """How likely each tool is given each span of a query.

        A value that is said twice counts once, with the higher probability.

        Returns:
            Shape (values, tools).
        """
        if not self.tools or not texts.forms:
            return np.zeros((0, len(self.tools)))
        scores = np.stack([self._weights[columns].sum(axis=0) for columns in self._columns(texts)])
        every = _sigmoid(scores).astype(np.float64)
        numbers: dict[str, int] = {}
        result: list[Floats] = []
        for form, row in zip(texts.forms, every, strict=True):
            if form in numbers:
                np.maximum(result[numbers[form]], row, out=result[numbers[form]])
            else:
                numbers[form] = len(result)
                result.append(row)
        return np.stack(result)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "hashes": self._hashes,
            "weights": self._weights.astype(np.float16),
            "squares": self._squares.astype(np.float16),
        }

    @classmethod
    def restore(cls, tools: Sequence[str], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        hashes = arrays["hashes"].astype(np.uint32)
        weights = arrays["weights"].astype(np.float32)
        squares = arrays["squares"].astype(np.float32)
        if weights.shape != (len(hashes) + 1, len(tools)) or squares.shape != weights.shape:
            raise ModelError("what the model knows of spans does not fit together; fit it again")
        return cls(tools, hashes, weights, squares)


class SpanTexts:
    """The spans of a query that stand out: quotations, names, numbers and addresses.

    Args:
        query: what the user asked for.

    Attributes:
        text: the query.
        forms: the value of each span, as values are compared.
        kinds: of each: ``quoted``, ``name``, ``number`` or ``address``.
        features: the features of each; shape (k,), sorted.
    """

    __slots__ = ("features", "forms", "kinds", "text")

    def __init__(self, query: str) -> None:
        self.text = text = tokenize(query)
        chosen = np.flatnonzero(text.stands_out)[:MAX_SPANS].tolist()
        spans = [_without_verb(text, int(text.first[one]), int(text.last[one])) for one in chosen]
        self.forms = [
            canonical(text.text[text.starts[first] : text.ends[last]]) for first, last in spans
        ]
        self.kinds = kinds = [_kind(text, first) for first, _ in spans]
        marks = dict[int, str]()
        for (first, last), kind in zip(spans, kinds, strict=True):
            marks.update(dict.fromkeys(range(first, last + 1), f"<{kind}>"))
        words = [marks.get(number, word) for number, word in enumerate(text.lower)]
        self.features = [
            _features(text, words, first, last, kind)
            for (first, last), kind in zip(spans, kinds, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class SpanExample:
    """A demonstration as a tagger learns from it.

    Attributes:
        texts: of its query.
        tools: those that are given a value, by the value's canonical form.
    """

    texts: SpanTexts
    tools: Mapping[str, set[str]]

    @classmethod
    def of(cls, demonstration: Demonstration) -> Self:
        """Read a demonstration."""
        tools: dict[str, set[str]] = {}
        for call in demonstration.plan.calls:
            for value in call.arguments.values():
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, (str, int, float)) and not isinstance(item, bool):
                        tools.setdefault(canonical(item), set()).add(call.tool)
        return cls(SpanTexts(demonstration.query), tools)


def _without_verb(text: TokenizedText, first: int, last: int) -> tuple[int, int]:
    """A run of names without the word that begins a sentence: "Mail Ann" has the name Ann."""
    begins = first == 0 or text.lower[first - 1] in ".!?"
    return (first + 1 if begins and last > first and not text.is_quoted[first] else first), last


def _kind(text: TokenizedText, first: int) -> str:
    if text.is_quoted[first]:
        return "quoted"
    token = text.tokens[first]
    if "@" in token:
        return "address"
    return "number" if token[0].isdigit() else "name"


def _features(
    text: TokenizedText, words: Sequence[str], first: int, last: int, kind: str
) -> Hashes:
    left = first - 1 - (first > 0 and text.lower[first - 1] in "\"'“‘`")
    right = last + 1
    while right < len(words) and text.lower[right] in "\"'”’`":
        right += 1
    before = words[max(0, left - _LEFT + 1) : left + 1][::-1]
    after = words[right : right + _RIGHT]
    length = last - first + 1
    value = " ".join(text.lower[first : last + 1])
    starts = left < 0 or words[left] in ".!?"
    lead = ""
    sentence: list[str] = []
    for place in range(left, max(-1, left - _SENTENCE), -1):
        if words[place] in ".!?":
            break
        sentence.append(words[place])
    for place in range(left, -1, -1):
        if place == 0 or words[place - 1] in _PAUSES:
            lead = words[place]
            if lead not in _PAUSES and not lead.startswith("<"):
                break
    names = [
        "bias",
        f"kind {kind}",
        f"kind {kind} {min(length, 3)}",
        f"kind {kind} {starts}",
        f"value {value}",
        f"lead {lead}",
        f"lead {lead} {before[0] if before else '^'}",
        f"around {before[0] if before else '^'} {after[0] if after else '$'}",
        f"before {' '.join(before[:2])}",
        *(f"left {place} {word}" for place, word in enumerate(before[:3])),
        *(f"right {place} {word}" for place, word in enumerate(after[:3])),
        *(f"near left {word}" for word in before),
        *(f"near right {word}" for word in after),
        *(f"sentence {word}" for word in sentence),
    ]
    if "." in value:
        names.append(f"suffix {value.rpartition('.')[2]}")
    return np.unique(np.fromiter(map(feature, names), np.uint32, len(names)))


def count_probabilities(probabilities: Floats, most: int) -> Floats:
    """How likely this many of several things happen (a Poisson-binomial distribution).

    Args:
        probabilities: shape (things, columns).
        most: more count as this many.

    Returns:
        Shape (most + 1, columns).
    """
    result = np.zeros((most + 1, probabilities.shape[1]))
    result[0] = 1
    for row in probabilities:
        rest = result * (1 - row)
        rest[1:] += result[:-1] * row
        rest[-1] += result[-1] * row
        result = rest
    return result


def _sigmoid(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    result = 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
    return result.astype(np.float32)
