"""Sessions of Codex: the ``rollout-*.jsonl`` files that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from dtdr.conversation.assembly import assemble, positioned
from dtdr.conversation.events import LoggedRun
from dtdr.conversation.values import as_list, as_mapping
from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.log_format import LogFormat
from dtdr.logs.openai_responses import response_items

_LINES = ("session_meta", "response_item", "turn_context", "event_msg")
_CLOCK = "Wall time: "
"""Beginning of the first text of a tool's output, which Codex writes for its LLM."""


class Codex(LogFormat):
    """Lines of sessions, one session per file; ``response_item`` lines are what the LLM used.

    A search for tools (``tool_search``) is not a call; the definitions that it found are kept.
    """

    name: ClassVar[str] = "codex"
    title: ClassVar[str] = "Codex sessions (rollout files)"

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
        """File an item, or the session's own line, with those of its file."""
        payload = record.get("payload") if isinstance(record, dict) else None
        if not isinstance(payload, dict):
            raise InputError("not a line of a Codex session: it has no 'payload'")
        kind = payload.get("type")
        if kind == "tool_search_output":
            for tool in as_list(payload.get("tools")):
                inner = as_list(as_mapping(tool).get("tools")) or [tool]
                self.tools.add([_named(item, as_mapping(tool).get("name")) for item in inner])
        elif kind != "tool_search_call" and record.get("type") in ("response_item", "session_meta"):
            self.window.append(str(place[0]), raw, place)

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The session."""
        # A file that is read twice repeats its lines.
        items = []
        for line in map(json_codec.loads, dict.fromkeys(payloads)):
            if line["type"] == "session_meta":
                key = str(line["payload"].get("id"))
            else:
                items.append(_item({"timestamp": line.get("timestamp"), **line["payload"]}))
        trace = assemble(positioned(map(response_items, items)))
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
