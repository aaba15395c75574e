"""Removes what a program put into users' messages: reminders, state of an editor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

INJECTED_TAGS = (
    "system-reminder",  # Claude Code
    "local-command-caveat",
    "local-command-stdout",
    "environment_context",  # Codex
    "user_instructions",
    "environment_details",  # Cline, Roo Code
    "environment_info",  # Copilot
    "workspace_info",
    "reminderInstructions",
    "additional_data",  # Cursor
    "open_and_recently_viewed_files",
    "user_info",
)
"""Blocks ``<tag>…</tag>`` that coding agents write into the user's messages."""


@lru_cache(maxsize=8)
def _compile_opening(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<({'|'.join(map(re.escape, tags))})(?:\s[^<>]*)?>")


def remove_blocks(text: str, tags: Sequence[str] = INJECTED_TAGS) -> str:
    """A text without the blocks ``<tag>…</tag>`` of some tags; an unclosed block stays."""
    if not tags or "<" not in text:
        return text
    kept: list[str] = []
    unclosed: set[str] = set()
    place = start = 0
    while (match := _compile_opening(tuple(tags)).search(text, start)) is not None:
        tag = match[1]
        closing = f"</{tag}>"
        end = -1 if tag in unclosed else text.find(closing, match.end())
        if end < 0:
            unclosed.add(tag)
            start = match.end()
            continue
        kept.append(text[place : match.start()])
        place = start = end + len(closing)
    return "".join([*kept, text[place:]]).strip() if kept else text
