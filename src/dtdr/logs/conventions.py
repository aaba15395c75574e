"""Reads what spans say by the conventions of attributes that people's frameworks follow.

OpenTelemetry GenAI, OpenLLMetry (also its numbered attributes), OpenInference, the Vercel AI SDK,
Google ADK, Pydantic AI (Logfire), MLflow, LangSmith, AG2, Strands, LiveKit, Spring AI and Genkit
name the same things differently. A table for each thing says under which names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dtdr.conversation.events import UserMessage
from dtdr.conversation.exchanges import asked_messages, offered_tools, replied_messages
from dtdr.conversation.items import ToolCallRequest, ToolResult, output_of, read_mark
from dtdr.conversation.messages import items_of
from dtdr.conversation.values import (
    as_list,
    as_mapping,
    as_text,
    decode_value,
    each_object,
    first_of,
    load_tables,
    unflatten,
)
from dtdr.data.outputs import is_empty
from dtdr.logs.log_format import ToolTable
from dtdr.logs.spans import Span

_TABLES = load_tables(Path(__file__).with_name("conventions.toml"))
PREFIXES = tuple(_TABLES["prefixes"])
_KIND_OF: dict[str, str] = {
    name: kind for kind, names in _TABLES["kind_of"].items() for name in names
}
_MODELS = tuple(_TABLES["models"])
_NAME_PREFIXES: tuple[str, ...] = tuple(_TABLES["name_prefixes"])
_PRINTED = re.compile(
    r"content=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\") (?=[^\n]*tool_call_id='([^']*)')(.*)",
    re.DOTALL,
)
"""A message of LangChain as Python prints it."""
_OF_EVENTS = {"message", "id", "finish_reason", "tool.result"}


def flatten(attributes: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested attributes with dotted names: ``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in attributes.items():
        if isinstance(value, dict) and value and (prefix or "." not in str(key)):
            flat |= flatten(value, f"{prefix}{key}.")
            flat.setdefault(f"{prefix}{key}", value)
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def kind_of(attributes: Mapping[str, Any]) -> str:
    """``llm``, ``tool`` or ``agent`` by a span's flat attributes; else empty."""
    for key in _TABLES["kinds"]:
        said = attributes.get(key)
        if isinstance(said, str):
            said = said.strip('"')  # MLflow writes JSON
            if kind := _KIND_OF.get(said, _KIND_OF.get(said.lower(), "")):
                return kind
            if key == "gen_ai.operation.name" and said == "create_agent":
                return ""
    if first_of(attributes, *_TABLES["tool_names_only"]) is not None:
        return "tool"
    return "llm" if any(str(key).startswith(_MODELS) for key in attributes) else ""


def read_attributes(span: Span, attributes: Mapping[str, Any], tools: ToolTable) -> None:
    """Fill a span by its flat attributes; what they do not say stays as it is.

    Args:
        span: ``tool`` is the span's name, ``kind`` its kind if known otherwise.
        attributes: by dotted names.
        tools: collects the definitions.
    """
    span.kind = kind_of(attributes) or span.kind
    span.group = span.group or next(
        filter(None, (as_text(attributes.get(k)) for k in _TABLES["groups"])), ""
    )
    span.failed = span.failed or "error.type" in attributes
    for definitions in _definitions(attributes):
        span.offered += tools.add(definitions)
    if span.kind == "tool":
        read_tool(span, attributes)
    elif span.kind == "llm":
        span.tool = ""
        span.inputs = span.inputs or _asked(attributes)
        span.outputs = span.outputs or _replied(attributes)
    else:
        read_agent(span, attributes)


