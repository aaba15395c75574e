"""MCP session logs: JSON-RPC messages between a client and its servers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dtdr.conversation.events import Event, LoggedCall, LoggedRun, UserMessage
from dtdr.conversation.items import output_of
from dtdr.conversation.times import nanoseconds
from dtdr.conversation.values import as_mapping, first_of
from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.log_format import LogFormat, Window

_ENVELOPES = ("message", "msg", "payload", "data", "body", "rpc", "jsonrpc_message", "raw")
_TIMES = ("timestamp", "time", "ts", "at", "date")
_SESSIONS = ("session_id", "sessionId", "session", "mcp-session-id", "conversation_id")
_SERVERS = ("server", "server_name", "serverName", "upstream")
_QUERIES = ("query", "user_query", "prompt")
_DIRECTIONS = ("dir", "direction")
_TEXT_LINE = re.compile(
    rb"^\s*(?P<time>\S+)\s+\[(?P<server>[^\]]*)\].*?"
    rb"Message from (?:client|server):\s*(?P<json>\{.*)"
)

_IDLE_GAP = 300.0
"""Seconds of pause that end a run."""

_SESSIONS_LISTED = 1_000
"""Sessions whose lists of tools are kept."""


@dataclass(slots=True)
class _OpenRun:
    """The open run of a session: its key, the time of its latest message, and its query."""

    key: str
    at: int
    query: str


class MCP(LogFormat):
    """A JSON-RPC message per line: bare, in an envelope with a time, or as Claude Desktop logs it.

    A record may also have a request together with its response.

    ``tools/call`` requests are calls; responses with the same id (and server) are their results.
    MCP has no user, so the query comes from the envelope (``query``). A run ends with its session
    id, at ``initialize``, at another query, or after a pause of five minutes.
    """

    name: ClassVar[str] = "mcp"
    title: ClassVar[str] = "MCP JSON-RPC session logs"
    spans_files: ClassVar[str] = "ids of its runs contain the position of the file"
    default_query: ClassVar[str] = "(no query in the log)"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is, or contains, a JSON-RPC message."""
        return bool(_open_envelope(record))

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        window.on_leave = self._leave
        self._runs: dict[str, _OpenRun] = {}
        self._listed: dict[str, dict[str, set[str]]] = {}  # by session and server

    def decode(self, line: bytes) -> Any:
        """The message of a line; None for other output of the servers."""
        return read_line(line)

    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """File a message with its session; see ``LogFormat.add``."""
        messages = _open_envelope(record)
        if not messages:
            raise InputError(
                "not a JSON-RPC message: it has neither 'method' nor 'result' or 'error'"
            )
        for message in messages:
            self._add_message(message, record, origin)

    def _add_message(
        self, message: Mapping[str, Any], envelope: Mapping[str, Any], origin: tuple[int, int]
    ) -> None:
        method = message.get("method")
        result = message.get("result")
        listed = self.tools.add(result.get("tools")) if isinstance(result, dict) else []
        is_call = method == "tools/call"
        if not is_call and ("id" not in message or (method and method != "initialize")):
            return
        session = f"{origin[0]}/{_name(envelope, _SESSIONS)}"
        server = _name(envelope, _SERVERS)
        if listed:
            self._list(session, server, listed)
        at = nanoseconds(first_of(envelope, *_TIMES))
        if method == "initialize":
            # Each server of a session is initialised; the same one again is a new session.
            self._end(session, server)
            self._listed.get(session, {}).pop(server, None)
            return
        if not is_call and session not in self._runs:
            return
        query = _name(envelope, _QUERIES)
        if is_call:
            listed = self._begin(session, query, at, origin)
        run = self._runs[session]
        run.at = max(at, run.at)
        kept = message if is_call else _result(message)
        packed = [at, server, message.get("id"), query, kept, listed]
        self.window.append(run.key, json_codec.dumps(packed), origin)

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The calls of a session in order."""
        messages = [json_codec.loads(payload) for payload in payloads]
        timed = all(at for at, *_ in messages)
        if timed:
            messages.sort(key=lambda message: message[0])
        events: list[Event] = []
        unmatched = 0
        waiting: dict[tuple[str, str], LoggedCall] = {}
        offered: set[str] = set()
        for position, (at, server, identifier, query, message, *listed) in enumerate(messages):
            moment = at if timed else position
            known = (server, str(identifier))
            offered.update(*listed)
            if message.get("method") == "tools/call":
                parameters = as_mapping(message.get("params"))
                name = parameters.get("name")
                if not isinstance(name, str) or not name:
                    raise InputError("a tools/call request has no tool name")
                if query and not events:
                    events.append(UserMessage(query))
                call = LoggedCall(name, parameters.get("arguments"), moment, id=str(identifier))
                events.append(call)
                waiting[known] = call
            elif known in waiting:
                answered = waiting.pop(known)
                answered.ended = moment
                answered.failed = "error" in message or message.get("isError") is True
                answered.output = output_of(message.get("error", message))
            else:
                unmatched += 1
        if events:
            session = key.split("/", 1)[1].rsplit("/", 1)[0]
            run = LoggedRun("", events, group=session, salt=key, unmatched=unmatched)
            run.at, run.offered = messages[0][0], offered
            yield run

    def _list(self, session: str, server: str, names: list[str]) -> None:
        """Remember what a server offers, for the latest sessions."""
        if session not in self._listed and len(self._listed) == _SESSIONS_LISTED:
            del self._listed[next(iter(self._listed))]
        self._listed.setdefault(session, {}).setdefault(server, set()).update(names)

    def _begin(self, session: str, query: str, at: int, origin: tuple[int, int]) -> list[str]:
        """Open a run unless the call belongs to the open one; returns a new run's listed tools."""
        run = self._runs.get(session)
        if run is not None:
            has_paused = at and run.at and at - run.at > _IDLE_GAP * 1e9
            if not has_paused and query in ("", run.query):
                return []
            self.window.finish(run.key)
        self._runs[session] = _OpenRun(f"{session}/{origin[1]}", at, query)
        return sorted(set().union(*self._listed.get(session, {}).values()))

    def _end(self, session: str, server: str) -> None:
        if (run := self._runs.get(session)) is not None:
            servers = (json_codec.loads(item)[1] for item in self.window.payloads(run.key))
            if not server or server in servers:
                self.window.finish(run.key)

    def _leave(self, key: str) -> None:
        session = key.rsplit("/", 1)[0]
        if session in self._runs and self._runs[session].key == key:
            del self._runs[session]


