"""Finds which conversation or user a record of a log belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dtdr.conversation.values import decode_json, first_of, walk

GROUP_KEYS = """
session_id sessionId session thread_id threadId conversation_id conversationId conversation
chat_id chatId group group_id user user_id userId
""".split()  # noqa: SIM905  # as prose
"""Keys that name a conversation, else a user; the first that a record has counts."""

_CONTENTS = frozenset(
    "messages contents content tools functions choices output calls arguments parts".split()  # noqa: SIM905
)
"""Keys under which a record has what was said, not where."""
_DEPTH = 5
_MOST_ATTRIBUTES = 200


def find_group(record: Any, key: str = "") -> str:
    """The name of the conversation or user of a record; empty if it has none.

    It is looked for in the record, in its request and response, and in the metadata of these.

    Args:
        record: decoded JSON.
        key: the key to look for, or a path such as ``metadata.customer.id``; by default
            ``GROUP_KEYS``.
    """
    if key:
        return _name(walk(record, *key.split("."))) or _search(record, (key,))
    return _search(record, GROUP_KEYS)


def _search(record: Any, keys: tuple[str, ...] | list[str]) -> str:
    best = len(keys)
    group = ""
    for name, value in _named_values(record, _DEPTH):
        if name in keys[:best] and (text := _name(value)):
            best, group = keys.index(name), text
    return group


def _named_values(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Names and values in nested objects, the outer ones first."""
    value = decode_json(value)
    if isinstance(value, list):
        # Attributes of spans: {"key": "user.id", "value": {"stringValue": "ann"}}
        for item in value[:_MOST_ATTRIBUTES]:
            if isinstance(name := first_of(item, "key"), str):
                yield name, first_of(item, "value")
        return
    if not isinstance(value, dict):
        return
    yield from value.items()
    if depth:
        for key, item in value.items():
            if key not in _CONTENTS:
                yield from _named_values(item, depth - 1)


def _name(value: Any) -> str:
    if isinstance(value, dict):
        value = first_of(value, "id", "stringValue", "intValue", "name")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return str(value).strip()
