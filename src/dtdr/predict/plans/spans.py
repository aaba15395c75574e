"""Which tools a query's names, quotations and numbers are meant for.

"Mail John, Lisa and Emma" takes three addresses and one mail. How often a plan calls a tool follows
from how many spans of the query stand among the arguments of its calls, so each span gets, for each
tool, the probability that some call of it is given this span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import ModelError
from dtdr.predict.arguments.hashing import Hashes, features
from dtdr.predict.arguments.texts import TokenizedText, tokenize
from dtdr.predict.arguments.values import canonical

Floats = npt.NDArray[np.float64]

MAX_SPANS = 48
"""Spans of a query that are looked at, the first ones."""
_NEAR = 3
"""Words on each side of a span whose places count."""
_SENTENCE = 25
"""Words of its sentence before a span that are read."""
_LEAST_FEATURE = 2
"""A feature that fewer spans have is not kept."""
_LEAST_SPANS = 5
"""A tool that fewer spans are meant for is not learned."""
MOST_COUNTED = 8
"""More spans that a tool is given count as this many."""
_LITTLE = 1e-3
_PENALTY = 1.0
_ITERATIONS = 40


@dataclass(frozen=True, slots=True, eq=False)
class SpanTagger:
    """Logistic regressions of whether a tool is given a span, one for each tool.

    Attributes:
        tools: names of the tools that are known.
        hashes: shape (features,), sorted.
        weights: shape (features, tools).
    """

    tools: tuple[str, ...]
    hashes: Hashes
    weights: Floats

    @classmethod
    def fit(cls, examples: Sequence[SpanExample]) -> Self:
        """Learn from the arguments of demonstrations; without any, nothing is known."""
        from scipy.optimize import minimize

        given = [one.tools.get(form, set()) for one in examples for form in one.texts.forms]
        meant = Counter(tool for tools in given for tool in tools)
        tools = tuple(sorted(tool for tool, count in meant.items() if count >= _LEAST_SPANS))
        if not tools:
            return cls((), np.empty(0, np.uint32), np.empty((0, 0)))
        spans = [row for one in examples for row in one.texts.features]
        hashes, counts = np.unique(np.concatenate(spans), return_counts=True)
        hashes = hashes[counts >= _LEAST_FEATURE]
        rows = _encode(spans, hashes)
        columns = csr_array(rows.T)
        targets = np.array([[tool in one for tool in tools] for one in given], float)
        shape = (len(hashes), len(tools))

        def loss(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(shape)
            scores = rows @ weights
            value = np.logaddexp(0, scores).sum() - (scores * targets).sum()
            gradient = columns @ (_sigmoid(scores) - targets) + _PENALTY * weights
            return float(value + 0.5 * _PENALTY * flat @ flat), gradient.ravel()

        options = {"maxiter": _ITERATIONS}
        start = np.zeros(len(hashes) * len(tools))
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        return cls(tools, hashes, found.x.reshape(shape))

    def rename_tool(self, old: str, new: str) -> SpanTagger:
        """With another name for a tool."""
        tools = tuple(new if name == old else name for name in self.tools)
        return SpanTagger(tools, self.hashes, self.weights)

    def count_scores(self, texts: SpanTexts, names: Sequence[str]) -> Floats:
        """Log odds of how many spans of a query each tool is given, against none.

        A value that is said twice counts once, with the higher probability.

        Args:
            texts: of the query.
            names: of the tools.

        Returns:
            Shape (MOST_COUNTED + 1, tools); 0 for tools of which nothing is known.
        """
        by_form: dict[str, Floats] = {}
        if self.tools and texts.forms:
            shares = _sigmoid(_encode(texts.features, self.hashes) @ self.weights)
            for form, row in zip(texts.forms, shares, strict=True):
                by_form[form] = np.maximum(by_form.get(form, 0), row)
        given = np.array([*by_form.values()]).reshape(len(by_form), len(self.tools))
        scores = np.log(count_probabilities(given, MOST_COUNTED) + _LITTLE)
        scores = np.hstack([scores - scores[0], np.zeros((MOST_COUNTED + 1, 1))])
        place = {name: number for number, name in enumerate(self.tools)}
        every: Floats = scores[:, [place.get(name, -1) for name in names]]
        return every

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {"hashes": self.hashes, "weights": self.weights.astype(np.float16)}

    @classmethod
    def restore(cls, tools: Sequence[str], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        hashes = arrays["hashes"].astype(np.uint32)
        weights = arrays["weights"].astype(np.float64)
        if weights.shape != (len(hashes), len(tools)):
            raise ModelError("what the model knows of spans does not fit together; fit it again")
        return cls(tuple(tools), hashes, weights)


class SpanTexts:
    """The conspicuous spans of a query: quotations, names, numbers and addresses.

    Args:
        query: what the user asked for.

    Attributes:
        forms: the value of each span, as values are compared.
        features: the features of each; shape (k,), sorted.
    """

    __slots__ = ("features", "forms")

    def __init__(self, query: str) -> None:
        text = tokenize(query)
        chosen = np.flatnonzero(text.stands_out)[:MAX_SPANS].tolist()
        spans = [_without_verb(text, int(text.first[one]), int(text.last[one])) for one in chosen]
        self.forms = [
            canonical(text.text[text.starts[first] : text.ends[last]]) for first, last in spans
        ]
        words = list(text.lower)
        for first, last in spans:
            words[first : last + 1] = [_kind(text, first)] * (last + 1 - first)
        self.features = [_features(words, first, last) for first, last in spans]


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
    """The kind of a span; other spans see this word in its place."""
    if text.is_quoted[first]:
        return "<quoted>"
    token = text.tokens[first]
    if "@" in token:
        return "<address>"
    return "<number>" if token[0].isdigit() else "<name>"


def _features(words: Sequence[str], first: int, last: int) -> Hashes:
    """The kind of a span, the words around it, and those of its sentence before it."""
    left = first - 1 - (first > 0 and words[first - 1] in "\"'“‘`")
    right = last + 1
    while right < len(words) and words[right] in "\"'”’`":
        right += 1
    before = words[max(0, left - _SENTENCE + 1) : left + 1][::-1]
    end = next((place for place, word in enumerate(before) if word in ".!?"), len(before))
    names = [
        f"kind {words[first]}",
        f"length {min(last - first + 1, 3)}",
        *(f"left {place} {word}" for place, word in enumerate(before[:_NEAR])),
        *(f"right {place} {word}" for place, word in enumerate(words[right : right + _NEAR])),
        *(f"sentence {word}" for word in before[:end]),
    ]
    return np.unique(features(names))


def _encode(spans: Sequence[Hashes], hashes: Hashes) -> csr_array:
    """Spans as rows of ones where they have a feature; shape (spans, features)."""
    lengths = [len(row) for row in spans]
    every = np.concatenate(spans)
    places = np.minimum(np.searchsorted(hashes, every), max(0, len(hashes) - 1))
    known = hashes[places] == every if len(hashes) else np.zeros(len(every), bool)
    owner = np.repeat(np.arange(len(spans)), lengths)[known]
    shape = (len(spans), len(hashes))
    return csr_array((np.ones(len(owner)), (owner, places[known])), shape=shape)


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


def _sigmoid(scores: Floats) -> Floats:
    shares: Floats = 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
    return shares
