"""OpenAI responses logs: requests with their responses, chained or repeating the conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from dtdr import json_codec
from dtdr.errors import InputError
from dtdr.traces.base import Trace, as_mapping
from dtdr.traces.conversations import (
    ConversationFormat,
    Exchange,
    add_group,
    find_request,
    find_response,
)
from dtdr.traces.messages import (
    Item,
    ToolCallRequest,
    ToolResult,
    conversation,
    items_of,
    looks_failed,
    output_of,
)
from dtdr.traces.times import find_time
from dtdr.traces.window import Window

_ARGUMENT_KEYS = ("arguments", "input", "action", "operation", "queries", "code", "query")


class OpenAIResponses(ConversationFormat):
    """One request a record: ``{"input": …, "tools": […]}`` beside its response.

    A response that names its predecessor (``previous_response_id``) goes on with that one's
    conversation; other requests are compared by their ``input``, as chat logs are.
    """

    name: ClassVar[str] = "openai-responses"
    title: ClassVar[str] = "OpenAI responses requests and responses"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether input or output are items, or it names the response before."""
        request, response = find_request(record, "input"), find_response(record, "output")
        if "previous_response_id" in request or response.get("object") == "response":
            return True
        items = [
            item
            for value in (request.get("input"), response.get("output"))
            for item in (value if isinstance(value, list) else ())
            if isinstance(item, dict)
        ]
        return any(str(item.get("type", "")).endswith(("_call", "_call_output")) for item in items)

    def __init__(self, window: Window, *, idle_gap: float = 300.0) -> None:
        super().__init__(window, idle_gap=idle_gap)
        self._heads: dict[str, tuple[str, int]] = {}
        self._responses: dict[str, list[str]] = {}
        window.on_leave = self._leave

    def exchange(self, record: Any) -> Exchange:
        """Input and output items.

        Raises:
            InputError: there is neither ``input`` nor ``output``.
        """
        response = find_response(record, "output")
        output = response.get("output")
        replies = output if isinstance(output, list) else []
        request = find_request(record, "input")
        entered = request.get("input")
        if isinstance(entered, str):
            items: list[Any] = [{"role": "user", "content": entered}]
        elif isinstance(entered, list):
            items = entered
        elif replies:
            items = []
        else:
            raise InputError("not a responses record: it has neither 'input' nor 'output'")
        tools = request.get("tools") or response.get("tools")
        system = request.get("instructions") or response.get("instructions")
        is_truncated, at = bool(response.get("truncated")), find_time(as_mapping(record), response)
        return Exchange(items, replies, tools, system, is_truncated, at)

    def mark(self, message: Any) -> object:
        """Role and text of messages, ids of calls and results; None for reasoning."""
        if not isinstance(message, dict):
            raise InputError("an item is not a JSON object")
        kind = message.get("type", "message")
        if kind == "message":
            if message.get("role") in ("system", "developer"):
                return None
            return (message.get("role"), _text(message.get("content")))
        if kind == "reasoning" or not isinstance(kind, str):
            return None
        identifier = message.get("call_id") or message.get("id")
        return (kind, str(identifier), str(message.get("name")), str(message.get("arguments")))

    def is_reply(self, message: Any) -> bool:
        """Whether the model wrote an item."""
        if not isinstance(message, dict):
            return False
        kind = message.get("type", "message")
        if kind == "message":
            return message.get("role") == "assistant"
        return not str(kind).endswith("_output")

    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """File a request with the conversation that it names or repeats."""
        former, current = self._names(record)
        known = self._heads.get(former)
        if not former or known is None:
            super().add(record, raw, place)
            if current and self._filed:
                self._name(self._filed, [current])
            return
        exchange = self.exchange(record)
        self.tools.add(exchange.tools)
        self.counts["truncated streams"] += exchange.is_truncated
        key, position = known
        chain = self.window.payloads(key)[: position + 1]
        names = self._responses[key][: position + 1]
        if position + 1 < len(self._responses[key]):
            key = f"{self._next}"  # a second answer to the same response: another conversation
            self._next += 1
        self.counts["superseded requests"] += 1
        self.window.put(key, [*chain, raw], place)
        self._name(key, [*names, current])

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The conversation, from all requests of a chain."""
        items: list[Any] = []
        system: Any = None
        at = 0
        for payload in payloads:
            exchange = self.exchange(json_codec.loads(payload))
            asked = [_with_time(item, exchange.at) for item in exchange.messages]
            items += [*asked, *exchange.replies]
            system, at = system or exchange.system, exchange.at
        yield add_group(conversation(positioned_items(items), system), at)

    def readmit(self, key: str, payloads: list[bytes], place: tuple[int, int]) -> None:
        """Put a conversation back and learn its messages and names again."""
        records = [json_codec.loads(payload) for payload in payloads]
        if len(records) == 1:
            super().readmit(key, payloads, place)
        else:
            self._next = max(self._next, int(key) + 1)
            self.window.put(key, payloads, place)
        names = [self._names(record)[1] for record in records]
        if any(names):
            self._name(key, names)

    def _names(self, record: Any) -> tuple[str, str]:
        """Ids of the response that came before, and of the record's own."""
        response = find_response(record, "output")
        request = find_request(record, "input")
        former = request.get("previous_response_id") or response.get("previous_response_id")
        current = response.get("id")
        return (
            former if isinstance(former, str) else "",
            current if isinstance(current, str) else "",
        )

    def _name(self, key: str, names: list[str]) -> None:
        self._responses[key] = names
        for position, name in enumerate(names):
            own = position == len(names) - 1 or self._heads.get(name, (key,))[0] == key
            if name and own:
                self._heads[name] = (key, position)

    def _leave(self, key: str) -> None:
        self._forget(key)
        for name in self._responses.pop(key, ()):
            if self._heads.get(name, ("",))[0] == key:
                del self._heads[name]


