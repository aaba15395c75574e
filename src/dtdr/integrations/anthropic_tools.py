"""What every mask of an Anthropic request needs: names and costs of tools, and leaving some out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtdr.integrations.mask import ToolMask
from dtdr.integrations.messages import as_json, checked_names, checked_tools, token_costs


def tool_name(tool: object) -> str | None:
    """The name of a tool of the user's own; None for tools that Anthropic defines."""
    record = as_json(tool)
    if not isinstance(record, Mapping) or record.get("type") not in (None, "custom"):
        return None
    name = record.get("name")
    return name if isinstance(name, str) and name else None


def tool_names(tools: Sequence[object]) -> tuple[str, ...]:
    """The names of those tools that have one, in their order.

    Raises:
        InputError: two tools share a name, or one is no JSON object.
    """
    return checked_names(map(tool_name, checked_tools(tools)))


def without(
    tools: Sequence[Any],
    leaves: Callable[[str], bool],
    instead: Callable[[Mapping[str, Any]], Any],
) -> list[Any]:
    """The tools, some replaced or left out; their cache breakpoints move to the tool before.

    Args:
        tools: the request's ``tools``.
        leaves: whether the tool of that name leaves.
        instead: what takes its place; None for nothing.
    """
    found: list[Any] = []
    last = None
    for tool in tools:
        name = tool_name(tool)
        if name is None or not leaves(name):
            last = len(found)
            found.append(tool)
            continue
        record = dict(as_json(tool))
        breakpoint_ = record.pop("cache_control", None)
        if breakpoint_ is not None and last is not None:
            found[last] = {"cache_control": breakpoint_, **as_json(found[last])}
        if (other := instead(record)) is not None:
            found.append(other)
    return found


def costs(mask: ToolMask, tools: Sequence[Any]) -> dict[str, int] | None:
    """Tokens of the tools' definitions, where the policy has a budget.

    Raises:
        InputError: a tool is no JSON object.
    """
    if mask.policy.token_budget is None:
        return None
    return token_costs({name: tool for tool in tools if (name := tool_name(tool)) is not None})


def field(value: object, key: str) -> Any:
    """A field of a JSON object, or None where it is none."""
    record = as_json(value)
    return record.get(key) if isinstance(record, Mapping) else None
