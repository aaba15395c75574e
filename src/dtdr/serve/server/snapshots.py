"""A model at one moment: its retriever, how it ranks, and the queries that it keeps prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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

_KEPT_BYTES = 32_000_000
"""Of the queries that a snapshot keeps prepared, so that a run pays for its query once: .78 of the
.94 ms of a ranking with dtdr-f on TinyAgent, when this was chosen."""
_KEPT_LENGTH = 1_000
"""Characters of a query that is kept."""


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


def keep_prepared(retriever: Model) -> Callable[[str], Prepared]:
    """Prepares queries, and keeps those of ordinary length that were asked for last.

    dtdr-f, which takes most, has 29 kB for a short query and 245 kB for one of 2,000 characters on
    48 tools, and 0.16 and 1.0 MB on 2,048 tools; this counts 157 kB and 0.86 MB for each.
    """
    size = (_KEPT_LENGTH + 400) * (100 + len(retriever.vocabulary) // 4)
    keep = lru_cache(max(1, _KEPT_BYTES // size))(retriever.prepare)
    return lambda query: (keep if len(query) <= _KEPT_LENGTH else retriever.prepare)(query)
