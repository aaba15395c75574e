"""The result of a retrieval step: every known tool with its probability, best first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError

Floats = npt.NDArray[np.float64]


class Ranking:
    """Tools by falling probability; ties keep the order of the tool vocabulary.

    Args:
        vocabulary: names of the n known tools, end of plan included.
        probabilities: shape (n,), in the order of the vocabulary, summing to 1.
        threshold: the retriever's own cut (the paper's α), used by ``select()`` without arguments.
    """

    __slots__ = ("_order", "_probabilities", "_vocabulary", "threshold")

    def __init__(
        self,
        vocabulary: Sequence[str],
        probabilities: Floats,
        *,
        threshold: float | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._probabilities = probabilities
        self._order: npt.NDArray[np.intp] | None = None
        self.threshold = threshold

    @property
    def order(self) -> npt.NDArray[np.intp]:
        """Positions in the vocabulary, best first; shape (n,)."""
        if self._order is None:
            self._order = np.argsort(-self._probabilities, kind="stable")
        return self._order

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
        return self._vocabulary[int(self.order[0])]

    @property
    def confidence(self) -> float:
        """Probability of the best tool."""
        return float(self._probabilities.max())

    def __len__(self) -> int:
        return len(self._vocabulary)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        for index in self.order:
            yield self._vocabulary[index], float(self._probabilities[index])

    def top(self, k: int) -> list[tuple[str, float]]:
        """The k most probable tools with their probabilities."""
        return [
            (self._vocabulary[index], float(self._probabilities[index])) for index in self.order[:k]
        ]

    def probability(self, tool: str) -> float:
        """Probability of a tool; 0 for one that the retriever does not know."""
        try:
            return float(self._probabilities[self._vocabulary.index(tool)])
        except ValueError:
            return 0.0

    def select(self, *, top_k: int | None = None, threshold: float | None = None) -> Ranking:
        """The tools worth showing, renormalised; never empty.

        Args:
            top_k: at most so many tools.
            threshold: only tools above this probability (the paper's α); without any argument,
                the retriever's own threshold, and with none of these, all tools.

        Raises:
            InputError: ``top_k`` is below 1 or ``threshold`` outside [0, 1).
        """
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        if threshold is not None and not 0 <= threshold < 1:
            raise InputError(f"threshold is {threshold}; it must be in [0, 1)")
        if top_k is None and threshold is None:
            threshold = self.threshold
        kept = self.order
        if threshold is not None:
            above = self._probabilities[kept] > threshold
            kept = kept[above] if above.any() else kept[:1]
        kept = kept[:top_k]
        chosen = self._probabilities[kept]
        total = chosen.sum()
        return Ranking(
            [self._vocabulary[index] for index in kept],
            chosen / total if total > 0 else np.full(len(kept), 1 / len(kept)),
            threshold=self.threshold,
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
