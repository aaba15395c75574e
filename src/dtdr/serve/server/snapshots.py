"""A model at one moment: its retriever, how it ranks, and the queries that it keeps prepared."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple

from starlette.exceptions import HTTPException

from dtdr.net.workers import Workers
from dtdr.predict.model import Model
from dtdr.predict.steps import Prepared
from dtdr.rankers import NAMES
from dtdr.rankers.ranking import Ranking

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

QUICK_LENGTH = 500
"""Characters of a query and names of calls that are ranked in the event loop. With ``_QUICK_TOOLS``
tools they take a dtdr-f 4 ms on a busy machine; with 480 tools, 2,000 characters take 13 ms."""
_QUICK_TOOLS = 100
"""More of them are ranked in a thread."""

PREPARED_BYTES = 32_000_000
"""Of the queries that a snapshot keeps prepared, so that a run pays for its query once: .78 of the
.94 ms of a ranking with dtdr-f on TinyAgent, when this was chosen."""


@dataclass(frozen=True)
class Snapshot:
    """A fitted retriever as it is at one moment; it is never changed, only replaced.

    Attributes:
        name: of the model.
        retriever: fitted.
        generation: counts the snapshots of a model, from 1.
        workers: of the model.
    """

    name: str
    retriever: Model
    generation: int
    loaded_at: str
    workers: Workers
    _prepare: Callable[[str], Prepared]

    def rank(self, query: str, history: Sequence[str]) -> Ranking:
        """Rank one step; a query that was ranked lately is not prepared again."""
        return self._prepare(query).rank(history)

    @property
    def is_quick(self) -> bool:
        """Whether a short step is ranked in less time than a thread takes to begin.

        Another's ranker may do anything, and an encoder that did not learn here may ask a network.
        """
        retriever = self.retriever
        is_small = len(retriever.vocabulary) <= _QUICK_TOOLS
        return is_small and retriever.name in NAMES and computes(retriever)

    async def run(
        self,
        work: Callable[[*Arguments], Result],
        *arguments: *Arguments,
        size: int | None = None,
    ) -> Result:
        """Do what the model is asked for: rank a short step here, all else in the model's threads.

        Args:
            work: what to do.
            arguments: of it.
            size: characters of the query and the names of calls that are read, if the work is to
                rank one step; None for anything else.

        Raises:
            HTTPException: it took too long.
        """
        if size is not None and size <= QUICK_LENGTH and self.is_quick:
            return work(*arguments)
        try:
            return await self.workers.run(work, *arguments)
        except TimeoutError:
            raise HTTPException(
                503, "the model did not rank in time; try again later", {"retry-after": "1"}
            ) from None


def computes(retriever: Model) -> bool:
    """Whether it waits for nothing; other encoders may compute for long, or ask a network."""
    return retriever.encoder is None or retriever.encoder.learned


def prepared_bytes(retriever: Model, query: str) -> int:
    """About what a prepared query takes.

    dtdr-f, which takes most, has 29 kB for a short query and 245 kB for one of 2,000 characters on
    48 tools, and 0.16 and 1.0 MB on 2,048 tools; this says 46 and 269 kB, and 0.25 and 1.5 MB.
    """
    return (len(query) + 400) * (100 + len(retriever.vocabulary) // 4)


class PreparedQueries:
    """Prepares queries, and keeps those that were asked for last.

    Args:
        retriever: prepares them.
        limit: bytes that they may take together; one that takes a tenth of it is not kept.
    """

    def __init__(self, retriever: Model, limit: int) -> None:
        self._retriever = retriever
        self._limit = limit
        self._kept: OrderedDict[str, tuple[Prepared, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __call__(self, query: str) -> Prepared:
        """The prepared query."""
        with self._lock:
            if query in self._kept:
                self._kept.move_to_end(query)
                return self._kept[query][0]
        prepared = self._retriever.prepare(query)
        size = prepared_bytes(self._retriever, query)
        with self._lock:
            if size <= self._limit // 10 and query not in self._kept:
                self._kept[query] = prepared, size
                self._bytes += size
            while self._bytes > self._limit:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return prepared
