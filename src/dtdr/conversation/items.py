"""Items of a message: texts, requests for calls, and results of calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdr.conversation.events import AssistantMessage, UserMessage
from dtdr.conversation.values import as_list, decode_json, first_of
from dtdr.data.outputs import is_marked, looks_failed

TEXT_PARTS = ("text", "input_text", "output_text")
_BLOCKS = re.compile(r'\s*(?:\[\s*)?\{\s*"(?:type|text|content|_?meta|isError|annotations)"\s*:')
"""How a text begins that may be blocks of MCP, or their wrapper, as JSON."""


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
            text = first_of(text, "text") if isinstance(text, dict) else text  # of Cursor
            if isinstance(text, str) and text and part.get("thought") is not True:
                texts.append(text)
    return "\n".join(texts)


def output_of(content: Any) -> Any:  # noqa: PLR0911
    """The output of a tool, without the blocks and wrappers around it.

    Text blocks become one text, and one ``json`` block its value; a structured result of MCP goes
    before its text. Blocks may be written as JSON text. Anything else stays as it is.
    """
    if isinstance(content, str):
        if _BLOCKS.match(content) is None:
            return content
        value = decode_json(content.strip())
        opened = value if isinstance(value, str) else output_of(value)
        return content if opened is value else opened
    if isinstance(structured := first_of(content, "structuredContent"), dict):
        return structured
    if isinstance(inner := first_of(content, "content"), list):
        content = inner
    if isinstance(content, list):
        return _open_blocks(content)
    if not isinstance(content, dict):
        return content
    if content.get("type") == "text" and content.keys() <= {"type", "text", "annotations"}:
        return content.get("text")
    if content.get("type") == "function_result" and "result" in content:  # Microsoft's agents
        return content["result"]
    if content.keys() <= {"type", "value"} and "value" in content:
        return content["value"]
    return content


def _open_blocks(blocks: list[Any]) -> Any:
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        return blocks
    if all(_is_text_block(block) for block in blocks):
        return text_of(blocks)
    if len(blocks) == 1 and blocks[0].keys() == {"json"}:  # of Bedrock
        return blocks[0]["json"]
    return blocks


def _is_text_block(block: dict[str, Any]) -> bool:
    return block.get("type") in TEXT_PARTS or block.keys() == {"text"}


def read_mark(record: Mapping[str, Any], content: Any, *, can_mark: bool) -> bool | None:
    """Whether a message or part is marked as failed; None if its format has no mark.

    Args:
        record: the message or part.
        content: its content, which may have a mark of its own.
        can_mark: whether its format always marks a failure.
    """
    if record.get("status") in ("error", "failed") or is_marked(record) or record.get("error"):
        return True
    if isinstance(content, str) and '"isError"' in content and _BLOCKS.match(content):
        content = decode_json(content.strip())
    if is_marked(content):
        return True
    if can_mark or any(key in record for key in ("status", "error", "is_error", "isError")):
        return False
    return None
