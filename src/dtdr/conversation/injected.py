"""Texts that programs put into conversations: blocks in users' messages, refused calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dtdr.conversation.values import FORMS
from dtdr.data.outputs import parse_output

INJECTED_TAGS: tuple[str, ...] = sum(map(tuple, FORMS["injected"].values()), ())
"""Blocks ``<tag>…</tag>`` that coding agents write into the user's messages."""

NOTIFICATIONS = ("task-notification", "local-command-stdout", "local-command-stderr")
"""Tags with which a message of a program begins; what the program writes behind is its own, too."""

_BY_PROGRAM: tuple[str, ...] = tuple(FORMS["messages"]["by_program"])

_TYPED = ("task", "user_query", "user_message", "user_request", "userRequest", "feedback")
"""Tags around what the user typed, of Cline, Roo Code, Cursor and Copilot."""
_IDE_REQUEST = "## My request for Codex:"
"""Heading that Codex's extension writes between the editor's state and the user's words."""

_TITLE = r"(?:# AGENTS\.md instructions[^\n<]{0,500}\n\s{0,9})?"
"""Heading that Codex writes before ``<INSTRUCTIONS>``; bounded, so that time is linear."""
_INTERRUPTED = re.compile(r"\[Request interrupted by user(?: for tool use)?\]")
"""Text that Claude Code writes when the user stops it."""

HIDDEN = "The tool {name} cannot be used at this step."
"""Beginning of dtdr's own refusal."""

_STARTS = (
    HIDDEN,
    "Error: {name} is not a valid tool, try one of [",  # langgraph
    "Unknown tool name: {name}.",  # Pydantic AI
    "Tool {name} is not available yet: ",  # Pydantic AI, to a call of a deferred tool
    "Tool {name} not found.",  # LlamaIndex, OpenAI Agents SDK
    "Unknown tool: {name}",  # MCP
)
_END = "; the call was not made"  # the gateway, to a name of two tools or a changed definition


@lru_cache(maxsize=8)
def _compile_opening(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"{_TITLE}<({'|'.join(map(re.escape, tags))})(?:\s[^<>]*)?>")


def remove_blocks(text: str, tags: Sequence[str] = INJECTED_TAGS) -> str:
    """A text without the blocks ``<tag>…</tag>`` of some tags; an unclosed block stays.

    Without tags, the text stays as it is. Otherwise, notes of interruptions are removed, too.
    """
    if not tags:
        return text
    if "[Request interrupted" in text:
        text = _INTERRUPTED.sub("", text).strip()
    if text.startswith(_BY_PROGRAM):
        return ""
    if _IDE_REQUEST in text:
        text = text.rpartition(_IDE_REQUEST)[2].strip()
    if "<" not in text:
        return text
    begin = text.lstrip()
    for tag in NOTIFICATIONS:
        if tag in tags and begin.startswith(f"<{tag}>") and f"</{tag}>" in begin:
            return ""
    text = typed_command(_remove_tagged(text, tags))
    for tag in _TYPED:
        if text.startswith(f"<{tag}>") and text.rstrip().endswith(f"</{tag}>"):
            return _inside(text, tag)
    return text


def _inside(text: str, tag: str) -> str:
    """The text between the first opening and the last closing tag; empty without tags."""
    _, _, rest = text.partition(f"<{tag}>")
    return rest.rpartition(f"</{tag}>")[0].strip()


def typed_command(text: str) -> str:
    """The command that the user typed, ``/name arguments``, from Claude Code's tags."""
    if "<command-name>" not in text:
        return text
    return f"{_inside(text, 'command-name')} {_inside(text, 'command-args')}".strip() or text


def _remove_tagged(text: str, tags: Sequence[str]) -> str:
    kept: list[str] = []
    unclosed: set[str] = set()
    kept_to = start = 0
    while (match := _compile_opening(tuple(tags)).search(text, start)) is not None:
        tag = match[1]
        closing = f"</{tag}>"
        end = -1 if tag in unclosed else text.find(closing, match.end())
        if end < 0:
            unclosed.add(tag)
            start = match.end()
            continue
        kept.append(text[kept_to : match.start()])
        kept_to = start = end + len(closing)
    return "".join([*kept, text[kept_to:]]).strip() if kept else text


def is_refusal(tool: str, output: Any) -> bool:
    """Whether an output, a text or ``{"error": text}``, says that a call of ``tool`` was refused.

    A refused call was not made, so it is not part of a run, and its tool stays hidden.
    """
    if isinstance(output, str) and output.startswith('{"error"'):
        output = parse_output(output)
    if isinstance(output, dict):
        output = output.get("error", output.get("message"))
    if not isinstance(output, str):
        return False
    starts = (start.format(name=name) for start in _STARTS for name in (tool, repr(tool)))
    return output.startswith(tuple(starts)) or output.endswith(_END)
