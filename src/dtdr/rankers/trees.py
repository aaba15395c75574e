"""Random forests: fitted by scikit-learn, kept as flat arrays, and predicted by numpy alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.rankers.nn import Indices, Matrix

TREES, SHARE, DEPTH = 60, 0.3, 24
"""Trees of a forest, share of the features that a node chooses from, and levels of a tree. On an
insurance agent's log, 150 trees and leaves of three rows rank no better."""
_FEW_NODES = 50_000
"""Nodes up to which all are compared at once: 24,000 take 55 µs; those on the way to leaves
alone take 85, most of it the calls of numpy for each level."""
_CHECKED = 4
"""Levels after which it is checked whether all trees are at a leaf."""
_ABOVE_ALL = 1e11
"""Threshold of a leaf, above every feature."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Decision trees whose leaves are distributions over classes.

    Attributes:
        columns: shape (nodes,): the feature that a node compares; any in a leaf.
        thresholds: shape (nodes,): a row goes to the second child where the feature is greater.
        children: shape (nodes,): the first child of a node, before the second; a leaf is its own.
        leaves: shape (nodes,): the row of ``shares`` of a leaf.
        roots: shape (trees,).
        shares: shape (n, classes): probabilities of the classes.
        sizes: shape (3,): features of a row, trees, and levels of the deepest tree.
    """

    columns: Indices
    thresholds: Matrix
    children: Indices
    leaves: Indices
    roots: Indices
    shares: Matrix
    sizes: npt.NDArray[np.int32]

    @classmethod
    def fit(
        cls, rows: Matrix, wanted: Indices, classes: int, *, weights: Matrix | None, seed: int
    ) -> Self:
        """Fit a forest.

        Args:
            rows: shape (n, features).
            wanted: shape (n,): the class of each row.
            classes: how many there are; some may have no row.
            weights: shape (n,): how much each row counts; None: all the same.
            seed: of the rows and the features that each tree sees.
        """
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(
            TREES, max_features=SHARE, max_depth=DEPTH, random_state=seed, n_jobs=1
        )
        with warnings.catch_warnings():
            # Few runs of many tools look like numbers to predict.
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            forest.fit(rows, wanted, sample_weight=weights)
        parts = [_flatten(estimator.tree_) for estimator in forest.estimators_]
        starts = np.cumsum([0, *(len(part["columns"]) for part in parts)])
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        joined["children"] += np.repeat(starts[:-1], np.diff(starts))
        # Most leaves have one class: equal distributions are kept once.
        known, leaves = np.unique(joined.pop("shares"), axis=0, return_inverse=True)
        shares = np.zeros((len(known), classes), np.float32)
        shares[:, forest.classes_] = known
        depth = max(item.tree_.max_depth for item in forest.estimators_)
        return cls(
            **joined,
            leaves=leaves.ravel(),
            roots=starts[:-1],
            shares=shares,
            sizes=np.array([rows.shape[1], len(parts), depth], np.int32),
        )

    def predict(self, row: Matrix) -> Matrix:
        """The probabilities of the classes, shape (classes,), for a row of features."""
        nodes = self._compare_all(row) if len(self.columns) <= _FEW_NODES else self._walk(row)
        leaves = self.leaves.take(nodes, mode="clip")
        shares: Matrix = np.add.reduce(self.shares.take(leaves, axis=0, mode="clip"), axis=0)
        shares *= np.float32(1 / len(nodes))
        return shares

    # All places exist: clipped, they are not checked, which costs half of taking some.

    def _compare_all(self, row: Matrix) -> Indices:
        """The leaf of each tree, from the child that every node has for the row."""
        following = self.children + (row.take(self.columns, mode="clip") > self.thresholds)
        nodes = self.roots
        for _ in range(int(self.sizes[2])):
            nodes = following.take(nodes, mode="clip")
        return nodes

    def _walk(self, row: Matrix) -> Indices:
        """The leaf of each tree, from the nodes on the way to it alone."""
        columns, thresholds, children = self.columns, self.thresholds, self.children
        nodes = self.roots
        for level in range(int(self.sizes[2])):
            places = columns.take(nodes, mode="clip")
            beyond = row.take(places, mode="clip") > thresholds.take(nodes, mode="clip")
            following = children.take(nodes, mode="clip")
            if level % _CHECKED == _CHECKED - 1 and (following == nodes).all():
                break
            following += beyond
            nodes = following
        return nodes

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save, in as few bytes as they need."""
        nodes = np.repeat(self.roots, np.diff([*self.roots, len(self.columns)]))
        return {
            "columns": self.columns.astype(np.int16),
            "thresholds": self.thresholds,
            "children": _pack(self.children - nodes),
            "leaves": _pack(self.leaves),
            "roots": self.roots.astype(np.int32),
            "shares": self.shares.astype(np.float16),
            "sizes": self.sizes,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], width: int, classes: int) -> Self:
        """Rebuild from the output of ``arrays``, for rows of ``width`` features.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit each other, the features or the classes.
        """
        roots, shares = arrays["roots"], arrays["shares"].astype(np.float32)
        columns, children, leaves = (
            arrays[name].astype(np.intp) for name in ("columns", "children", "leaves")
        )
        declared, sizes = arrays["sizes"], np.diff([*roots, len(columns)])
        is_whole = (
            columns.shape == children.shape == leaves.shape == arrays["thresholds"].shape
            and declared.shape == (3,)
            and declared[:2].tolist() == [width, len(roots)]
            and len(roots) > 0
            and roots[0] == 0
            and sizes.min() > 0
            and 0 <= columns.min() <= columns.max() < width
            and (children < np.repeat(sizes, sizes)).all()
            and 0 <= leaves.min() <= leaves.max() < len(shares)
            and shares.shape[1:] == (classes,)
            and 0 <= declared[2] <= DEPTH
        )
        if not is_whole:
            raise ModelError("the trees of the model do not fit its features; fit it again")
        children += np.repeat(roots, sizes)
        return cls(
            columns,
            arrays["thresholds"],
            children,
            leaves,
            roots.astype(np.intp),
            shares,
            declared,
        )


def _pack(values: Indices) -> npt.NDArray[Any]:
    return values.astype(np.uint16 if values.max(initial=0) < 1 << 16 else np.int32)


def _flatten(tree: Any) -> dict[str, npt.NDArray[Any]]:
    """The nodes of a tree of scikit-learn level by level, so that siblings are neighbours."""
    left, right = tree.children_left, tree.children_right
    levels, level = [np.array([0])], np.array([0])
    children = np.empty(tree.node_count, np.intp)
    below = 1
    while len(level):
        inner = left[level] >= 0
        children[level[~inner]] = -1
        parents = level[inner]
        children[parents] = below + 2 * np.arange(len(parents))
        level = np.stack([left[parents], right[parents]], axis=1).ravel()
        below += len(level)
        levels.append(level)
    order = np.concatenate(levels)
    is_leaf = children[order] < 0
    thresholds = tree.threshold[order].astype(np.float32)
    # A threshold that is rounded up could be a value that was beyond it.
    too_high = thresholds > tree.threshold[order]
    thresholds[too_high] = np.nextafter(thresholds[too_high], np.float32(-np.inf))
    thresholds[is_leaf] = _ABOVE_ALL
    shares = tree.value[order, 0]
    shares = shares / shares.sum(axis=1, keepdims=True)
    shares[~is_leaf] = 0
    return {
        "columns": np.where(is_leaf, 0, tree.feature[order]).astype(np.intp),
        "thresholds": thresholds,
        "children": np.where(is_leaf, np.arange(len(order)), children[order]),
        "shares": shares.astype(np.float16).astype(np.float32),
    }