def read_tool(
    span: Span, attributes: Mapping[str, Any], entered: Any = None, left: Any = None
) -> None:
    """Fill the span of a tool's execution.

    Args:
        span: ``tool`` is the span's name.
        attributes: by dotted names.
        entered: its arguments, as an observability tool keeps them; before the attributes.
        left: its output, likewise.
    """
    span.tool = as_text(first_of(attributes, *_TABLES["tool_names"])) or bare_name(span.tool)
    if span.tool.startswith("("):  # Google ADK: (merged tools)
        span.kind = span.tool = ""
        return
    span.call_id = as_text(first_of(attributes, *_TABLES["call_ids"])) or span.call_id
    marks = (str(attributes.get(key)).lower() for key in _TABLES["marks"])
    span.failed = span.failed or any(mark in ("true", "error") for mark in marks)
    arguments = entered if entered is not None else first_of(attributes, *_TABLES["arguments"])
    span.arguments = open_arguments(_in_messages(arguments))
    returned = [left, *(attributes.get(key) for key in _TABLES["outputs"])]
    known = [value for value in returned if value is not None]
    best = next((value for value in known if not is_empty(decode_value(value))), None)
    if known:
        read_output(span, known[0] if best is None else best)


def read_agent(span: Span, attributes: Mapping[str, Any], entered: Any = None) -> None:
    """Fill the span of an agent, a chain or a whole request."""
    name = (
        as_text(first_of(attributes, *_TABLES["agents"]))
        or span.tool.removeprefix("invoke_agent").strip()
    )
    span.tool = name if span.kind == "agent" else span.tool
    span.kind = span.kind if span.tool else ""
    asked = entered if entered is not None else first_of(attributes, *_TABLES["asked"])
    read_question(span, asked)
    if not span.inputs and not span.text:
        span.inputs = _asked(attributes)


def read_question(span: Span, value: Any) -> None:
    """Read what an agent, chain or trace was asked: a text, messages, or an object with them."""
    value = decode_value(value)
    if isinstance(value, str):
        span.text = value
    else:
        span.inputs = span.inputs or asked_messages(value)


def read_output(span: Span, value: Any) -> None:
    """Read a tool's output, also from inside a message, with the mark of that message."""
    value = None if value in ("null", "None") else decode_value(value)
    if isinstance(value, str) and (printed := _PRINTED.match(value)) is not None:
        span.call_id = span.call_id or printed[2]
        span.failed = span.failed or "status='error'" in printed[3]
        value = decode_value((as_list(decode_value(f"[{printed[1]}]")) or [value])[0])
    if isinstance(value, list) and len(value) == 1 and "role" in as_mapping(value[0]):
        value = decode_value(first_of(value[0], "content") or value[0])
    if isinstance(value, dict) and value.keys() <= _OF_EVENTS:
        blocks = decode_value(value.get("message"))
        value = blocks if isinstance(blocks, list) else value
    if isinstance(value, dict):
        if value.keys() >= {"output", "kwargs"}:  # of OpenLLMetry
            value = decode_value(value["output"])
        elif "response" in value and value.keys() <= {"id", "name", "response"}:  # of Gemini
            value = value["response"]
    span.failed = span.failed or read_mark({}, value, can_mark=True) is True
    for item in items_of(value) if isinstance(value, dict) else ():
        if isinstance(item, ToolResult) and item.output is not None:
            span.output, span.failed = item.output, span.failed or item.failed is True
            return
    span.output = output_of(value)


def open_arguments(value: Any) -> Any:
    """Arguments without the objects that frameworks wrap them in: ``{"input": {…}}``."""
    value = decode_value(value)
    for _ in range(2):
        if not isinstance(value, dict):
            break
        if value.keys() >= {"args", "kwargs"} and isinstance(value["kwargs"], dict):
            args = as_list(value["args"])
            if value["kwargs"] or not args:
                value = value["kwargs"]
            else:
                value = args[0] if len(args) == 1 and isinstance(args[0], dict) else {"args": args}
        elif value.keys() >= {"input_str", "inputs"}:  # of OpenLLMetry
            value = decode_value(first_of(value, "inputs", "input_str"))
        elif len(value) == 1 and (key := next(iter(value))) in _TABLES["wrappers"]:
            inner = decode_value(value[key])
            if not isinstance(inner, dict):
                break
            value = inner
        else:
            break
    return value


