"""Which demonstrations train and which test: fixed splits, the paper's, and splits by group."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluate.datasets.source import Dataset, canonical_name, data_folders, member, read_json

TEST_SHARE = 0.3
"""Share of the demonstrations that test (paper, Section Experimental Setup)."""


@dataclass(frozen=True, slots=True)
class Split:
    """Positions of the demonstrations that train and that test, both sorted."""

    name: str
    train: tuple[int, ...]
    test: tuple[int, ...]

    def training(self, demonstrations: Sequence[Demonstration]) -> list[Demonstration]:
        """The demonstrations to learn from."""
        return [demonstrations[index] for index in self.train]

    def testing(self, demonstrations: Sequence[Demonstration]) -> list[Demonstration]:
        """The demonstrations to measure on."""
        return [demonstrations[index] for index in self.test]


def read_split(path: str | Path, *, records: int | None = None) -> Split:
    """Read ``{"train": [positions], "test": [positions], "records": n, ...}``, from 0.

    Args:
        path: a JSON file.
        records: how many demonstrations there are to split.

    Raises:
        InputError: the file cannot be read, a position is out of range, twice there or on both
            sides, a side is empty, or the split is of a set of another size.
    """
    path = Path(path)
    value = read_json(path)
    try:
        sides = [member(value, name, kind=list) for name in ("train", "test")]
        size = value.get("records", records)
        if records is not None and size != records:
            raise InputError(f"it splits {size} records, but there are {records}")
        positions = [index for side in sides for index in side]
        limit = math.inf if size is None else size
        for index in positions:
            if type(index) is not int or not 0 <= index < limit:
                raise InputError(f"{index!r} is not a position from 0 to below {limit}")
        if not all(sides) or len(set(positions)) < len(positions):
            raise InputError("a side is empty, or a position is there twice")
    except InputError as error:
        raise InputError(f"{path} is not a usable split: {error}") from error
    return _split(path.stem, *sides)


def fixed_split(
    dataset: str,
    data_dir: str | Path | None = None,
    variant: str | None = None,
    *,
    records: int | None = None,
) -> Split:
    """The split file of a set, ``splits/NAME.json`` or ``splits/NAME_VARIANT.json``.

    Args:
        dataset: the set's name.
        data_dir: the data folder; see ``dtdr.evaluate.datasets.load``.
        variant: such as ``"by_sequence"`` of ``traject_bench``.
        records: how many demonstrations there are to split.

    Raises:
        InputError: there is no such file, or it is not usable.
    """
    stem = canonical_name(dataset) + (f"_{canonical_name(variant)}" if variant else "")
    folders = data_folders(data_dir)
    for folder in folders:
        path = folder / "splits" / f"{stem}.json"
        if path.is_file():
            return read_split(path, records=records)
    looked = ", ".join(str(folder / "splits") for folder in folders)
    raise InputError(
        f"there is no split {stem}.json in {looked}; choose another, such as default or group"
    )


def default_split(dataset: Dataset, data_dir: str | Path | None = None, seed: int = 0) -> Split:
    """The fixed split where the set has one; else by group where a set has groups; the paper's.

    A set whose publishers keep a test side is split as they did.
    """
    if dataset.synthetic:
        return group_split(dataset.demonstrations, seed)
    if dataset.test_from is not None:
        count = len(dataset)
        return _split("published", range(dataset.test_from), range(dataset.test_from, count))
    if dataset.folder is None:
        # A file of the user's own: a split by record position would be about other records.
        return paper_split(dataset.demonstrations, seed)
    records = len(dataset.demonstrations)
    for folder in [dataset.folder, *data_folders(data_dir)]:
        path = folder / "splits" / f"{dataset.name}.json"
        if path.is_file():
            split = read_split(path)
            if max(split.train[-1], split.test[-1]) < records == len(split.train) + len(split.test):
                return split
    if all(demonstration.group for demonstration in dataset.demonstrations):
        return group_split(dataset.demonstrations, seed)
    return paper_split(dataset.demonstrations, seed)


def paper_split(
    demonstrations: Sequence[Demonstration], seed: int = 0, test: float = TEST_SHARE
) -> Split:
    """Each tool's occurrences close to the wanted shares on both sides (paper, Section 5).

    Iterative stratification (Sechidis et al., 2011): the tool with the fewest occurrences that
    are not placed yet goes first, each of its plans to the side that lacks that tool the most.

    Raises:
        InputError: fewer than two demonstrations, or ``test`` outside (0, 1).
    """
    _check(demonstrations, test)
    rng = random.Random(seed)
    counts = [Counter(demonstration.plan.tools) for demonstration in demonstrations]
    plans_of: dict[str, list[int]] = defaultdict(list)
    open_occurrences: Counter[str] = Counter()
    for index, tools in enumerate(counts):
        open_occurrences.update(tools)
        for tool in tools:
            plans_of[tool].append(index)
    lacking = {tool: [n * (1 - test), n * test] for tool, n in open_occurrences.items()}
    room = [len(demonstrations) * (1 - test), len(demonstrations) * test]
    sides: tuple[list[int], list[int]] = ([], [])
    placed = [False] * len(demonstrations)

    def place(index: int, side: int) -> None:
        placed[index] = True
        sides[side].append(index)
        room[side] -= 1
        for tool, count in counts[index].items():
            lacking[tool][side] -= count
            open_occurrences[tool] -= count

    while waiting := [(count, tool) for tool, count in open_occurrences.items() if count > 0]:
        _, rarest = min(waiting)
        plans = [index for index in plans_of[rarest] if not placed[index]]
        rng.shuffle(plans)
        for index in plans:
            shares = lacking[rarest]
            first, second = room if shares[0] == shares[1] else shares
            place(index, rng.randrange(2) if first == second else int(first < second))
    empty = [index for index, done in enumerate(placed) if not done]
    rng.shuffle(empty)
    for index in empty:
        place(index, int(room[0] < room[1]))
    for lacks, full in (sides, sides[::-1]):
        if not lacks:
            lacks.append(full.pop())
    return _split(f"paper-{seed}", *sides)


def group_split(
    demonstrations: Sequence[Demonstration], seed: int = 0, test: float = TEST_SHARE
) -> Split:
    """No group on both sides; a demonstration without a group counts as a group.

    Groups are taken in random order until the test side has its share; a group that would
    overshoot by more than half of itself stays on the training side.

    Raises:
        InputError: fewer than two groups, or ``test`` outside (0, 1).
    """
    _check(demonstrations, test)
    groups = _shuffled_groups(demonstrations, seed)
    if len(groups) < 2:
        raise InputError("all demonstrations are of one group; a split by group needs two or more")
    sides: tuple[list[int], list[int]] = ([], [])
    for group in groups:
        takes = len(sides[1]) + len(group) / 2 <= test * len(demonstrations)
        if group is groups[-1] and not all(sides):
            takes = not sides[1]
        sides[takes].extend(group)
    return _split(f"group-{seed}", *sides)


def time_order(demonstrations: Sequence[Demonstration]) -> list[int]:
    """Positions from the earliest to the latest; as they are where one has no time."""
    order = range(len(demonstrations))
    times = [item.time for item in demonstrations if item.time is not None]
    return sorted(order, key=times.__getitem__) if len(times) == len(order) else list(order)


def time_split(demonstrations: Sequence[Demonstration], test: float = TEST_SHARE) -> Split:
    """The earliest demonstrations train, the latest test; see ``time_order``.

    Raises:
        InputError: fewer than two demonstrations, or ``test`` outside (0, 1).
    """
    _check(demonstrations, test)
    order = time_order(demonstrations)
    cut = min(max(1, round(len(order) * (1 - test))), len(order) - 1)
    return _split("time", order[:cut], order[cut:])


def group_folds(demonstrations: Sequence[Demonstration], folds: int, seed: int = 0) -> list[Split]:
    """Splits that hold out each demonstration once, and no group on both sides.

    A demonstration without a group counts as a group. Each group, in random order, goes to the fold
    that is smallest so far.

    Raises:
        InputError: fewer than two folds, or fewer groups than folds.
    """
    if folds < 2:
        raise InputError(f"{folds} folds were asked for; there must be at least 2")
    groups = _shuffled_groups(demonstrations, seed)
    if len(groups) < folds:
        raise InputError(f"{folds} folds need as many groups, but there are {len(groups)}")
    tests: list[list[int]] = [[] for _ in range(folds)]
    for group in groups:
        min(tests, key=len).extend(group)
    return [
        _split(
            f"fold-{fold}-of-{folds}-{seed}", {*range(len(demonstrations))}.difference(test), test
        )
        for fold, test in enumerate(tests, start=1)
    ]


def _split(name: str, train: Iterable[int], test: Iterable[int]) -> Split:
    return Split(name, tuple(sorted(train)), tuple(sorted(test)))


def _shuffled_groups(demonstrations: Sequence[Demonstration], seed: int) -> list[list[int]]:
    members: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, demonstration in enumerate(demonstrations):
        members[(demonstration.group, -1 if demonstration.group else index)].append(index)
    groups = list(members.values())
    random.Random(seed).shuffle(groups)
    return groups


def _check(demonstrations: Sequence[Demonstration], test: float) -> None:
    if not 0 < test < 1:
        raise InputError(f"the test share is {test}; it must be between 0 and 1")
    if len(demonstrations) < 2:
        raise InputError(f"{len(demonstrations)} demonstrations cannot be split; give at least two")
