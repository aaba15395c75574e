"""What LangChain's agents and langgraph's graphs have in common: tools and messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dtdr.agents import openai
from dtdr.agents.transcript import Transcript, read_items
from dtdr.errors import MissingExtraError

try:
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as error:
    raise MissingExtraError("the LangChain integration", "langchain", "langchain-core") from error

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, ToolCall

    from dtdr.logs.messages import Item


def tool_name(tool: object) -> str | None:
    """The name of a LangChain tool, a function, or a definition; None for a provider's own."""
    if isinstance(tool, dict):
        return openai.tool_name(tool)
    name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
    return name if isinstance(name, str) and name else None


def definition(tool: Any) -> dict[str, Any]:
    """What the model is sent of a tool."""
    return tool if isinstance(tool, dict) else convert_to_openai_tool(tool)


def transcript(messages: Iterable[BaseMessage]) -> Transcript:
    """The turns of a conversation in LangChain's messages."""
    return read_items(
        (position, item) for position, message in enumerate(messages) for item in _items(message)
    )


def _items(message: BaseMessage) -> Iterator[Item]:
    from dtdr.logs.log_format import AssistantMessage, UserMessage
    from dtdr.logs.messages import ToolCallRequest, ToolResult, output_of, text_of

    text = text_of(message.content)
    if message.type == "human" and text.strip():
        yield UserMessage(text)
    elif isinstance(message, AIMessage):
        if text.strip():
            yield AssistantMessage(text)
        for call in calls_of(message):
            yield ToolCallRequest(call["id"] or "", call["name"], call["args"])
    elif isinstance(message, ToolMessage):
        output, has_failed = output_of(message.content), message.status == "error"
        yield ToolResult(message.tool_call_id, output, message.name or "", has_failed)


def calls_of(message: BaseMessage) -> Sequence[ToolCall]:
    """The calls that a message of the model asks for."""
    return message.tool_calls if isinstance(message, AIMessage) else ()
