"""The two passes over files: what runs in worker processes, and how its results come together."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dtdr import parquet
from dtdr.counting.counts import Counts, Numbers, number_of
from dtdr.demonstrations import Demonstration, Tool
from dtdr.errors import DtdrError, InputError
from dtdr.jsonl import BadRecords, convert_record, iter_records, leave_out, read_tools
from dtdr.progress import progress_bar
from dtdr.shards import Shard, find_shards

_PART_ROWS = 100_000
"""Rows of a Parquet file that are one part; a file of lines is one, however long."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Part:
    """What one worker reads at a time.

    Attributes:
        path: as a user named it.
        shard: its place among the files that the path means.
        groups: row groups of Parquet; None: the whole file.
        first_row: number of its first row.
    """

    path: str
    shard: int
    groups: tuple[int, ...] | None = None
    first_row: int = 1


@dataclass
class Sample:
    """What was drawn.

    Attributes:
        demonstrations: by the number of their ids, so that they do not depend on the files.
        counts: of everything.
        tools: of the ``tools.json`` beside the data.
    """

    demonstrations: list[Demonstration]
    counts: Counts
    tools: tuple[Tool, ...] = ()


def rows_of(shard: Shard) -> int:
    """How many demonstrations a file holds at most, without reading them.

    Raises:
        InputError: it cannot be read.
    """
    if shard.name.endswith(parquet.SUFFIX):
        return sum(_groups(shard))
    rows, last = 0, b"\n"
    with shard.open() as stream:
        while block := stream.read(1 << 20):
            rows += block.count(b"\n")
            last = block[-1:]
    return rows + (last != b"\n")


def _groups(shard: Shard) -> list[int]:
    try:
        with shard.open() as stream:
            return parquet.row_groups(stream)
    except InputError as error:
        raise InputError(f"{shard.name}: {error}") from error


def find_parts(paths: Sequence[str | Path]) -> list[Part]:
    """The parts of files, folders, patterns and URLs.

    Raises:
        InputError: there is none, or one cannot be read.
    """
    parts: list[Part] = []
    for path in paths:
        for place, shard in enumerate(find_shards(path)):
            if not shard.name.endswith(parquet.SUFFIX):
                parts.append(Part(str(path), place))
                continue
            try:
                sizes = _groups(shard)
            except InputError:
                sizes = []  # whoever reads the part counts it as bad, or says why
            first, chosen = 1, list[int]()
            rows = 0
            for group, size in enumerate(sizes):
                chosen.append(group)
                rows += size
                if rows >= _PART_ROWS or group == len(sizes) - 1:
                    parts.append(Part(str(path), place, tuple(chosen), first))
                    first, rows, chosen = first + rows, 0, []
            if not sizes:
                parts.append(Part(str(path), place))
    return parts


def _open(part: Part) -> Shard:
    shards = find_shards(part.path)
    if part.shard >= len(shards):
        raise InputError(f"{part.path} has lost files since it was counted; leave it as it is")
    return shards[part.shard]


def count_part(part: Part, empty: Counts, skip_bad: bool) -> tuple[Counts, BadRecords]:
    """The first pass over one part."""
    bad = BadRecords(is_strict=not skip_bad)

    def read() -> Iterator[Demonstration]:
        for place, record in iter_records(_open(part), bad, part.groups, part.first_row):
            try:
                yield convert_record(record)
            except (InputError, RecursionError) as error:
                deep = isinstance(error, RecursionError)
                leave_out(f"{place}: {'nested too deeply' if deep else error}", bad)

    return Counts(empty.size, empty.seed, empty.failures).count(read()), bad


def collect_part(part: Part, chosen: Numbers, seed: int) -> list[tuple[int, Demonstration]]:
    """The second pass over one part: its demonstrations of the sample, by their numbers."""
    wanted = set(chosen.tolist())
    bad = BadRecords()  # what cannot be used was counted, or refused, by the first pass
    found: list[tuple[int, Demonstration]] = []
    for _, record in iter_records(_open(part), bad, part.groups, part.first_row):
        value = record[1]
        identifier = value.get("id") if isinstance(value, dict) else None
        number = number_of(str(identifier), seed)
        if number in wanted:
            try:
                found.append((number, convert_record(record)))
            except (InputError, RecursionError):
                continue
    return found


def run_parts(
    function: Callable[..., Result],
    parts: Sequence[Part],
    *arguments: Any,
    workers: int,
    label: str,
) -> Iterator[Result]:
    """What the function returns for each part, in their order.

    Raises:
        DtdrError: what the function raised, or that a worker was killed.
    """
    with progress_bar(label, len(parts)) as advance:
        if workers == 1 or len(parts) == 1:
            for part in parts:
                yield function(part, *arguments)
                advance()
            return
        # Not forked: threads of linear algebra and of storage drivers do not survive that.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(parts)), context) as pool:
            jobs = [pool.submit(function, part, *arguments) for part in parts]
            try:
                for place, job in enumerate(jobs):
                    yield job.result()
                    jobs[place] = None  # type: ignore[call-overload]  # its result may go
                    advance()
            except BrokenProcessPool as error:
                raise DtdrError(
                    "a worker process was killed, most likely for want of memory; give fewer "
                    "--workers"
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def draw_sample(
    paths: Sequence[str | Path],
    size: int,
    *,
    seed: int = 0,
    failures: bool = False,
    bad: BadRecords | None = None,
    workers: int | None = None,
) -> Sample:
    """Count all demonstrations of files, and draw a sample of them by the hash of their ids.

    What is drawn depends on ids, size and seed alone: not on how the demonstrations are cut into
    files, on their order, or on how many processes read them. Every tool keeps ``PER_TOOL`` of its
    demonstrations beside the sample, as far as it has so many.

    Args:
        paths: files of lines or Parquet, folders, patterns or URLs (``dtdr.shards``).
        size: how many.
        seed: another one draws others.
        failures: whether failed runs are learned from.
        bad: given, records and files that cannot be used are counted there and left out.
        workers: processes; None: one a core.

    Raises:
        InputError: something cannot be read or used, an id stands twice, there is nothing to learn
            from, or the data changed between the passes.
    """
    workers = workers or os.cpu_count() or 1
    parts = find_parts(paths)
    counts = Counts(size, seed, failures)
    skip_bad = bad is not None and not bad.is_strict
    options = {"workers": workers}
    counted = run_parts(count_part, parts, counts, skip_bad, **options, label="Counting")
    for one, its_bad in counted:
        counts = counts.merge(one)
        if bad is not None:
            bad.update(its_bad)
    if counts.total == counts.skipped:
        raise InputError(
            "there are no demonstrations to learn from"
            + (f" (all {counts.skipped} are failures)" if counts.skipped else "")
            + "; give at least one"
        )
    chosen = counts.chosen()
    found: list[tuple[int, Demonstration]] = []
    for some in run_parts(collect_part, parts, chosen, seed, **options, label="Sampling"):
        found += some
    found.sort(key=lambda pair: pair[0])
    if not np.array_equal(np.array([number for number, _ in found], np.uint64), chosen):
        raise InputError(
            "the data changed while they were read: not all that was counted is still there; try "
            "again when nobody writes them"
        )
    beside = Path(paths[0]) if Path(paths[0]).is_dir() else Path(paths[0]).parent
    tools = beside / "tools.json"
    return Sample([item for _, item in found], counts, read_tools(tools) if tools.is_file() else ())
