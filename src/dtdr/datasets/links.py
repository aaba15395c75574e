"""Links that name tools, where a tool may stand in a plan more than once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdr.datasets.base import member
from dtdr.errors import InputError


def node_links(names: Sequence[str], links: Sequence[Any]) -> list[tuple[int, int]]:
    """Positions that ``{"source": name, "target": name}`` links mean, as ``(earlier, later)``.

    A repeated link means the next target of that name; a target takes the nearest earlier node
    with the source's name. Where none stands earlier, the source is the first later one, for
    some records list their nodes in another order than their links.

    Raises:
        InputError: a link names a tool that is no node, or links a node to itself.
    """
    found: list[tuple[int, int]] = []
    taken: dict[tuple[str, str], int] = {}
    for link in links:
        pair = member(link, "source"), member(link, "target")
        source, target = pair
        for name in pair:
            if name not in names:
                raise InputError(f"a link names {name!r}, which is no node of this plan")
        targets = [index for index, name in enumerate(names) if name == target]
        if source == target:
            if len(targets) < 2:
                raise InputError(f"a link joins {source!r}, which stands once, to itself")
            targets = targets[1:]
        else:
            targets = [index for index in targets if source in names[:index]] or targets
        turn = taken.get(pair, 0)
        taken[pair] = turn + 1
        later = targets[min(turn, len(targets) - 1)]
        before = [index for index in range(later) if names[index] == source]
        after = [index for index in range(later + 1, len(names)) if names[index] == source]
        earlier = before[-1] if before else after[0]
        if (earlier, later) not in found:
            found.append((earlier, later))
    return found
