"""The two passes over files: what runs on an engine, and how its results come together."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, get_args

import numpy as np

from dtdr.data import parquet
from dtdr.data.calls import END
from dtdr.data.demonstration_files import convert_record, iter_records, read_tools, record_id
from dtdr.data.demonstrations import Demonstration, Outcome
from dtdr.data.engines import Engine, ProcessEngine
from dtdr.data.jsonl import BadRecords, leave_out, longest_line
from dtdr.data.tools import Tool
from dtdr.errors import InputError, nothing_to_learn
from dtdr.predict.counting.counts import Counts, Facts, Numbers, merge_all, number_of
from dtdr.predict.counting.file_parts import Part, find_parts, hash_part, open_part
from dtdr.predict.counting.kept import KeptCounts

logger = logging.getLogger("dtdr")

_COUNTED = ("id", "query", "calls.tool", "outcome")
"""Columns of Parquet that are counted."""
_NONE: Numbers = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Counted:
    """The first pass over a part.

    Attributes:
        counts: of its demonstrations.
        numbers: of their ids.
        bad: what was left out.
        is_whole: whether its file could be read to the end.
        kept_as: the name of its counts in the folder of those that are kept; empty: in none.
        is_old: whether they were there already.
        warning: why those that were there were not used.
    """

    counts: Counts
    numbers: Numbers
    bad: BadRecords
    is_whole: bool = True
    kept_as: str = ""
    is_old: bool = False
    warning: str = ""


@dataclass
class Sample:
    """What was drawn.

    Attributes:
        demonstrations: by the number of their ids, so that they do not depend on the files.
        counts: of everything.
        tools: of the ``tools.json`` in the folder of the data.
        parts: that were counted: files, or parts of large ones.
        parts_kept: of these, how many were counted by an earlier fit.
    """

    demonstrations: list[Demonstration]
    counts: Counts
    tools: tuple[Tool, ...] = ()
    parts: int = 0
    parts_kept: int = 0


def count_part(
    part: Part, empty: Counts, skip_bad: bool, kept: KeptCounts | None = None
) -> Counted:
    """The first pass over one part, or what an earlier one counted of the same bytes.

    Counts are kept of parts that can be used as a whole.

    Raises:
        InputError: something cannot be used, and bad records are not skipped.
        OutputError: the counts cannot be written.
    """
    name, warning, known = "", "", None
    if kept is not None:
        try:
            name = hash_part(part)
            known = kept.read(name, empty)
        except InputError as error:  # a part that cannot be read is reported or counted as bad
            warning = str(error) if name else ""
    if known is not None:
        return Counted(*known, BadRecords(is_strict=not skip_bad), kept_as=name, is_old=True)
    counted = replace(_count_part(part, empty, skip_bad), warning=warning)
    is_good = counted.is_whole and not counted.bad.count
    if kept is None or not name or not is_good or hash_part(part) != name:
        return counted
    kept.write(name, counted.counts, counted.numbers)
    return replace(counted, kept_as=name)


def _count_part(part: Part, empty: Counts, skip_bad: bool) -> Counted:
    """The first pass over one part.

    Of Parquet it reads what is counted alone: id, query, tools and outcome. What a demonstration
    cannot be by these is looked at as a whole, as every line of JSON is.
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
        return Counted(empty, _NONE, bad, is_whole=False)
    if any(odd):
        more, more_numbers = empty.count(map(Facts.of, _read_records(part, bad, odd)))
        counts, numbers = counts.merge(more), np.concatenate([numbers, more_numbers])
    return Counted(counts, numbers, bad)


def _read_facts(part: Part, odd: list[bool]) -> Iterator[Facts]:
    """What is counted of each row of a part of Parquet; ``odd`` takes which rows have none.

    Raises:
        InputError: naming the file, that it cannot be read.
    """
    shard = open_part(part)
    try:
        with shard.open() as stream:
            batches = parquet.iter_batches(
                stream,
                needed=parquet.NEEDED,
                known=_COUNTED,
                groups=part.groups,
                largest=longest_line(),
            )
            for batch in batches:
                rows = _facts_of(batch)
                odd += [row is None for row in rows]
                yield from filter(None, rows)
    except InputError as error:
        raise InputError(f"{shard.name}: {error}") from error


def _facts_of(batch: Any) -> list[Facts | None]:
    """What is counted of each row; None where only a closer look tells whether it can be used."""
    from pyarrow import compute, types

    rows: list[Facts | None] = [None] * len(batch)
    calls = batch.column("calls")
    if not types.is_list(calls.type) and not types.is_large_list(calls.type):
        return rows
    values = calls.flatten()
    place = values.type.get_field_index("tool") if types.is_struct(values.type) else -1
    if place < 0:
        return rows
    names = iter(_values(values.flatten()[place]))
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
    """The values of a column, those of a dictionary looked up."""
    return list((array.dictionary_decode() if hasattr(array, "indices") else array).to_pylist())


def _read_records(
    part: Part, bad: BadRecords, rows: Sequence[bool] | None = None
) -> Iterator[Demonstration]:
    """The demonstrations of a part, of those of its rows that are chosen."""
    records = iter_records(open_part(part), bad, part.groups, part.first_row)
    for position, (place, record) in enumerate(records):
        if rows is not None and (position >= len(rows) or not rows[position]):
            continue
        try:
            yield convert_record(record)
        except InputError as error:
            leave_out(f"{place}: {error}", bad)


class Collected(NamedTuple):
    """The second pass over a part: numbers and demonstrations of the sample, and what was bad."""

    demonstrations: list[tuple[int, Demonstration]]
    bad: BadRecords
    is_whole: bool = True


