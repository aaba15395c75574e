"""A served model at one moment: how it ranks, and the queries that it keeps prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

from starlette.exceptions import HTTPException

from dtdr.net.workers import Workers
from dtdr.predict.model import Model
from dtdr.rankers import NAMES
from dtdr.rankers.ranking import Ranking
from dtdr.serve.server.runs import RunCache

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
RankHistory: TypeAlias = Callable[[Sequence[str]], Ranking]

RETRY_SOON = {"retry-after": "1"}

_QUICK_LENGTH = 500
"""Characters of a query and names of calls that are ranked in the event loop. With ``_QUICK_TOOLS``
tools they take a dtdr-f 4 ms on a busy machine; with 480 tools, 2,000 characters take 13 ms."""
_QUICK_TOOLS = 100

_KEPT_BYTES = 32_000_000
"""Bytes of prepared queries that are kept, so that a run pays for its query once: .78 of the .94 ms
of a ranking with dtdr-f on TinyAgent, when this was chosen."""
_KEPT_LENGTH = 1_000
"""Characters of a query that is kept."""


@dataclass(frozen=True)
class Snapshot:
    """A fitted model at one moment; it is never changed, only replaced.

    Attributes:
        name: of the served model.
        model: fitted.
        generation: number of the snapshot, from 1.
        workers: threads of the served model.
        runs: that were asked about lately.
    """

    name: str
    model: Model
    generation: int
    workers: Workers
    runs: RunCache
    _prepare: Callable[[str], RankHistory]

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that begin every answer of a model."""
        return {"model": self.name, "generation": self.generation}

    def rank(self, query: str, history: Sequence[str]) -> Ranking:
        """Rank one step; a recent query is not prepared again."""
        return self._prepare(query)(history)

    def is_quick(self, size: int) -> bool:
        """Whether a step of this many characters is ranked sooner than a thread begins.

        A ranker from outside may do anything, and a fixed encoder may ask a network.
        """
        model = self.model
        is_small = size <= _QUICK_LENGTH and len(model.vocabulary) <= _QUICK_TOOLS
        return is_small and model.name in NAMES and computes(model)

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Do work in the model's threads.

        Raises:
            HTTPException: it took too long.
        """
        try:
            return await self.workers.run(work, *arguments)
        except TimeoutError:
            reason = "the model did not rank in time; try again later"
            raise HTTPException(503, reason, RETRY_SOON) from None


def computes(model: Model) -> bool:
    """Whether a model only computes; other encoders may ask a network."""
    return model.ranker.encoder is None or model.ranker.encoder.learned


def keep_prepared(model: Model) -> Callable[[str], RankHistory]:
    """A function that prepares queries, with a cache of the latest ones of ordinary length.

    The size of an entry is an estimate from the number of tools. A query that dtdr-f prepared takes
    29 kB if it is short and 245 kB if it has 2,000 characters (48 tools; estimate 157 kB), or
    0.16 and 1.0 MB (2,048 tools; estimate 0.86 MB). Other rankers take less.
    """
    size = (_KEPT_LENGTH + 400) * (100 + len(model.vocabulary) // 4)
    keep = lru_cache(max(1, _KEPT_BYTES // size))(model.prepare)
    return lambda query: (keep if len(query) <= _KEPT_LENGTH else model.prepare)(query)
