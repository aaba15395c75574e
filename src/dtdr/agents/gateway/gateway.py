"""Connects MCP clients with their servers, and shows each client the few tools it needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from anyio.abc import TaskGroup

from dtdr.agents.gateway.catalog import Catalog, Names
from dtdr.agents.gateway.clients import MAX_TEXT, STDIO, Clients, ClientState
from dtdr.agents.gateway.config import UpstreamSpec, require_distinct
from dtdr.agents.gateway.pins import Pins
from dtdr.agents.gateway.prefetch import Prefetcher
from dtdr.agents.gateway.ranking import ClientRanker
from dtdr.agents.gateway.upstream import CONNECT_SECONDS, Upstream
from dtdr.agents.policy import ToolPolicy
from dtdr.agents.recording import Recorder
from dtdr.agents.run_folder import RunFolder
from dtdr.agents.search import SEARCH_TOOL, described_tool
from dtdr.data.calls import END
from dtdr.errors import InputError
from dtdr.predict.model import Model
from dtdr.predict.session import NO_ARGUMENTS
from dtdr.rankers.selection import count_tokens

logger = logging.getLogger("dtdr.mcp")

LISTING_SECONDS = 2.0
"""How long an answer waits for a client to list again after the notice of a change. The gateway
does not wait again for a client that did not."""

CLEAN_UP_SECONDS = 15.0
"""How often the gateway ends silent runs and forgets silent clients."""

CLOSE_SECONDS = 5.0
"""How long the gateway waits for its servers to end."""

START_SECONDS = 25.0
"""How long clients wait for slow servers at the start. Clients commonly give a server 30 to 60 s to
answer."""


class Gateway:
    """The state behind one served endpoint; ``run`` keeps its servers connected.

    Args:
        model: a fitted model. If it can change its tools, it registers the servers' tools that
            it does not know, in memory.
        specs: the servers behind the gateway.
        policy: how many ranked tools are shown and when they may change. ``always_include`` are
            names as clients see them, of unknown tools too.
        whole_run: choose the list for the next calls of the run, not only for the next one, and
            change it only if that is worth the client's prompt cache (``LOST_CACHE``), whatever
            the policy's ``sticky``. Answers wait until the client has listed again.
        recorder: records the calls; None records nothing. What a ``RunFolder`` learns is used at
            once.
        prefetch: the probability from which predicted calls are made early, of tools that the specs
            list for that; None makes none.
        pins: refuse changed definitions; None accepts them.

    Raises:
        InputError: there is no server, two share a name, the model is not calibrated or not fitted
            with arguments, which an option needs, ``prefetch`` is not in (0, 1], or no tool may be
            called early.
    """

    def __init__(
        self,
        model: Model | None,
        specs: Sequence[UpstreamSpec],
        policy: ToolPolicy,
        *,
        whole_run: bool = False,
        recorder: Recorder | None = None,
        prefetch: float | None = None,
        pins: Pins | None = None,
    ) -> None:
        self.policy, self._whole_run, self._recorder = policy, whole_run, recorder
        self.ranker = ClientRanker(model, policy, whole_run=whole_run)
        self.pins = pins or Pins()
        require_distinct(specs)
        names = [spec.name for spec in specs]
        # A tool named like the end of a plan would be the end of a plan to the model.
        reserved = (SEARCH_TOOL, END)
        known = Names(names, reserved, self.pins.iter_tools())
        self.catalog = Catalog(self.ranker.knows, known)
        self._has_started = False
        self.clients = Clients(self.end_run)
        self.upstreams = {
            spec.name: Upstream(spec, self.pins, self.clients, self._tools_changed)
            for spec in specs
        }
        self.prefetcher: Prefetcher | None = None
        if prefetch is not None:
            if not self.ranker.fills:
                raise InputError(NO_ARGUMENTS)
            if not any(spec.prefetch for spec in specs):
                raise InputError(
                    'no server lists tools that may be called early; add "prefetch": ["TOOL"] to '
                    "its entry in the --config file"
                )
            self.prefetcher = Prefetcher(self.ranker, self.catalog, self.upstreams, prefetch)
        self._runs = recorder if isinstance(recorder, RunFolder) else None
        self._tokens: dict[str, int] = {}
        self._version = 0
        self._tasks: TaskGroup | None = None

    @property
    def keeps_calls(self) -> bool:
        """Whether arguments and outputs are kept while a run lasts."""
        return bool(self._recorder or self.prefetcher or self.ranker.reads_calls)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep the servers connected while the block runs; yields once each was tried."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._connections, self._disconnected = anyio.CancelScope(), anyio.Event()
            if self._runs is not None:
                loop = asyncio.get_running_loop()
                self._runs.learned = lambda model: asyncio.run_coroutine_threadsafe(
                    self._use(model), loop
                )
            try:
                tasks.start_soon(self._connect)
                tasks.start_soon(self._clean_up)
                await self._wait_for_servers(START_SECONDS)
                self._has_started = True
                self._report()
                await self._register_tools()
                if self._runs is not None:  # also from what was there before
                    await anyio.to_thread.run_sync(self._runs.learn_if_due)
                yield
            finally:
                await self.close()
                tasks.cancel_scope.cancel()

    async def close(self) -> None:
        """End and record every run, and then close the servers, which may take seconds."""
        self._tasks = None
        for state in self.clients:
            self.clients.forget(state.key)
        if self._recorder is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._recorder.close)
                if self._runs is not None:
                    await anyio.to_thread.run_sync(self._runs.save_usage)
        self._connections.cancel()
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._disconnected.wait()

    async def _connect(self) -> None:
        try:
            with self._connections:
                async with anyio.create_task_group() as servers:
                    for upstream in self.upstreams.values():
                        servers.start_soon(upstream.run)
        finally:
            self._disconnected.set()

    async def owner(self, name: str) -> tuple[str, str] | None:
        """As ``Names.owner``, but waits for servers that are still starting."""
        owner = self.catalog.names.owner(name)
        if owner is None:
            await self._wait_for_servers(CONNECT_SECONDS)
        return owner or self.catalog.names.owner(name)

    async def _wait_for_servers(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            for upstream in self.upstreams.values():
                await upstream.tried.wait()

    @property
    def instructions(self) -> str:
        """Instructions for the client's model: the search tool's, and each server's."""
        parts = [
            f"Not every tool is listed. Call {SEARCH_TOOL} with what you want to do to find more; "
            "the tools it finds are then listed and can be called."
        ]
        if subjects := self.catalog.subjects():
            parts.append(f"Search before you do without a tool for: {', '.join(subjects)}.")
        parts += [
            f"## {upstream.name}\n{upstream.instructions}"
            for upstream in self.upstreams.values()
            if upstream.instructions
        ]
        return "\n\n".join(parts)

    # -- what a client sees --------------------------------------------------------------------

    async def refresh(self, state: ClientState) -> None:
        """Bring the list of tools that a client sees up to date."""
        async with state.ranking:
            # If the model reads outputs, a step is ranked again when a call ends.
            ended = sum(call.ended is not None for call in state.calls if self.ranker.reads_calls)
            run = state.query, state.history, ended
            basis = (*run, state.searched, tuple(state.called), self._version)
            if basis == state.ranked_for:
                return
            ranked = await self.ranker.select(state, self.catalog)
            # What was there before keeps its place.
            always = self.policy.always_include
            wanted = dict.fromkeys([*always, *state.called, *state.searched, *ranked])
            former = [name for name in state.shown if name in wanted]
            shown = dict.fromkeys([*former, *wanted])
            state.shown = tuple(name for name in shown if name in self.catalog)
            state.ranked_for = basis

    def shown_tools(self, state: ClientState) -> list[Mapping[str, Any]]:
        """Definitions of the tools that a client sees."""
        return [tool.definition for tool in map(self.catalog.get, state.shown) if tool]

    async def update(self, state: ClientState) -> None:
        """Bring a client's list up to date after a change, and tell the client if it differs.

        In the background, unless the list is for the whole run. Then this waits until the client
        has listed again: it asks its LLM as soon as it is answered, with the list that it has.
        """
        if not self._whole_run:
            self._schedule(self._refresh_and_notify, state)
            return
        await self._refresh_and_notify(state)
        if state.awaited is not None and state.lists_again:
            with anyio.move_on_after(LISTING_SECONDS) as scope:
                await state.awaited.wait()
            state.lists_again = not scope.cancelled_caught

    def schedule_prefetch(self, state: ClientState) -> None:
        """Make a client's next calls early, in the background, if that is an option."""
        if self.prefetcher is not None and not state.running:
            self._schedule(self.prefetcher.start, state)

    def _schedule(self, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(work, *arguments)

    async def _refresh_and_notify(self, state: ClientState) -> None:
        try:
            await self.refresh(state)
            shown = self.shown_tools(state)
            if state.notified is not None and state.notified != shown:
                state.notified = shown
                state.awaited = anyio.Event()
                await state.notify(types.ToolListChangedNotification())
        except Exception:
            logger.exception("could not bring a client's list of tools up to date")

    # -- runs ------------------------------------------------------------------------------------

    def take_intent(self, state: ClientState, text: str) -> None:
        """Set what the user wants; another text than before begins another run."""
        intent = text[:MAX_TEXT]
        if not intent.strip() or intent == state.intent:
            return
        # Until it has called a tool, the client's LLM may not have read the list.
        kept = state.kept if self._whole_run and state.calls else ()
        if state.intent:
            self.end_run(state)
        if self._whole_run:
            state.kept = kept
        state.intent = intent
        self.schedule_prefetch(state)

    async def take_prompt(self, text: str) -> None:
        """Set what the user wrote, from the hook of the one client over pipes."""
        for state in tuple(self.clients) or (self.clients.at(STDIO),):
            self.take_intent(state, text)
            await self.update(state)

    def end_run(self, state: ClientState) -> None:
        """Begin another run for a client, and record the one that ended."""
        texts = [state.intent] if state.intent else list(state.searches)
        calls = state.start_over()
        if self.prefetcher is not None:
            self.prefetcher.end(state)
        if calls and self._recorder is not None:
            self._recorder.add(texts, calls)

    async def _clean_up(self) -> None:
        while True:
            await anyio.sleep(CLEAN_UP_SECONDS)
            await self.check_pins(tries_again=True)
            for state in self.clients:
                if state.has_paused:
                    self.end_run(state)
                    self._schedule(self._refresh_and_notify, state)
            self.clients.forget_idle()
            if self._runs is not None:
                await anyio.to_thread.run_sync(self._runs.save_usage)
                if (model := await anyio.to_thread.run_sync(self._runs.load_newer)) is not None:
                    await self._use(model)

    # -- what is learned -----------------------------------------------------------------------

    async def _use(self, model: Model) -> None:
        """Rank with a model that was learned from the runs, from the next ranking on."""
        logger.info("ranking with what was learned from %d runs", model.training_.demonstrations)
        self.ranker.use(model)
        self._rebuild()
        await self._register_tools()

    def count_list(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Count a list that a client got, for the status."""
        if self._runs is None:
            return
        for name, tool in self.catalog.items():
            if name not in self._tokens:
                self._tokens[name] = count_tokens(tool.definition)
        counts = {
            "lists": 1,
            "listed": len(tools),
            "listed_tokens": sum(self._tokens.get(tool["name"], 0) for tool in tools),
            "all_tokens": sum(self._tokens[name] for name in self.catalog),
        }
        self._runs.usage.update(counts)

    def count_call(self, state: ClientState, name: str) -> None:
        """Count a call, for the status."""
        if self._runs is not None:
            listed = any(tool["name"] == name for tool in state.notified or ())
            self._runs.usage.update({"calls": 1, "listed_calls": int(listed)})

    # -- the tools of upstreams --------------------------------------------------------------------

    async def _tools_changed(self) -> None:
        self._rebuild()
        # At the start, the tools of all servers are registered at once.
        if self._has_started:
            self._schedule(self._register_tools)

    async def check_pins(self, *, tries_again: bool = False) -> None:
        """Accept the servers' tools again if the file of pins changed."""
        if self.pins.is_outdated(tries_again=tries_again):
            for upstream in self.upstreams.values():
                await upstream.check_pins()
            await self._tools_changed()

    async def _register_tools(self) -> None:
        if self._runs is not None:
            self._runs.tools = tuple(
                described_tool(tool.known_as or tool.name, tool.definition)
                for tool in self.catalog.values()
            )
        if await self.ranker.register(self.catalog.unknown()):
            self._rebuild()

    def _rebuild(self) -> None:
        offers = {name: upstream.tools for name, upstream in self.upstreams.items()}
        self._tokens.clear()
        self.catalog.rebuild(offers, [name for name in offers if self.upstreams[name].is_up])
        self._version += 1
        for state in self.clients:
            self._schedule(self._refresh_and_notify, state)

    def _report(self) -> None:
        logger.info(
            "%d of %d servers are connected; %d tools, of which %d have no demonstration",
            sum(item.is_up for item in self.upstreams.values()), len(self.upstreams),
            len(self.catalog), len(self.catalog.unknown()),
        )  # fmt: skip
        for name in self.policy.always_include:
            if name not in self.catalog:
                logger.warning("no server has the tool %r that is always to be shown", name)
