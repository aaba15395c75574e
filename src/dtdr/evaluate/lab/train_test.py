"""What a run learns from and what it is tested on: splits, and shifts between the two."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.errors import InputError, unknown_choice
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split, group_split, paper_split

KEPT = 0.1
"""Share of the demonstrations of the rare half that ``rare-tools`` leaves to learn from."""


@dataclass(frozen=True)
class TrainTest:
    """Demonstrations to learn from and to test on, and the tools that are known."""

    train: list[Demonstration]
    test: list[Demonstration]
    tools: tuple[Tool, ...]


def train_test(dataset: Dataset, spec: Mapping[str, Any]) -> TrainTest:
    """The two sides of a cell: the split, then the shift, then as many demonstrations as it asks.

    Raises:
        InputError: the set cannot be split, no shift has that name, or nothing is left on a side.
    """
    split = split_of(dataset, spec)
    both = shift(
        TrainTest(
            split.training(dataset.demonstrations),
            split.testing(dataset.demonstrations),
            dataset.tools,
        ),
        spec.get("shift"),
        int(spec.get("seed", 0)),
    )
    if not both.train or not both.test:
        raise InputError(f"shift {spec.get('shift')!r} leaves nothing on a side of the split")
    return replace(both, train=sample(both.train, spec))


def split_of(dataset: Dataset, spec: Mapping[str, Any]) -> Split:
    """The split that a cell is about: ``paper`` or ``group``, drawn with the cell's seed.

    Raises:
        InputError: the set cannot be split.
    """
    draw = group_split if spec.get("split") == "group" else paper_split
    try:
        return draw(dataset.demonstrations, int(spec.get("seed", 0)))
    except InputError as error:
        raise InputError(f"dataset {dataset.name!r}: {error}") from error


def sample(train: Sequence[Demonstration], spec: Mapping[str, Any]) -> list[Demonstration]:
    """As many demonstrations as the cell learns from; more of one seed contain the fewer."""
    size = spec.get("demonstrations")
    order = list(train)
    if size is None or size >= len(order):
        return order
    random.Random(int(spec.get("seed", 0))).shuffle(order)
    return order[:size]


def shift(data: TrainTest, name: str | None, seed: int) -> TrainTest:
    """The two sides after the shift of that name.

    Raises:
        InputError: no shift has that name.
    """
    if name is None:
        return data
    if name not in SHIFTS:
        raise unknown_choice("shift", name, SHIFTS)
    return SHIFTS[name](data, random.Random(seed))


def _opaque_names(data: TrainTest, rng: random.Random) -> TrainTest:
    names = _new_names(data, rng)
    return TrainTest(
        [_rename(item, names) for item in data.train],
        [_rename(item, names) for item in data.test],
        tuple(replace(tool, name=names.get(tool.name, tool.name)) for tool in data.tools),
    )


def _unseen_tools(data: TrainTest, rng: random.Random) -> TrainTest:
    names = _new_names(data, rng)
    new = tuple(replace(tool, name=names[tool.name]) for tool in data.tools if tool.name in names)
    return TrainTest(data.train, [_rename(item, names) for item in data.test], new)


def _short_to_long(data: TrainTest, rng: random.Random) -> TrainTest:
    lengths = sorted(len(item.plan) for item in data.train)
    middle = lengths[len(lengths) // 2]
    train = [item for item in data.train if len(item.plan) <= middle]
    test = [item for item in data.test if len(item.plan) > middle]
    return TrainTest(train, test, data.tools) if test else data


def _rare_tools(data: TrainTest, rng: random.Random) -> TrainTest:
    names = sorted({name for item in data.train for name in item.plan.tools})
    rare = set(rng.sample(names, len(names) // 2))

    def is_rare(item: Demonstration) -> bool:
        return 2 * sum(name in rare for name in item.plan.tools) > len(item.plan)

    train = [item for item in data.train if not is_rare(item) or rng.random() < KEPT]
    test = [item for item in data.test if is_rare(item)]
    return TrainTest(train or data.train, test or data.test, data.tools)


SHIFTS: dict[str, Callable[[TrainTest, random.Random], TrainTest]] = {
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


def _new_names(data: TrainTest, rng: random.Random) -> dict[str, str]:
    called = {name for item in (*data.train, *data.test) for name in item.plan.tools}
    names = sorted(called | {tool.name for tool in data.tools})
    # Shuffled, so that the order of the vocabulary tells nothing either.
    numbers = list(range(len(names)))
    rng.shuffle(numbers)
    return {name: f"tool_{number:03d}" for name, number in zip(names, numbers, strict=True)}


def _rename(item: Demonstration, names: dict[str, str]) -> Demonstration:
    return replace(
        item,
        plan=Plan(
            tuple(replace(call, tool=names[call.tool]) for call in item.plan.calls),
            item.plan.links,
        ),
    )
