"""The result of a retrieval step: every known tool with its probability, best first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Guide:
    """What a fitted retriever knows about its own rankings, shared by all of them.

    Attributes:
        held_out: shape (steps,), ascending: on plans that were held out, the probability of the
            best acceptable tool at each step; what ``select(coverage=…)`` is calibrated on.
        confidence: shape (2, points): probabilities of the best tool, ascending, and how often a
            best tool of that probability was acceptable on held-out plans.
        tokens: shape (n,), in the order of the vocabulary: what showing a tool costs in a prompt.
        familiarity_floor: queries less familiar than this are unlike the demonstrations.
    """

    held_out: Floats | None = None
    confidence: Floats | None = None
    tokens: npt.NDArray[np.int64] | None = None
    familiarity_floor: float | None = None

    def probability_for(self, coverage: float) -> float:
        """The cut above which the set of tools holds an acceptable one that often.

        Split conformal prediction with the probability of the best acceptable tool as the
        conformity score, which gives the smallest sets on average where probabilities are
        calibrated (Sadinle et al. 2019, Least Ambiguous Set-Valued Classifiers).

        Raises:
            InputError: the coverage is outside (0, 1), or nothing was held out.
        """
        if not 0 < coverage < 1:
            raise InputError(f"coverage is {coverage}; it must be between 0 and 1")
        if self.held_out is None or not len(self.held_out):
            raise InputError(
                "this retriever has no calibrated coverage; use top_k or threshold, or fit dtdr-f"
            )
        # Rank ⌊(m + 1)(1 − c)⌋ of m held-out scores; rank 0 means that no cut is low enough.
        rank = int((len(self.held_out) + 1) * (1 - coverage) + 1e-9)
        return 0.0 if rank == 0 else float(self.held_out[rank - 1])


NO_GUIDE = Guide()

_MANY, _FEW = 256, 32
"""From so many tools on, the first few are found faster than by sorting: of 1,000 in a quarter of
the time."""


class Ranking:
    """Tools by falling probability; ties keep the order of the tool vocabulary.

    Args:
        vocabulary: names of the n known tools, end of plan included.
        probabilities: shape (n,), in the order of the vocabulary, summing to 1.
        threshold: the retriever's own cut (the paper's α), used by ``select()`` without arguments.
        guide: what the retriever knows about its rankings.
        familiarity: how much the query is like the demonstrations' queries, higher is more; None
            where the retriever cannot tell.
    """

    __slots__ = (
        "_order",
        "_probabilities",
        "_vocabulary",
        "familiarity",
        "guide",
        "threshold",
    )

    def __init__(
        self,
        vocabulary: Sequence[str],
        probabilities: Floats,
        *,
        threshold: float | None = None,
        guide: Guide = NO_GUIDE,
        familiarity: float | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._probabilities = probabilities
        self._order: npt.NDArray[np.intp] | None = None
        self.threshold = threshold
        self.guide = guide
        self.familiarity = familiarity

    @property
    def order(self) -> npt.NDArray[np.intp]:
        """Positions in the vocabulary, best first; shape (n,)."""
        if self._order is None:
            self._order = np.argsort(-self._probabilities, kind="stable")
        return self._order

    def _leading(self, k: int) -> npt.NDArray[np.intp]:
        """The first k of ``order``, without sorting all of many tools."""
        if self._order is not None or len(self._probabilities) < _MANY or not 0 < k <= _FEW:
            return self.order[:k]
        falling = -self._probabilities
        last = np.partition(falling, k - 1)[k - 1]
        best = np.flatnonzero(falling <= last)  # ties of the last one too, in their order
        return best[np.argsort(falling[best], kind="stable")][:k]

    @property
    def tools(self) -> tuple[str, ...]:
        """Every known tool, best first."""
        return tuple(self._vocabulary[index] for index in self.order)

    @property
    def probabilities(self) -> Floats:
        """Probabilities in the order of ``tools``; shape (n,)."""
        return self._probabilities[self.order]

    @property
    def best(self) -> str:
        """The most probable next tool."""
        return self._vocabulary[int(self._probabilities.argmax())]

    @property
    def confidence(self) -> float:
        """How likely the best tool is an acceptable one.

        Calibrated on held-out plans where the retriever did so; else the best probability.
        """
        highest = float(self._probabilities.max())
        if self.guide.confidence is None:
            return highest
        return float(np.interp(highest, self.guide.confidence[0], self.guide.confidence[1]))

    @property
    def is_familiar(self) -> bool:
        """Whether the query is like the demonstrations; True where the retriever cannot tell."""
        floor = self.guide.familiarity_floor
        return self.familiarity is None or floor is None or self.familiarity >= floor

    def __len__(self) -> int:
        return len(self._vocabulary)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        for index in self.order:
            yield self._vocabulary[index], float(self._probabilities[index])

    def top(self, k: int) -> list[tuple[str, float]]:
        """The k most probable tools with their probabilities."""
        chosen = self._leading(k)
        values = self._probabilities[chosen].tolist()
        return [
            (self._vocabulary[index], value)
            for index, value in zip(chosen.tolist(), values, strict=True)
        ]

    def probability(self, tool: str) -> float:
        """Probability of a tool; 0 for one that the retriever does not know."""
        try:
            return float(self._probabilities[self._vocabulary.index(tool)])
        except ValueError:
            return 0.0

    def select(
        self,
        *,
        top_k: int | None = None,
        threshold: float | None = None,
        coverage: float | None = None,
        token_budget: int | None = None,
        fallback: bool = True,
    ) -> Ranking:
        """The tools worth showing, best first, renormalised; never empty.

        Without any argument: the retriever's own threshold, or all tools where it has none.

        Args:
            top_k: at most so many tools.
            threshold: only tools above this probability (the paper's α).
            coverage: the fewest tools that hold an acceptable one this often, in (0, 1).
            token_budget: as many tools as fit into so many prompt tokens.
            fallback: when the query is unlike the demonstrations, ``threshold`` and ``coverage``
                are set aside and all tools are shown (paper, Limitations); ``top_k`` and
                ``token_budget`` hold all the same.

        Raises:
            InputError: an argument is out of range, or the retriever was not calibrated for it.
        """
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        if threshold is not None and not 0 <= threshold < 1:
            raise InputError(f"threshold is {threshold}; it must be in [0, 1)")
        if token_budget is not None and token_budget < 1:
            raise InputError(f"token_budget is {token_budget}; it must be at least 1")
        if top_k is None and threshold is None and coverage is None and token_budget is None:
            threshold = self.threshold
        only_top = threshold is None and coverage is None and token_budget is None
        kept = self._leading(top_k) if only_top and top_k is not None else self.order
        cut = None if coverage is None else self.guide.probability_for(coverage)
        if self.is_familiar or not fallback:
            if threshold is not None:
                kept = _head(kept, self._probabilities[kept] > threshold)
            if cut is not None:
                kept = _head(kept, self._probabilities[kept] >= cut)
        if token_budget is not None:
            if self.guide.tokens is None:
                raise InputError("this retriever does not know what tools cost; use top_k instead")
            kept = _head(kept, np.cumsum(self.guide.tokens[kept]) <= token_budget)
        kept = kept[:top_k]
        chosen = self._probabilities[kept]
        total = chosen.sum()
        return Ranking(
            [self._vocabulary[index] for index in kept],
            chosen / total if total > 0 else np.full(len(kept), 1 / len(kept)),
            threshold=self.threshold,
            familiarity=self.familiarity,
        )

    def to_dict(self, top_k: int | None = None) -> dict[str, Any]:
        """A JSON object: ``{"tools": [{"tool": name, "probability": p}, …]}``, best first."""
        return {
            "tools": [
                {"tool": tool, "probability": round(probability, 6)}
                for tool, probability in self.top(len(self) if top_k is None else top_k)
            ]
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{tool} {probability:.3f}" for tool, probability in self.top(3))
        return f"Ranking({shown}{', …' if len(self) > 3 else ''})"


def _head(kept: npt.NDArray[np.intp], wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """The longest prefix of ``kept`` that is wanted throughout, but at least the best tool."""
    unwanted = np.flatnonzero(~wanted)
    return kept if not len(unwanted) else kept[: max(1, int(unwanted[0]))]
