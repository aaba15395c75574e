"""What the gateway remembers of each client: the query, the calls so far, the tools it sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dtdr.agents.transcript import bound_call, read_call
from dtdr.data.calls import ToolCall
from dtdr.logs.log_format import TracedCall
from dtdr.logs.mcp import MCP
from dtdr.logs.turns import number_steps

INTENT_KEY = "dtdr/intent"
"""``_meta`` key of a request: what the user wants, in the user's words."""

SESSION_KEY = "dtdr/session"
"""``_meta`` key of a request: which conversation it belongs to."""

MAX_CLIENTS = 10_000

MAX_TEXT = 10_000
"""Characters kept of an intent, of a search and of each text in a call's arguments and output."""

MAX_SEARCHES = 20
"""Searches of a run that are kept, the latest ones."""

MAX_CALLS = 1_000
MAX_CALL_CHARACTERS = 16_000
MAX_RUN_CHARACTERS = 2_000_000
"""What is kept of a run; a longer one is cut into two, so that a client that never pauses takes
bounded memory. More of one call's arguments and output is left out: ranking reads 2,000 characters
of an output."""

MAX_ALL_CHARACTERS = 50_000_000
"""What is kept of all runs together; beyond it, runs of the clients longest silent end early."""

STDIO = "stdio"
"""Key of the client over standard input and output that names no conversation."""

Context = ServerRequestContext[Any, Any]


@dataclass(eq=False)
class ClientState:
    """One client's conversation.

    Attributes:
        intent: what the user wants, where the client said so.
        searches: texts the agent searched with in this run.
        calls: the run's calls, in the order they were made.
        called: names of the tools called in this conversation, each once.
        searched: names of the tools that searches of this run brought up, latest first, bounded.
        shown: names of the tools in the list that the client has, or can ask for.
        kept: model names that a sticky policy goes on from after the latest ranking.
        characters: kept in ``calls``.
        running: calls that are being worked on, and open streams of changes.
        awaited: set when the client has listed again after the latest notice of a change.
        lists_again: whether the client asks for its list after a notice, as far as was seen.
        last_call: when the latest call began or ended, by the monotonic clock.
        wire: the channel for notifications; None until the first request.
        log_level: least severe log message that the client asked for; None: all.
    """

    key: str
    intent: str = ""
    searches: list[str] = field(default_factory=list)
    calls: list[TracedCall] = field(default_factory=list)
    called: dict[str, None] = field(default_factory=dict)
    searched: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    notified: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()
    wire: ServerSession | None = None
    is_modern: bool = False
    log_level: types.LoggingLevel | None = None
    subscriptions: set[str] = field(default_factory=set)
    running: int = 0
    last_call: float = 0.0
    touched: float = field(default_factory=time.monotonic)
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    ranking: anyio.Lock = field(default_factory=anyio.Lock)
    ranked_for: object = None
    awaited: anyio.Event | None = None
    lists_again: bool = True

    characters: int = 0
    _read: dict[str, tuple[TracedCall, ToolCall]] = field(default_factory=dict)
    _step: tuple[str, list[str]] | None = None
    _kept_before: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.listen = ListenHandler(self.bus)

    @property
    def query(self) -> str:
        """What the next tools are ranked for: the intent, else the last search.

        Where nothing is known of what the user wants, the query that runs of an MCP log have.
        """
        return self.intent or (self.searches[-1] if self.searches else MCP.default_query)

    def add_search(self, text: str) -> None:
        """Keep what the agent searched for."""
        self.searches.append(text[:MAX_TEXT])
        del self.searches[:-MAX_SEARCHES]

    def add_matches(self, names: Iterable[str], most: int) -> None:
        """Show the tools that a search brought up, and only the latest of all searches."""
        self.searched = tuple(dict.fromkeys((*names, *self.searched)))[:most]

    def keep(self, value: Any) -> Any:
        """A call's arguments or output, JSON, as far as they are kept."""
        kept, size = shorten(value, MAX_CALL_CHARACTERS)
        self.characters += size
        return kept

    @property
    def history(self) -> list[str]:
        """Names of the run's calls, oldest first."""
        return [call.tool for call in tuple(self.calls)]

    def read_calls(self) -> list[ToolCall]:
        """The run's calls with as much as is known of them; slow for long outputs."""
        calls = tuple(self.calls)  # others may be made meanwhile
        result: list[ToolCall] = []
        for call, step in zip(calls, number_steps(calls), strict=True):
            known, read = self._read.get(call.id, (None, None))
            if read is None or known is not call:
                has_ended = call.ended is not None
                read = bound_call(read_call(call, call.id, step))
                if has_ended:
                    self._read[call.id] = call, read
            result.append(read)
        return result

    def resume(self, call: TracedCall) -> None:
        """Take a call up again that was answered with questions."""
        call.ended = None
        self._read.pop(call.id, None)

    @property
    def is_full(self) -> bool:
        """Whether the run is to be cut here."""
        return len(self.calls) >= MAX_CALLS or self.characters > MAX_RUN_CHARACTERS

    def has_paused(self, seconds: float) -> bool:
        """Whether the run has stood still for so long."""
        return bool(self.calls) and not self.running and time.monotonic() - self.last_call > seconds

    def kept_before(self, *, lasts: bool) -> tuple[str, ...]:
        """What was kept at the step before, to which ranking a step again does not add.

        A step is ranked again when a server comes or goes. Another query begins another set,
        unless what was kept ``lasts``.
        """
        step = self.query, self.history
        if step != self._step:
            is_same_query = self._step is not None and self._step[0] == self.query
            self._kept_before = self.kept if lasts or is_same_query else ()
            self._step = step
        return self._kept_before

    def start_over(self) -> list[TracedCall]:
        """Begin another run; gives back the calls of the one that ended."""
        ended, self.calls = self.calls, []
        self.searches = []
        self.characters = 0
        self._read = {}
        self.searched = ()
        self.kept = ()
        self._step = None
        return ended


