"""Asks the model which tools come next, off the event loop, and registers new tools with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
import numpy as np

from dtdr.agents.gateway.catalog import CatalogTool
from dtdr.agents.policy import ToolPolicy, ToolSelector
from dtdr.agents.search import SEARCH_TOOL, described_tool
from dtdr.data.calls import END
from dtdr.data.run import CallLike, as_run
from dtdr.errors import DtdrError, EncoderError
from dtdr.net.http_requests import bound_requests
from dtdr.net.workers import Workers
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.model import Model
from dtdr.rankers.ranking import Ranking

T = TypeVar("T")

logger = logging.getLogger("dtdr.mcp")

RANKING_SECONDS = 5.0
"""For one ranking, which takes milliseconds unless it waits for an encoder's server; clients wait
for their list of tools meanwhile."""

CALLS_AHEAD = 6
CONTINUATIONS = 4
"""How far ``rank_ahead`` looks, and along how many ways. Ten tools chosen once for scripted runs
held out of 40 (120 tools) have .53 of the calls for the next call alone, .77 for 3 calls ahead
along three ways, .86 for 5, .87 for 6 along six and .90 for 8 along four, in 3, 10, 15, 21 and
30 ms."""

ReadHistory = Callable[[], Sequence[CallLike]]


class Ranker:
    """Ranks in a worker thread, one ranking at a time.

    Args:
        retriever: a fitted model.
        policy: how many tools are shown, and when the set may change.
        whole_run: choose for the next calls instead of the next one (``rank_ahead``).

    Attributes:
        registered: names of the tools that the model knows by their descriptions only.
        reads_calls: whether the model ranks by what calls were given and returned.
        fills: whether it learned arguments, for ``predict``.
        generation: grows when the model has learned or registered tools: rankings made before are
            old.

    Raises:
        InputError: the policy asks for a coverage that the model is not calibrated for.
    """

    def __init__(self, retriever: Model, policy: ToolPolicy, *, whole_run: bool = False) -> None:
        policy.check(retriever.calibration_)
        self._whole_run = whole_run
        self._retriever = retriever
        self._policy = policy
        self._workers = Workers(1, RANKING_SECONDS)
        self._registrations = anyio.Lock()
        self._refused: set[str] = set()
        self.reads_calls = retriever.uses_calls
        self.fills = retriever.arguments_ is not None
        self.registered: set[str] = set()
        self.generation = 0

    def knows(self, tool: str) -> bool:
        """Whether the model has a tool of that name."""
        return tool != END and self._retriever.index(tool) >= 0

    async def select(
        self, kept: Sequence[str], names: Sequence[str], query: str, read: ReadHistory
    ) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Model names worth showing, best first, and those that a sticky policy goes on from.

        None when the model failed: everything is to be shown then, since a gateway that hides
        tools by mistake is worse than one that hides none.

        Args:
            kept: the tools that were kept at the step before.
            names: what the model calls the tools that there are.
            query: what the user wants; empty where that is not known.
            read: gives the calls so far, oldest first, by model names; called in the worker.
        """
        selector = ToolSelector(self._policy, kept=kept)

        def select() -> tuple[tuple[str, ...], tuple[str, ...]]:
            rank = partial(rank_ahead, self._retriever) if self._whole_run else self._retriever.rank
            ranking = rank(query, read(), offered=names)
            # A query that such a tool answers is unlike all demonstrations, and still asks for it.
            is_wanted = ranking.best in self.registered
            available = [name for name in names if name != SEARCH_TOOL] if is_wanted else names
            selection = selector.select(available, ranking)
            return selection.preferred, selector.kept

        return await self._try("rank; every tool is shown", select)

    async def predict(self, query: str, read: ReadHistory, count: int) -> list[CallPrediction]:
        """The next calls by model names, best first; empty when the model failed.

        Args:
            query: what the user wants.
            read: gives the calls so far with what they returned; called in the worker.
            count: how many at most.
        """

        def predict() -> list[CallPrediction]:
            return self._retriever.next_calls(as_run(query, read()), count)

        return await self._try("predict; nothing is called early", predict) or []

    async def rank_search(
        self, text: str, query: str, read: ReadHistory
    ) -> tuple[Ranking, Ranking] | None:
        """The rankings of the run's next step, and of the first step for the text searched for.

        None when the model failed.

        Args:
            text: what is searched for.
            query: what the user wants.
            read: gives the calls so far; called in the worker.
        """

        def rank() -> tuple[Ranking, Ranking]:
            return self._retriever.rank(query, read()), self._retriever.rank(text, ())

        return await self._try("rank; the search goes by words alone", rank)

    async def _try(self, task: str, work: Callable[[], T]) -> T | None:
        try:
            return await self._workers.run(work)
        except Exception:
            logger.exception("the model could not %s", task)
            return None

    async def register(self, unknown: Sequence[CatalogTool]) -> bool:
        """Make tools that no demonstration uses known to a model that supports it.

        They are ranked by their descriptions, and stay when their server is away.

        Args:
            unknown: what the model does not know; tools that it refused once are passed over.

        Returns:
            Whether the model knows more tools now.
        """
        retriever = self._retriever
        if not retriever.can_change_tools:
            return False
        async with self._registrations:
            new = [
                item
                for item in unknown
                if item.name not in self._refused and not self.knows(item.name)
            ]
            if not new:
                return False
            names = {item.name for item in new}
            try:
                # Under the names that clients see, which no other tool has.
                described = [described_tool(item.name, item.definition) for item in new]
                with anyio.CancelScope(shield=True), bound_requests(RANKING_SECONDS):
                    await anyio.to_thread.run_sync(retriever.add_tools, described)
            except DtdrError as error:
                if not isinstance(error, EncoderError):  # whose server may answer next time
                    self._refused |= names
                logger.warning("the model does not register %d new tools: %s", len(new), error)
                return False
            self.registered |= names
            self.generation += 1
            logger.info("the model ranks %d new tools by their descriptions", len(new))
            return True


def rank_ahead(
    model: Model,
    query: str,
    history: Sequence[CallLike],
    *,
    offered: Collection[str] | None = None,
) -> Ranking:
    """Tools by their expected share of the next calls, where ``Model.rank`` is about one call.

    Follows the likeliest continuations of the run. For a list that a client's LLM reads once.

    Args:
        model: fitted.
        query: what the user wants.
        history: the calls so far, oldest first.
        offered: see ``Model.rank``.
    """
    likeliest: list[tuple[float, tuple[CallLike, ...]]] = [(1.0, tuple(history))]
    first: Ranking | None = None
    total: Any = 0.0
    for _ in range(CALLS_AHEAD):
        runs = [as_run(query, calls, offered=offered) for _, calls in likeliest]
        rankings = model.rank_batch(runs)
        if first is not None and rankings[0].vocabulary != first.vocabulary:
            break  # tools were registered meanwhile, and all is ranked again
        first = first or rankings[0]
        end = first.vocabulary.index(END) if END in first.vocabulary else None
        following = []
        for (weight, calls), ranking in zip(likeliest, rankings, strict=True):
            shares = weight * ranking.scores
            if end is not None:
                shares[end] = 0.0
            total = total + shares
            for position in np.argsort(-shares, kind="stable")[:CONTINUATIONS]:
                tool = first.vocabulary[position]
                following.append((float(shares[position]), (*calls, tool)))
        following.sort(key=lambda item: -item[0])
        likeliest = [item for item in following[:CONTINUATIONS] if item[0] > 0]
        if not likeliest:
            break
    if first is None or not total.sum():
        return model.rank(query, history, offered=offered)
    return Ranking(first.vocabulary, total / total.sum())
