"""The layout of a graph: columns from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def place_in_columns(
    columns: Sequence[Sequence[int]], weights: Mapping[tuple[int, int], float]
) -> dict[int, tuple[float, float]]:
    """Places of nodes in columns from left to right, few links crossing.

    Within a column, nodes are ordered by the mean height of what they are linked with (Sugiyama,
    Tagawa and Toda 1981), going to and fro.

    Args:
        columns: the nodes of each.
        weights: of links, both ways.

    Returns:
        For each node x and y in [0, 1], column after column.
    """
    order = [list(column) for column in columns]
    linked: dict[int, dict[int, float]] = {}
    for (one, two), weight in weights.items():
        for left, right in ((one, two), (two, one)):
            linked.setdefault(left, {})[right] = linked.get(left, {}).get(right, 0.0) + weight
    height = _heights(order)
    for sweep in range(6):
        numbers = range(len(order)) if sweep % 2 == 0 else reversed(range(len(order)))
        for number in numbers:
            # Of a sorted list and a stable sort, so that the order is always the same.
            order[number].sort(key=lambda at: _mean_height(at, linked, height))
            height.update(_heights([order[number]]))
    width = max(len(order) - 1, 1)
    return {
        at: ((number / width if len(order) > 1 else 0.5), height[at])
        for number, column in enumerate(order)
        for at in column
    }


def _mean_height(
    node: int, linked: Mapping[int, Mapping[int, float]], height: Mapping[int, float]
) -> float:
    around = {
        at: weight for at, weight in linked.get(node, {}).items() if at in height and at != node
    }
    total = sum(around.values())
    if not total:
        return height[node]
    return sum(height[at] * weight for at, weight in around.items()) / total


def _heights(columns: Sequence[Sequence[int]]) -> dict[int, float]:
    return {
        at: (number + 0.5) / len(column) for column in columns for number, at in enumerate(column)
    }
