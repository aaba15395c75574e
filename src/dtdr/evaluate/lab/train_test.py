"""What a run learns from and what it is tested on."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split, group_split, paper_split, time_order, time_split


@dataclass(frozen=True)
class TrainTest:
    """Demonstrations to learn from and to test on, and the tools that are known."""

    train: list[Demonstration]
    test: list[Demonstration]
    tools: tuple[Tool, ...]


def train_test(dataset: Dataset, spec: Mapping[str, Any]) -> TrainTest:
    """The two sides of a run: the split, then as many demonstrations as it asks for.

    Raises:
        InputError: the set cannot be split.
    """
    split = split_of(dataset, spec)
    train = sample(split.training(dataset.demonstrations), spec)
    return TrainTest(train, split.testing(dataset.demonstrations), dataset.tools)


def split_of(dataset: Dataset, spec: Mapping[str, Any]) -> Split:
    """The split that a run is about: ``time``, or drawn with its seed, ``paper`` or ``group``.

    Raises:
        InputError: the set cannot be split.
    """
    draw = group_split if spec.get("split") == "group" else paper_split
    try:
        if spec.get("split") == "time":
            return time_split(dataset.demonstrations)
        return draw(dataset.demonstrations, int(spec.get("seed", 0)))
    except InputError as error:
        raise InputError(f"dataset {dataset.name!r}: {error}") from error


def sample(train: Sequence[Demonstration], spec: Mapping[str, Any]) -> list[Demonstration]:
    """As many demonstrations as the run learns from; more of one seed contain the fewer.

    Of a split by time, the earliest.
    """
    size = spec.get("demonstrations")
    if "share" in spec:
        size = max(1, round(spec["share"] * len(train)))
    order = list(train)
    if size is None or size >= len(order):
        return order
    if spec.get("split") == "time":
        order = [order[place] for place in time_order(order)]
    else:
        random.Random(int(spec.get("seed", 0))).shuffle(order)
    return order[:size]
