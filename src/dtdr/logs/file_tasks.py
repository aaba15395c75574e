"""Imports logs with one task per file, which may run on another machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dtdr.data import parquet
from dtdr.data.demonstration_files import SeenIds
from dtdr.data.demonstrations import Demonstration
from dtdr.data.files import replace_file
from dtdr.data.jsonl import BadRecords
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.logs.importer import SAMPLES, Importer, MixedImporter, check_kept, own_ids
from dtdr.logs.log_format import LogFormat
from dtdr.logs.redaction import Redactor
from dtdr.logs.sources import is_pipe
from dtdr.logs.streams import LogReader
from dtdr.logs.turns import CutOptions


class ImportedFile(NamedTuple):
    """The demonstrations of a file, repeated ones too, and the counts of its import.

    Attributes:
        tables: of Arrow, one row per demonstration.
        ids: ``own_ids`` of each.
        groups: number of demonstrations of each conversation.
        kept: counts if no other file has one of these ids.
        samples: the same.
        tallies: ``Importer.tallies``.
        tools: definitions in the file, before redaction.
        records: that were read, with their bytes.
        bad: that were left out.
    """

    tables: list[Any]
    ids: list[tuple[str, str]]
    groups: list[int]
    kept: Counter[str]
    samples: list[dict[str, Any]]
    tallies: dict[str, Counter[str]]
    tools: dict[str, Tool]
    records: tuple[int, int]
    bad: BadRecords


def import_file(
    path: Path,
    fmt: type[LogFormat],
    options: CutOptions,
    redactor: Redactor | None,
    skip_bad: bool,
) -> ImportedFile:
    """Import one file; the task of a ``FileImporter``.

    Raises:
        InputError: the file cannot be read, or a record cannot be used and none is skipped.
    """
    bad = BadRecords(is_strict=not skip_bad)
    scrubs = None if redactor is None else Redactor(redactor.rules)  # tasks may share the argument
    importer = Importer(fmt, [path], options, redactor=scrubs, bad=bad)
    ids: list[tuple[str, str]] = []
    groups: list[int] = []

    def read() -> Iterator[Demonstration]:
        for group in importer.groups():
            groups.append(len(group))
            for demonstration in group:
                ids.append(own_ids(demonstration))
                importer.count(demonstration)
                yield demonstration

    return ImportedFile(
        list(parquet.iter_tables(read())),
        ids,
        groups,
        importer.kept,
        importer.samples,
        importer.tallies(),
        importer.format.tools.by_name,
        (importer.reader.records, importer.read_bytes),
        bad,
    )


class FileImporter(Importer):
    """An importer that reads each file in a task, and makes ids unique here.

    The demonstrations, tools and counts are those of an ``Importer`` of the same files.

    Args:
        run_tasks: yields a function's results for items in order, given further arguments.

    Raises:
        InputError: the format cannot be read file by file, or a path is a pipe.
    """

    def __init__(
        self,
        fmt: type[LogFormat],
        paths: Sequence[Path] | LogReader,
        options: CutOptions | None = None,
        *,
        redactor: Redactor | None = None,
        bad: BadRecords | None = None,
        run_tasks: Callable[..., Iterator[ImportedFile]],
    ) -> None:
        super().__init__(fmt, paths, options, redactor=redactor, bad=bad)
        self._run_tasks = run_tasks
        if fmt.spans_files:
            raise InputError(
                f"{fmt.name} cannot be imported with --engine, since {fmt.spans_files}; leave out "
                "--engine"
            )
        for path in filter(is_pipe, self.paths):
            raise InputError(f"workers of --engine cannot read the pipe {path}; name files")

    def tables(self, seen: SeenIds) -> Iterator[Any]:
        """Tables of Arrow with every demonstration in the logs, in the order of the files.

        Args:
            seen: ids that other importers yielded.

        Raises:
            InputError: a file cannot be read, or a record cannot be used and none is skipped.
        """
        skip_bad = self.bad is not None and not self.bad.is_strict
        options, redactor = self.cutter.options, self.redactor
        arguments = (type(self.format), options, redactor, skip_bad)
        for result in self._run_tasks(import_file, self.paths, *arguments):
            self._add_counts(result)
            are_new = [seen.add(name) for names in result.ids for name in names]
            if all(are_new):
                self.kept.update(result.kept)
                self.samples = [*self.samples, *result.samples][:SAMPLES]
                yield from result.tables
            else:
                yield from parquet.iter_tables(self._left_new(result, iter(are_new)))

    def _add_counts(self, result: ImportedFile) -> None:
        for name, tally in self.tallies().items():
            tally.update(result.tallies[name])
        for name, tool in result.tools.items():
            self.format.tools.by_name.setdefault(name, tool)
        self.reader.records += result.records[0]
        self.reader.read_bytes += result.records[1]
        if self.bad is not None:
            self.bad.update(result.bad)

    def _left_new(self, result: ImportedFile, are_new: Iterator[bool]) -> Iterator[Demonstration]:
        """The new demonstrations of a file, given which of its ids are new."""
        rows = (row for table in result.tables for row in table.to_pylist())
        for size in result.groups:
            group = [parquet.parse_row(next(rows)) for _ in range(size)]
            for demonstration in self.leave_new(group, lambda _: next(are_new)):
                self.count(demonstration)
                yield demonstration


def import_file_by_file(
    importer: Importer | MixedImporter, output: Path, *, force: bool = False
) -> None:
    """Write the demonstrations of a ``FileImporter``, or of several, as one Parquet file.

    Raises:
        InputError: the name does not end in ``.parquet``, a record cannot be used, or nothing could
            be kept.
        OutputError: a file exists and ``force`` is False, or cannot be written.
    """
    if output.suffix != parquet.SUFFIX:
        raise InputError(f"--engine writes Parquet; let the name {output} end in {parquet.SUFFIX}")
    importers = importer.importers if isinstance(importer, MixedImporter) else [importer]
    seen = SeenIds()

    def tables() -> Iterator[Any]:
        for each in importers:
            if isinstance(each, FileImporter):
                yield from each.tables(seen)
        check_kept(importer)

    with replace_file(output, force=force, private=True) as stream:
        parquet.write_tables(stream.buffer, tables())
    seen.close()
