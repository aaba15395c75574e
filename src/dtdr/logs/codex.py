"""Sessions of Codex: the ``rollout-*.jsonl`` files that it writes, and ``codex exec --json``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from dtdr.conversation.assembly import assemble, positioned
from dtdr.conversation.events import LoggedRun
from dtdr.conversation.items import output_of
from dtdr.conversation.messages import items_of
from dtdr.conversation.times import find_time
from dtdr.conversation.values import (
    as_list,
    as_mapping,
    as_text,
    decode_json,
    each_object,
    first_of,
    load_tables,
    walk,
)
from dtdr.data import json_codec
from dtdr.data.outputs import is_marked
from dtdr.errors import InputError
from dtdr.logs.envelopes import NO_QUERY, call_message, result_message
from dtdr.logs.log_format import LogFormat

_LINES = ("session_meta", "response_item", "turn_context", "event_msg", "compacted")
_ITEMS = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call")
_EXEC = ("thread.started", "item.started", "item.updated", "item.completed", "turn.failed")
_QUIET_ITEMS = ("reasoning", "todo_list", "error", "plan_update")
_ENDS = ("exec_command_end", "mcp_tool_call_end", "patch_apply_end")
_HEADER = re.compile(
    r"(?:(?:Chunk ID|Exit code|Wall time|Process exited|Original token count|Total output lines)"
    r"[^\n]*\n){1,6}(?:Output:\n?)?"
)
"""Lines that Codex writes before a command's output for its LLM."""
_EXIT = re.compile(r"(?:Exit code: |Process exited with code )(-?\d+)")
_ERRORS = tuple(load_tables(Path(__file__).with_name("conventions.toml"))["codex_errors"])
"""Beginnings of what Codex reports of a call that failed, or was refused."""


class Codex(LogFormat):
    """Lines of sessions, one session per file; ``response_item`` lines are what the LLM used.

    A fork begins with its own ``session_meta`` and repeats the lines of its parent. A search for
    tools (``tool_search``) is not a call; the definitions that it returned are kept. Before autumn
    2025, items were written bare.
    """

    name: ClassVar[str] = "codex"
    title: ClassVar[str] = "Codex sessions (rollout files, or exec --json)"
    needs: ClassVar[str] = "lines with 'type' and 'payload', bare items, or events of a thread"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a line of a rollout file, or an event."""
        if not isinstance(record, dict):
            return False
        kind = record.get("type")
        if kind in _LINES and isinstance(record.get("payload"), dict):
            return "timestamp" in record
        if kind in _EXEC and ("thread_id" in record or isinstance(record.get("item"), dict)):
            return True
        return record.get("record_type") == "state" or _is_old_meta(record)

    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """File an item, or the session's own line, with those of its file."""
        if not isinstance(record, dict):
            raise InputError("not a line of a Codex session: it is not a JSON object")
        kind, payload = record.get("type"), record.get("payload")
        if kind in _LINES and not isinstance(payload, dict):
            raise InputError("not a line of a Codex session: it has no 'payload'")
        payload = payload if isinstance(payload, dict) else record
        inner = payload.get("type")
        if inner == "tool_search_output":
            for tool in each_object(payload.get("tools")):
                for item in as_list(tool.get("tools")) or [tool]:
                    self.tools.add([_named(item, tool.get("name"))])
        elif (kind == "event_msg" and inner in _ENDS) or kind == "session_meta" or kind in _EXEC:
            self.window.append(str(origin[0]), raw, origin)
        elif kind == "response_item" or kind in _ITEMS or _is_old_meta(record):
            if inner != "tool_search_call":
                self.window.append(str(origin[0]), raw, origin)
        elif kind in _LINES or "record_type" in record or str(kind).startswith("turn."):
            named = inner if kind == "event_msg" else kind or record.get("record_type")
            self.ignored[f"line of the type {named!r}"] += 1
        else:
            raise InputError("not a line of a Codex session: it has no 'payload'")

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The session, in the group of the one that it was forked from."""
        lines = list(map(json_codec.loads, dict.fromkeys(payloads)))  # a file may be read twice
        if not any("timestamp" in line and "payload" in line for line in lines):
            lines = list(map(json_codec.loads, payloads))
        metas = [as_mapping(line.get("payload", line)) for line in lines if _is_meta(line)]
        is_exec = any(line.get("type") in _EXEC for line in lines)
        failed = _failed_calls(lines)
        messages = _exec_messages(lines) if is_exec else self._items(lines, failed)
        run = assemble(positioned(items_of(message, self.unknown) for message in messages))
        threads = (line.get("thread_id") for line in lines if line.get("type") == "thread.started")
        first = metas[0] if metas else {}
        run.id = as_text(first.get("id") or next(threads, ""))
        root = metas[-1].get("id") if len(metas) > 1 else None
        spawned = walk(first, "source", "subagent", "thread_spawn", "parent_thread_id")
        run.group = as_text(root or first_of(first, "forked_from_id") or spawned) or run.id
        run.replays, run.at = True, find_time(*lines[:1])
        run.default_query = NO_QUERY if is_exec else ""
        yield run

    def _items(self, lines: list[Any], failed: set[str]) -> Iterator[dict[str, Any]]:
        for line in lines:
            item = as_mapping(line.get("payload", line))
            if _is_meta(line) or line.get("type") == "event_msg":
                continue
            item = _named({"timestamp": line.get("timestamp"), **item}, item.get("namespace"))
            if str(item.get("type")).endswith("_output"):
                item = _result(item, str(item.get("call_id")) in failed)
            yield item


def _is_meta(line: Mapping[str, Any]) -> bool:
    return line.get("type") == "session_meta" or _is_old_meta(line)


def _is_old_meta(record: Mapping[str, Any]) -> bool:
    return "type" not in record and {"id", "timestamp", "instructions"} <= record.keys()


def _failed_calls(lines: list[Any]) -> set[str]:
    """Ids of calls whose end, an event of its own, says that they failed."""
    failed = set()
    for line in lines:
        event = as_mapping(line.get("payload"))
        if line.get("type") != "event_msg":
            continue
        result = as_mapping(event.get("result"))
        is_bad = event.get("exit_code") not in (None, 0) or event.get("success") is False
        is_bad = is_bad or event.get("status") in ("failed", "declined") or "Err" in result
        if is_bad or is_marked(first_of(result, "Ok")):
            failed.add(str(event.get("call_id")))
    return failed


def _result(item: dict[str, Any], has_failed: bool) -> dict[str, Any]:
    """An output without Codex's header, marked if the call failed."""
    output = item.get("output")
    blocks = as_list(output)
    first = as_text(first_of(blocks[0] if blocks else None, "text"))
    if _HEADER.match(first):  # a block of its own, or before the text
        left = _HEADER.sub("", first, count=1)
        blocks = [{**blocks[0], "text": left}, *blocks[1:]] if left else blocks[1:]
        output = output_of(blocks)
    inner = decode_json(output)
    if isinstance(inner, dict) and isinstance(inner.get("metadata"), dict) and "output" in inner:
        has_failed = has_failed or walk(inner, "metadata", "exit_code") not in (None, 0)
        output = inner["output"]
    elif isinstance(inner, dict) and "content" in inner and isinstance(inner.get("success"), bool):
        has_failed = has_failed or inner["success"] is False
        output = inner["content"]
    if isinstance(output, str) or first:
        text = output if isinstance(output, str) else first
        header = _HEADER.match(first or text)
        code = _EXIT.search(header[0]) if header else None
        has_failed = has_failed or (code is not None and int(code[1]) != 0)
        if header and isinstance(output, str):
            output = _HEADER.sub("", output, count=1)
        has_failed = has_failed or text.lstrip()[:80].lower().startswith(_ERRORS)
    mark = {"is_error": True} if has_failed else {}
    return {**item, "output": output, **mark}


