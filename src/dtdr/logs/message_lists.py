"""Bare messages of any API: lists, lines, and data sets of conversations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from dtdr.conversation.exchanges import is_message, message_list
from dtdr.conversation.messages import items_of
from dtdr.conversation.values import (
    as_list,
    as_text,
    decode_json,
    decode_value,
    each_object,
    first_of,
)
from dtdr.logs.envelopes import Envelope, Talk, call_message, result_message
from dtdr.logs.log_format import run_failed

_LISTS = """conversations conversation messages chatMessages chat_messages history chat_history
    turns traj trajectory dialog dialogue""".split()  # noqa: SIM905  # as prose
_SESSIONS = ("session_id", "sessionId", "conversation_id", "thread_id", "threadId", "chat_id")
_ASKED = ("input", "inputs", "prompt", "request", "output", "outputs", "completion", "response")
"""Keys of what one call of a model was asked, or replied; the other is needed, too."""
_LOOKED_AT = 50


class MessageList(Envelope):
    """One conversation as a list of messages or as lines; or records with a list of messages.

    Cline's and Roo Code's ``api_conversation_history.json``, histories of Pydantic AI, LangChain,
    AutoGen and the Vercel AI SDK, ShareGPT, and most dumps of people's own.
    """

    name: ClassVar[str] = "messages"
    title: ClassVar[str] = "messages of any API, as a list or as lines"
    needs: ClassVar[str] = "messages with a role (or 'type', 'from', 'kind') and content"

    @staticmethod
    def whole(record: Any) -> bool:
        """Whether a record is a whole conversation."""
        return isinstance(record, list) or bool(_listed(record))

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a message, or has some, that can be read."""
        listed = record if isinstance(record, list) else _listed(record) or [record]
        messages = (m for m in listed[:_LOOKED_AT] if isinstance(m, list) or _looks_said(m))
        return any(any(True for _ in items_of(message)) for message in messages)

    @classmethod
    def lacks(cls, record: Any) -> str:
        """The keys of a list's messages that are not read."""
        for key in _LISTS:
            listed = first_of(record, key)
            if isinstance(listed, list) and (first := next(each_object(listed), None)) is not None:
                keys = ", ".join(sorted(map(str, first))[:6])
                return f"has a list {key!r}, but no message in it has a known form (keys {keys})"
        return ""

    def key(self, record: Any, origin: tuple[int, int]) -> str:
        """The file, and the conversation that a message names."""
        return f"{origin[0]}/{as_text(first_of(record, *_SESSIONS))}"

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The conversation of a record, or of all lines."""
        first = records[0]
        if isinstance(first, list) and len(records) == 1:
            yield Talk(_open_tags(first))
            return
        listed = _listed(first)
        if not listed:
            name = as_text(first_of(first, *_SESSIONS))
            yield Talk(_open_tags(records), name, name)
            return
        name = as_text(first_of(first, "id", "uuid", *_SESSIONS))
        tools, system = decode_value(first_of(first, "tools", "functions")), first.get("system")
        yield Talk(_open_tags(listed), name, "", run_failed(first), tools, system)


def _listed(record: Any) -> list[Any]:
    """The messages in a record; empty if it is a message itself."""
    for key in _LISTS:
        listed = decode_json(first_of(record, key))
        if isinstance(listed, list) and listed:
            return listed
    if not isinstance(record, dict) or is_message(record):
        return []
    if _has_roles(asked := record.get("prompt")) and "completion" in record:  # of data sets
        return [*as_list(asked), *message_list(record["completion"])]
    values = [value for key, value in record.items() if key not in _ASKED]
    values += [inner for value in values if isinstance(value, dict) for inner in value.values()]
    lists = [value for value in values if _has_roles(value)]
    return lists[0] if len(lists) == 1 else []


def _has_roles(value: Any) -> bool:
    """Whether it is a list that begins with a message that says its role."""
    return isinstance(value, list) and _looks_said(value[:1] and value[0], "role", "from")


def _looks_said(message: Any, *keys: str) -> bool:
    is_one = isinstance(message, dict) and is_message(message)
    return is_one and (not keys or first_of(message, *keys) is not None)


_RESULT = re.compile(r"\[([a-z_]+)(?: for [^\n]*)?\] Result:\s*")
"""Text that Cline writes before the result of a call, in a message of the user."""
_ERRORS = ("The tool execution failed", "[ERROR]", "The user denied this operation")
"""Beginnings of the results of calls that failed, or were not made."""
_OPENING = re.compile(r"<([a-z_]+)>")


def _open_tags(messages: list[Any]) -> Iterator[Any]:
    """Messages of agents that write calls as tags into their text, with calls and results.

    Cline and Roo Code: ``<read_file><path>a.py</path></read_file>``, and in the user's next message
    ``[read_file for 'a.py'] Result:`` with the output. Others stay as they are.
    """
    called = ""
    for index, message in enumerate(messages):
        content = first_of(message, "content")
        role = first_of(message, "role")
        if role == "assistant" and _wrote_result(messages, index + 1):
            text = content if isinstance(content, str) else _joined(content)
            tool, arguments, before = _tagged_call(text)
            if tool:
                called = f"{tool}-{index}"
                yield call_message([(called, tool, arguments)], before)
                continue
        elif role == "user" and called and _wrote_result(messages, index):
            text = content if isinstance(content, str) else _joined(content)
            text = text[_begin_of_result(text) :]
            yield result_message(called, text, failed=True if text.startswith(_ERRORS) else None)
            called = ""
            continue
        yield message


def _joined(content: Any) -> str:
    texts = (as_text(part.get("text")) for part in each_object(content))
    return "\n".join(text for text in texts if not text.startswith("<environment_details>"))


def _wrote_result(messages: list[Any], index: int) -> bool:
    """Whether the message at an index is the user's and begins with a result."""
    if index >= len(messages) or first_of(messages[index], "role") != "user":
        return False
    content = first_of(messages[index], "content")
    text = content if isinstance(content, str) else _joined(as_list(content)[:1])
    return _RESULT.match(text) is not None


def _begin_of_result(text: str) -> int:
    match = _RESULT.match(text)
    return match.end() if match else 0


def _tagged_call(text: str) -> tuple[str, dict[str, str], str]:
    """The last call in a text of tags: tool, arguments, and the text before it."""
    stripped = text.rstrip()
    if not stripped.endswith(">"):
        return "", {}, text
    tool = stripped[stripped.rfind("</") + 2 : -1]
    begin = stripped.rfind(f"<{tool}>")
    if not tool or begin < 0:
        return "", {}, text
    inner = stripped[begin + len(tool) + 2 : stripped.rfind("</")]
    arguments: dict[str, str] = {}
    start = 0
    while (match := _OPENING.search(inner, start)) is not None:
        end = inner.find(f"</{match[1]}>", match.end())
        if end < 0:
            break
        arguments[match[1]] = inner[match.end() : end].strip()
        start = end + len(match[1]) + 3
    return tool, arguments, stripped[:begin]
