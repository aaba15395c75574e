"""Sessions of Claude Code: its transcripts, and the output of ``--output-format stream-json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dtdr.conversation.assembly import assemble
from dtdr.conversation.events import LoggedCall, LoggedRun, UserMessage, nest
from dtdr.conversation.items import Item, ToolCallRequest, ToolResult
from dtdr.conversation.messages import items_of
from dtdr.conversation.values import arguments_of, as_mapping, first_of
from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.log_format import LogFormat, Window

_NAMING_ARGUMENTS = {
    "Skill": ("skill", ("skill", "command")),
    "Task": ("agent", ("subagent_type",)),
    "Agent": ("agent", ("subagent_type",)),
}
"""Tools that are many in one, each with a prefix and the arguments that name the one that is meant:
``Skill`` with ``{"skill": "pdf"}`` is ``skill:pdf``."""

_SEARCH = "ToolSearch"
"""Loads deferred definitions, which is not a step of the user's task."""

_COMPACTION = "acompact"
"""Beginning of the id of the agent that summarizes a session for its own program."""

_SPOKEN = ("user", "assistant")


class ClaudeCode(LogFormat):
    """Lines of sessions, each with one message; sub-agents are in the same file or another.

    A sub-agent belongs to the call that its lines name (``parent_tool_use_id``), whose result names
    it (``agentId``), or whose prompt it begins with. Without a call it is a separate run.
    """

    name: ClassVar[str] = "claude-code"
    title: ClassVar[str] = "Claude Code sessions (transcripts or stream-json)"
    needs: ClassVar[str] = "lines with 'type', 'message' and 'sessionId' or 'session_id'"

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._roots: dict[str, str] = {}  # by the first message of a session
        self._root_of: dict[str, str] = {}

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a message of a session."""
        return (
            isinstance(record, dict)
            and record.get("type") in _SPOKEN
            and isinstance(record.get("message"), dict)
            and ("sessionId" in record or "parent_tool_use_id" in record)
            and "content" in record["message"]
        )

    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """File a line with its session; lines without a message are skipped."""
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            raise InputError("not a line of a session: it has no 'type'")
        kind = record["type"]
        session = record.get("sessionId") or record.get("session_id")
        is_queued = first_of(record.get("attachment"), "type") == "queued_command"
        if kind not in (*_SPOKEN, "result") and not is_queued:
            self.ignored[f"line of the type {kind!r}"] += 1
        elif kind == "result" and not isinstance(session, str):
            self.ignored["line of a workflow's journal"] += 1
        elif not isinstance(session, str):
            raise InputError("not a line of a session: it has no 'sessionId' or 'session_id'")
        else:
            self._find_root(session, record)
            self.window.append(session, raw, origin)

    def _find_root(self, session: str, record: Any) -> None:
        """Note the session that another one resumes: it begins with the same message."""
        name = record.get("uuid")
        if session not in self._root_of and isinstance(name, str):
            self._root_of[session] = self._roots.setdefault(name, session)

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The session, with sub-agents nested in their calls."""
        session = _SessionLines([json_codec.loads(payload) for payload in payloads], self.unknown)
        for run in session.runs(key):
            run.group = self._root_of.get(key, key)
            run.replays = not run.id.startswith(f"{key}/")  # sub-agents have ids of their own
            yield run


