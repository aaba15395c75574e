"""All blocks of features, and which rows of a table of features belong to each."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block
from dtdr.rankers.dtdr_f.blocks.chain import Chain
from dtdr.rankers.dtdr_f.blocks.closeness import Closeness
from dtdr.rankers.dtdr_f.blocks.descriptions import Descriptions
from dtdr.rankers.dtdr_f.blocks.history import History
from dtdr.rankers.dtdr_f.blocks.last_output import LastOutput
from dtdr.rankers.dtdr_f.blocks.next_tool import NextTool
from dtdr.rankers.dtdr_f.blocks.parts import Parts
from dtdr.rankers.dtdr_f.blocks.position import Position
from dtdr.rankers.dtdr_f.blocks.relations import Relations
from dtdr.rankers.dtdr_f.blocks.state import State
from dtdr.rankers.dtdr_f.blocks.step_text import StepText
from dtdr.rankers.dtdr_f.blocks.zero_shot import ZeroShotBlock
from dtdr.rankers.nn import Indices

BLOCKS: tuple[type[Block], ...] = (
    NextTool,
    Chain,
    History,
    Relations,
    Descriptions,
    Position,
    Parts,
    LastOutput,
    State,
    StepText,
    ZeroShotBlock,
    Closeness,
)
"""The ranker sees their features in this order."""


class Layout:
    """Which rows of a table of features belong to which block.

    Attributes:
        names: all features; a row of ones follows theirs in a table.
        rows: the rows of each block.
        text_rows: the rows that are valid without demonstrations of the tool.
        prior: shape (features,): the weights that the ranker starts from.
        shortlist: shape (features + 1,): weights that make the order of candidates.
        counts: the row that does not depend on the query.
        has_text: the row that says whether the agent wrote a text before the next call.
        state: the row of the probabilities by the block ``state`` alone.
    """

    def __init__(self) -> None:
        features = [(block, name) for block in BLOCKS for name in block.rows.names]
        self.names = tuple(name for _, name in features)
        ends = [0, *accumulate(len(block.rows.names) for block in BLOCKS)]
        self.rows = [slice(*pair) for pair in pairwise(ends)]
        prior = [block.prior.get(name, 0) for block, name in features]
        shortlist = [block.shortlist.get(name, 0) for block, name in features]
        by_text = [at for at, (block, name) in enumerate(features) if name in block.text_features]
        self.prior = np.array(prior, np.float32)
        self.shortlist = np.array([*shortlist, 0], np.float32)
        self.text_rows: Indices = np.array(by_text, np.intp)
        self.counts = self.names.index("after_two")
        self.has_text = self.names.index("has_text")
        self.state = self.names.index("state_probability")


LAYOUT = Layout()