def collect_part(part: Part, chosen: Numbers, seed: int, skip_bad: bool) -> Collected:
    """The second pass over one part: its demonstrations of the sample.

    Raises:
        InputError: one of them cannot be used, and bad records are not skipped.
    """
    bad = BadRecords(is_strict=not skip_bad)
    try:
        records = list(_find_records(part, chosen, seed))
    except InputError as error:
        leave_out(str(error), bad)
        return Collected([], bad, is_whole=False)
    numbered: list[tuple[int, Demonstration]] = []
    for place, number, record in records:
        try:
            numbered.append((number, convert_record(record)))
        except InputError as error:
            leave_out(f"{place}: {error}", bad)
    return Collected(numbered, bad)


def _find_records(
    part: Part, chosen: Numbers, seed: int
) -> Iterator[tuple[str, int, bytes | dict[str, Any]]]:
    """Place, number and record of each demonstration of the sample.

    Raises:
        InputError: naming the file, that it cannot be read.
    """
    if part.groups is None:
        wanted = set(chosen.tolist())
        lenient = BadRecords()  # what is not a record was counted, or refused, by the first pass
        for place, record in iter_records(open_part(part), lenient):
            try:
                number = number_of(record_id(record), seed)
            except InputError:
                continue
            if number in wanted:
                yield place, number, record
        return
    shard = open_part(part)
    try:
        with shard.open() as stream:
            for position, number, row in _find_rows(stream, part, chosen, seed):
                yield f"{shard.name}, row {part.first_row + position}", number, row
    except InputError as error:
        raise InputError(f"{shard.name}: {error}") from error


def _find_rows(
    stream: IO[bytes], part: Part, chosen: Numbers, seed: int
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Position, number and row of each demonstration of the sample in a part of Parquet."""
    begin = 0
    for batch in parquet.iter_batches(
        stream,
        needed=parquet.NEEDED,
        known=parquet.COLUMNS,
        groups=part.groups,
        largest=longest_line(),
    ):
        numbers = [number_of(str(identifier), seed) for identifier in _values(batch.column("id"))]
        for row in np.flatnonzero(np.isin(np.array(numbers, np.uint64), chosen)).tolist():
            yield begin + row, numbers[row], batch.slice(row, 1).to_pylist()[0]
        begin += len(batch)


def draw_sample(
    paths: Sequence[str | Path],
    size: int,
    *,
    seed: int = 0,
    failures: bool = False,
    bad: BadRecords | None = None,
    engine: Engine | None = None,
    kept: KeptCounts | None = None,
) -> Sample:
    """Count all demonstrations of files, and draw a sample of them by the hash of their ids.

    What is drawn depends on ids, size and seed alone: not on how the demonstrations are cut into
    files, on their order, or on what reads them. Every tool keeps ``PER_TOOL`` of its
    demonstrations outside the sample, if there are this many.

    Args:
        paths: files of lines or Parquet, folders, patterns or URLs (``dtdr.data.shards``).
        size: how many.
        seed: another one draws others.
        failures: whether failed runs are learned from.
        bad: given, records and files that cannot be used are counted there and left out.
        engine: runs both passes; None: processes, one a core.
        kept: counts of earlier fits, by which only what has changed is counted; takes those of
            this one.

    Raises:
        InputError: something cannot be read or used, an id occurs twice, there is nothing to learn
            from, or the data changed between the passes.
        OutputError: counts or temporary files cannot be written.
    """
    engine = engine or ProcessEngine()
    parts = find_parts(paths)
    empty = Counts(size, seed, failures)
    skip_bad = bad is not None and not bad.is_strict
    whole: list[Part] = []
    names: set[str] = set()
    parts_kept = 0
    numbers: list[Numbers] = []

    def take() -> Iterator[Counts]:
        nonlocal parts_kept
        counted = engine.map(count_part, parts, empty, skip_bad, kept, label="Counting")
        for part, one in zip(parts, counted, strict=True):
            numbers.append(one.numbers)
            names.add(one.kept_as)
            parts_kept += one.is_old
            if one.warning:
                logger.warning("%s", one.warning)
            if bad is not None:
                bad.update(one.bad)
            if one.is_whole:
                whole.append(part)
            yield one.counts

    counts = merge_all(take()) or empty
    if kept is not None:
        kept.prune(names)
    ids = np.concatenate([*numbers, _NONE])
    numbers.clear()
    ids.sort()  # in place: there may be many
    if repeats := int(np.count_nonzero(ids[1:] == ids[:-1])):
        raise InputError(
            f"{repeats:,} ids appear more than once in the data; every demonstration needs an id "
            "of its own"
        )
    del ids
    if counts.total == counts.skipped:
        raise nothing_to_learn(counts.skipped)
    chosen = counts.choose()
    numbered: list[tuple[int, Demonstration]] = []
    left_out, is_whole = 0, True
    for one in engine.map(collect_part, whole, chosen, seed, skip_bad, label="Sampling"):
        numbered += one.demonstrations
        left_out += one.bad.count
        is_whole &= one.is_whole
        if bad is not None:
            bad.update(one.bad)
    if is_whole and len(numbered) + left_out != len(chosen):
        raise InputError(
            "the data changed while they were read: not all that was counted is still there; try "
            "again when nobody writes them"
        )
    numbered.sort(key=lambda pair: pair[0])
    demonstrations = [item for _, item in numbered]
    folder = Path(paths[0]) if Path(paths[0]).is_dir() else Path(paths[0]).parent
    tools = folder / "tools.json"
    described = read_tools(tools) if tools.is_file() else ()
    return Sample(demonstrations, counts, described, len(parts), parts_kept)