class _SessionLines:
    """The lines of a session by thread; the user's thread has an empty id."""

    def __init__(self, lines: list[Mapping[str, Any]], unknown: Counter[str]) -> None:
        self.threads: dict[str, list[tuple[int, Item]]] = {"": []}
        self.called_by: dict[str, str] = {}
        self.searches: set[str] = set()
        self.failed = False
        self._unknown = unknown
        self._thread_of: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        local = _local_commands(lines)
        for position, line in enumerate(lines):
            if line["type"] == "result":
                self.failed = line.get("is_error") is True
                continue
            name = line.get("uuid")
            if isinstance(name, str) and name in self._thread_of:
                continue  # a resumed session may repeat its lines
            if str(line.get("agentId")).startswith(_COMPACTION):
                continue
            thread = self._find_thread(line, position)
            if isinstance(name, str):
                self._thread_of[name] = thread
            if line.get("isCompactSummary") is not True and position not in local:
                self._read(line, position, self.threads.setdefault(thread, []))

    def runs(self, session: str) -> Iterator[LoggedRun]:
        """The user's thread, then sub-agents without a call."""
        runs = {name: assemble(items) for name, items in self.threads.items()}
        # By id and by prompt: the thread that a call is of, and the call.
        calls: dict[str, tuple[str, LoggedCall]] = {}
        prompts: dict[str, tuple[str, LoggedCall]] = {}
        for name, run in runs.items():
            for event in run.events:
                if isinstance(event, LoggedCall):
                    calls.setdefault(event.id, (name, event))
                    prompt = arguments_of(event.arguments).get("prompt")
                    if isinstance(prompt, str):
                        prompts.setdefault(prompt.strip(), (name, event))
        main = runs.pop("")
        main.id, main.failed = session, self.failed
        alone = []
        for name, run in runs.items():
            prompt = next((e.text for e in run.events if isinstance(e, UserMessage)), "").strip()
            # It has the id of its call, or a line names the call, or its prompt is the call's.
            call_of_it = (
                calls.get(name) or calls.get(self.called_by.get(name, "")) or prompts.get(prompt)
            )
            if call_of_it is not None and call_of_it[0] != name:
                nest(call_of_it[1], run, f"{session}/{name}")
            else:
                run.id = f"{session}/{name}"
                alone.append(run)
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
        queued = as_mapping(line.get("attachment")).get("prompt")  # typed while the agent worked
        message = as_mapping(line.get("message")) or {"role": "user", "content": queued}
        # One answer of the model may be written block by block; its calls are of one step.
        name = message.get("id")
        if isinstance(name, str):
            position = self._positions.setdefault(name, position)
        agent = first_of(line.get("toolUseResult"), "agentId")
        role = line["type"] if line["type"] in _SPOKEN else "user"
        message = {"role": role, "timestamp": line.get("timestamp"), **message}
        for item in items_of(message, self._unknown):
            if line.get("isMeta") is True and not isinstance(item, ToolResult):
                continue  # written by the program
            if isinstance(item, ToolCallRequest) and item.tool == _SEARCH:
                self.searches.add(item.id)
            if getattr(item, "id", None) in self.searches:
                continue
            if isinstance(item, ToolCallRequest):
                item = replace(item, tool=_full_name(item))
            elif isinstance(agent, str) and not isinstance(item, UserMessage):
                self.called_by.setdefault(agent, getattr(item, "id", ""))
            items.append((position, item))


def _local_commands(lines: list[Mapping[str, Any]]) -> set[int]:
    """Positions of commands that Claude Code answered itself, so that no agent read them.

    Such a command is followed by its output, or by another message of the user.
    """
    local: set[int] = set()
    waiting: int | None = None
    for position, line in enumerate(lines):
        content = as_mapping(line.get("message")).get("content")
        text = content if isinstance(content, str) else ""
        if line["type"] == "user" and line.get("isMeta") is not True:
            is_answer = text.lstrip().startswith(("<local-command-std", "<local-command-caveat"))
            if waiting is not None and (is_answer or text):
                local.add(waiting)
            waiting = position if "<command-name>" in text else None
        elif line["type"] == "assistant":
            waiting = None
    if waiting is not None:
        local.add(waiting)
    return local


def _full_name(request: ToolCallRequest) -> str:
    """The tool's name, with the skill or sub-agent in its arguments."""
    prefix, keys = _NAMING_ARGUMENTS.get(request.tool, ("", ()))
    arguments = arguments_of(request.arguments)
    for key in keys:
        if isinstance(value := arguments.get(key), str) and value.strip():
            return f"{prefix}:{value.strip()}"
    return request.tool
