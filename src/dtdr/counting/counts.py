"""What is counted of demonstrations: a state that merges in any order to the same bytes."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.retrievers.factored.familiarity import phrase_hashes
from dtdr.retrievers.training import TrainingData, fingerprint

Numbers = npt.NDArray[np.uint64]

PER_TOOL = 20
"""Demonstrations of each tool that a sample holds at least, where there are so many. The networks
of dtdr-f tell tools with fewer from others mostly by their descriptions."""

_MODULUS = 2**256
_AT_ONCE = 20_000
"""Demonstrations after which phrases are made unique, so that memory stays small."""


def number_of(identifier: str, seed: int) -> int:
    """The place of an id in a random order that depends on the seed alone, in 64 bits."""
    content = identifier.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, salt=seed.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


@dataclass
class Counts:
    """What was counted of some demonstrations.

    Attributes:
        size: of the sample that is to be drawn.
        seed: of the order in which it is drawn.
        failures: whether failed runs are learned from.
        total: demonstrations.
        skipped: failures that are not learned from.
        empty: plans that call no tool.
        digest: the sum of the hashes of all that are learned from, modulo 2^256.
        tools: how many plans call each tool.
        numbers: shape (total,), rising: the number of each id.
        rare: the lowest numbers of the plans that call each tool, ``PER_TOOL`` at most, rising.
        phrases: shape (n,), rising: hashes of the runs of words in queries.
    """

    size: int
    seed: int = 0
    failures: bool = False
    total: int = 0
    skipped: int = 0
    empty: int = 0
    digest: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=lambda: np.empty(0, np.uint64))
    rare: dict[str, list[int]] = field(default_factory=dict)
    phrases: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))

    def count(self, demonstrations: Iterable[Demonstration]) -> Counts:
        """Count further demonstrations; returns this object."""
        numbers: list[int] = []
        phrases: list[npt.NDArray[np.uint32]] = []
        heaps = {tool: [-number for number in lowest] for tool, lowest in self.rare.items()}
        for heap in heaps.values():
            heapq.heapify(heap)
        for item in demonstrations:
            self.total += 1
            number = number_of(item.id, self.seed)
            numbers.append(number)
            if item.outcome == "failure" and not self.failures:
                self.skipped += 1
                continue
            names = set(item.plan.tools)
            self.empty += not names
            content = hashlib.sha256(fingerprint(item)).digest()
            self.digest = (self.digest + int.from_bytes(content, "little")) % _MODULUS
            for name in names:
                self.tools[name] = self.tools.get(name, 0) + 1
                heap = heaps.setdefault(name, [])
                if len(heap) < PER_TOOL:
                    heapq.heappush(heap, -number)
                elif number < -heap[0]:
                    heapq.heapreplace(heap, -number)
            phrases.append(phrase_hashes(item.query))
            if len(phrases) == _AT_ONCE:
                phrases = [np.unique(np.concatenate(phrases))]
        self.rare = {tool: sorted(-number for number in heap) for tool, heap in heaps.items()}
        self.numbers = np.sort(np.concatenate([self.numbers, np.array(numbers, np.uint64)]))
        self.phrases = np.unique(np.concatenate([self.phrases, *phrases]))
        return self

    def merge(self, other: Counts) -> Counts:
        """What was counted of both; any order of merging gives the same."""
        rare = {
            tool: sorted([*self.rare.get(tool, ()), *other.rare.get(tool, ())])[:PER_TOOL]
            for tool in self.rare.keys() | other.rare.keys()
        }
        return Counts(
            self.size,
            self.seed,
            self.failures,
            self.total + other.total,
            self.skipped + other.skipped,
            self.empty + other.empty,
            (self.digest + other.digest) % _MODULUS,
            {
                tool: self.tools.get(tool, 0) + other.tools.get(tool, 0)
                for tool in self.tools.keys() | other.tools.keys()
            },
            np.sort(np.concatenate([self.numbers, other.numbers])),
            rare,
            np.union1d(self.phrases, other.phrases),
        )

    def chosen(self) -> Numbers:
        """Numbers of the sample, rising: the lowest of all, and the lowest of each rare tool.

        A sample of another size holds this one or is held by it.

        Raises:
            InputError: two demonstrations have one id.
        """
        twice = int((self.numbers[1:] == self.numbers[:-1]).sum())
        if twice:
            raise InputError(
                f"{twice:,} ids stand more than once in the data; every demonstration needs an id "
                "of its own"
            )
        extra = [number for lowest in self.rare.values() for number in lowest]
        return np.union1d(self.numbers[: self.size], np.array(extra, np.uint64))

    def training(self, sampled: int) -> TrainingData:
        """What a model says that it learned from, where so many were sampled."""
        return TrainingData(
            self.total - self.skipped,
            self.skipped,
            self.digest.to_bytes(32, "little").hex(),
            self.empty,
            sampled,
        )

    def to_bytes(self) -> bytes:
        """The state; equal ones have equal bytes."""
        record = {
            "size": self.size,
            "seed": self.seed,
            "failures": self.failures,
            "total": self.total,
            "skipped": self.skipped,
            "empty": self.empty,
            "digest": f"{self.digest:064x}",
            "tools": self.tools,
            "rare": self.rare,
        }
        head = json.dumps(record, sort_keys=True).encode()
        parts = (head, self.numbers.tobytes(), self.phrases.tobytes())
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)
