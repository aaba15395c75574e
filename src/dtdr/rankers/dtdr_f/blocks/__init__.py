"""Blocks of features by name; the ranker sees their features in this order."""

from __future__ import annotations

from collections.abc import Sequence

from dtdr.errors import InputError, unknown_choice
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

_REGISTRY: tuple[type[Block], ...] = (
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

NAMES = tuple(block.name for block in _REGISTRY)
"""Every block."""


def block_types(blocks: str | Sequence[str] | None) -> tuple[type[Block], ...]:
    """The blocks of these names, in the order of the registry.

    Args:
        blocks: names, separated by commas or one by one; None: every block.

    Raises:
        InputError: there is none, or no block has that name.
    """
    names = blocks.replace(" ", "").split(",") if isinstance(blocks, str) else blocks
    if names is None:
        return _REGISTRY
    if not names:
        raise InputError(f"blocks is empty; choose from {', '.join(NAMES)}")
    for name in names:
        if name not in NAMES:
            raise unknown_choice("block", name, NAMES)
    return tuple(block for block in _REGISTRY if block.name in names)
