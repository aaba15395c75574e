"""Search for tools by a description: words of the tools, combined with rankings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from dtdr.data.tools import Tool
from dtdr.errors import InputError, check_at_least, check_lists
from dtdr.rankers.bm25 import WordIndex
from dtdr.rankers.calibration import Floats
from dtdr.rankers.descriptions import document
from dtdr.rankers.ranking import Ranking
from dtdr.text.encoders.base import MAX_CHARACTERS

SEARCH_LIMIT = 5
"""Default limit of tools."""

RELEVANT = 0.25
"""Share of the best BM25 score from which on a tool matches by words."""

WORDS, RUN, TEXT, FLOOR = 4.0, 0.5, 0.25, 0.05
"""Weights of the words and of the logarithms of the two rankings, and a floor of the probabilities
as a share of chance. Chosen among 240 mixtures on a quarter of the training sides of TinyAgent,
T-Eval and UltraTool (benchmarks/search.py). Mean recall@5 and recall@1 of tools that the mask
missed or that have no demonstration: .901 and .527; with the best match by words first .900 and
.619; BM25 alone .889 and .646; the ranking alone .803."""

STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "do", "does", "for", "from",
    "have", "how", "i", "in", "into", "is", "it", "me", "my", "need", "of", "on", "or", "our",
    "please", "some", "something", "that", "the", "this", "to", "tool", "tools", "use", "using",
    "want", "we", "what", "which", "will", "with", "would", "you", "your",
))  # fmt: skip
"""Words of a search that do not describe a tool."""

_NAME_PATTERNS = (re.compile(r"\w+"), re.compile(r"\w(?:[\w.:/-]*\w)?"))
"""Names of tools in a text, without and with signs such as ``-`` and ``/``."""


@dataclass(frozen=True)
class ToolSearch:
    """Searches tools by their words and by rankings.

    The score of a tool is ``WORDS`` times its share of the best BM25 score, plus ``RUN`` times the
    logarithm of its probability in the run, plus ``TEXT`` times that of its probability as the
    first call for the text. Tools whose names are in the text come first, then the best match by
    words: their scores are raised to the highest one. A search leaves out tools that neither match
    by words nor are likelier than chance in a ranking of a familiar query. If the text matches no
    words and is unfamiliar, it finds nothing.

    Attributes:
        names: of n tools, as they are returned.
        read_documents: returns their texts; called at the first search.
        known_as: their names in rankings; None for one that the model does not know.
    """

    names: Sequence[str]
    read_documents: Callable[[], Sequence[str]]
    known_as: Sequence[str | None]

    @classmethod
    def of(cls, tools: Sequence[Tool]) -> ToolSearch:
        """A search among tools that have the same names in rankings."""
        names = tuple(tool.name for tool in tools)
        return cls(names, partial(_documents, tools), names)

    @cached_property
    def _index(self) -> WordIndex:
        return WordIndex(self.read_documents())

    def find(
        self,
        text: str,
        top_k: int = SEARCH_LIMIT,
        *,
        run: Ranking | None = None,
        asked: Ranking | None = None,
        offered: Collection[str] | None = None,
    ) -> list[tuple[str, float]]:
        """The ``top_k`` best tools that match, each with its share of all scores.

        Args:
            text: what the agent wants to do.
            top_k: limit of tools, at least 1.
            run: the ranking of the run's next step; None if the run is unknown.
            asked: the ranking of the first step for the text; None: by words alone.
            offered: names of the tools that may be returned; None: all.

        Raises:
            InputError: the text is not text or blank, top_k is below 1, or ``offered`` is a text.
        """
        check_at_least(1, top_k=top_k)
        check_lists(offered=offered)
        if not isinstance(text, str) or not text.strip():
            raise InputError("the search is empty; say what you want to do")
        if not self.names:
            return []
        by_words = self._index.scores(text, STOP_WORDS)
        may = np.ones(len(self.names), bool)
        if offered is not None:
            may = np.fromiter((name in offered for name in self.names), bool, len(self.names))
            by_words = np.where(may, by_words, 0.0)
        best = by_words.max()
        is_named = self._named_in(text) & may
        is_best = (by_words == best) & (best > 0)
        scores = WORDS * by_words / (best or 1.0)
        matches = is_named | (by_words > RELEVANT * best)
        # The run's next step does not answer a text that matches nothing here.
        is_about_tools = bool(matches.any()) or (asked is not None and asked.is_familiar)
        for ranking, weight in ((run or asked, RUN), (asked, TEXT)):
            if ranking is not None:
                size = len(ranking)
                chance = self._chances(ranking)
                scores += weight * np.log(chance + FLOOR / size)
                if ranking.is_familiar and is_about_tools:
                    matches |= chance * size > 1
        scores[~may] = -np.inf
        for is_first in (is_best, is_named):
            if is_first.any():
                scores[is_first] += max(0.0, scores.max() - scores[is_first].min())
        positions = np.flatnonzero(matches & may)
        keys = (-scores[positions], ~is_best[positions], ~is_named[positions])
        order = positions[np.lexsort(keys)][:top_k]
        if not len(order):
            return []
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        return [(self.names[position], float(shares[position])) for position in order]

    def _named_in(self, text: str) -> npt.NDArray[np.bool_]:
        """Shape (n,): whether the text contains the name of each tool as a word, in any case."""
        text = text[:MAX_CHARACTERS].casefold()
        mentioned = {word for pattern in _NAME_PATTERNS for word in pattern.findall(text)}
        named = (
            name in mentioned or (" " in name and name in text)
            for name in (name.casefold() for name in self.names)
        )
        return np.fromiter(named, bool, len(self.names))

    def _chances(self, ranking: Ranking) -> Floats:
        """Probabilities in the order of the tools; 0 if the ranking does not contain one."""
        vocabulary, known_as = ranking.vocabulary, self.known_as
        if len(vocabulary) > len(known_as) and tuple(vocabulary[: len(known_as)]) == known_as:
            return ranking.scores[: len(known_as)]
        positions: Mapping[str | None, int] = {name: at for at, name in enumerate(vocabulary)}
        at = np.fromiter((positions.get(name, -1) for name in known_as), np.intp, len(known_as))
        return np.where(at >= 0, ranking.scores[at], 0.0)


def _documents(tools: Sequence[Tool]) -> list[str]:
    return [document(tool) for tool in tools]
