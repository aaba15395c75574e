"""State of each client of the gateway: the query, the calls so far, the tools it sees."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import event_from_wire
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dtdr.agents.transcript import bound_call, read_call
from dtdr.conversation.events import LoggedCall
from dtdr.conversation.turns import number_steps
from dtdr.data.calls import ToolCall
from dtdr.data.outputs import bound_output
from dtdr.logs.mcp import MCP

INTENT_KEY = "dtdr/intent"
"""``_meta`` key of a request: what the user wants, in the user's words."""

SESSION_KEY = "dtdr/session"
"""``_meta`` key of a request: which conversation it belongs to."""

RUN_GAP = 300.0
"""Seconds without a call that end a run."""

IDLE_SECONDS = 1800.0
"""How long a client without requests is remembered."""

MAX_CLIENTS = 1_000
"""The one that was silent for the longest time is forgotten first."""

MAX_TEXT = 10_000
"""Characters kept of an intent and of a search."""

MAX_SEARCHES = 20
"""Searches kept of a run, the latest ones."""

MAX_CALLS = 1_000
MAX_CALL_CHARACTERS = 16_000
MAX_RUN_CHARACTERS = 1_000_000
"""Limit of a run; a longer one is cut into two, so that a client that never pauses takes
bounded memory. ``MAX_CALL_CHARACTERS`` are for the arguments and again for the output of a call:
ranking reads 2,000 characters of an output."""

STDIO = "stdio"
"""Key of the client over standard input and output that names no conversation."""

Context = ServerRequestContext[Any, Any]


@dataclass(eq=False)
class ClientState:
    """One client's conversation.

    Attributes:
        intent: what the user wants, if the client sent it.
        searches: texts the agent searched with in this run.
        calls: the run's calls, in the order they were made.
        called: names of the tools called in this conversation, each once.
        searched: names of the tools that searches of this run found, latest first.
        shown: names of the tools in the list that the client has, or can ask for.
        notified: definitions of the last notice or answer to the client; None before the first.
        kept, kept_before: model names that a sticky policy continues from, now and before ``step``.
        characters: kept in ``calls``.
        open_calls: calls (``OpenCall``) that wait for the client's answer to a question.
        running: calls in progress, and open streams of changes.
        awaited: set when the client has listed again after the latest notice of a change.
        lists_again: whether the client listed again after the last notice.
        last_call: when the latest call began or ended, by the monotonic clock.
        wire: the channel for notifications; None until the first request.
    """

    key: str
    intent: str = ""
    searches: list[str] = field(default_factory=list)
    calls: list[LoggedCall] = field(default_factory=list)
    called: dict[str, None] = field(default_factory=dict)
    searched: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    notified: list[Mapping[str, Any]] | None = None
    kept: tuple[str, ...] = ()
    kept_before: tuple[str, ...] = ()
    step: tuple[str, list[str]] | None = None
    characters: int = 0
    wire: ServerSession | None = None
    is_modern: bool = False
    open_calls: dict[str, Any] = field(default_factory=dict)
    running: int = 0
    last_call: float = 0.0
    touched: float = field(default_factory=time.monotonic)
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    ranking: anyio.Lock = field(default_factory=anyio.Lock)
    ranked_for: object = None
    awaited: anyio.Event | None = None
    lists_again: bool = True
    _read: dict[tuple[int, float | None], ToolCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.listen = ListenHandler(self.bus)

    @property
    def query(self) -> str:
        """The text to rank for: the intent, the last search, or the query of an MCP log."""
        return self.intent or (self.searches[-1] if self.searches else MCP.default_query)

    @property
    def history(self) -> list[str]:
        """Names of the run's calls, oldest first."""
        return [call.tool for call in tuple(self.calls)]

    @property
    def is_full(self) -> bool:
        """Whether the run must be cut here."""
        return len(self.calls) >= MAX_CALLS or self.characters > MAX_RUN_CHARACTERS

    @property
    def has_paused(self) -> bool:
        """Whether the run had no call for ``RUN_GAP``."""
        return bool(self.calls) and not self.running and time.monotonic() - self.last_call > RUN_GAP

    def keep(self, value: Any) -> Any:
        """A call's arguments or output, cut to ``MAX_CALL_CHARACTERS``."""
        kept, _ = bound_output(value, MAX_CALL_CHARACTERS)
        self.characters += len(kept if isinstance(kept, str) else json.dumps(kept))
        return kept

    def read_calls(self) -> list[ToolCall]:
        """The run's calls with their arguments and outputs; slow for long outputs."""
        calls = tuple(self.calls)  # others may be made meanwhile
        result: list[ToolCall] = []
        for call, step in zip(calls, number_steps(calls), strict=True):
            # A call that was answered with questions ends once more.
            key = id(call), call.ended
            read = self._read.get(key) or bound_call(read_call(call, call.id, step))
            if call.ended is not None:
                self._read[key] = read
            result.append(read)
        return result

    async def notify(self, note: types.ServerNotification) -> None:
        """Tell the client of a change, in the way of its protocol."""
        if event := event_from_wire(note.method, note.model_dump(mode="json").get("params")):
            await self.bus.publish(event)
        if self.wire is not None and not self.is_modern:
            await self.wire.send_notification(note)

    def start_over(self) -> list[LoggedCall]:
        """Begin another run and return the calls of the one that ended."""
        ended, self.calls, self.searches, self.characters = self.calls, [], [], 0
        self.searched = self.kept = ()
        self._read, self.step = {}, None
        return ended


class Clients:
    """The clients by their key: one over stdio, one per session over HTTP.

    ``ended`` is called with the state of each client that is forgotten.
    """

    def __init__(self, ended: Callable[[ClientState], None]) -> None:
        self._states: dict[str, ClientState] = {}
        self._ended = ended

    def __iter__(self) -> Iterator[ClientState]:
        return iter(tuple(self._states.values()))

    def of(self, context: Context) -> ClientState:
        """The state of the client that sent a request."""
        state = self.at(client_key(context))
        state.wire = context.session
        state.is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return state

    def at(self, key: str) -> ClientState:
        """The state of the client with that key."""
        state = self._states.pop(key, None)
        if state is None:
            while len(self._states) >= MAX_CLIENTS:
                self.forget(next(iter(self._states)))
            state = ClientState(key)
        self._states[key] = state  # put last: the first is the one untouched for the longest time
        state.touched = time.monotonic()
        return state

    def forget_idle(self) -> None:
        """Forget the clients that have been silent for too long."""
        horizon = time.monotonic() - IDLE_SECONDS
        for state in self:
            if state.touched > horizon:
                break
            if not state.running:
                self.forget(state.key)

    def forget(self, key: str) -> None:
        """Forget a client, whose run ends."""
        self._ended(self._states.pop(key))


def client_key(context: Context) -> str:
    """Which client sent a request.

    The conversation that its ``_meta`` names; else the session of 2025-era HTTP; else, over the
    sessionless HTTP of 2026-07-28, the credential, address and name of the client together. Over
    stdio there is one client.
    """
    named = (context.meta or {}).get(SESSION_KEY)
    request: Any = context.request
    headers = getattr(request, "headers", None)
    if headers is None:
        return f"named {named}" if isinstance(named, str) else STDIO
    address = "" if request.client is None else request.client.host
    owner = f"{headers.get('authorization', '')} {address}"
    if isinstance(named, str):
        return f"named {owner} {named}"
    if session := headers.get("mcp-session-id"):
        return f"session {session}"
    about = context.session.client_params
    name = "" if about is None else f"{about.client_info.name} {about.client_info.version}"
    return f"client {owner} {name}"