def _with_time(item: Any, at: int) -> Any:
    """An item of a request that came at a time, which its own messages do not say."""
    return {"timestamp": at, **item} if isinstance(item, dict) and "role" in item else item


def positioned_items(records: Iterable[Any]) -> Iterator[tuple[int, Item]]:
    """What items or messages hold, with positions; calls that stand together are of one."""
    position, together = 0, False
    for record in records:
        items = list(_items(record))
        if not items:
            continue  # reasoning between two calls does not part them
        only_call = len(items) == 1 and isinstance(items[0], ToolCallRequest)
        if not (together and only_call):
            position += 1
        together = only_call
        for item in items:
            yield position, item


def _items(record: Any) -> Iterator[Item]:
    """What one input or output item holds; built-in tools are calls named after their item."""
    if not isinstance(record, dict):
        return
    kind = str(record.get("type", "message"))
    if kind == "message" or "role" in record:
        yield from items_of({**record, "type": "message"})
        return
    identifier = str(record.get("call_id") or record.get("id") or "")
    if kind.endswith("_call_output") or kind == "tool_search_output":
        output = output_of(record.get("output", record.get("tools")))
        yield ToolResult(identifier, output, failed=_has_failed(record, output))
    elif kind.endswith("_call"):
        named = record.get("name")
        tool = named if isinstance(named, str) and named else kind.removesuffix("_call")
        arguments = next((record[key] for key in _ARGUMENT_KEYS if record.get(key)), None)
        if kind not in ("function_call", "custom_tool_call", "mcp_call") and arguments is not None:
            arguments = arguments if isinstance(arguments, dict) else {"input": arguments}
        yield ToolCallRequest(identifier, tool, arguments)
        output = record.get("output", record.get("results"))
        if record.get("error") or output is not None:
            failed = bool(record.get("error")) or _has_failed(record, output)
            yield ToolResult(identifier, output_of(output), failed=failed)
    else:
        yield from items_of(record)  # a message of another API, or nothing


def _has_failed(record: Mapping[str, Any], output: Any) -> bool:
    return record.get("status") in ("failed", "incomplete") or looks_failed(output)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(part.get("text")) for part in content if isinstance(part, dict))
