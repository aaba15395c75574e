"""Retrievers that a user of the lab might have written."""

import os
from collections import Counter

import numpy as np

from dtdr.rankers.base import Ranker
from dtdr.rankers.random import RandomRetriever


class Frequent(Ranker):
    """How often each tool was called, and less where it was called just now.

    Its attributes have names of its own, some of which other rankers use otherwise.
    """

    def __init__(self, *, again: float = 0.5, threshold: float = 0.0) -> None:
        self.factor, self.least = again, threshold

    def fit(self, demonstrations, tools):
        called = Counter(name for item in demonstrations for name in item.plan.tools)
        self.threshold = np.array([called[tool.name] + 1.0 for tool in tools])
        self.tools_ = np.array([tool.name for tool in tools]).view(np.uint8)
        self._width = np.array([len(tools)])

    def prepare(self, query):
        return len(query)

    def probabilities(self, prepared, run):
        names = [
            name.item() for name in self.tools_.view(f"U{self.tools_.size // 4 // self._width[0]}")
        ]
        return np.array(
            [
                self.threshold[place] * (self.factor if name in run.history[-1:] else 1)
                for place, name in enumerate(names)
            ]
        )


class Raising(RandomRetriever):
    """Fails while it learns."""

    name = "raising"

    def _fit(self, demonstrations):
        raise RuntimeError("no idea what to learn")


class Dying(RandomRetriever):
    """Takes its process with it, as a crash in native code would."""

    name = "dying"

    def _fit(self, demonstrations):
        os._exit(9)


class Slow(RandomRetriever):
    """Takes so long that the lab is interrupted meanwhile."""

    name = "slow"

    def _fit(self, demonstrations):
        import time

        time.sleep(600)


NOT_A_RANKER = 3
