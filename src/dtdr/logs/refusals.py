"""Recognizes refused calls, by dtdr and by frameworks: they were never made."""

from __future__ import annotations

from typing import Any

from dtdr.data.outputs import parse_output

HIDDEN = "The tool {name} cannot be used at this step."

_STARTS = (
    HIDDEN,
    "Error: {name} is not a valid tool, try one of [",  # langgraph
    "Unknown tool name: {name}.",  # Pydantic AI
    "Tool {name} is not available yet: ",  # Pydantic AI, to a call of a deferred tool
    "Tool {name} not found.",  # LlamaIndex, OpenAI Agents SDK
    "Unknown tool: {name}",  # MCP
)
_END = "; the call was not made"  # the gateway, to a name of two tools or a changed definition


def is_refusal(tool: str, output: Any) -> bool:
    """Whether an output, a text or ``{"error": text}``, says that a call of ``tool`` was refused.

    A refused call was not made, so it is not part of a run, and its tool stays hidden.
    """
    if isinstance(output, str) and output.startswith('{"error"'):
        output = parse_output(output)
    if isinstance(output, dict):
        output = output.get("error", output.get("message"))
    if not isinstance(output, str):
        return False
    starts = (start.format(name=name) for start in _STARTS for name in (tool, repr(tool)))
    return output.startswith(tuple(starts)) or output.endswith(_END)