def _exec_messages(lines: list[Any]) -> Iterator[dict[str, Any]]:
    """Events of ``codex exec --json`` as messages."""
    begun: set[str] = set()
    for line in lines:
        item = as_mapping(line.get("item"))
        kind, identifier = as_text(item.get("type")), as_text(item.get("id"))
        if not kind or kind in _QUIET_ITEMS:
            continue
        has_ended = line.get("type") == "item.completed"
        if kind in ("agent_message", "user_message"):
            if has_ended:
                role = "user" if kind == "user_message" else "assistant"
                yield {"role": role, "content": item.get("text")}
            continue
        if identifier not in begun:
            begun.add(identifier)
            yield call_message([(identifier, *_exec_call(kind, item))])
        if has_ended:
            output = first_of(item, "aggregated_output", "result", "output", "changes")
            error = first_of(item.get("error"), "message") or item.get("error")
            failed = item.get("status") in ("failed", "declined") or bool(error)
            failed = failed or item.get("exit_code") not in (None, 0)
            yield result_message(identifier, error or output_of(output), failed=failed)


def _exec_call(kind: str, item: Mapping[str, Any]) -> tuple[str, Any]:
    """The tool and arguments of an item."""
    if kind == "mcp_tool_call":
        return f"mcp__{item.get('server')}__{item.get('tool')}", item.get("arguments")
    keys = ("command", "query", "changes", "prompt")
    return kind, {key: item[key] for key in keys if item.get(key) is not None}


def _named(item: Any, namespace: Any) -> dict[str, Any]:
    """An item with the full name of a server's tool."""
    item = as_mapping(item)
    if not isinstance(namespace, str) or namespace == item.get("name"):
        return dict(item)
    return {**item, "name": f"{namespace.removesuffix('__')}__{item.get('name')}"}
