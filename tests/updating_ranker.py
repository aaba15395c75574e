"""A ranker that learns from further runs in milliseconds, for tests of updates and versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.rankers.base import HeldOutFold, IncrementalRanker, StepState
from dtdr.rankers.calibration import Floats
from dtdr.rankers.explanation import Explanation
from dtdr.rankers.ranking import Ranking

_ROWS = 512


class WordCounts(IncrementalRanker):
    """Naive Bayes on the words of the query and the last call."""

    names: tuple[str, ...]

    def fit(self, demonstrations: Sequence[Demonstration], tools: Sequence[Tool]) -> None:
        """Count."""
        self.names = tuple(tool.name for tool in tools)
        self.counts = np.zeros((_ROWS, len(tools)))
        self.update(demonstrations)

    def update(self, demonstrations: Sequence[Demonstration]) -> None:
        """Count further demonstrations."""
        counts, index = self.counts.copy(), {name: at for at, name in enumerate(self.names)}
        for item in demonstrations:
            words = self.prepare(item.query)
            followers = (*item.plan.tools, "end")
            for last, tool in zip(("", *item.plan.tools), followers, strict=True):
                counts[[*words, _row(f"after {last}")], index[tool]] += 1
        self.counts = counts

    def change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """Keep the counts of tools that stay."""
        counts = np.zeros((_ROWS, len(tools)))
        for at, tool in enumerate(tools):
            if tool.name in names:
                counts[:, at] = self.counts[:, names.index(tool.name)]
        self.names, self.counts = tuple(tool.name for tool in tools), counts

    def prepare(self, query: str) -> list[int]:
        """The rows of the words."""
        return sorted({_row(word) for word in re.findall(r"\w+", query.lower())})

    def probabilities(self, prepared: Any, run: Run) -> Floats:
        """Shares by Bayes' rule."""
        rows = [*prepared, _row(f"after {run.history[-1] if run.history else ''}")]
        totals = self.counts.sum(axis=0) + 1
        scores = np.log((self.counts[rows] + 0.1) / totals).sum(axis=0) + np.log(totals)
        shares: Floats = np.exp(scores - scores.max())
        return shares / shares.sum()

    def start(self, prepared: Any, run: Run) -> StepState:
        """The query."""
        return _State(self, prepared, Run(run.query))

    def restore(self, tools: Sequence[Tool], arrays: Any) -> None:
        """The counts, and the names from the tools."""
        self.names, self.counts = tuple(tool.name for tool in tools), arrays["counts"]

    def arrays(self) -> Any:
        """The counts."""
        return {"counts": self.counts}

    def explain(self, explanation: Explanation, run: Run, state: StepState) -> Explanation:
        """No reasons."""
        return explanation

    def held_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        """No folds."""
        return iter(())

    def add_phrases(self, phrases: Any) -> None:
        """Ignore them."""

    def demonstrated_plans(self) -> list[Plan]:
        """No plans are kept."""
        return []


class _State:
    def __init__(self, ranker: WordCounts, prepared: Any, run: Run) -> None:
        self._ranker, self._prepared, self._run = ranker, prepared, run

    def call(self, tool: int, call: ToolCall | None = None) -> None:
        self._run.calls.append(ToolCall("", self._ranker.names[tool] if tool >= 0 else ""))

    def rank(self) -> Ranking:
        shares = self._ranker.probabilities(self._prepared, self._run)
        return Ranking(self._ranker.names, shares)

    def copy(self) -> _State:
        return _State(self._ranker, self._prepared, self._run.copy())


def _row(key: str) -> int:
    return crc32(key.encode()) % _ROWS
