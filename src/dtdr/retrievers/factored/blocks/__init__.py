"""Blocks of features by name; the ranker sees their features in this order."""

from __future__ import annotations

from collections.abc import Sequence

from dtdr.errors import InputError, unknown_choice
from dtdr.retrievers.factored.blocks.alignment import Alignment
from dtdr.retrievers.factored.blocks.base import Block
from dtdr.retrievers.factored.blocks.clauses import Clauses
from dtdr.retrievers.factored.blocks.conversation import Conversation
from dtdr.retrievers.factored.blocks.coverage import Coverage
from dtdr.retrievers.factored.blocks.data_flow import DataFlow
from dtdr.retrievers.factored.blocks.descriptions import Descriptions
from dtdr.retrievers.factored.blocks.expected_calls import ExpectedCalls
from dtdr.retrievers.factored.blocks.history import History
from dtdr.retrievers.factored.blocks.markov import Markov
from dtdr.retrievers.factored.blocks.next_tool import NextTool
from dtdr.retrievers.factored.blocks.parts import Parts
from dtdr.retrievers.factored.blocks.query_position import QueryPosition
from dtdr.retrievers.factored.blocks.relations import Relations
from dtdr.retrievers.factored.blocks.rhythm import Rhythm
from dtdr.retrievers.factored.blocks.situation import Situation
from dtdr.retrievers.factored.blocks.subwords import Subwords

_REGISTRY: tuple[type[Block], ...] = (
    NextTool,
    History,
    Rhythm,
    Relations,
    Descriptions,
    ExpectedCalls,
    Clauses,
    Alignment,
    QueryPosition,
    Parts,
    Coverage,
    DataFlow,
    Subwords,
    Markov,
    Conversation,
    Situation,
)

NAMES = tuple(block.name for block in _REGISTRY)
"""Every block."""

OPTIONAL = (
    *(ExpectedCalls.name, QueryPosition.name),
    *(Coverage.name, DataFlow.name, Subwords.name, Markov.name),
)
"""Blocks that ``fit`` takes only where held-out plans are ranked clearly better with them, and one
that it takes where it is named, or in models of earlier versions: what the query asks for as a
whole, which ``parts`` says of each of its parts.

Validation MRR with each: query position +.038 on a quarter of the groups of TRAJECT by sequence,
within .001 on three other sets, for 11 µs a step; coverage +.011 on a third of TRAJECT by sequence,
-.007 on T-Eval; data flow -.006 on that third; Markov chains within .005 on four sets, and every
query costs a product with all demonstrations.
"""

DEFAULT = ",".join(name for name in NAMES if name not in OPTIONAL)
"""The blocks that a fit starts from."""


def block_types(blocks: str | Sequence[str]) -> tuple[type[Block], ...]:
    """The blocks of these names, in the order of the registry.

    Args:
        blocks: names, separated by commas or one by one.

    Raises:
        InputError: there is none, or no block has that name.
    """
    names = blocks.replace(" ", "").split(",") if isinstance(blocks, str) else blocks
    if not names:
        raise InputError(f"blocks is empty; choose from {', '.join(NAMES)}")
    for name in names:
        if name not in NAMES:
            raise unknown_choice("block", name, NAMES)
    return tuple(block for block in _REGISTRY if block.name in names)
