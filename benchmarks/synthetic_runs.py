"""Any number of synthetic demonstrations, made of the bundled set, for benchmarks and tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import words
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.evaluate.datasets.synthetic import BASE, SOURCE, bundled_demonstrations

_BASE_WEIGHT = 60
"""The base tools are asked for as often as this many tools of services: every service tool gets its
share of demonstrations, however many there are."""

_SERVICES = ("At {}: {}", "With {}: {}", "{}, please: {}")
"""How a query names the service whose tools it needs."""

_SYLLABLES = [
    syllables.split()
    for syllables in (
        "ka ve lo mi zu bre ta no qui sa dra pe flo gi hu ja xe ro ci wy",
        "l m r n v s d t nd rk lt st mb x p",
        "a o i u e ia io ea",
        "ra ly no ta zi mo via go ne ko dex sy lin per zen",
    )
]


def tools(count: int = len(BASE), seed: int = 0) -> tuple[Tool, ...]:
    """The first ``count`` tools: those of the bundled set, then those of invented services.

    A service has its own ``send_email``, ``book_hotel`` and so on.

    Raises:
        InputError: fewer than the tools of the bundled set, or more than the brands can carry.
    """
    made = (
        Tool(f"{brand}_{tool.name}", f"{brand.capitalize()}: {tool.description}", tool.parameters)
        for brand, tool in _services(count, seed)
    )
    return (*BASE, *made)


def generate(demonstrations: int, tools: int = len(BASE), seed: int = 0) -> Iterator[Demonstration]:
    """Stream demonstrations in constant memory; the same seed and tools give the same ones.

    Each is a run of the bundled set with other people, towns, topics and days, made with a service
    or without. Queries are not checked for repeats. ``group`` names the errands that were combined.

    Args:
        demonstrations: how many.
        tools: how many tools there are; see ``tools``.
        seed: of all random choices.

    Raises:
        InputError: fewer than one demonstration, or a number of tools that cannot be had.
    """
    if demonstrations < 1:
        raise InputError(f"{demonstrations} demonstrations cannot be generated; ask for 1 or more")
    offered = _services(tools, seed)
    share = len(offered) / (len(offered) + _BASE_WEIGHT)
    rng = Random(f"demonstrations {seed}")
    return (_demonstration(rng, number, offered, share) for number in range(demonstrations))


@cache
def _runs_by_tool() -> Mapping[str, Sequence[Demonstration]]:
    runs: dict[str, list[Demonstration]] = {tool.name: [] for tool in BASE}
    for run in bundled_demonstrations():
        for name in set(run.plan.tools):
            runs[name].append(run)
    return runs


@cache
def _services(count: int, seed: int) -> Sequence[tuple[str, Tool]]:
    """Brands and their tools, those beyond the bundled set; the last brand may have fewer.

    The same seed gives the same brands in the same order, whatever the count.
    """
    if not len(BASE) <= count <= 100_000:
        raise InputError(f"{count} tools cannot be had; ask for {len(BASE)} to 100000")
    rng = Random(f"brands {seed}")
    brands: dict[str, None] = {}
    while len(brands) * len(BASE) < count - len(BASE):
        brands["".join(map(rng.choice, _SYLLABLES))] = None
    return [(brand, tool) for brand in brands for tool in BASE][: count - len(BASE)]


def _demonstration(
    rng: Random, number: int, offered: Sequence[tuple[str, Tool]], share: float
) -> Demonstration:
    """A run of the bundled set with other names in it, by tools of a service where one is drawn."""
    names = words.Renaming(rng)
    if rng.random() >= share:
        original = rng.choice(bundled_demonstrations())
        query, group, own = names.apply(original.query), original.group, {}
    else:
        place = rng.randrange(len(offered))
        brand, tool = offered[place]
        original = rng.choice(_runs_by_tool()[tool.name])
        first = place - place % len(BASE)
        own = {name.name: f"{brand}_{name.name}" for _, name in offered[first : first + len(BASE)]}
        query = rng.choice(_SERVICES).format(brand.capitalize(), names.apply(original.query))
        group = f"{brand}: {original.group}"
    calls = (
        ToolCall(call.id, own.get(call.tool, call.tool), _renamed(call.arguments, names))
        for call in original.plan.calls
    )
    return Demonstration(str(number), query, Plan(tuple(calls)), SOURCE, group=group)


def _renamed(value: Any, names: words.Renaming) -> Any:
    """An argument with other names in it; references stay."""
    if isinstance(value, str):
        return names.apply(value)
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, Mapping) and "$ref" not in value:
        return {key: _renamed(item, names) for key, item in value.items()}
    return value
