"""All blocks of features; the ranker sees their features in this order."""

from __future__ import annotations

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

BLOCKS: tuple[type[Block], ...] = (
    NextTool,
    Chain,
    History,
    Relations,
    Descriptions,
    Position,
    Parts,
    LastOutput,
    Closeness,
)
