"""Sessions of Claude Code: its transcripts, and the output of ``--output-format stream-json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dtdr.conversation.assembly import assemble
from dtdr.conversation.events import LoggedCall, LoggedRun, UserMessage, nest
from dtdr.conversation.items import Item, ToolCallRequest
from dtdr.conversation.messages import items_of
from dtdr.conversation.values import arguments_of, first_of
from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.log_format import LogFormat

_NAMING_ARGUMENTS = {
    "Skill": ("skill", ("skill", "command")),
    "Task": ("agent", ("subagent_type",)),
    "Agent": ("agent", ("subagent_type",)),
}
"""Tools that are many in one, each with a prefix and the arguments that name the one that is meant:
``Skill`` with ``{"skill": "pdf"}`` is ``skill:pdf``."""

_SEARCH = "ToolSearch"
"""Loads deferred definitions, which is not a step of the user's task."""

_SPOKEN = ("user", "assistant")


class ClaudeCode(LogFormat):
    """Lines of sessions, each with one message; sub-agents are in the same file or another.

    A sub-agent belongs to the call that its lines name (``parent_tool_use_id``), whose result names
    it (``agentId``), or whose prompt it begins with. Without a call it is a separate run.
    """

    name: ClassVar[str] = "claude-code"
    title: ClassVar[str] = "Claude Code sessions (transcripts or stream-json)"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a message of a session."""
        return (
            isinstance(record, dict)
            and record.get("type") in _SPOKEN
            and isinstance(record.get("message"), dict)
            and ("sessionId" in record or "parent_tool_use_id" in record)
        )

    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """File a line with its session; lines without a message are skipped."""
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            raise InputError("not a line of a session: it has no 'type'")
        if record["type"] not in (*_SPOKEN, "result"):
            return
        session = record.get("sessionId") or record.get("session_id")
        if not isinstance(session, str):
            raise InputError("not a line of a session: it has no 'sessionId' or 'session_id'")
        self.window.append(session, raw, place)

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The session, with sub-agents nested in their calls."""
        session = _Session([json_codec.loads(payload) for payload in payloads])
        for trace in session.traces(key):
            trace.group = key
            yield trace


class _Session:
    """The lines of a session by thread; the user's thread has an empty id."""

    def __init__(self, lines: list[Mapping[str, Any]]) -> None:
        self.threads: dict[str, list[tuple[int, Item]]] = {"": []}
        self.called_by: dict[str, str] = {}
        self.searches: set[str] = set()
        self.failed = False
        self._thread_of: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        for position, line in enumerate(lines):
            if line["type"] == "result":
                self.failed = line.get("is_error") is True
                continue
            name = line.get("uuid")
            if isinstance(name, str) and name in self._thread_of:
                continue  # a resumed session may repeat its lines
            thread = self._find_thread(line, position)
            if isinstance(name, str):
                self._thread_of[name] = thread
            if line.get("isMeta") is not True and line.get("isCompactSummary") is not True:
                self._read(line, position, self.threads.setdefault(thread, []))

    def traces(self, session: str) -> Iterator[LoggedRun]:
        """The user's thread, then sub-agents without a call."""
        traces = {name: assemble(items) for name, items in self.threads.items()}
        calls: dict[str, tuple[str, LoggedCall]] = {}
        prompts: dict[str, tuple[str, LoggedCall]] = {}
        for name, trace in traces.items():
            for event in trace.events:
                if isinstance(event, LoggedCall):
                    calls.setdefault(event.id, (name, event))
                    prompt = arguments_of(event.arguments).get("prompt")
                    if isinstance(prompt, str):
                        prompts.setdefault(prompt.strip(), (name, event))
        main = traces.pop("")
        main.id, main.failed = session, self.failed
        alone = []
        for name, trace in traces.items():
            first = next((e.text for e in trace.events if isinstance(e, UserMessage)), "").strip()
            known = calls.get(name) or calls.get(self.called_by.get(name, "")) or prompts.get(first)
            if known is not None and known[0] != name:
                nest(known[1], trace, f"{session}/{name}")
            else:
                trace.id = f"{session}/{name}"
                alone.append(trace)
        yield main
        yield from alone

    def _find_thread(self, line: Mapping[str, Any], position: int) -> str:
        parent = line.get("parent_tool_use_id")
        if isinstance(parent, str):
            return parent
        if line.get("isSidechain") is not True:
            return ""
        agent, above = line.get("agentId"), line.get("parentUuid")
        if isinstance(agent, str):
            return agent
        return self._thread_of.get(above if isinstance(above, str) else "") or f"agent-{position}"

    def _read(self, line: Mapping[str, Any], position: int, items: list[tuple[int, Item]]) -> None:
        message = line["message"]
        # One answer of the model may be written block by block; its calls are of one step.
        name = message.get("id")
        if isinstance(name, str):
            position = self._positions.setdefault(name, position)
        agent = first_of(line.get("toolUseResult"), "agentId")
        message = {"role": line["type"], "timestamp": line.get("timestamp"), **message}
        for item in items_of(message):
            if isinstance(item, ToolCallRequest) and item.tool == _SEARCH:
                self.searches.add(item.id)
            if getattr(item, "id", None) in self.searches:
                continue
            if isinstance(item, ToolCallRequest):
                item = replace(item, tool=_full_name(item))
            elif isinstance(agent, str) and not isinstance(item, UserMessage):
                self.called_by.setdefault(agent, getattr(item, "id", ""))
            items.append((position, item))


def _full_name(request: ToolCallRequest) -> str:
    """The tool's name, with the skill or sub-agent in its arguments."""
    prefix, keys = _NAMING_ARGUMENTS.get(request.tool, ("", ()))
    arguments = arguments_of(request.arguments)
    for key in keys:
        if isinstance(value := arguments.get(key), str) and value.strip():
            return f"{prefix}:{value.strip()}"
    return request.tool
