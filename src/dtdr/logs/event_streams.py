"""Puts together responses that were logged as streams of server-sent events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from dtdr.data import json_codec
from dtdr.logs.documents import is_json
from dtdr.logs.log_format import as_list, as_mapping, as_text, first_of

_CHUNKS = ("chat.completion.chunk", "message_start", "response.created")
"""The ``object`` or ``type`` of the first event of a stream."""


def is_event_stream(value: object) -> bool:
    """Whether a value is the body of a streamed response, or the list of its events."""
    if isinstance(value, str):
        return value[:200].lstrip().startswith(("data:", "event:")) and "data:" in value
    first = next(iter(as_list(value)), None)
    return first_of(first, "object") in _CHUNKS or first_of(first, "type") in _CHUNKS


def assemble(value: str | list[Any]) -> dict[str, Any]:
    """The response of a stream, in the shape of one that was not streamed.

    A stream that ends early gives what it has, without a call whose arguments are cut off, and
    gets ``"truncated": true``.
    """
    events = _events(value) if isinstance(value, str) else value
    events = [event for event in events if isinstance(event, dict)]
    kinds = {event.get("type") for event in events}
    if any("choices" in event for event in events):
        return _chat(events)
    if "message_start" in kinds or "content_block_start" in kinds:
        return _blocks(events)
    return _responses(events)


def _events(body: str) -> Iterator[Any]:
    data: list[str] = []
    for line in [*body.splitlines(), ""]:
        if line.startswith("data:"):
            data.append(line[5:].strip())
        elif not line.strip() and data:
            text, data = "\n".join(data), []
            with contextlib.suppress(ValueError, RecursionError):  # "[DONE]", or cut off
                yield json_codec.loads(text)


def _chat(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Chunks of a chat completion; of several choices the first."""
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    is_done = False
    for event in events:
        for choice in as_list(event.get("choices")):
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                continue
            is_done = is_done or bool(choice.get("finish_reason"))
            delta = as_mapping(choice.get("delta"))
            text.append(as_text(delta.get("content")))
            for part in delta.get("tool_calls") or ():
                empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                call: dict[str, Any] = calls.setdefault(part.get("index", len(calls)), empty)
                function = part.get("function") or {}
                call["id"] += as_text(part.get("id"))
                call["function"]["name"] += as_text(function.get("name"))
                call["function"]["arguments"] += as_text(function.get("arguments"))
    kept = [calls[index] for index in sorted(calls)]
    if not is_done:
        kept = [call for call in kept if is_json(call["function"]["arguments"] or "{}")]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text)}
    if kept:
        message["tool_calls"] = kept
    return {"choices": [{"index": 0, "message": message}], "truncated": not is_done}


def _blocks(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Events of an Anthropic message."""
    response: dict[str, Any] = {"type": "message", "role": "assistant"}
    blocks: dict[int, dict[str, Any]] = {}
    arguments: dict[int, str] = {}
    is_done = False
    for event in events:
        kind, index = event.get("type"), event.get("index", 0)
        if kind == "message_start" and isinstance(event.get("message"), dict):
            response = {**event["message"]}
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            blocks[index] = {**event["content_block"]}
        elif kind == "content_block_delta" and index in blocks:
            delta = as_mapping(event.get("delta"))
            if "text" in delta:
                blocks[index]["text"] = as_text(blocks[index].get("text")) + as_text(delta["text"])
            arguments[index] = arguments.get(index, "") + as_text(delta.get("partial_json"))
        elif kind == "message_stop":
            is_done = True
    for index, text in arguments.items():
        if text and is_json(text):
            blocks[index]["input"] = json_codec.loads(text)
        elif text:
            del blocks[index]
    response["content"] = [blocks[index] for index in sorted(blocks)]
    response["truncated"] = not is_done
    return response


def _responses(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Events of the responses API: the finished response, or the items that were finished."""
    response: dict[str, Any] = {}
    items: dict[int, Any] = {}
    for event in events:
        kind, inner = event.get("type"), event.get("response")
        if isinstance(inner, dict):
            response = {**response, **inner}
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            return {**response, "truncated": False}
        if kind == "response.output_item.done":
            items[event.get("output_index", len(items))] = event.get("item")
    return {**response, "output": [items[index] for index in sorted(items)], "truncated": True}
