"""Test data that is unlike the training data, in ways that are known."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from dtdr.demonstrations import Demonstration, Tool
from dtdr.errors import unknown_choice
from dtdr.plan import Plan

KEPT = 0.1
"""Share of the demonstrations of the rare half that ``rare-tools`` leaves to learn from."""


@dataclass(frozen=True)
class Sides:
    """What is learned from and what is tested."""

    train: list[Demonstration]
    test: list[Demonstration]
    tools: tuple[Tool, ...]


def shifted(sides: Sides, name: str | None, seed: int) -> Sides:
    """The two sides after the shift of that name.

    Raises:
        InputError: no shift has that name.
    """
    if name is None:
        return sides
    if name not in SHIFTS:
        raise unknown_choice("shift", name, SHIFTS)
    return SHIFTS[name](sides, random.Random(seed))


def _opaque_names(sides: Sides, rng: random.Random) -> Sides:
    names = _new_names(sides, rng)
    return Sides(
        [_renamed(item, names) for item in sides.train],
        [_renamed(item, names) for item in sides.test],
        tuple(replace(tool, name=names.get(tool.name, tool.name)) for tool in sides.tools),
    )


def _unseen_tools(sides: Sides, rng: random.Random) -> Sides:
    names = _new_names(sides, rng)
    new = tuple(replace(tool, name=names[tool.name]) for tool in sides.tools if tool.name in names)
    return Sides(sides.train, [_renamed(item, names) for item in sides.test], new)


def _short_to_long(sides: Sides, rng: random.Random) -> Sides:
    lengths = sorted(len(item.plan) for item in sides.train)
    middle = lengths[len(lengths) // 2]
    train = [item for item in sides.train if len(item.plan) <= middle]
    test = [item for item in sides.test if len(item.plan) > middle]
    return Sides(train, test, sides.tools) if test else sides


def _rare_tools(sides: Sides, rng: random.Random) -> Sides:
    names = sorted({name for item in sides.train for name in item.plan.tools})
    rare = set(rng.sample(names, len(names) // 2))

    def is_rare(item: Demonstration) -> bool:
        return 2 * sum(name in rare for name in item.plan.tools) > len(item.plan)

    train = [item for item in sides.train if not is_rare(item) or rng.random() < KEPT]
    test = [item for item in sides.test if is_rare(item)]
    return Sides(train or sides.train, test or sides.test, sides.tools)


SHIFTS: dict[str, Callable[[Sides, random.Random], Sides]] = {
    "opaque-names": _opaque_names,
    "unseen-tools": _unseen_tools,
    "short-to-long": _short_to_long,
    "rare-tools": _rare_tools,
}
"""``opaque-names``: every tool is called ``tool_07`` or the like on both sides, descriptions stay.
``unseen-tools``: the test side calls the tools by new names, which only the catalogue told of.
``short-to-long``: learn from plans up to the median length, test on longer ones.
``rare-tools``: a random half of the tools is rare in training; test on plans that are mostly of
it."""


def _new_names(sides: Sides, rng: random.Random) -> dict[str, str]:
    called = {name for item in (*sides.train, *sides.test) for name in item.plan.tools}
    names = sorted(called | {tool.name for tool in sides.tools})
    # Shuffled, so that the order of the vocabulary tells nothing either.
    numbers = list(range(len(names)))
    rng.shuffle(numbers)
    return {name: f"tool_{number:03d}" for name, number in zip(names, numbers, strict=True)}


def _renamed(item: Demonstration, names: dict[str, str]) -> Demonstration:
    return replace(
        item,
        plan=Plan(
            tuple(replace(call, tool=names[call.tool]) for call in item.plan.calls),
            item.plan.links,
        ),
    )
