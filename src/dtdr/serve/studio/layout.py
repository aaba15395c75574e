"""Where the nodes of a graph lie: a map of all of them, and columns of a few."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

Places = npt.NDArray[np.float64]

_ROUNDS = 60
"""Of forces after the spectral start; .3 s for 2,000 nodes and 6,000 edges."""
_NEIGHBOURS = 12
"""Nodes that push one another away: further ones hardly matter."""


def spread(nodes: int, links: Sequence[tuple[int, int, float]]) -> Places:
    """Places of all nodes, linked ones near each other: spectral, then spread by forces.

    The start is a spectral embedding; then linked nodes attract and near ones repel each other
    (Fruchterman and Reingold 1991), of which only the nearest are looked at. Same links, same
    places.

    Args:
        nodes: how many.
        links: pairs of nodes and a weight above 0.

    Returns:
        Shape (nodes, 2), in [0, 1].
    """
    if nodes < 2:
        return np.full((nodes, 2), 0.5)
    weights = _adjacency(nodes, links)
    places = _spectral(weights)
    # A place on a spiral each, nudged: nodes at one place could not be told apart.
    turns = np.arange(nodes) * 2.399963
    radius = np.sqrt((np.arange(nodes) + 0.5) / nodes)
    places = (
        _mix_ranks(places) + 0.05 * np.stack([np.cos(turns), np.sin(turns)], 1) * radius[:, None]
    )
    degree = np.maximum(weights.sum(axis=1), 1e-9)
    ideal = 1 / np.sqrt(nodes)
    count = min(_NEIGHBOURS, nodes - 1)
    for number in range(_ROUNDS):
        step = 0.9 * (1 - number / _ROUNDS) + 0.02
        pull = (weights @ places) / degree[:, None] - places
        pull[weights.indptr[1:] == weights.indptr[:-1]] = 0
        distance, near = cKDTree(places).query(places, count + 1)
        away = places[:, None] - places[near[:, 1:]]
        length = np.maximum(distance[:, 1:, None], 1e-6)
        push = (away / length * np.maximum(2 * ideal - length, 0)).sum(axis=1)
        centre = 0.01 * (places.mean(axis=0) - places)
        places = places + step * (0.35 * pull + 0.6 * push + centre)
    return _mix_ranks(places, share=0.15)


def _adjacency(nodes: int, links: Sequence[tuple[int, int, float]]) -> csr_array:
    """Symmetric weights, damped so that one frequent pair does not decide everything."""
    if not links:
        return csr_array((nodes, nodes))
    pairs = np.array([link[:2] for link in links], np.int32)  # as scikit-learn takes them
    values = np.log1p(np.array([link[2] for link in links], float))
    matrix = csr_array((values, (pairs[:, 0], pairs[:, 1])), shape=(nodes, nodes))
    both = csr_array(matrix + matrix.T)
    both.sum_duplicates()
    return both


def _spectral(weights: csr_array) -> Places:
    from sklearn.manifold import spectral_embedding  # slow to import, and only a map needs it

    if weights.shape[0] < 8 or not weights.nnz:
        return np.random.default_rng(0).standard_normal((weights.shape[0], 2))
    with warnings.catch_warnings():
        # It warns of parts that no run connects and where it is not exact: neither matters here.
        warnings.simplefilter("ignore", UserWarning)
        places: Places = spectral_embedding(weights, n_components=2, random_state=0)
    return places


def _mix_ranks(places: Places, share: float = 0.5) -> Places:
    """Places in [0, 1], mixed with their ranks: crowds are spread, and gaps closed."""
    low, high = places.min(axis=0), places.max(axis=0)
    scaled = (places - low) / np.maximum(high - low, 1e-9)
    ranks = places.argsort(axis=0, kind="stable").argsort(axis=0) / max(len(places) - 1, 1)
    mixed: Places = (1 - share) * scaled + share * ranks
    return mixed


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
