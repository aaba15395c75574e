"""Gains of tools from one model to another, at steps where they are wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from dtdr.data.calls import END

FEWEST_STEPS = 20
"""Steps that are needed for a mean: with fewer, it moves by some hundredths with each."""
_TOP = 3
"""A tool gains only where it comes among this many."""


class ToolGains:
    """Sums of the gains of tools in 1 / rank, at the steps where they are not acceptable.

    A tool that gains much there was pushed up by made-up runs, so a person must look at them.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._acceptable: Counter[str] = Counter()

    def add(self, old: Sequence[str], new: Sequence[str], acceptable: Iterable[str]) -> None:
        """Add one step: the tools as each model ranks them, best first."""
        right = frozenset(acceptable)
        self._steps += 1
        self._acceptable.update(right)
        for rank, tool in enumerate(new[:_TOP], start=1):
            if tool not in right and tool != END:
                self._sums[tool] += 1 / rank - reciprocal_rank(old, (tool,))

    def means(self) -> dict[str, float]:
        """The mean of each tool that gained, largest first; no tool with few steps."""
        means = {
            tool: total / steps
            for tool, total in self._sums.items()
            if total > 0 and (steps := self._steps - self._acceptable[tool]) >= FEWEST_STEPS
        }
        return dict(sorted(means.items(), key=lambda item: -item[1]))


def reciprocal_rank(tools: Sequence[str], acceptable: Iterable[str]) -> float:
    """1 / rank of the best acceptable tool; 0 if there is none.

    >>> reciprocal_rank(["open", "mail"], ["mail"])
    0.5
    """
    wanted = frozenset(acceptable)
    return next((1 / rank for rank, tool in enumerate(tools, 1) if tool in wanted), 0.0)
