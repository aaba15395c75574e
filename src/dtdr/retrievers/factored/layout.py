"""Which rows of a table of features belong to which block."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from dtdr.retrievers.factored.blocks.base import Block
from dtdr.retrievers.nn import Indices


class Layout:
    """Which rows of a table of features belong to which block.

    Args:
        blocks: in the order of their rows.

    Attributes:
        names: all features; a row of ones follows theirs in a table.
        rows: the rows of each block.
        prior: the row where the ranker starts; None where no block has one.
        told_prior: where it starts for runs of which more is told than names.
        shortlist: shape (features + 1,): weights that make the order of candidates.
        run_features: shape (features,): which are of blocks that read runs.
        new_tool_names: the features of tools without demonstrations.
        new_tool_rows: the rows of each block among these.
    """

    def __init__(self, blocks: Sequence[type[Block]]) -> None:
        self.names = tuple(name for block in blocks for name in block.names)
        self.new_tool_names = tuple(name for block in blocks for name in block.new_tool_names)
        self.rows = _consecutive([len(block.names) for block in blocks])
        self.new_tool_rows = _consecutive([len(block.new_tool_names) for block in blocks])
        self.prior: int | None = None
        self.told_prior: int | None = None
        self.shortlist = np.zeros(len(self.names) + 1, np.float32)
        self.run_features = np.zeros(len(self.names), np.bool_)
        for block, rows in zip(blocks, self.rows, strict=True):
            self.run_features[rows] = block.reads_runs
            for name, weight in block.shortlist.items():
                self.shortlist[rows.start + block.names.index(name)] = weight
            if block.prior is not None and self.prior is None:
                self.prior = rows.start + block.names.index(block.prior)
            if block.told_prior is not None:
                self.told_prior = rows.start + block.names.index(block.told_prior)

    def rows_of(self, names: Sequence[str], blocks: Sequence[str]) -> tuple[Indices, Indices]:
        """Which rows of a table, and of one of new tools, remain with some blocks alone.

        Args:
            names: of the blocks of this layout.
            blocks: names of those that remain.
        """
        kept = [name in blocks for name in names]

        def pick(parts: Sequence[slice], ones: int) -> Indices:
            chosen = [np.r_[part] for part, keep in zip(parts, kept, strict=True) if keep]
            return np.concatenate([*chosen, [ones]]).astype(np.intp)

        rows = pick(self.rows, len(self.names))
        new_rows = pick(self.new_tool_rows, len(self.new_tool_names))
        return rows, new_rows


def _consecutive(sizes: Sequence[int]) -> list[slice]:
    return [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
