"""Makes predicted calls early, of tools that the user lists since they change nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast
from weakref import WeakKeyDictionary

from dtdr.agents.gateway.catalog import Catalog
from dtdr.agents.gateway.clients import ClientState
from dtdr.agents.gateway.questions import RawResult
from dtdr.agents.gateway.ranking import ClientRanker
from dtdr.agents.gateway.upstream import Upstream
from dtdr.agents.prefetch import CANDIDATES, EarlyCalls, PrefetchCounts, check_probability

logger = logging.getLogger("dtdr.mcp")


class Prefetcher:
    """The early calls of every client.

    A tool is called early only if its server's entry in the configuration lists it: a server's own
    word that it changes nothing is not enough to send it values of other servers' calls.

    ``min_probability`` is that of a call that is made early; ``counts`` are of all clients.
    """

    def __init__(
        self,
        ranker: ClientRanker,
        catalog: Catalog,
        upstreams: Mapping[str, Upstream],
        min_probability: float,
    ) -> None:
        self._ranker, self._catalog, self._upstreams = ranker, catalog, upstreams
        self._min_probability = check_probability(min_probability)
        self._runs: WeakKeyDictionary[ClientState, EarlyCalls] = WeakKeyDictionary()
        self.counts = PrefetchCounts()

    def allows(self, name: str) -> bool:
        """Whether a listed tool may be called early."""
        tool = self._catalog.get(name)
        if tool is None:
            return False
        upstream = self._upstreams[tool.upstream]
        return upstream.is_up and tool.raw_name in upstream.spec.prefetch

    async def start(self, state: ClientState) -> None:
        """Predict the next calls of a client, and make those that are probable and safe."""
        run = self._runs.get(state)
        if run is None:
            run = EarlyCalls(self._call, self.allows, self._min_probability, self.counts)
            self._runs[state] = run
        count = len(state.calls)
        calls = await self._ranker.predict(state, CANDIDATES)
        if self._runs.get(state) is not run or len(state.calls) != count or state.running:
            return  # the client went on meanwhile
        listed = [
            replace(call, tool=names[0])
            for call in calls
            if len(names := self._catalog.by_model_name.get(call.tool, [])) == 1
        ]
        run.prepare(listed, state.read_calls())

    async def call(
        self,
        state: ClientState,
        owner: tuple[str, str],
        params: Mapping[str, Any],
        send: Callable[[], Awaitable[RawResult]],
    ) -> RawResult:
        """The result of a call: that of the same early call, or of a new one.

        A tool that may change something makes every client's early calls to its server outdated,
        before the answer is handed over: whoever has it may expect later reads to see the change.
        """
        name = self._catalog.names.name_of(*owner)
        run = self._runs.get(state)
        if run is not None and params.keys() <= {"name", "arguments"}:
            is_made, result = await run.take(name, params.get("arguments") or {})
            if is_made:
                return cast(RawResult, result)
        try:
            return await send()
        finally:
            if not self.allows(name):
                tools = {tool.name for tool in self._catalog.values() if tool.upstream == owner[0]}
                for other in self._runs.values():
                    other.discard(tools.__contains__)

    def end(self, state: ClientState) -> None:
        """Discard the early calls of a client's run."""
        if (run := self._runs.pop(state, None)) is not None:
            run.discard()
            if self.counts.started:
                logger.info("early calls so far: %s", self.counts)

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> RawResult:
        tool = self._catalog[name]
        sent = {"name": tool.raw_name, "arguments": dict(arguments)}
        result = await self._upstreams[tool.upstream].request("tools/call", sent)
        if result.get("isError") is True or result.get("resultType") == "input_required":
            raise ValueError("it gave no result")
        return result
