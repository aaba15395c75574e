"""Which tools an agent means that says in words what it lacks: words of tools and the rankings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtdr.calibration import Floats
from dtdr.encoders.base import MAX_CHARACTERS
from dtdr.encoders.lexical import words
from dtdr.errors import InputError, check_at_least
from dtdr.ranking import Ranking
from dtdr.retrievers.descriptions import document
from dtdr.tools import Tool

SEARCH_LIMIT = 5
"""Tools that a search returns unless it says how many."""

RELEVANT = 0.25
"""Tools whose words score less than this share of the best one's do not match by words."""

WORDS, RUN, TEXT, FLOOR = 4.0, 0.5, 0.25, 0.05
"""What the words, and the logarithms of the two rankings, weigh; and what a tool without any chance
has, of an even share. Of 240 mixtures on a quarter of the training sides (benchmarks/search.py),
mean recall@5 and recall@1 over tools that the mask missed and tools never demonstrated, of
TinyAgent, T-Eval and UltraTool: .901 and .527, with the best match by words put first .900 and
.619; BM25 alone .889 and .646, the ranking alone .803."""

STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "do", "does", "for", "from",
    "have", "how", "i", "in", "into", "is", "it", "me", "my", "need", "of", "on", "or", "our",
    "please", "some", "something", "that", "the", "this", "to", "tool", "tools", "use", "using",
    "want", "we", "what", "which", "will", "with", "would", "you", "your",
))  # fmt: skip
"""Words of a search that say nothing about the tool wanted."""


class WordIndex:
    """BM25 (Robertson and Zaragoza, 2009) over documents, by the package bm25s.

    Args:
        documents: n texts.
        k1: how much a repeated word adds.
        b: how much long documents are marked down, 0 to 1.
    """

    def __init__(self, documents: Sequence[str], *, k1: float = 1.5, b: float = 0.75) -> None:
        import bm25s  # slow to import, and needed here only

        self._size = len(documents)
        terms = [_terms(text) for text in documents]
        self._scorer = bm25s.BM25(k1=k1, b=b) if any(terms) else None
        if self._scorer is not None:
            self._scorer.index(terms, show_progress=False)

    def scores(self, text: str, leave_out: Collection[str] = ()) -> Floats:
        """Shape (n,): what each document scores for a text, 0 where they share no word.

        Args:
            text: of which the first 32,768 characters are read.
            leave_out: words of the text that do not count.
        """
        if self._scorer is not None:
            known = self._scorer.vocab_dict
            terms = _terms(text[:MAX_CHARACTERS])
            asked = [word for word in terms if word in known and word not in leave_out]
            if asked:
                return np.asarray(self._scorer.get_scores(asked), np.float64)
        return np.zeros(self._size)


@dataclass(frozen=True)
class ToolSearch:
    """Searches tools by their words and by what rankings say of them.

    The score of a tool is ``WORDS`` times its share of the best BM25 score, ``RUN`` times the
    logarithm of its probability in the run, and ``TEXT`` times that of its probability as the first
    call for the text. The best match by words comes first, so that who names a tool gets it. One
    that neither matches by words nor is likelier than chance in a ranking of something familiar is
    left out.

    Attributes:
        names: of n tools, as they are returned.
        read_documents: gives their texts; called at the first search.
        known_as: their names in rankings; None: the same.
    """

    names: Sequence[str]
    read_documents: Callable[[], Sequence[str]]
    known_as: Sequence[str | None] | None = None

    @classmethod
    def of(cls, tools: Sequence[Tool]) -> ToolSearch:
        """The search among tools that rankings know by their names."""
        return cls(tuple(tool.name for tool in tools), lambda: [document(tool) for tool in tools])

    @cached_property
    def _index(self) -> WordIndex:
        return WordIndex(self.read_documents())

    def find(
        self,
        text: str,
        k: int = SEARCH_LIMIT,
        *,
        run: Ranking | None = None,
        asked: Ranking | None = None,
        among: Collection[str] | None = None,
    ) -> list[tuple[str, float]]:
        """The k best tools, each with its share of all scores; fewer where fewer match.

        Args:
            text: what the agent says that it wants to do.
            k: how many at most, at least 1.
            run: the ranking of the run's next step; None where nothing is known of the run.
            asked: the ranking of the first step for the text; None goes by the words alone.
            among: names of the tools that may be returned; all by default.

        Raises:
            InputError: the text is not text or blank, or k is below 1.
        """
        check_at_least(1, k=k)
        if not isinstance(text, str) or not text.strip():
            raise InputError("the search is empty; say what you want to do")
        if not self.names:
            return []
        by_words = self._index.scores(text, STOP_WORDS)
        may = np.ones(len(self.names), bool)
        if among is not None:
            may = np.fromiter((name in among for name in self.names), bool, len(self.names))
            by_words = np.where(may, by_words, 0.0)
        best = by_words.max()
        scores = WORDS * by_words / (best or 1.0)
        matches = by_words > RELEVANT * best
        for ranking, weight in ((run or asked, RUN), (asked, TEXT)):
            if ranking is not None:
                size = len(ranking)
                chance = self._chances(ranking)
                scores += weight * np.log(chance + FLOOR / size)
                if ranking.is_familiar:
                    matches |= chance * size > 1
        scores[~may] = -np.inf
        positions = np.flatnonzero(matches & may)
        is_best = (by_words == best) & (best > 0)
        order = positions[np.lexsort((-scores[positions], ~is_best[positions]))][:k]
        if not len(order):
            return []
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        return [(self.names[place], float(shares[place])) for place in order]

    def _chances(self, ranking: Ranking) -> Floats:
        """Probabilities in the order of the tools; 0 for those that the ranking does not know."""
        vocabulary = ranking.vocabulary
        known_as = self.names if self.known_as is None else self.known_as
        if len(vocabulary) > len(known_as) and tuple(vocabulary[: len(known_as)]) == known_as:
            return ranking.scores[: len(known_as)]
        place: Mapping[str | None, int] = {name: at for at, name in enumerate(vocabulary)}
        at = np.fromiter((place.get(name, -1) for name in known_as), np.intp, len(known_as))
        return np.where(at >= 0, ranking.scores[at], 0.0)


def _terms(text: str) -> list[str]:
    return [word for word in words(text) if word[0].isalnum()]
