"""``random``: a random order, the lower bound of every table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.base import History
from dtdr.rankers.calibration import Floats
from dtdr.rankers.name_ranker import NameRanker


class RandomRetriever(NameRanker):
    """A random order of the tools at each step, the same for the same seed, query and history."""

    name = "random"
    needs_demonstrations = False

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        pass

    def _prepare(self, queries: Sequence[str]) -> Sequence[str]:
        return queries

    def _row(self, prepared: str, history: History) -> Floats:
        text = f"{self.seed}\0{prepared}\0{list(history)}".encode("utf-8", "surrogatepass")
        key = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
        return np.random.default_rng(key).random(len(self.tools_))
