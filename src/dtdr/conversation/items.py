"""What a message contains: texts, requests for calls, and results of calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtdr.conversation.events import AssistantMessage, UserMessage
from dtdr.conversation.values import as_list, first_of
from dtdr.data.outputs import looks_failed

TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(slots=True)
class ToolCallRequest:
    """The model asks for a call."""

    id: str
    tool: str
    arguments: Any


@dataclass(slots=True)
class ToolResult:
    """A call's result.

    ``tool`` is empty if the log does not name it. ``failed`` is None if the format cannot mark a
    failure, so that only the output can show it.
    """

    id: str
    output: Any
    tool: str = ""
    failed: bool | None = False

    @property
    def has_failed(self) -> bool:
        """By the mark; by the output if there is no mark."""
        return looks_failed(self.output) if self.failed is None else self.failed


@dataclass(slots=True)
class SystemMessage:
    """The agent's instructions."""

    text: str


Item = UserMessage | AssistantMessage | SystemMessage | ToolCallRequest | ToolResult


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or a list of parts of any provider."""
    if isinstance(content, str):
        return content
    texts = []
    for part in [content] if isinstance(content, dict) else as_list(content):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in TEXT_PARTS:
            part = part.get("message_content", part)  # of OpenInference
            text = first_of(part, "text", "content")
            if isinstance(text, str) and text:
                texts.append(text)
    return "\n".join(texts)


def output_of(content: Any) -> Any:
    """What a tool returned: text parts joined to a text, anything else as it is."""
    if isinstance(structured := first_of(content, "structuredContent"), dict):
        return structured
    if isinstance(inner := first_of(content, "content"), list):
        content = inner
    if isinstance(content, list):
        is_text = content and all(first_of(part, "type") in TEXT_PARTS for part in content)
        return text_of(content) if is_text else content
    if isinstance(content, dict) and content.keys() <= {"type", "value"} and "value" in content:
        return content["value"]
    return content
