"""One and the same conversation as each format would log it, and drawn conversations."""

import json
from collections.abc import Callable
from typing import Any

from examples.hotel.log_formats import (
    TOOLS,
    Call,
    Turn,
    anthropic,
    claude_code,
    expected,
    flat,
    iso,
    langfuse,
    langsmith,
    mcp,
    number,
    openai_chat,
    openai_chat_bare,
    openai_responses_chained,
    openai_responses_repeated,
    openinference,
    otel,
    otlp_span,
    responses_items,
    write_lines,
)
from hypothesis import strategies as st

__all__ = [
    "RENDERINGS",
    "TIMED",
    "TOOLS",
    "Call",
    "Turn",
    "conversations",
    "expected",
    "flat",
    "format_of",
    "iso",
    "number",
    "openai_chat",
    "otel",
    "otlp_span",
    "write_lines",
]


def event_stream(events):
    lines = [f"event: {e.get('type', 'message')}\ndata: {json.dumps(e)}\n\n" for e in events]
    return "".join(lines) + "data: [DONE]\n\n"


def halves(text):
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def openai_chat_streamed(turns):
    records = openai_chat(turns)
    for record in records:
        message = record["response"]["choices"][0]["message"]
        deltas: list[Any] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": part} for part in halves(message["content"] or "")]
        for index, call in enumerate(message.get("tool_calls", ())):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            begin = {"id": call["id"], "function": {"name": name, "arguments": ""}}
            deltas.append({"tool_calls": [{"index": index, **begin}]})
            for part in halves(arguments):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        events = [
            {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
            for delta in deltas
        ]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        record["response"] = event_stream(events)
    return records


def anthropic_streamed(turns):
    records = anthropic(turns)
    for record in records:
        content = record["response"]["content"]
        events: list[Any] = [{"type": "message_start", "message": {"role": "assistant"}}]
        for index, block in enumerate(content):
            is_text = block["type"] == "text"
            empty = {**block, "text": ""} if is_text else {**block, "input": {}}
            whole = block["text"] if is_text else json.dumps(block["input"])
            key = "text" if is_text else "partial_json"
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            for part in halves(whole):
                delta = {"type": f"{key}_delta", key: part}
                events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events.append({"type": "content_block_stop", "index": index})
        record["response"] = event_stream([*events, {"type": "message_stop"}])
    return records


def openai_responses_streamed(turns):
    records = openai_responses_chained(turns)
    for record in records:
        response = record["response"]
        begin = {"type": "response.created", "response": {**response, "output": []}}
        record["response"] = [begin, {"type": "response.completed", "response": response}]
    return records


def codex(turns):
    """A rollout file; the definitions are those that a search found."""
    time = "2026-03-01T12:00:00.000Z"
    functions = [{"type": "function", **tool["function"]} for tool in TOOLS]
    search = {"type": "tool_search_call", "call_id": "s", "arguments": {"query": "users"}}
    found = {"type": "tool_search_output", "call_id": "s", "tools": functions}
    context = "<environment_context>\n  <cwd>/home/ann</cwd>\n</environment_context>"
    payloads = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": context}]},
        search,
        found,
    ]
    for entered, output in responses_items(turns):
        for item in entered:
            if isinstance(item.get("output"), str):
                clock = {"type": "input_text", "text": "Wall time: 0.1 seconds\nOutput:"}
                text = {"type": "input_text", "text": item["output"]}
                item = {**item, "output": [clock, text]}
            payloads.append(item)
        payloads += output
    session = {"timestamp": time, "type": "session_meta", "payload": {"id": "session-7"}}
    items = [
        {"timestamp": time, "ordinal": number, "type": "response_item", "payload": item}
        for number, item in enumerate(payloads)
    ]
    begin = {"timestamp": time, "type": "event_msg", "payload": {"type": "task_started"}}
    return [session, begin, *items]


RENDERINGS: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "openai-chat": openai_chat,
    "openai-chat, whole conversations": openai_chat_bare,
    "openai-responses, chained": openai_responses_chained,
    "openai-responses, repeated": openai_responses_repeated,
    "anthropic": anthropic,
    "otel": otel,
    "otel, model spans only": lambda turns: otel(turns, executions=False),
    "openinference": openinference,
    "openinference, Phoenix": lambda turns: openinference(turns, phoenix=True),
    "langsmith": langsmith,
    "langfuse": langfuse,
    "mcp": mcp,
    "openai-chat, streamed": openai_chat_streamed,
    "openai-responses, streamed": openai_responses_streamed,
    "anthropic, streamed": anthropic_streamed,
    "claude-code": claude_code,
    "codex": codex,
}

TIMED = ("otel", "openinference", "langsmith", "langfuse", "mcp")
"""Formats whose records may come in any order."""


def format_of(rendering):
    return rendering.partition(",")[0]


words = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12
)
queries = words.filter(lambda text: text.strip() != "").map(lambda text: f"please {text}")
tool_names = st.from_regex(r"[a-z][a-z_]{2,10}", fullmatch=True).filter(lambda name: name != "end")
scalars = st.one_of(words, st.integers(-(10**9), 10**9), st.booleans(), st.none())
arguments = st.dictionaries(
    st.from_regex(r"[a-z][a-z_]{1,8}", fullmatch=True).filter(
        lambda key: key not in ("input", "kwargs")
    ),
    st.one_of(scalars, st.lists(scalars, max_size=3)),
    min_size=1,
    max_size=3,
)
calls = st.builds(
    Call,
    tool=tool_names,
    arguments=arguments,
    output=st.one_of(
        words.map(lambda text: f"found {text}"), st.fixed_dictionaries({"id": words, "n": scalars})
    ),
)
turns = st.builds(
    Turn, query=queries, batches=st.lists(st.lists(calls, min_size=1, max_size=3), max_size=3)
)
conversations = (
    st.lists(turns, min_size=1, max_size=3)
    .filter(lambda found: any(turn.batches for turn in found))
    .map(number)
)
