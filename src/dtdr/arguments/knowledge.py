"""Which words of a query announce which tool."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.arguments.hashing import feature
from dtdr.arguments.run_texts import RunTexts
from dtdr.arguments.texts import name_stems, read_stems
from dtdr.demonstrations import Demonstration

_STRONG = 0.5
_STOP_WORDS = frozenset(
    """the a an and or of to in on for with from by at is are be i me my you your it this that then
    also can could would please about into as not if""".split()  # noqa: SIM905
)


class Associations:
    """Which words of a query announce which tool.

    The weight is the pointwise mutual information of a word and a tool, smoothed and lowered for
    rare words; only words are kept that make a tool clearly more likely.

    Args:
        words: hashes of stems; shape (n,).
        tools: positions in ``names``; shape (n,).
        weights: shape (n,).
        names: tool names.
    """

    def __init__(
        self,
        words: npt.NDArray[np.uint32],
        tools: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        names: Sequence[str],
    ) -> None:
        self.names = tuple(names)
        self._arrays = (words, tools, weights)
        self._weights: dict[int, dict[str, float]] = defaultdict(dict)
        for word, tool, weight in zip(
            words.tolist(), tools.tolist(), weights.tolist(), strict=True
        ):
            self._weights[word][self.names[tool]] = weight
        for by_tool in self._weights.values():
            by_tool[""] = max(by_tool.values())  # of the tool that it announces most strongly

    @classmethod
    def fit(cls, demonstrations: Sequence[Demonstration]) -> Associations:
        """Count words of queries against tools of plans."""
        with_word: Counter[str] = Counter()
        with_tool: Counter[str] = Counter()
        with_both: Counter[tuple[str, str]] = Counter()
        for item in demonstrations:
            stems = set(read_stems(item.query))
            tools = set(item.plan.tools)
            with_word.update(stems)
            with_tool.update(tools)
            with_both.update((stem, tool) for stem in stems for tool in tools)
        names = sorted(with_tool)
        position = {name: number for number, name in enumerate(names)}
        rows: list[tuple[int, int, float]] = []
        for (stem, tool), both in sorted(with_both.items()):
            if both < 2 or stem in _STOP_WORDS or not stem[0].isalnum():
                continue
            share = with_tool[tool] / len(demonstrations)
            lift = (both + share) / ((with_word[stem] + 1) * share)
            weight = math.log(lift) * min(1.0, with_word[stem] / 3)
            if weight > _STRONG:
                rows.append((feature(stem), position[tool], weight))
        return cls(
            np.array([row[0] for row in rows], np.uint32),
            np.array([row[1] for row in rows], np.int32),
            np.array([row[2] for row in rows], np.float32),
            names,
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return dict(zip(("words", "tools", "weights"), self._arrays, strict=True))

    def find_announced(self, texts: RunTexts) -> list[str]:
        """The tool that each token announces most strongly; empty where it announces none."""
        tools: list[str] = []
        for stem, quoted in zip(texts.stems, texts.is_quoted.tolist(), strict=True):
            weights = None if quoted else self._weights.get(feature(stem))
            best = ""
            if weights and weights[""] > 1:
                best = next(tool for tool, weight in weights.items() if weight == weights[""])
            tools.append(best)
        return tools

    def anchors(self, texts: RunTexts, tool: str) -> Anchors:
        """Where the words stand that announce a tool."""
        own = name_stems(tool)
        count = len(texts.stems)
        here, others = np.zeros(count), np.zeros(count)
        for token, (stem, quoted) in enumerate(
            zip(texts.stems, texts.is_quoted.tolist(), strict=True)
        ):
            if not quoted:
                weights = self._weights.get(feature(stem))
                if weights:
                    here[token] = weights.get(tool, 0.0)
                    others[token] = weights[""]
                if stem in own:
                    here[token] += 1
        strongest = float(here.max(initial=0.0))
        is_own = here >= max(_STRONG, 0.6 * strongest)
        is_other = ~is_own & (others > np.maximum(1.0, here + 0.7))
        tokens = np.arange(count)
        last, other = last_before(is_own, tokens), last_before(is_other, tokens)
        following = first_after(is_own, tokens)
        before = np.where(last < 0, 6, np.minimum(5, bit_length(tokens - last)))
        return Anchors(
            2 * before + (other > last),
            np.where(following < 0, 5, np.minimum(4, bit_length(following - tokens))),
            int(here.argmax()) if strongest > 0 else -1,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Anchors:
    """Where the words stand that announce a tool.

    Attributes:
        before: of each token, how far back the last such word stands (rounded, 6 where there is
            none), times 2, plus 1 where a word for another tool stands between; shape (n,).
        after: of each token, how far ahead the next one stands, 5 where there is none; shape (n,).
        strongest: the token of the strongest one, -1 where there is none.
    """

    before: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]
    strongest: int


def last_before(
    flags: npt.NDArray[np.bool_], tokens: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Of n tokens, the last one at or before each that is flagged, or -1; shape (n,)."""
    result: npt.NDArray[np.int64] = np.maximum.accumulate(np.where(flags, tokens, -1))
    return result


def first_after(
    flags: npt.NDArray[np.bool_], tokens: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Of n tokens, the first one at or after each that is flagged, or -1; shape (n,)."""
    count = len(tokens)
    nearest = np.minimum.accumulate(np.where(flags, tokens, count)[::-1])[::-1]
    result: npt.NDArray[np.int64] = np.where(nearest < count, nearest, -1)
    return result


_BIT_LENGTHS = np.array([number.bit_length() for number in range(64)], np.int64)


def bit_length(distance: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bits of distances from 0, of their shape; those over 63 have 6."""
    result: npt.NDArray[np.int64] = _BIT_LENGTHS[np.minimum(np.abs(distance), 63)]
    return result
