"""Two passes over files: the first counts demonstrations, the second collects a sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from dtdr.data import parquet
from dtdr.data.calls import END
from dtdr.data.demonstration_files import convert_record, iter_records, read_tools, record_id
from dtdr.data.demonstrations import Demonstration, Outcome
from dtdr.data.jsonl import BadRecords, leave_out
from dtdr.data.shards import find_beside, open_shard
from dtdr.data.tools import Tool
from dtdr.errors import InputError, nothing_to_learn
from dtdr.predict.counting.counts import Counts, Facts, Numbers, merge_all, number_of
from dtdr.predict.counting.engine import connect, run_tasks
from dtdr.predict.counting.file_parts import FilePart, find_parts

_COUNTED = ("id", "query", "calls.tool", "outcome")
"""Columns of Parquet that the first pass reads."""
_NONE: Numbers = np.empty(0, np.uint64)


class Counted(NamedTuple):
    """The first pass over a part: counts, numbers of its ids (none if unreadable), bad records."""

    counts: Counts
    numbers: Numbers
    bad: BadRecords


@dataclass
class Sample:
    """A sample of the demonstrations of files.

    Attributes:
        demonstrations: sorted by the numbers of their ids, so that the files do not matter.
        counts: of all demonstrations.
        tools: of the ``tools.json`` in the folder of the data.
    """

    demonstrations: list[Demonstration]
    counts: Counts
    tools: tuple[Tool, ...] = ()


def count_part(part: FilePart, empty: Counts, skip_bad: bool) -> Counted:
    """The first pass over one part.

    It reads four columns of Parquet: id, query, tools and outcome. A row that these leave open is
    converted as a whole, like every line of JSON.

    Raises:
        InputError: something cannot be used, and bad records are not skipped.
    """
    bad = BadRecords(is_strict=not skip_bad)
    if part.groups is None:
        counts, numbers = empty.count(map(Facts.of, _read_records(part, bad)))
        return Counted(counts, numbers, bad)
    odd: list[bool] = []
    try:
        counts, numbers = empty.count(_read_facts(part, odd))
    except InputError as error:
        leave_out(str(error), bad)
        return Counted(empty, _NONE, bad)
    if any(odd):
        more, more_numbers = empty.count(map(Facts.of, _read_records(part, bad, odd)))
        counts, numbers = counts.merge(more), np.concatenate([numbers, more_numbers])
    return Counted(counts, numbers, bad)


def _iter_batches(part: FilePart, columns: Sequence[str]) -> Iterator[Any]:
    """Batches of a part of a Parquet file, with some columns.

    Raises:
        InputError: the file cannot be read; the message names it.
    """
    shard = open_shard(part.path)
    try:
        with shard.open() as stream:
            yield from parquet.iter_batches(
                stream, needed=parquet.NEEDED, known=columns, groups=part.groups
            )
    except InputError as error:
        raise InputError(f"{shard.name}: {error}") from error


def _read_facts(part: FilePart, odd: list[bool]) -> Iterator[Facts]:
    """The facts of each row of a part of Parquet; ``odd`` receives which rows have none."""
    for batch in _iter_batches(part, _COUNTED):
        rows = _facts_of(batch)
        odd += [row is None for row in rows]
        yield from filter(None, rows)


def _facts_of(batch: Any) -> list[Facts | None]:
    """The facts of each row; None where four columns do not decide whether it can be used."""
    from pyarrow import compute, types

    rows: list[Facts | None] = [None] * len(batch)
    calls = batch.column("calls")
    if not types.is_list(calls.type) and not types.is_large_list(calls.type):
        return rows
    values = calls.flatten()
    field_index = values.type.get_field_index("tool") if types.is_struct(values.type) else -1
    if field_index < 0:
        return rows
    names = iter(_values(values.flatten()[field_index]))
    has_outcome = "outcome" in batch.schema.names
    outcomes = _values(batch.column("outcome")) if has_outcome else [None] * len(batch)
    sizes = compute.list_value_length(calls).to_pylist()
    columns = (_values(batch.column("id")), _values(batch.column("query")), outcomes, sizes)
    for row, (identifier, query, outcome, size) in enumerate(zip(*columns, strict=True)):
        tools = list(islice(names, size or 0))
        is_text = all(isinstance(text, str) and text for text in (identifier, query, *tools))
        if is_text and query.strip() and size is not None and END not in tools:
            outcome = "success" if outcome is None else outcome
            if outcome in get_args(Outcome):
                rows[row] = Facts(identifier, query, tools, outcome)
    return rows


def _values(array: Any) -> list[Any]:
    """The values of a column, dictionaries decoded."""
    return list((array.dictionary_decode() if hasattr(array, "indices") else array).to_pylist())


def _read_records(
    part: FilePart, bad: BadRecords, rows: Sequence[bool] | None = None
) -> Iterator[Demonstration]:
    """The demonstrations of a part, or of the rows that are marked True."""
    records = iter_records(open_shard(part.path), bad, part.groups, part.first_row)
    for position, (origin, record) in enumerate(records):
        if rows is not None and (position >= len(rows) or not rows[position]):
            continue
        try:
            yield convert_record(record)
        except InputError as error:
            leave_out(f"{origin}: {error}", bad)


class Collected(NamedTuple):
    """The second pass over a part: numbered demonstrations of the sample, and bad records."""

    demonstrations: list[tuple[int, Demonstration]]
    bad: BadRecords
    is_whole: bool = True


def collect_part(part: FilePart, wanted: Numbers, seed: int, skip_bad: bool) -> Collected:
    """The second pass over one part: its demonstrations of the sample.

    Raises:
        InputError: one of them cannot be used, and bad records are not skipped.
    """
    bad = BadRecords(is_strict=not skip_bad)
    try:
        records = list(_find_records(part, wanted, seed))
    except InputError as error:
        leave_out(str(error), bad)
        return Collected([], bad, is_whole=False)
    numbered: list[tuple[int, Demonstration]] = []
    for origin, id_number, record in records:
        try:
            numbered.append((id_number, convert_record(record)))
        except InputError as error:
            leave_out(f"{origin}: {error}", bad)
    return Collected(numbered, bad)


def _find_records(
    part: FilePart, sample: Numbers, seed: int
) -> Iterator[tuple[str, int, bytes | dict[str, Any]]]:
    """Place, number and record of each demonstration of the sample."""
    if part.groups is None:
        wanted = set(sample.tolist())
        lenient = BadRecords()  # the first pass counted or refused what is not a record
        for origin, record in iter_records(open_shard(part.path), lenient):
            try:
                id_number = number_of(record_id(record), seed)
            except InputError:
                continue
            if id_number in wanted:
                yield origin, id_number, record
        return
    name, row = open_shard(part.path).name, part.first_row
    for batch in _iter_batches(part, parquet.COLUMNS):
        numbers = [number_of(str(identifier), seed) for identifier in _values(batch.column("id"))]
        for at in np.flatnonzero(np.isin(np.array(numbers, np.uint64), sample)).tolist():
            yield f"{name}, row {row + at}", numbers[at], batch.slice(at, 1).to_pylist()[0]
        row += len(batch)


def draw_sample(
    paths: Sequence[str | Path],
    size: int,
    *,
    seed: int = 0,
    bad: BadRecords | None = None,
    workers: int | None = None,
    failures: bool = True,
    engine: str | None = None,
) -> Sample:
    """Count all demonstrations of files, and draw a sample of them by the hash of their ids.

    The sample depends on ids, size and seed alone, not on files, their order or the workers. It has
    at least ``PER_TOOL`` demonstrations of each tool, if there are this many.

    Args:
        paths: files of lines or Parquet, folders, patterns or URLs (``dtdr.data.shards``).
        size: of the sample.
        seed: of the sample.
        bad: counts records and files that cannot be used, which are left out; None: an error.
        workers: number of processes for both passes; None: one per core.
        failures: whether runs that failed are learned from.
        engine: address of a cluster that reads the files, see ``counting.engine.connect``; its
            workers open the paths as they are named here.

    Raises:
        InputError: something cannot be read or used, an id occurs twice, there is nothing to learn
            from, or the data changed between the passes.
    """
    cluster = None if engine is None else connect(engine)
    try:
        how = {"workers": workers, "engine": cluster}
        numbered, counts = _two_passes(find_parts(paths), Counts(size, seed, failures), bad, how)
    finally:
        if cluster is not None:
            cluster.close()
    numbered.sort(key=lambda pair: pair[0])
    demonstrations = [item for _, item in numbered]
    listing = find_beside(paths[0], "tools.json")
    return Sample(demonstrations, counts, () if listing is None else read_tools(listing))


def _two_passes(
    parts: Sequence[FilePart], empty: Counts, bad: BadRecords | None, how: Mapping[str, Any]
) -> tuple[list[tuple[int, Demonstration]], Counts]:
    """The numbered demonstrations of the sample, in any order, and the counts of all."""
    skip_bad = bad is not None and not bad.is_strict
    readable: list[FilePart] = []
    numbers: list[Numbers] = []

    def take_counts() -> Iterator[Counts]:
        counted = run_tasks(count_part, parts, empty, skip_bad, label="Counting", **how)
        for part, result in zip(parts, counted, strict=True):
            numbers.append(result.numbers)
            if bad is not None:
                bad.update(result.bad)
            if len(result.numbers):
                readable.append(part)
            yield result.counts

    counts = merge_all(take_counts()) or empty
    ids = np.concatenate([*numbers, _NONE])
    numbers.clear()
    ids.sort()  # in place: there may be many
    if repeats := int(np.count_nonzero(ids[1:] == ids[:-1])):
        raise InputError(
            f"{repeats:,} ids appear more than once in the data; every demonstration needs its own "
            "id"
        )
    del ids
    if counts.total == counts.skipped:
        raise nothing_to_learn(counts.skipped)
    sampled = counts.choose()
    numbered: list[tuple[int, Demonstration]] = []
    left_out, is_whole = 0, True
    collected = run_tasks(
        collect_part, readable, sampled, empty.seed, skip_bad, label="Sampling", **how
    )
    for result in collected:
        numbered += result.demonstrations
        left_out += result.bad.count
        is_whole &= result.is_whole
        if bad is not None:
            bad.update(result.bad)
    if is_whole and len(numbered) + left_out != len(sampled):
        raise InputError(
            "the data changed while they were read: some demonstrations that were counted are "
            "gone; try again when no program writes them"
        )
    return numbered, counts
