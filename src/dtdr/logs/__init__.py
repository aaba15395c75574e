"""An agent's logs, in the formats that people have, as demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dtdr.conversation.injected import INJECTED_TAGS
from dtdr.data import json_codec
from dtdr.data.demonstration_files import DemonstrationFile, convert_records, read_shards
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.shards import is_sharded
from dtdr.errors import InputError
from dtdr.logs.file_tasks import FileImporter, import_file_by_file
from dtdr.logs.formats import (
    ALIASES,
    FORMATS,
    detect_format,
    find_format,
    group_files,
    known_names,
    needs_grouping,
    recognize,
)
from dtdr.logs.importer import Importer, MixedImporter, import_logs
from dtdr.logs.log_format import Canonical
from dtdr.logs.own_rules import read_rules
from dtdr.logs.redaction import Redactor
from dtdr.logs.sources import find_logs, is_folder
from dtdr.logs.streams import LogReader
from dtdr.logs.turns import CutOptions

CANONICAL = Canonical.name


def open_demonstrations(
    paths: str | Path | Sequence[str | Path],
    fmt: str | None = None,
    options: CutOptions | None = None,
    *,
    redactor: Redactor | None = None,
    bad: BadRecords | None = None,
) -> DemonstrationFile:
    """Stream demonstrations from files of any known format, ``demonstrations.jsonl`` or logs.

    Logs are read in constant memory. Demonstrations stay as they are, unless there are options or a
    redactor.

    Args:
        paths: one or several files or pipes, ``-`` for standard input, plain or gzipped; or, for
            demonstrations, Parquet files, folders, patterns and URLs
            (``jsonl.read_demonstrations``).
        fmt: one of ``FORMATS``; None detects it.
        options: how conversations are cut, references found and failures treated.
        redactor: removes secrets and personal data; None leaves them.
        bad: if given, counts records that cannot be used, which are left out.

    Returns:
        The demonstrations; its ``tools`` are complete when all are read.

    Raises:
        InputError: an unknown format, or a file that cannot be read; while reading, if ``bad`` is
            None, the first record that cannot be used, with file and line; or there is no
            demonstration.
    """
    paths = [paths] if isinstance(paths, (str, Path)) else paths
    is_plain = options is None and redactor is None
    has_shards = any(map(is_sharded, paths))
    if is_plain and fmt in (None, CANONICAL) and has_shards and not _are_logs(paths):
        return read_shards(paths, bad=bad)
    if fmt is None and needs_grouping(list(map(Path, paths))):
        files, skipped = group_files(list(map(Path, paths)))
        if not (is_plain and list(files) == [Canonical]):
            mixed = MixedImporter(files, options, redactor=redactor, bad=bad, skipped=skipped)
            name = ", ".join(fmt.name for fmt in files)
            return DemonstrationFile(
                Path(paths[0]), mixed.demonstrations(), mixed.tools, format=name
            )
    reader = LogReader(paths)
    known = detect_format(reader, otherwise=Canonical) if fmt is None else find_format(fmt)
    path = reader.paths[0]
    if is_plain and known is Canonical:
        name = str(path) if len(paths) == 1 else ""
        read = reader.read(json_codec.loads, bad)
        records = ((reader.where(origin).removeprefix(name), record) for record, _, origin in read)
        return DemonstrationFile(path, convert_records(name, records, Demonstration.from_dict, bad))
    importer = Importer(known, reader, options, redactor=redactor, bad=bad)
    return DemonstrationFile(path, importer.demonstrations(), importer.tools, format=known.name)


def _are_logs(paths: Sequence[str | Path]) -> bool:
    """Whether a path is a folder whose first file is a log, not demonstrations."""
    for path in map(Path, paths):
        if is_folder(path) and (files := find_logs(path)):
            try:
                fmt, _ = recognize(LogReader(files[:1]))
            except InputError:
                return False
            return fmt is not None and fmt is not Canonical
    return False


__all__ = [
    "ALIASES",
    "CANONICAL",
    "FORMATS",
    "INJECTED_TAGS",
    "CutOptions",
    "FileImporter",
    "Importer",
    "LogReader",
    "MixedImporter",
    "Redactor",
    "detect_format",
    "find_format",
    "group_files",
    "import_file_by_file",
    "import_logs",
    "known_names",
    "needs_grouping",
    "open_demonstrations",
    "read_rules",
]
