"""Asks the model which tools come next, off the event loop, and registers new tools with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import anyio
import numpy as np

from dtdr.agents.gateway.catalog import Catalog, CatalogTool
from dtdr.agents.gateway.clients import ClientState
from dtdr.agents.policy import ToolPolicy, ToolSelector
from dtdr.agents.run_folder import describe_tools
from dtdr.agents.search import SEARCH_TOOL, described_tool
from dtdr.data.calls import END
from dtdr.data.run import CallLike, as_run
from dtdr.data.tools import Tool
from dtdr.errors import DtdrError, EncoderError, InputError
from dtdr.net.http_requests import bound_requests
from dtdr.net.workers import Workers
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.model import Model
from dtdr.rankers.ranking import Ranking

T = TypeVar("T")

LOST_CACHE = 0.5
"""Share of the next calls that a new list for the whole run must add. A missing tool is searched
for and then listed, so it costs the prompt cache too, and the search: with probability p,
p × (cache + search) against the cache now. A search is a request that reads the prompt, and seconds
of the user's time. If it costs as much as a lost cache, a new list pays from .5 on."""

logger = logging.getLogger("dtdr.mcp")

RANKING_SECONDS = 5.0
"""For one ranking, while a client waits for its list. A ranking takes milliseconds, unless it waits
for an encoder's server."""

CALLS_AHEAD = 6
CONTINUATIONS = 4
"""How far ``rank_ahead`` looks, and along how many ways. Ten tools chosen once for scripted runs
held out of 40 (120 tools) include .53 of the calls if chosen for the next call alone, .77 for 3
calls ahead along three ways, .86 for 5, .87 for 6 along six and .90 for 8 along four, in 3, 10, 15,
21 and 30 ms."""


