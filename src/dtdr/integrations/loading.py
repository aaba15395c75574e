"""When each tool is loaded into a conversation whose list of tools never changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dtdr.integrations.mask import ToolMask
from dtdr.integrations.messages import transcript_of


def loadable(mask: ToolMask, names: Collection[str]) -> frozenset[str]:
    """The tools that wait to be loaded: those that the retriever knows, less those always shown."""
    known = frozenset(mask.retriever.vocabulary).intersection(names)
    return known.difference(mask.policy.always_include)


def loads(
    messages: Sequence[Any],
    answers: Sequence[int],
    names: Sequence[str],
    mask: ToolMask,
    *,
    also: Collection[str] = (),
    costs: Mapping[str, int] | None = None,
) -> dict[int, list[str]]:
    """Which tools are loaded in front of which answer of the model, and of the next one.

    Worked out anew from the conversation each time, and the same each time, so that the cached
    start of the prompt stays what it was. What is loaded stays loaded, and a tool that was called
    without having been loaded is loaded after that call.

    Args:
        messages: the conversation, without anything loaded.
        answers: positions at which the model answered, ascending.
        names: the named tools that are available.
        mask: retriever and policy.
        also: names to load for the next answer, whatever their rank.
        costs: tokens of each tool's definition; needed for ``token_budget``.

    Returns:
        Names by position, for positions in front of which some are loaded; the last possible one
        is the end of the conversation.
    """
    waiting = loadable(mask, names)
    points = [*answers, len(messages)]
    selections = mask.select_each(
        names,
        lambda: [transcript_of(messages[:position]) for position in points],
        len(points),
        costs=costs,
    )
    found: dict[int, list[str]] = {}
    loaded: set[str] = set()
    for position, selection in zip(points, selections, strict=True):
        wanted = set(selection.shown)
        if position == len(messages):
            wanted.update(also)
        new = (wanted & waiting) - loaded
        if new:
            found[position] = [name for name in names if name in new]
            loaded |= new
    return found
