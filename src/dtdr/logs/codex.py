"""Sessions of Codex: the ``rollout-*.jsonl`` files that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.log_format import Trace, TraceFormat, Window, as_list, as_mapping
from dtdr.logs.messages import conversation
from dtdr.logs.openai_responses import positioned_items

_LINES = ("session_meta", "response_item", "turn_context", "event_msg")
_CLOCK = "Wall time: "
"""Begins the first text of a tool's output; Codex writes it for its LLM."""


class Codex(TraceFormat):
    """Lines of sessions, a file each; ``response_item`` lines hold what the LLM read and wrote.

    A search for tools (``tool_search``) is no call; the definitions that it found are collected.
    """

    name: ClassVar[str] = "codex"
    title: ClassVar[str] = "Codex sessions (rollout files)"

    def __init__(self, window: Window, *, idle_gap: float = 300.0) -> None:
        super().__init__(window, idle_gap=idle_gap)
        self._sessions: dict[int, str] = {}

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a line of a rollout file."""
        return (
            isinstance(record, dict)
            and record.get("type") in _LINES
            and isinstance(record.get("payload"), dict)
            and "timestamp" in record
        )

    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """File an item with the session that its file is of."""
        payload = record.get("payload") if isinstance(record, dict) else None
        if not isinstance(payload, dict):
            raise InputError("not a line of a Codex session: it has no 'payload'")
        kind = payload.get("type")
        if record.get("type") == "session_meta":
            self._sessions[place[0]] = str(payload.get("id"))
        elif kind == "tool_search_call":
            self.counts["searches for tools"] += 1
        elif kind == "tool_search_output":
            for tool in as_list(payload.get("tools")):
                inner = as_list(as_mapping(tool).get("tools")) or [tool]
                self.tools.add([_named(item, as_mapping(tool).get("name")) for item in inner])
        elif record.get("type") == "response_item":
            self.window.append(self._sessions.get(place[0], str(place[0])), raw, place)

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The session."""
        # A file that is read twice repeats its lines.
        lines = map(json_codec.loads, dict.fromkeys(payloads))
        items = [_item({"timestamp": line.get("timestamp"), **line["payload"]}) for line in lines]
        trace = conversation(positioned_items(items))
        trace.id = trace.group = key
        yield trace


def _item(item: dict[str, Any]) -> dict[str, Any]:
    """An item with the full name of a server's tool, and an output without Codex's clock."""
    first = as_mapping(next(iter(as_list(item.get("output"))), None))
    if str(first.get("text", "")).startswith(_CLOCK):
        return {**item, "output": item["output"][1:]}
    return _named(item, item.get("namespace"))


def _named(item: Any, namespace: Any) -> dict[str, Any]:
    item = as_mapping(item)
    if not isinstance(namespace, str) or namespace == item.get("name"):
        return dict(item)
    return {**item, "name": f"{namespace.removesuffix('__')}__{item.get('name')}"}
