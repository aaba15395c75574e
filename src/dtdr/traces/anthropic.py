"""Anthropic messages logs: requests with or without their responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dtdr.errors import InputError
from dtdr.traces.conversations import ConversationFormat, Exchange, find_request, find_response


class Anthropic(ConversationFormat):
    """One request a record: ``{"system": …, "messages": […], "tools": […]}``, or with its response.

    Results of tools come in messages of the user; a text beside them is no turn of its own.
    """

    name: ClassVar[str] = "anthropic"
    title: ClassVar[str] = "Anthropic messages requests and responses"

    def exchange(self, record: Any) -> Exchange:
        """Request and response, also inside the envelopes of proxies and gateways.

        Raises:
            InputError: there are no ``messages``.
        """
        request = find_request(record, "messages")
        messages = request.get("messages")
        if not isinstance(messages, list):
            raise InputError("no Anthropic record: it has no list of 'messages'")
        if messages and isinstance(messages[0], dict) and "tool_calls" in messages[0]:
            raise InputError("this is a chat-completions record; import it as openai-chat")
        response = find_response(record, "content")
        content = response.get("content")
        replies = [{"role": "assistant", "content": content}] if isinstance(content, list) else []
        return Exchange(messages, replies, request.get("tools"), request.get("system"))

    def mark(self, message: Any) -> object:
        """Role and, block by block, text, ids and arguments."""
        if not isinstance(message, dict):
            raise InputError("a message is no JSON object")
        content = message.get("content")
        role = message.get("role")
        if role == "system":
            return None
        if isinstance(content, str):
            return (role, content)
        blocks = [block for block in content or () if isinstance(block, dict)]
        if len(blocks) == 1 and isinstance(text := blocks[0].get("text"), str):
            return (role, text)
        return (role, *(_block(block) for block in blocks if block.get("type") not in _UNSTABLE))


_UNSTABLE = ("thinking", "redacted_thinking")
"""Blocks that a client may leave out when it sends the conversation again."""


def _block(block: Mapping[str, Any]) -> object:
    identifier = block.get("id") or block.get("tool_use_id")
    if isinstance(identifier, str):
        return (block.get("type"), identifier, str(block.get("input")) if "input" in block else "")
    text = block.get("text")
    return text if isinstance(text, str) else str(block.get("type"))