class ClientRanker:
    """Ranks clients' runs in a worker thread, one ranking at a time.

    Args:
        model: a fitted one; None ranks the tools by their names and descriptions.
        policy: how many are shown.
        whole_run: see ``Gateway``.
    """

    def __init__(self, model: Model | None, policy: ToolPolicy, *, whole_run: bool = False) -> None:
        if whole_run:
            if policy.coverage is not None:
                raise InputError("a list for the whole run has no coverage; give --top-k instead")
            policy = replace(policy, sticky="confidence", tolerance=LOST_CACHE)
        if model is not None:
            policy.check(model.calibration_)
        elif policy.coverage is not None:
            raise InputError("--coverage needs a MODEL; give --top-k instead")
        self._whole_run = whole_run
        self._is_described = model is None
        self._model = model
        self._policy = policy
        self._workers = Workers(1, RANKING_SECONDS)
        self._registrations = anyio.Lock()
        self._refused: set[str] = set()

    @property
    def reads_calls(self) -> bool:
        """Whether the model ranks by the arguments and outputs of calls."""
        return self._model is not None and self._model.uses_calls

    @property
    def fills(self) -> bool:
        """Whether the model learned arguments, for ``predict``."""
        return self._model is not None and self._model.arguments_ is not None

    def use(self, model: Model) -> None:
        """Rank with another model from now on."""
        self._model, self._is_described = model, False
        self._refused.clear()

    def knows(self, tool: str) -> bool:
        """Whether the model has a tool of that name."""
        return tool != END and self._model is not None and self._model.index(tool) >= 0

    async def select(self, state: ClientState, catalog: Catalog) -> Sequence[str]:
        """Names of the tools to show for their rank; all if ranking failed or there are few.

        Remembers in the state what a sticky policy keeps.
        """
        few, whole_run = self._policy.top_k, self._whole_run
        if few is not None and len(catalog) <= few:
            return tuple(catalog)
        # A step is ranked again when a server comes or goes, and continues from what was kept
        # before it. Another query begins another set, unless the set is for the whole run.
        step = state.query, state.history
        if step != state.step:
            lasts = whole_run or (state.step is not None and state.step[0] == state.query)
            state.kept_before = state.kept if lasts else ()
            state.step = step
        names, kept = tuple(catalog.by_model_name), state.kept_before
        if whole_run:
            # What was called or found is listed in any case, and may be the next tool as well.
            listed = (*state.called, *state.searched)
            kept = tuple(dict.fromkeys((*kept, *map(catalog.model_name, listed))))
        # Only a user's request can ask for no tool. A list for a whole run is there in any case: of
        # 12 requests in other words, it has .34 of the wanted tools, and .23 if 5 have none.
        offered = (*names, SEARCH_TOOL) if state.intent and not whole_run else names
        selector = ToolSelector(self._policy, kept=kept)

        model = self._model
        if model is None:  # no server has been listed yet
            return tuple(catalog)

        def select() -> tuple[str, ...]:
            rank = partial(rank_ahead, model) if whole_run else model.rank
            ranking = rank(state.query, self._read(state), offered=offered)
            return selector.select(offered, ranking, state.history).preferred

        selected = await self._try("rank; every tool is shown", select)
        if selected is None:  # to hide tools by mistake is worse than to hide none
            return tuple(catalog)
        state.kept = selector.kept
        return [name for item in selected for name in catalog.by_model_name.get(item, ())]

    async def predict(self, state: ClientState, count: int) -> list[CallPrediction]:
        """The most probable next calls by model names, best first; empty if the model failed."""
        model = self._model

        def predict() -> list[CallPrediction]:
            if model is None:
                return []
            return model.next_calls(as_run(state.query, state.read_calls()), count)

        return await self._try("predict; nothing is called early", predict) or []

    async def rank_search(self, state: ClientState, text: str) -> tuple[Ranking, Ranking] | None:
        """The rankings of the run's next step and of the first step for a text, or None."""
        model = self._model
        if model is None:
            return None

        def rank() -> tuple[Ranking, Ranking]:
            run = model.rank(state.query, self._read(state))
            return run, model.rank(text, ())

        return await self._try("rank; the search goes by words alone", rank)

    def _read(self, state: ClientState) -> Sequence[CallLike]:
        """A client's calls as the model takes them: names, or whole calls."""
        return state.read_calls() if self.reads_calls else state.history

    async def _try(self, task: str, work: Callable[[], T]) -> T | None:
        try:
            return await self._workers.run(work)
        except Exception:
            logger.exception("the model could not %s", task)
            return None

    async def register(self, unknown: Sequence[CatalogTool]) -> bool:
        """Register tools that the model does not know, if it supports that; True if any was new.

        The model ranks them by their descriptions, under the names that clients see. They stay
        when their server disconnects.
        """
        if not (self._is_described or (self._model and self._model.can_change_tools)):
            return False
        async with self._registrations:
            new = {
                item.name: described_tool(item.name, item.definition)
                for item in unknown
                if item.name not in self._refused and not self.knows(item.name)
            }
            if not new:
                return False
            try:
                with anyio.CancelScope(shield=True), bound_requests(RANKING_SECONDS):
                    await anyio.to_thread.run_sync(self._add_tools, list(new.values()))
            except DtdrError as error:
                if not isinstance(error, EncoderError):  # whose server may answer next time
                    self._refused.update(new)
                logger.warning("the model does not register %d new tools: %s", len(new), error)
                return False
            logger.info("the model ranks %d new tools by their descriptions", len(new))
            return True

    def _add_tools(self, tools: list[Tool]) -> None:
        model = self._model
        if model is not None and model.can_change_tools:
            model.add_tools(tools)
            return
        described = describe_tools([*(model.tools_[:-1] if model else ()), *tools])
        if self._model is model:  # else one was learned meanwhile
            self._model = described


def rank_ahead(
    model: Model,
    query: str,
    history: Sequence[CallLike],
    *,
    offered: Collection[str] | None = None,
) -> Ranking:
    """Tools by their expected share of the next calls, for a list that an LLM reads once.

    ``Model.rank`` is about the next call only; this follows the likeliest continuations of the
    run. Its confidence and familiarity are those of the next call.
    """
    first = model.rank(query, history, offered=offered)
    is_end = np.array([tool == END for tool in first.vocabulary])
    total = np.zeros(len(is_end))
    likeliest: list[tuple[float, tuple[CallLike, ...]]] = [(1.0, tuple(history))]
    rankings = [first]
    for ahead in range(CALLS_AHEAD):
        if ahead:
            runs = [as_run(query, calls, offered=offered) for _, calls in likeliest]
            rankings = model.rank_batch(runs)
        if not rankings or rankings[0].vocabulary != first.vocabulary:
            break  # tools were registered meanwhile, and all is ranked again
        following = []
        for (weight, calls), ranking in zip(likeliest, rankings, strict=True):
            shares = np.where(is_end, 0.0, weight * ranking.scores)
            total += shares
            for position in np.argsort(-shares, kind="stable")[:CONTINUATIONS]:
                following.append((float(shares[position]), (*calls, first.vocabulary[position])))
        following.sort(key=lambda item: -item[0])
        likeliest = [item for item in following[:CONTINUATIONS] if item[0] > 0]
    if not total.sum():
        return first
    expected = Ranking(
        first.vocabulary,
        total / total.sum(),
        calibration=first.calibration,
        familiarity=first.familiarity,
    )
    expected.scores, expected.newcomers = first.scores, first.newcomers
    return expected
