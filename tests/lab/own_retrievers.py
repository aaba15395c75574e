"""Retrievers that a user of the lab might have written."""

import os

from dtdr.retrievers.random import RandomRetriever


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


NOT_A_RETRIEVER = 3