def read_line(line: bytes) -> Any:
    """A line of JSON, or a line of Claude Desktop's logs as an envelope; None for any other."""
    if line.lstrip()[:1] in (b"{", b"["):
        return json_codec.loads(line)
    match = _TEXT_LINE.match(line)
    if match is None:
        return None
    return {
        "timestamp": match["time"].decode("utf-8", "replace"),
        "server": match["server"].decode("utf-8", "replace"),
        "message": json_codec.loads(match["json"]),
    }


def _open_envelope(record: Any) -> list[Mapping[str, Any]]:
    """The JSON-RPC messages of a record: one, or a request and its response."""
    if not isinstance(record, dict):
        return []
    is_marked = "jsonrpc" in record or not record.keys().isdisjoint(_DIRECTIONS)
    if is_marked and not record.keys().isdisjoint(("method", "result", "error")):
        return _split(record)
    request, response = as_mapping(record.get("request")), as_mapping(record.get("response"))
    if "method" in request and ("params" in request or "jsonrpc" in request):
        answer = {} if not response else {**_as_response(response), "id": request.get("id", 0)}
        return [{"id": 0, **request}, answer] if answer else [{"id": 0, **request}]
    for key in _ENVELOPES:
        inner = as_mapping(record.get(key))
        if "jsonrpc" in inner or "method" in inner:
            return _split({**_without_id(inner, record), **inner})
        if inner and record.get("direction") in ("response", "res") and "message_type" in record:
            return [_as_response({**_without_id(inner, record), **inner})]
    if record.get("method") == "tools/call" and isinstance(record.get("params"), dict):
        return _split(record)
    return []


def _without_id(message: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """An id for a message without one, by which its response is known: the tool's name."""
    named = record.get("tool_name")
    return {"id": named} if "id" not in message and isinstance(named, str) else {}


def _as_response(message: Mapping[str, Any]) -> dict[str, Any]:
    """A response, also of only its result."""
    if "result" in message or "error" in message:
        return dict(message)
    return {"id": message.get("id"), "result": {k: v for k, v in message.items() if k != "id"}}


def _split(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A message that is a request and its response as both."""
    answer = {key: message[key] for key in ("result", "error") if message.get(key) is not None}
    if "method" not in message or not answer:
        return [message]
    identifier = message.get("id", 0)
    return [{**message, "id": identifier}, {"id": identifier, **answer}]


def _result(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A response reduced to what a call returned."""
    if "error" in message:
        return {"error": message["error"]}
    result = message.get("result")
    return result if isinstance(result, dict) else {"content": result}


def _name(envelope: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    value = first_of(envelope, *keys)
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
