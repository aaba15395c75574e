"""Features as 32-bit hashes, and the buckets of the weights that they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint32]
Buckets = npt.NDArray[np.int32]
Codes = npt.NDArray[np.integer[Any]]

BITS = 22
"""With 20 bits, calls filled exactly fell from .654 to .639 on TRAJECT-Bench, from .599 to .597 on
TinyAgent, and from .561 to .550 there with 18."""
BUCKETS = 1 << BITS
LEVELS = 3
"""Keys of a slot, see ``parameter_keys``."""
KIND_LEVELS = 2
"""Kinds are joined with the tool's slot and with the slot's name, not with any."""


@lru_cache(maxsize=1 << 15)
def feature(text: str) -> int:
    """The hash of a feature's name; common ones are remembered."""
    return crc32(text.encode("utf-8", "surrogatepass"))


def features(texts: Sequence[str]) -> Hashes:
    """The hashes of several features; shape (n,)."""
    return np.fromiter(map(feature, texts), np.uint32, len(texts))


def feature_table(name: str, *sizes: int) -> Hashes:
    """The hash of a feature for every combination of its values; has the shape of the sizes."""
    names = (f"{name} {place}" for place in np.ndindex(sizes))
    return np.fromiter(map(feature, names), np.uint32, math.prod(sizes)).reshape(sizes)


def parameter_keys(tool: str, parameter: str) -> Hashes:
    """What features are joined with, from the specific to the general; shape (3,).

    The parameter of this tool, the parameter of that name in any tool, and any parameter: a
    parameter that was never seen has weights from the last two. Of a field of an object the name
    is that of the field.
    """
    name = parameter.rpartition("/")[2]
    return features([f"tool:{tool}\x00{parameter}", f"name:{name}", "any"])


def buckets(hashes: Hashes, keys: Hashes) -> Buckets:
    """The places of the weights of features joined with keys; the shapes are broadcast."""
    mixed = (hashes ^ keys) * np.uint32(0x9E3779B1)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x85EBCA6B)
    mixed >>= np.uint32(32 - BITS)
    return mixed.view(np.int32)


class Rows:
    """Rows of features, which one slot after the other is scored with.

    Attributes:
        hashes: the features of all r rows, one row after the other; shape (f,).
        lengths: how many each row has; shape (r,).
        levels: with how many of a slot's keys they are joined.
        known: scores by keys, with the mark of the weights that gave them; a ranker's own.
    """

    __slots__ = ("hashes", "known", "lengths", "levels")

    def __init__(
        self, hashes: Hashes, lengths: npt.NDArray[np.int64], levels: int = LEVELS
    ) -> None:
        self.hashes = hashes
        self.lengths = lengths
        self.levels = levels
        self.known: dict[bytes, tuple[object, npt.NDArray[np.float32]]] = {}

    @classmethod
    def of(cls, parts: Sequence[Hashes]) -> Rows:
        """Rows of any length."""
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return cls(np.concatenate(parts) if parts else np.zeros(0, np.uint32), lengths)

    @classmethod
    def of_table(cls, table: Hashes, levels: int = LEVELS) -> Rows:
        """Rows of one length; a table of shape (r, k)."""
        return cls(table.ravel(), np.full(len(table), table.shape[1]), levels)

    def take(self, codes: Codes) -> tuple[Rows, Codes]:
        """The rows that codes name and no others, and the codes for these."""
        used, renumbered = np.unique(codes, return_inverse=True)
        if len(used) == len(self.lengths):
            return self, codes
        ends = np.cumsum(self.lengths)
        parts = [self.hashes[ends[row] - self.lengths[row] : ends[row]] for row in used.tolist()]
        rows = Rows.of(parts)
        rows.levels = self.levels
        return rows, renumbered


class Block(NamedTuple):
    """Rows that some candidates in a row have: the first of these, and the row of each."""

    rows: Rows
    first: int
    codes: Codes