def _in_messages(value: Any) -> Any:
    """Arguments, also out of the message that a convention writes them in."""
    value = decode_value(value)
    message = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(message, dict) and message.get("role") in ("tool", "assistant"):
        for item in items_of({**message, "role": "assistant"}):
            if isinstance(item, ToolCallRequest):
                return item.arguments
        if message["role"] == "tool" and "content" in message:
            return message["content"]
    return value


def bare_name(name: str) -> str:
    """The name of a tool without what conventions write around it in a span's name."""
    for prefix in _NAME_PREFIXES:
        if name.startswith(prefix):
            name = name[len(prefix) :].strip()
            return name.split("'")[1] if name.startswith("'") and name.count("'") > 1 else name
    return name


def _asked(attributes: Mapping[str, Any]) -> list[Any]:
    messages: list[Any] = []
    if instructions := decode_value(attributes.get("gen_ai.system_instructions")):
        messages.append({"role": "system", "content": instructions})
    for prefix in ("llm.input_messages", "gen_ai.prompt"):
        if asked := _numbered(attributes, prefix):
            return messages + asked
    for key in _TABLES["asked"]:
        if asked := asked_messages(attributes.get(key)):
            return messages + asked
    return messages + _history(attributes)[0]


def _replied(attributes: Mapping[str, Any]) -> list[Any]:
    for prefix in ("llm.output_messages", "gen_ai.completion"):
        if messages := _numbered(attributes, prefix):
            return messages
    calls = decode_value(first_of(attributes, *_TABLES["replied_calls"]))
    text = as_text(first_of(attributes, *_TABLES["replied_texts"]))
    if calls or text:
        return [{"role": "assistant", "content": text, "tool_calls": as_list(calls)}]
    for key in _TABLES["replied"]:
        if messages := replied_messages(attributes.get(key)):
            return messages
    return _history(attributes)[1]


def _history(attributes: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """All messages of a span, up to the user's last one and from there."""
    for key in _TABLES["histories"]:
        messages = asked_messages(attributes.get(key))
        for end in range(len(messages), 0, -1):
            if any(isinstance(item, UserMessage) for item in items_of(messages[end - 1])):
                return messages[:end], messages[end:]
    return [], []


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Messages in numbered attributes, such as ``gen_ai.prompt.0.role``, or in one value."""
    listed = decode_value(attributes.get(prefix))
    if not isinstance(listed, list):
        listed = unflatten(attributes, f"{prefix}.")
    texts = [item for item in as_list(listed) if isinstance(item, str)]
    if texts:  # of Spring AI
        role = "user" if prefix == "gen_ai.prompt" else "assistant"
        return [{"role": role, "content": texts[-1]}]
    messages = []
    for item in each_object(listed):
        item = unflatten(item) if any("." in str(key) for key in item) else item
        content = decode_value(item.get("content"))
        is_parts = isinstance(content, list) and content and isinstance(content[0], dict)
        messages.append({**item, "content": content} if is_parts else item)
    return messages


def _definitions(attributes: Mapping[str, Any]) -> Iterable[list[Any]]:
    """The lists of tools' definitions in attributes."""
    for key in _TABLES["definitions"]:
        if listed := as_list(decode_value(attributes.get(key))):
            yield [decode_value(item) for item in listed]
    for prefix in ("llm.tools", "llm.request.functions"):
        numbered = as_list(attributes.get(prefix)) or unflatten(attributes, f"{prefix}.")
        schemas = []
        for item in each_object(numbered):
            item = unflatten(item) if any("." in str(key) for key in item) else item
            inner = item.get("tool", item)
            schemas.append(decode_value(first_of(inner, "json_schema") or inner))
        if schemas:
            yield schemas
    for key in ("model_request_parameters", "gcp.vertex.agent.llm_request", "input.value"):
        if key in attributes and (listed := offered_tools(attributes[key])):
            yield listed
