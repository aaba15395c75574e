"""An agent's logs, in the formats that people have, as demonstrations."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from dtdr.conversation.injected import INJECTED_TAGS
from dtdr.data import json_codec
from dtdr.data.demonstration_files import DemonstrationFile, convert_records, read_shards
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.shards import is_sharded
from dtdr.errors import InputError, unknown_choice
from dtdr.logs.claude_code import ClaudeCode
from dtdr.logs.codex import Codex
from dtdr.logs.conversations import Anthropic, OpenAIChat
from dtdr.logs.exports import Langfuse, LangSmith
from dtdr.logs.importer import UNUSABLE, Importer, import_logs
from dtdr.logs.log_format import Canonical, LogFormat
from dtdr.logs.mcp import MCP, read_line
from dtdr.logs.openai_responses import OpenAIResponses
from dtdr.logs.otel import OpenInference, OpenTelemetry
from dtdr.logs.redaction import Redactor
from dtdr.logs.redaction_rules import read_rules
from dtdr.logs.streams import LogReader
from dtdr.logs.turns import CutOptions

# A new format is a class and a line here. Formats are detected in this order, so those that
# recognize few records come first.
FORMATS: dict[str, type[LogFormat]] = {
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


def find_format(name: str) -> type[LogFormat]:
    """The format of that name; underscores are accepted for hyphens.

    Raises:
        InputError: there is none.
    """
    known = FORMATS.get(name.strip().replace("_", "-"))
    if known is None:
        raise unknown_choice("format", name, FORMATS)
    return known


def detect_format(reader: LogReader, otherwise: type[LogFormat] | None = None) -> type[LogFormat]:
    """The format that the first records of a log look like.

    Args:
        reader: of the logs.
        otherwise: the format of a log without records, or of one whose first record is an
            incomplete demonstration, so that errors explain what it lacks.

    Raises:
        InputError: they look like none.
    """
    records = [record for record, *_ in islice(reader.read(read_line, BadRecords()), 20)]
    for fmt in FORMATS.values():
        for record in records:
            # A record that a format cannot even look at is not of that format.
            with contextlib.suppress(*UNUSABLE):
                if fmt.recognizes(record):
                    return fmt
    first = records[0] if records else None
    if otherwise is not None and (
        not isinstance(first, dict) or first.keys() & {"id", "query", "calls"}
    ):
        return otherwise
    raise InputError(
        f"cannot detect the format of {reader.paths[0]}; name it, as in 'dtdr import FORMAT FILE': "
        f"{', '.join(sorted(FORMATS))}"
    )


def open_demonstrations(
    paths: Sequence[str | Path],
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
        paths: files or pipes, ``-`` for standard input, plain or gzipped; or, for demonstrations,
            Parquet files, folders, patterns and URLs (``jsonl.read_demonstrations``).
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
    is_plain = options is None and redactor is None
    if is_plain and fmt in (None, CANONICAL) and any(map(is_sharded, paths)):
        return read_shards(paths, bad=bad)
    reader = LogReader(paths)
    known = detect_format(reader, otherwise=Canonical) if fmt is None else find_format(fmt)
    path = reader.paths[0]
    if is_plain and known is Canonical:
        name = str(path) if len(paths) == 1 else ""
        read = reader.read(json_codec.loads, bad)
        records = ((reader.where(place).removeprefix(name), record) for record, _, place in read)
        return DemonstrationFile(path, convert_records(name, records, Demonstration.from_dict, bad))
    importer = Importer(known, reader, options, redactor=redactor, bad=bad)
    return DemonstrationFile(path, importer.demonstrations(), importer.tools, format=known.name)


__all__ = [
    "CANONICAL",
    "FORMATS",
    "INJECTED_TAGS",
    "CutOptions",
    "Importer",
    "LogReader",
    "Redactor",
    "detect_format",
    "find_format",
    "import_logs",
    "open_demonstrations",
    "read_rules",
]
