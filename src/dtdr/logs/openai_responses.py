"""OpenAI responses logs: requests with their responses, chained or repeating the conversation."""

from __future__ import annotations

from typing import Any, ClassVar

from dtdr.conversation.values import as_list, first_of
from dtdr.logs.conversations import ConversationFormat, find_request, find_response
from dtdr.logs.log_format import Window


class OpenAIResponses(ConversationFormat):
    """A request per record: ``{"input": …, "tools": […]}`` with its response.

    A response that names its predecessor (``previous_response_id``) continues that conversation;
    other requests are compared by their ``input``, as in chat logs.
    """

    name: ClassVar[str] = "openai-responses"
    title: ClassVar[str] = "OpenAI responses requests and responses"
    request_key: ClassVar[str] = "input"
    response_key: ClassVar[str] = "output"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether input or output are items, or it names the response before."""
        request, response = find_request(record, "input"), find_response(record, "output")
        if "previous_response_id" in request or response.get("object") == "response":
            return True
        items = [*as_list(request.get("input")), *as_list(response.get("output"))]
        kinds = (str(first_of(item, "type")) for item in items)
        return any(kind.endswith(("_call", "_call_output")) for kind in kinds)

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._heads: dict[str, tuple[str, int]] = {}
        self._responses: dict[str, list[str]] = {}
        window.on_leave = self._leave

    def replies(self, response: Any) -> list[Any]:
        """The output items."""
        return as_list(response)

    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """File a request with the conversation that it names or repeats."""
        exchange = self.exchange(record)
        known = self._heads.get(exchange.former)
        if known is None:
            filed = self._file(exchange, raw, origin)
            if exchange.id and filed:
                self._name(filed, [exchange.id])
            return
        self.tools.add(exchange.tools)
        key, position = known
        chain = self.window.payloads(key)[: position + 1]
        names = self._responses[key][: position + 1]
        if position + 1 < len(self._responses[key]):
            key = next(self._new_keys)  # a second answer to the same response: another conversation
        self.counts["superseded requests"] += 1
        self.window.put(key, [*chain, raw], origin)
        self._name(key, [*names, exchange.id])

    def _name(self, key: str, names: list[str]) -> None:
        self._responses[key] = names
        for position, name in enumerate(names):
            is_latest = position == len(names) - 1 or self._heads.get(name, (key,))[0] == key
            if name and is_latest:
                self._heads[name] = (key, position)

    def _leave(self, key: str) -> None:
        self._forget(key)
        for name in self._responses.pop(key, ()):
            if self._heads.get(name, ("",))[0] == key:
                del self._heads[name]
