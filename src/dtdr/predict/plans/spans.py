"""Which tools a query's names, quotations and numbers are meant for.

"Mail John, Lisa and Emma" takes three addresses and one mail: the number of calls of a tool depends
on how many spans of the query are arguments of it. So each span gets, for each tool, the
probability that one of its calls has this argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Self, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.calibration import Floats
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.sparse import csr_array

MAX_SPANS = 48
"""Limit of spans per query."""
MOST_COUNTED = 8
"""More spans for one tool count as this many."""
BUCKETS = 2_048
"""For hashed features; 8,192 found as many right plans on an inner fold of TinyAgent."""
_NEAR, _SENTENCE = 3, 25
"""Words on each side of a span by position; words of its sentence before it."""
_MOST = 4_000
"""Limit of demonstrations to learn from."""
_LEAST_SPANS = 5
"""Spans of a tool below which it is not learned."""
_LITTLE = 1e-3
_PENALTY = 1.0
_ITERATIONS = 40

_CAPITAL = "[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]"
# Long repetitions are bounded, so that matching stays linear.
_SPANS = re.compile(
    r"(?P<quoted>\"[^\"]{1,500}\"|“[^”]{1,500}”|(?<!\w)'[^']{1,500}'(?!\w))|(?<!\w)(?:"
    r"(?P<address>[\w.+-]{1,64}@[\w.-]{1,190}\w)|(?P<number>\d[\w:/-]*(?:\.\w+)*)|"
    rf"(?P<name>{_CAPITAL}\w*(?:[-.]\w+|\s{_CAPITAL}\w*)*))"
)
_WORDS = re.compile(r"\w+|[^\w\s]")


class QuerySpan(NamedTuple):
    """A span of a query: its value, and its features as sorted buckets."""

    form: str
    features: list[int]


Example: TypeAlias = tuple[Demonstration, Sequence[QuerySpan]]
"""A demonstration, and the spans of its query."""


def read_spans(query: str) -> list[QuerySpan]:
    """The first quotations, names, numbers and addresses of a query."""
    query = query[:MAX_CHARACTERS]
    words, forms, places = list[str](), list[str](), list[int]()
    end = 0
    for match in _SPANS.finditer(query):
        kind, start = str(match.lastgroup), match.start()
        form = match[kind][1:-1] if kind == "quoted" else match[kind]
        if kind == "name" and query[:start].rstrip()[-1:] in ("", ".", "!", "?", ":"):
            # The first word of a sentence is not a name: "Mail Ann" has the name Ann.
            first, _, form = form.partition(" ")
            start += len(first) + 1
            if not form:
                continue
        words += _WORDS.findall(query[end:start].lower())
        places.append(len(words))
        words.append(f"<{kind}>")
        forms.append(form.strip().casefold())
        end = match.end()
        if len(forms) == MAX_SPANS:
            break
    words += _WORDS.findall(query[end:].lower())
    return [
        QuerySpan(form, _features(words, position, min(len(form.split()), 3)))
        for form, position in zip(forms, places, strict=True)
    ]


def _features(words: Sequence[str], position: int, length: int) -> list[int]:
    """The kind of a span, the words around it, and those of its sentence before it."""
    before = words[max(0, position - _SENTENCE) : position][::-1]
    end = next((at for at, word in enumerate(before) if word in ".!?"), len(before))
    names = [
        f"kind {words[position]}",
        f"length {length}",
        *(f"left {at} {word}" for at, word in enumerate(before[:_NEAR])),
        *(
            f"right {at} {word}"
            for at, word in enumerate(words[position + 1 : position + 1 + _NEAR])
        ),
        *(f"sentence {word}" for word in before[:end]),
    ]
    return sorted({crc32(name.encode("utf-8", "surrogatepass")) % BUCKETS for name in names})


def tools_given(demonstration: Demonstration) -> dict[str, set[str]]:
    """The tools that are called with a value, by the form of the value."""
    tools: dict[str, set[str]] = {}
    for call in demonstration.plan.calls:
        for value in call.arguments.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, (str, int, float)) and not isinstance(item, bool):
                    tools.setdefault(str(item).strip().casefold(), set()).add(call.tool)
    return tools


@dataclass(frozen=True, slots=True, eq=False)
class SpanTagger:
    """One logistic regression per tool: whether a span is one of its arguments.

    Attributes:
        known: shape (m,): positions of the learned tools.
        weights: shape (BUCKETS, m).
    """

    known: npt.NDArray[np.intp]
    weights: Floats

    @classmethod
    def fit(cls, examples: Sequence[Example], index: Mapping[str, int]) -> Self:
        """Learn from the arguments of demonstrations.

        Args:
            examples: demonstrations of known tools; of many, evenly spaced ones are read.
            index: positions of the tools.
        """
        from scipy.optimize import minimize

        features: list[list[int]] = []
        wanted: list[list[int]] = []
        for item, spans in examples[:: -(-len(examples) // _MOST) or 1]:
            tools = tools_given(item)
            features += [span.features for span in spans]
            wanted += [[index[tool] for tool in tools.get(span.form, ())] for span in spans]
        targets = np.zeros((len(wanted), len(index)))
        for row, each in zip(targets, wanted, strict=True):
            row[each] = 1
        known = np.flatnonzero(targets.sum(axis=0) >= _LEAST_SPANS)
        if not len(known):
            return cls(known, np.zeros((BUCKETS, 0)))
        targets = targets[:, known]
        others = 1 - targets
        starts = np.cumsum([0, *map(len, features)])
        # The weights of all other buckets stay 0.
        used, columns = np.unique(
            np.fromiter(chain.from_iterable(features), np.intp), return_inverse=True
        )
        rows = csr_array((np.ones(len(columns)), columns, starts), shape=(len(wanted), len(used)))
        transposed = csr_array(rows.T)

        def loss(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(len(used), -1)
            shares = _sigmoid(rows @ weights)
            value = -np.log(np.abs(shares - others)).sum()
            gradient = transposed @ (shares - targets) + _PENALTY * weights
            return float(value + 0.5 * _PENALTY * flat @ flat), gradient.ravel()

        start = np.zeros(len(used) * len(known))
        options = {"maxiter": _ITERATIONS}
        fitted = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        weights = np.zeros((BUCKETS, len(known)))
        weights[used] = fitted.x.reshape(len(used), -1)
        return cls(known, weights)

    def count_scores(self, spans: Sequence[QuerySpan], tools: int) -> Floats:
        """Log odds of each number of spans per tool, against none.

        A repeated value counts once, with the higher probability. Spans are independent, so that
        their number has a Poisson-binomial distribution.

        Returns:
            Shape (MOST_COUNTED + 1, tools); 0 for tools that are not learned.
        """
        chances: dict[str, Floats] = {}
        for span in spans:
            chance = _sigmoid(self.weights[span.features].sum(axis=0))
            chances[span.form] = np.maximum(chances.get(span.form, 0), chance)
        # By number of spans, how likely it is after the values read so far: each moves a share of
        # the chance of n spans to n + 1; the last row is of that many and more.
        likely = np.zeros((MOST_COUNTED + 1, len(self.known)))
        likely[0] = 1
        for chance in chances.values():
            moved = likely * chance
            likely -= moved
            likely[1:] += moved[:-1]
            likely[-1] += moved[-1]
        scores = np.zeros((MOST_COUNTED + 1, tools))
        scores[:, self.known] = np.log(likely + _LITTLE) - np.log(likely[0] + _LITTLE)
        return scores


def _sigmoid(scores: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
