"""Counts of demonstrations. They merge in any order to the same bytes."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.dtdr_f.familiarity import hash_ngrams
from dtdr.rankers.training import TrainingData
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.words import hash_word, words

Numbers = npt.NDArray[np.uint64]
Phrases = npt.NDArray[np.uint32]

SAMPLE = 100_000
"""Default limit of demonstrations to learn from."""

PER_TOOL = 20
"""Demonstrations of each tool that a sample has, if there are this many. With fewer, dtdr-f ranks a
tool mostly by its description."""

MOST_PHRASES = 1 << 27
"""Limit of distinct phrases: half a gigabyte. One in 32 unknown phrases then collides with a known
one. Above it, only the phrases of the sample are kept."""

_AT_ONCE = 20_000
"""Queries after which phrases are made unique, to bound memory."""


@lru_cache(maxsize=1 << 16)
def _hash_words(piece: str) -> tuple[int, ...]:
    return tuple(map(hash_word, words(piece)))


def sort_unique(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct values, sorted; shape (n,). ``np.unique`` takes ten times as long."""
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]]


def number_of(identifier: str, seed: int) -> int:
    """A 64-bit number of an id: the sample has the ids with the lowest numbers."""
    content = identifier.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, salt=seed.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


class Facts(NamedTuple):
    """Facts that are counted of a demonstration."""

    id: str
    query: str
    tools: Sequence[str]
    outcome: str

    @classmethod
    def of(cls, demonstration: Demonstration) -> Facts:
        """The facts of a demonstration."""
        plan = demonstration.plan
        return cls(demonstration.id, demonstration.query, plan.tools, demonstration.outcome)


@dataclass
class Counts:
    """Counts of some demonstrations: all that a model learns from those outside the sample.

    Attributes:
        size: of the sample to draw.
        seed: of the sample.
        failures: whether runs that failed are learned from.
        total: number of demonstrations.
        failed: number of runs that failed.
        empty: number of plans that call no tool.
        tools: number of plans that call each tool.
        lowest: shape (at most size,), sorted: the lowest numbers of ids.
        rare: the lowest numbers of the plans that call each tool, at most ``PER_TOOL``, sorted.
        phrases: shape (n,), sorted: hashes of the phrases in queries; None above
            ``MOST_PHRASES``.
    """

    size: int
    seed: int = 0
    failures: bool = True
    total: int = 0
    failed: int = 0
    empty: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    lowest: Numbers = field(default_factory=lambda: np.empty(0, np.uint64))
    rare: dict[str, list[int]] = field(default_factory=dict)
    phrases: Phrases | None = field(default_factory=lambda: np.empty(0, np.uint32))

    def count(self, facts: Iterable[Facts]) -> tuple[Counts, Numbers]:
        """Count demonstrations with the same settings; also returns the number of each id."""
        numbers: list[int] = []
        phrases = np.empty(0, np.uint32)
        queries: list[str] = []
        tools: Counter[str] = Counter()
        heaps: dict[str, list[int]] = {}
        failed = empty = 0
        for item in facts:
            id_number = number_of(item.id, self.seed)
            numbers.append(id_number)
            if item.outcome == "failure":
                failed += 1
                if not self.failures:
                    continue
            names = set(item.tools)
            empty += not names
            tools.update(names)
            for name in names:
                heap = heaps.setdefault(name, [])
                if len(heap) < PER_TOOL:
                    heapq.heappush(heap, -id_number)
                elif id_number < -heap[0]:
                    heapq.heapreplace(heap, -id_number)
            queries.append(item.query)
            if len(queries) == _AT_ONCE:
                phrases, queries = _add_phrases(phrases, queries), []
        ids = np.array(numbers, np.uint64)
        counts = replace(
            self,
            total=len(numbers),
            failed=failed,
            empty=empty,
            tools=dict(tools),
            lowest=np.sort(ids)[: self.size],
            rare={tool: sorted(-id_number for id_number in heap) for tool, heap in heaps.items()},
            phrases=_add_phrases(phrases, queries),
        )
        return counts, ids

    def merge(self, other: Counts) -> Counts:
        """The counts of both; the order of merging does not matter."""
        rare = {
            tool: sorted([*self.rare.get(tool, ()), *other.rare.get(tool, ())])[:PER_TOOL]
            for tool in self.rare.keys() | other.rare.keys()
        }
        phrases = None
        if self.phrases is not None and other.phrases is not None:
            phrases = sort_unique(np.concatenate([self.phrases, other.phrases]))
        return replace(
            self,
            total=self.total + other.total,
            failed=self.failed + other.failed,
            empty=self.empty + other.empty,
            tools=dict(Counter(self.tools) + Counter(other.tools)),
            lowest=np.sort(np.concatenate([self.lowest, other.lowest]))[: self.size],
            rare=rare,
            phrases=None if phrases is None or len(phrases) > MOST_PHRASES else phrases,
        )

    def choose(self) -> Numbers:
        """Numbers of the sample, sorted: the lowest of all, and the lowest of each rare tool.

        A sample of another size includes this one, or is included in it.
        """
        extra = [id_number for lowest in self.rare.values() for id_number in lowest]
        return sort_unique(np.concatenate([self.lowest, np.array(extra, np.uint64)]))

    @property
    def skipped(self) -> int:
        """How many demonstrations are not learned from."""
        return 0 if self.failures else self.failed

    def describe_training(self, learned: TrainingData) -> TrainingData:
        """The training record of a model, from that of the sample it learned from."""
        return replace(
            learned,
            demonstrations=self.total - self.skipped,
            skipped_failures=self.skipped,
            sha256=hashlib.sha256(self.to_bytes() + learned.sha256.encode()).hexdigest(),
            empty_plans=self.empty,
            failures=self.failed if self.failures else None,
            sampled=learned.demonstrations,
        )

    def to_bytes(self) -> bytes:
        """The state as bytes; equal counts have equal bytes."""
        record = vars(self) | {"lowest": None, "phrases": None}  # arrays follow
        head = json.dumps(record, sort_keys=True).encode()
        phrases = b"" if self.phrases is None else self.phrases.tobytes()
        parts = (head, self.lowest.tobytes(), phrases)
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _add_phrases(phrases: Phrases, queries: Iterable[str]) -> Phrases:
    """Add the phrases of queries; the result is distinct and sorted."""
    # No word contains a space, and none is composed across one, so each piece is split once.
    pieces = (query[:MAX_CHARACTERS].split(" ") for query in queries)
    hashes = [list(itertools.chain.from_iterable(map(_hash_words, query))) for query in pieces]
    starts = np.cumsum([0, *map(len, hashes)])
    hashed = np.fromiter(itertools.chain.from_iterable(hashes), np.uint32)
    return sort_unique(np.concatenate([phrases, hash_ngrams(hashed, starts)]))


def merge_all(parts: Iterable[Counts]) -> Counts | None:
    """Merge counts as they come, each with one of about its size; None if there are none."""
    merged: list[Counts] = []
    for part in parts:
        merged.append(part)
        while len(merged) > 1 and merged[-2].total <= 2 * merged[-1].total:
            merged.append(merged.pop().merge(merged.pop()))
    return reduce(Counts.merge, reversed(merged)) if merged else None
