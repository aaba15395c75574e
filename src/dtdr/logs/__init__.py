"""Traces: an agent's logs, in the formats that people have them, as demonstrations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dtdr.data.demonstration_files import DemonstrationFile, convert_records, read_shards
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.shards import is_sharded
from dtdr.errors import InputError, unknown_choice
from dtdr.logs.claude_code import ClaudeCode
from dtdr.logs.codex import Codex
from dtdr.logs.conversations import Anthropic, OpenAIChat
from dtdr.logs.cut_options import CutOptions, Failed, Outputs, Turns
from dtdr.logs.exports import Langfuse, LangSmith
from dtdr.logs.importer import UNUSABLE, Importer, ImportOptions, open_logs
from dtdr.logs.injected import INJECTED_TAGS
from dtdr.logs.log_format import Canonical, TraceFormat, Window
from dtdr.logs.mcp import MCP, read_line
from dtdr.logs.openai_responses import OpenAIResponses
from dtdr.logs.otel import OpenInference, OpenTelemetry
from dtdr.logs.redaction import Redactor
from dtdr.logs.redaction_rules import read_rules
from dtdr.logs.references import ReferenceRules
from dtdr.logs.streams import BadRecord, LogReader
from dtdr.logs.writing import import_traces

# One line a format: adding a format is adding a class and a line here. A format that is not named
# is found in this order, so what recognizes few records comes before what recognizes many.
FORMATS: dict[str, type[TraceFormat]] = {
    fmt.name: fmt
    for fmt in (
        Canonical,
        ClaudeCode,
        Codex,
        MCP,
        LangSmith,
        OpenInference,
        Langfuse,
        OpenTelemetry,
        Anthropic,
        OpenAIResponses,
        OpenAIChat,
    )
}

CANONICAL = Canonical.name


def find_format(name: str) -> type[TraceFormat]:
    """The format of that name; underscores are accepted for hyphens.

    Raises:
        InputError: there is none.
    """
    known = FORMATS.get(name.strip().replace("_", "-"))
    if known is None:
        raise unknown_choice("format", name, FORMATS)
    return known


def detect_format(
    reader: LogReader, otherwise: type[TraceFormat] | None = None
) -> type[TraceFormat]:
    """The format that the first records of a log look like.

    Args:
        reader: of the logs; a pipe loses nothing.
        otherwise: what a log without a record is taken for, or one whose first is a demonstration
            that lacks something, so that its errors are told.

    Raises:
        InputError: they look like none.
    """
    wrappers = {key: path for fmt in FORMATS.values() for key, path in fmt.wrappers.items()}
    records = reader.first_records(read_line, wrappers)
    for fmt in FORMATS.values():
        for record in records:
            # Whatever a program may have written, it is not of a format that stumbles over it.
            with contextlib.suppress(*UNUSABLE):
                if fmt.recognizes(record):
                    return fmt
    first = records[0] if records else None
    if otherwise is not None and (
        not isinstance(first, dict) or first.keys() & {"id", "query", "calls"}
    ):
        return otherwise
    raise InputError(
        f"{reader.paths[0]} looks like no format that is known; name the one it has: "
        f"{', '.join(sorted(FORMATS))}"
    )


def open_demonstrations(
    paths: Sequence[str | Path], fmt: str | None = None, *, bad: BadRecords | None = None
) -> DemonstrationFile:
    """Stream demonstrations from files of any known format, ``demonstrations.jsonl`` or logs.

    Logs are cut as ``dtdr import`` does by default; demonstrations are taken as they stand.

    Args:
        paths: files or pipes, ``-`` for standard input, plain or gzipped; or, for demonstrations,
            Parquet files, folders, patterns and URLs (``jsonl.read_demonstrations``).
        fmt: one of ``FORMATS``; None finds it by the first records.
        bad: given, records that cannot be used are counted there and left out.

    Returns:
        The demonstrations; its ``tools`` are known when all are read.

    Raises:
        InputError: as ``read_traces``; or no demonstration is there.
    """
    if fmt in (None, CANONICAL) and any(map(is_sharded, paths)):
        return read_shards(paths, bad=bad)
    reader = open_logs(paths)
    known = detect_format(reader, otherwise=Canonical) if fmt is None else find_format(fmt)
    if known is Canonical:
        reader.format = Canonical(Window())
        name = str(paths[0]) if len(paths) == 1 else ""
        records = ((reader.where(place).removeprefix(name), item) for item, _, place in reader)
        return DemonstrationFile(
            Path(paths[0]), convert_records(name, records, _demonstration, bad)
        )
    importer = Importer(known, reader, bad=bad)
    return DemonstrationFile(
        Path(paths[0]), importer.demonstrations(), importer.tools, format=known.name
    )


def _demonstration(record: Any) -> Demonstration:
    if isinstance(record, BadRecord):
        raise InputError(record.reason)
    if isinstance(record, Demonstration):
        return record
    return Demonstration.from_dict(record)


def read_traces(
    fmt: str | None,
    paths: Sequence[str | Path],
    options: ImportOptions | None = None,
    *,
    redactor: Redactor | None = None,
    bad: BadRecords | None = None,
) -> Iterator[Demonstration]:
    """Stream the demonstrations that logs hold, in constant memory.

    Args:
        fmt: one of ``FORMATS``; None finds it by the first records.
        paths: log files, pipes, or ``-`` for standard input, plain or gzipped.
        options: how conversations are cut, references found and failures treated.
        redactor: scrubs secrets and personal data; None leaves them.
        bad: given, records that cannot be used are counted there and left out.

    Raises:
        InputError: an unknown format, a file that cannot be read, or, when ``bad`` is None, the
            first record that cannot be used, with file and line.
    """
    reader = open_logs(paths)
    known = detect_format(reader) if fmt is None else find_format(fmt)
    yield from Importer(known, reader, options, redactor=redactor, bad=bad).demonstrations()


__all__ = [
    "CANONICAL",
    "FORMATS",
    "INJECTED_TAGS",
    "CutOptions",
    "Failed",
    "ImportOptions",
    "Importer",
    "Outputs",
    "Redactor",
    "ReferenceRules",
    "Turns",
    "detect_format",
    "find_format",
    "import_traces",
    "open_demonstrations",
    "open_logs",
    "read_rules",
    "read_traces",
]