class Clients:
    """The clients by their key: one over stdio, one a session over HTTP.

    Args:
        ended: called with the state of a client that is forgotten.
        idle_seconds: how long a client without a request is remembered.
    """

    def __init__(self, ended: Callable[[ClientState], None], idle_seconds: float) -> None:
        self._states: dict[str, ClientState] = {}
        self._ended = ended
        self._idle_seconds = idle_seconds
        self._requests = 0

    def __iter__(self) -> Any:
        return iter(tuple(self._states.values()))

    def __len__(self) -> int:
        return len(self._states)

    def of(self, context: Context) -> ClientState:
        """The state of the client that sent a request."""
        state = self.at(client_key(context))
        self._requests += 1
        if self._requests % 50 == 0:  # which add 5 million characters at most
            self._bound()
        state.wire = context.session
        state.is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return state

    def at(self, key: str) -> ClientState:
        """The state of the client with that key."""
        state = self._states.pop(key, None)
        if state is None:
            self.forget_idle()
            while len(self._states) >= MAX_CLIENTS:
                self._ended(self._states.pop(next(iter(self._states))))
            state = ClientState(key)
        self._states[key] = state  # put last: the first is the one longest untouched
        state.touched = time.monotonic()
        return state

    def _bound(self) -> None:
        total = sum(state.characters for state in self._states.values())
        for state in tuple(self._states.values()):
            if total <= MAX_ALL_CHARACTERS:
                break
            total -= state.characters
            self._ended(state)

    def forget_idle(self) -> None:
        """Forget the clients that have been silent for too long."""
        horizon = time.monotonic() - self._idle_seconds
        for key, state in tuple(self._states.items()):
            if state.touched > horizon:
                break
            if not state.running:
                del self._states[key]
                self._ended(state)

    def forget(self, key: str) -> None:
        """Forget a client that has left."""
        state = self._states.pop(key, None)
        if state is not None:
            self._ended(state)

    def forget_all(self) -> None:
        """Forget every client."""
        for key in tuple(self._states):
            self.forget(key)


def shorten(value: Any, characters: int) -> tuple[Any, int]:
    """A JSON value whose texts are cut and that ends where it has this many characters; its size.

    A number or another atom counts as eight characters.
    """
    if isinstance(value, str):
        text = value[: min(MAX_TEXT, max(0, characters))]
        return text, len(text)
    if isinstance(value, Mapping):
        left, items = characters, {}
        for key, item in value.items():
            if left <= 0:
                break
            items[str(key)[:MAX_TEXT]], size = shorten(item, left)
            left -= size + min(len(str(key)), MAX_TEXT)
        return items, characters - left
    if isinstance(value, list):
        left, elements = characters, []
        for item in value:
            if left <= 0:
                break
            element, size = shorten(item, left)
            elements.append(element)
            left -= size + 1
        return elements, characters - left
    return value, 8


def client_key(context: Context) -> str:
    """Which client sent a request.

    The conversation that its ``_meta`` names; else the session of 2025-era HTTP; else, for the
    sessionless HTTP of 2026-07-28, the credential, address and name of the client together; over
    stdio there is one client.
    """
    meta: Mapping[str, Any] = context.meta or {}
    named = meta.get(SESSION_KEY)
    request: Any = context.request
    headers = getattr(request, "headers", None)
    if headers is None:
        return f"named {named}" if isinstance(named, str) else STDIO
    address = "" if request.client is None else request.client.host
    owner = f"{headers.get('authorization', '')} {address}"
    if isinstance(named, str):
        return f"named {owner} {named}"
    session = headers.get("mcp-session-id")
    if session:
        return session_key(session)
    about = context.session.client_params
    name = "" if about is None else f"{about.client_info.name} {about.client_info.version}"
    return f"client {owner} {name}"


def session_key(session: str) -> str:
    """The key of a client that has a session of 2025-era HTTP."""
    return f"session {session}"
