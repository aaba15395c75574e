"""``forest``: a random forest over the latest values of all outputs, a first thing to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.outputs import iter_leaves, parse_output
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.rankers.base import Arrays, Ranker
from dtdr.rankers.calibration import Floats
from dtdr.rankers.nn import Matrix
from dtdr.rankers.trees import Forest
from dtdr.text.words import words

_MOST_COLUMNS, _MOST_ROWS, _LEAST_RUNS = 3_000, 20_000, 2
_LONGEST, _MOST_VALUES = 24, 128
_UNSEEN = 1e-3
"""Share of the probability that all tools have."""
_MISSING = np.float32(-1e8)


class ForestRanker(Ranker):
    """Ranks tools by scikit-learn's random forest.

    A row has the words of the query, how often each tool was called, the last tool, and of each
    tool's latest call the numbers, flags and short texts of its output.

    Args:
        seed: of the rows and features that each tree sees.
    """

    name = "forest"
    forest_: Forest
    columns_: npt.NDArray[np.uint32]

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, demonstrations: Sequence[Demonstration], tools: Sequence[Tool]) -> None:
        """See ``Ranker.fit``."""
        index = {tool.name: position for position, tool in enumerate(tools)}
        steps: list[tuple[dict[int, float], int]] = []
        runs: Counter[int] = Counter()
        for item in demonstrations:
            run = Run.of_read(item.query, item.before, item.plan.calls)
            rows = [_read(run.first(done)) for done in range(len(run.calls) + 1)]
            for done, row in enumerate(rows):
                right = item.plan.next_in_log(range(done)) or {tools[-1].name}
                steps += [(row, index[name]) for name in sorted(right)]
            runs.update({key for row in rows for key in row})
        steps = steps[:: -(-len(steps) // _MOST_ROWS)]
        kept = [key for key, count in runs.most_common(_MOST_COLUMNS) if count >= _LEAST_RUNS]
        self.columns_ = np.array(sorted(kept), np.uint32)
        table = np.stack([self._row(row) for row, _ in steps])
        wanted = np.array([tool for _, tool in steps])
        self.forest_ = Forest.fit(table, wanted, len(tools), weights=None, seed=self.seed)

    def prepare(self, query: str) -> None:
        """Nothing: a row is made of the whole run."""

    def probabilities(self, prepared: None, run: Run) -> Floats:
        """See ``Ranker.probabilities``."""
        shares = self.forest_.predict(self._row(_read(run))).astype(np.float64)
        return shares + _UNSEEN / len(shares)

    def _row(self, values: Mapping[int, float]) -> Matrix:
        """The values in their columns; those without one are written to the last and erased."""
        row = np.full(len(self.columns_) + 1, _MISSING, np.float32)
        keys = np.fromiter(values, np.uint32, len(values))
        columns = self.columns_.searchsorted(keys)
        is_unknown = np.append(self.columns_, 0)[columns] != keys
        columns[is_unknown] = len(self.columns_)
        row[columns] = np.fromiter(values.values(), np.float32, len(values))
        row[-1] = 0
        return row

    def arrays(self) -> Arrays:
        """See ``Ranker.arrays``."""
        return {"column_hashes": self.columns_, **self.forest_.arrays()}

    def restore(self, tools: Sequence[Tool], arrays: Arrays) -> None:
        """See ``Ranker.restore``."""
        self.columns_ = np.asarray(arrays["column_hashes"])
        self.forest_ = Forest.restore(arrays, len(self.columns_) + 1, len(tools))


def _read(run: Run) -> dict[int, float]:
    """Hashed names of features, and their values."""
    features: dict[str, float] = {f"word {word}": 1.0 for word in words(run.query)}
    latest: dict[str, ToolCall] = {}
    for call in (*run.earlier, *run.calls):
        latest[call.tool] = call
    for call in latest.values():
        leaves = iter_leaves(parse_output(call.output))
        for (path, value), _ in zip(leaves, range(_MOST_VALUES), strict=False):
            name = f"{call.tool} {path}"
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                features[name] = _finite(value)
            elif not isinstance(value, str) or len(value) <= _LONGEST:
                features[f"{name} {value}"] = 1.0
    for tool, count in Counter(run.history).items():
        features[f"called {tool}"] = float(count)
    for tool in run.history[-1:]:
        features[f"last {tool}"] = 1.0
    features["calls"] = float(len(run.calls))
    return {crc32(name.encode("utf-8", "replace")): value for name, value in features.items()}


def _finite(value: Any) -> float:
    return float(value) if -1e9 < value < 1e9 else 0.0
