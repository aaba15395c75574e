"""What is counted of demonstrations: a state that merges in any order to the same bytes."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.dtdr_f.familiarity import hash_runs
from dtdr.rankers.dtdr_f.text import hash_word
from dtdr.rankers.training import TrainingData
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.encoders.lexical import words

Numbers = npt.NDArray[np.uint64]
Phrases = npt.NDArray[np.uint32]

PER_TOOL = 20
"""Least demonstrations of each tool in a sample, if there are this many. The networks
of dtdr-f tell tools with fewer from others mostly by their descriptions."""

MOST_PHRASES = 1 << 27
"""Distinct phrases that are kept: half a gigabyte, among which an unknown one is taken for known
once in 32 times. Where there are more, only those of the sample are."""

_AT_ONCE = 20_000
"""Demonstrations after which phrases are made unique, so that memory stays small."""

_ARRAYS = ("lowest", "phrases")
"""Attributes of counts that are not JSON."""


@lru_cache(maxsize=1 << 16)
def _hash_words(piece: str) -> tuple[int, ...]:
    return tuple(map(hash_word, words(piece)))


def sort_unique(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct values, sorted; shape (n,). ``np.unique`` hashes integers: ten times as long."""
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]]


def number_of(identifier: str, seed: int) -> int:
    """The place of an id in a random order that depends on the seed alone, in 64 bits."""
    content = identifier.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, salt=seed.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


class Facts(NamedTuple):
    """All that is counted of a demonstration."""

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
    """What was counted of some demonstrations: all that a model takes from those not sampled.

    Attributes:
        size: of the sample that is to be drawn.
        seed: of the order in which it is drawn.
        failures: whether failed runs are learned from.
        total: demonstrations.
        skipped: failures that are not learned from.
        empty: plans that call no tool.
        tools: how many plans call each tool.
        lowest: shape (at most size,), sorted: the lowest numbers of ids.
        rare: the lowest numbers of the plans that call each tool, ``PER_TOOL`` at most, sorted.
        phrases: shape (n,), sorted: hashes of the runs of words in queries; None: there are more
            than ``MOST_PHRASES``.
    """

    size: int
    seed: int = 0
    failures: bool = False
    total: int = 0
    skipped: int = 0
    empty: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    lowest: Numbers = field(default_factory=lambda: np.empty(0, np.uint64))
    rare: dict[str, list[int]] = field(default_factory=dict)
    phrases: Phrases | None = field(default_factory=lambda: np.empty(0, np.uint32))

    def count(self, facts: Iterable[Facts]) -> tuple[Counts, Numbers]:
        """Counts of other demonstrations, in the same way, and the number of each id, in order."""
        numbers: list[int] = []
        phrases = np.empty(0, np.uint32)
        queries: list[str] = []
        tools: Counter[str] = Counter()
        heaps: dict[str, list[int]] = {}
        skipped = empty = 0
        for item in facts:
            number = number_of(item.id, self.seed)
            numbers.append(number)
            if item.outcome == "failure" and not self.failures:
                skipped += 1
                continue
            names = set(item.tools)
            empty += not names
            tools.update(names)
            for name in names:
                heap = heaps.setdefault(name, [])
                if len(heap) < PER_TOOL:
                    heapq.heappush(heap, -number)
                elif number < -heap[0]:
                    heapq.heapreplace(heap, -number)
            queries.append(item.query)
            if len(queries) == _AT_ONCE:
                phrases, queries = _add_phrases(phrases, queries), []
        every = np.array(numbers, np.uint64)
        counts = replace(
            self,
            total=len(numbers),
            skipped=skipped,
            empty=empty,
            tools=dict(tools),
            lowest=np.sort(every)[: self.size],
            rare={tool: sorted(-number for number in heap) for tool, heap in heaps.items()},
            phrases=_add_phrases(phrases, queries),
        )
        return counts, every

    def merge(self, other: Counts) -> Counts:
        """What was counted of both; any order of merging gives the same."""
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
            skipped=self.skipped + other.skipped,
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
        extra = [number for lowest in self.rare.values() for number in lowest]
        return sort_unique(np.concatenate([self.lowest, np.array(extra, np.uint64)]))

    def describe_training(self, learned: TrainingData) -> TrainingData:
        """What a model says that it learned from.

        Args:
            learned: the record of the sample, from which its networks learned.
        """
        return replace(
            learned,
            demonstrations=self.total - self.skipped,
            skipped_failures=self.skipped,
            sha256=hashlib.sha256(self.to_bytes() + learned.sha256.encode()).hexdigest(),
            empty_plans=self.empty,
            sampled=learned.demonstrations,
        )

    def to_bytes(self) -> bytes:
        """The state; equal ones have equal bytes."""
        record = {name: value for name, value in vars(self).items() if name not in _ARRAYS}
        head = json.dumps(record, sort_keys=True).encode()
        phrases = b"" if self.phrases is None else self.phrases.tobytes()
        parts = (head, self.lowest.tobytes(), phrases)
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _add_phrases(phrases: Phrases, queries: Iterable[str]) -> Phrases:
    """The distinct phrases and those of queries, sorted."""
    # No word contains a space, and none is composed across one, so each piece is split once.
    pieces = (query[:MAX_CHARACTERS].split(" ") for query in queries)
    hashes = [list(itertools.chain.from_iterable(map(_hash_words, query))) for query in pieces]
    starts = np.cumsum([0, *map(len, hashes)])
    every = np.fromiter(itertools.chain.from_iterable(hashes), np.uint32)
    return sort_unique(np.concatenate([phrases, hash_runs(every, starts)]))


def merge_all(parts: Iterable[Counts]) -> Counts | None:
    """All counts as one, merged as they come, each with one of about its size; None of none."""
    merged: list[Counts] = []
    for part in parts:
        merged.append(part)
        while len(merged) > 1 and merged[-2].total <= 2 * merged[-1].total:
            merged.append(merged.pop().merge(merged.pop()))
    while len(merged) > 1:
        merged.append(merged.pop().merge(merged.pop()))
    return merged[0] if merged else None
