"""The columns of the block ``state``: which values, words and counts a row has, and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.blocks.block import TrainingSet
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.values import GREATEST, Values
from dtdr.rankers.nn import Matrix
from dtdr.rankers.sorted_keys import find_sorted

_LEAST_GROUPS = 3
"""A value, or a word, counts if this many groups of demonstrations contain it: identifiers and free
text are not learned by heart."""
_MOST_VALUES, _MOST_WORDS = 900, 600
"""Columns for values and for words, the most frequent ones."""
_MOST_TOOLS = 128
"""Tools whose calls have columns, those called most."""
MISSING = np.float32(-1e8)
"""A number that was not read is far below all others."""

# The owner of a key, above 32 bits: values of the query, the run, words, then each tool's slot.
QUERY_VALUES, RUN, WORDS, FIRST_SLOT = 0, 1, 2, 3
# The kind of a key of the run, above the 20 bits of a slot.
LAST, SECOND, COUNT, EARLIER, STATUS, NUMBERS = (kind << 20 for kind in range(6))
SIZES = ("calls", "earlier_calls", "left", "distinct")
# The kind of a word.
QUERY, SAID, OUTPUT = (kind << 20 for kind in range(3))


class OwnerColumns:
    """The columns of one owner: the query, the run, words, or a tool."""

    __slots__ = ("begin", "keys", "span")

    def __init__(self, low: npt.NDArray[np.int32], span: slice) -> None:
        self.begin, self.span, self.keys = span.start, span, low[span]

    def find(self, keys: npt.NDArray[np.int32]) -> tuple[Any, Any]:
        """The columns of the known keys, and which are known."""
        places, known = find_sorted(self.keys, keys)
        return places[known] + self.begin, known

    def write(self, row: Matrix, keys: npt.NDArray[np.int32], values: Matrix) -> None:
        """Set the values of the known keys."""
        if len(self.keys) and len(keys):
            columns, known = self.find(keys)
            row[columns] = values[known]

    def replace(self, row: Matrix, start: Matrix, values: Values) -> None:
        """Forget the earlier values and set these."""
        row[self.span] = start[self.span]
        self.write(row, values.keys, values.values)

    def merge(self, row: Matrix, start: Matrix, values: Values) -> None:
        """Add the values of a parallel call of the same tool: of numbers, the least."""
        both = start.copy()
        self.write(both, values.keys, values.values)
        old, new = row[self.span], both[self.span]
        least = np.where(
            (old == MISSING) | (new == MISSING), np.maximum(old, new), np.minimum(old, new)
        )
        row[self.span] = np.where(self.keys < GREATEST, least, np.maximum(old, new))


def choose_keys(training: TrainingSet) -> npt.NDArray[np.int64]:
    """Keys of enough groups of demonstrations, sorted."""
    data, slots = training.data, np.array(training.slots)
    groups = groups_of(data)

    def columns(name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        column = data.columns[name]
        return column.values.astype(np.int64), groups[column.owner]

    calls, owner = data.columns["calls"].values, groups[data.columns["calls"].owner]
    before = data.columns["before"]
    earlier = slots[before.values[::2]]
    earlier_owner = np.repeat(groups, before.sizes // 2)
    words = training.featurizer.vectors.tocoo()
    asked_keys, asked_groups = columns("asked_keys")
    keys_now, groups_now = columns("value_keys")
    keys_before, groups_before = columns("earlier_keys")
    by_call = np.repeat(slots[calls], data.columns["value_counts"].values)
    by_earlier = np.repeat(earlier, data.columns["earlier_counts"].values)
    selected = [
        _frequent(asked_keys, asked_groups, _MOST_VALUES) + (QUERY_VALUES << 32),
        _frequent(
            np.concatenate([_tool_keys(by_call, keys_now), _tool_keys(by_earlier, keys_before)]),
            np.concatenate([groups_now, groups_before]),
            _MOST_VALUES,
        ),
    ]
    for kind, part, part_owner in (
        (QUERY, words.col.astype(np.int64), groups[words.row]),
        (SAID, *columns("said")),
        (OUTPUT, *columns("output_words")),
    ):
        selected.append(_frequent(part, part_owner, _MOST_WORDS // 3) + (WORDS << 32) + kind)
    called = _frequent(slots[calls], owner, _MOST_TOOLS)
    called_before = _frequent(earlier, earlier_owner, _MOST_TOOLS)
    for kind, part in (
        (LAST, called),
        (SECOND, called),
        (COUNT, called),
        (EARLIER, called_before),
    ):
        selected.append(part[part >= 0] + (RUN << 32) + kind)
    for kind, count in ((STATUS, 4), (NUMBERS, len(SIZES))):
        selected.append(np.arange(count) + (RUN << 32) + kind)
    keys: npt.NDArray[np.int64] = np.unique(np.concatenate(selected))
    return keys[keys >= 0]


def are_values(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which columns have values of the query or of a tool."""
    owners = keys >> 32
    known: npt.NDArray[np.bool_] = (owners == QUERY_VALUES) | (owners >= FIRST_SLOT)
    return known


def groups_of(data: EncodedDemonstrations) -> npt.NDArray[np.int64]:
    """The group of each demonstration; one without is its own."""
    return np.where(data.groups > 0, data.groups.astype(np.int64), -1 - np.arange(len(data)))


def _tool_keys(slots: npt.NDArray[Any], keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Keys of the values of tools by their slots; below 0 where a tool has none."""
    owned = ((slots.astype(np.int64) + FIRST_SLOT) << 32) + keys
    return np.where(slots >= 0, owned, -1)


def _frequent(
    keys: npt.NDArray[Any], owner: npt.NDArray[np.int64], most: int
) -> npt.NDArray[np.int64]:
    """The keys of most groups, at least ``_LEAST_GROUPS``."""
    distinct, key_index = np.unique(keys.astype(np.int64), return_inverse=True)
    _, group = np.unique(owner, return_inverse=True)
    groups = int(group.max(initial=0)) + 1
    # Each pair of a key and a group once, as one number.
    pairs = np.unique(key_index.astype(np.int64) * groups + group)
    counts = np.bincount(pairs // groups, minlength=len(distinct))
    best = np.argsort(-counts, kind="stable")
    best = best[(counts[best] >= _LEAST_GROUPS) & (distinct[best] >= 0)][:most]
    frequent: npt.NDArray[np.int64] = distinct[best]
    return frequent
