"""Tool masks: decide from a ranking which tools an agent sees, in any framework.

``policy`` decides which tools are shown and why, ``mask`` ranks for a transcript and fails open;
``openai`` and ``anthropic`` write the decision into requests; ``prefetch`` makes predicted calls
early; every other module is a framework.
"""

from dtdr.agents.mask import ToolMask, ToolRun
from dtdr.agents.policy import ToolPolicy, ToolSelection, ToolSelector
from dtdr.agents.prefetch import Prefetch
from dtdr.agents.transcript import Transcript, Turn

__all__ = [
    "Prefetch",
    "ToolMask",
    "ToolPolicy",
    "ToolRun",
    "ToolSelection",
    "ToolSelector",
    "Transcript",
    "Turn",
]
