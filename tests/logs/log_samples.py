"""One and the same conversation as each format would log it, and drawn conversations."""

from collections.abc import Callable
from typing import Any

from examples.hotel.log_formats import (
    TOOLS,
    Call,
    Turn,
    anthropic,
    claude_code,
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
    responses_items,
)
from hypothesis import strategies as st


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
