"""Which rows of a table of features belong to which block."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from dtdr.rankers.dtdr_f.blocks import BLOCKS
from dtdr.rankers.dtdr_f.blocks.chain import COUNTS
from dtdr.rankers.nn import Indices


class Layout:
    """Which rows of a table of features belong to which block.

    Attributes:
        names: all features; a row of ones follows theirs in a table.
        rows: the rows of each block.
        text_rows: the rows that are valid without demonstrations of the tool, and the row of ones.
        prior: shape (features,): the weights that the ranker starts from.
        shortlist: shape (features + 1,): weights that make the order of candidates.
        counts: the row that does not depend on the query.
    """

    def __init__(self) -> None:
        features = [(block, name) for block in BLOCKS for name in block.names]
        self.names = tuple(name for _, name in features)
        ends = [0, *accumulate(len(block.names) for block in BLOCKS)]
        self.rows = [slice(*pair) for pair in pairwise(ends)]
        prior = [block.prior.get(name, 0) for block, name in features]
        shortlist = [block.shortlist.get(name, 0) for block, name in features]
        by_text = [at for at, (block, name) in enumerate(features) if name in block.text_features]
        self.prior = np.array(prior, np.float32)
        self.shortlist = np.array([*shortlist, 0], np.float32)
        self.text_rows: Indices = np.array([*by_text, len(self.names)], np.intp)
        self.counts = self.names.index(COUNTS)


LAYOUT = Layout()
