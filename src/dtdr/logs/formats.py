"""The known formats, by name, and which of them a log is."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from dtdr.data.jsonl import BadRecords
from dtdr.data.shards import as_url
from dtdr.errors import InputError, unknown_choice
from dtdr.logs.benchmarks import ATIF, Inspect, SWEAgent, Tau, ToolBench
from dtdr.logs.claude_code import ClaudeCode
from dtdr.logs.codex import Codex
from dtdr.logs.coding_agents import CopilotCLI, Cursor, GeminiCLI, OpenCode, QwenCode
from dtdr.logs.conversations import Anthropic, Bedrock, Gemini, LangGraph, OpenAIChat
from dtdr.logs.exports import Langfuse, LangSmith, OpenAIAgents, Weave
from dtdr.logs.frameworks import AutoGen, GoogleADK, OpenHands, Smolagents
from dtdr.logs.log_format import UNUSABLE, Canonical, LogFormat
from dtdr.logs.mcp import MCP, read_line
from dtdr.logs.message_lists import MessageList
from dtdr.logs.openai_responses import OpenAIResponses
from dtdr.logs.otel import OpenInference, OpenTelemetry
from dtdr.logs.sources import file_size, find_logs, is_folder, is_pipe, show
from dtdr.logs.streams import LogReader

# fmt: off
# A new format is a class and a line here. Formats are detected in this order, so those that
# recognize few records come first.
FORMATS: dict[str, type[LogFormat]] = {
    fmt.name: fmt
    for fmt in (
        Canonical, ATIF, Tau, ToolBench, SWEAgent, Inspect, OpenHands, OpenCode, Smolagents,
        AutoGen, GoogleADK, GeminiCLI, QwenCode, CopilotCLI, Codex, Cursor, ClaudeCode, MCP,
        OpenAIAgents, Weave, LangSmith, OpenInference, Langfuse, OpenTelemetry, LangGraph, Gemini,
        Bedrock, Anthropic, OpenAIResponses, OpenAIChat, MessageList,
    )
}
# fmt: on

ALIASES = {
    **dict.fromkeys(("cline", "roo-code", "pydantic-ai", "langchain", "sharegpt"), "messages"),
    **dict.fromkeys(("ai-sdk", "mlflow", "openllmetry"), "otel"),
    "tau-bench": "tau2",
}
"""Other names of formats: of what people have, not of how it is written."""

ENTRY_POINTS = "dtdr.logs"
"""Group of entry points under which installed packages name formats of their own."""

_SAMPLE_RECORDS = 200
_SAMPLE_BYTES = 8_000_000


@cache
def installed() -> dict[str, Any]:
    """Formats of installed packages, by name; each is loaded when it is used."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def known_names() -> list[str]:
    """The names that ``find_format`` takes, sorted."""
    return sorted((*FORMATS, *ALIASES, *installed()))


def find_format(name: str) -> type[LogFormat]:
    """The format of that name; underscores are accepted for hyphens.

    Args:
        name: one of ``FORMATS`` or ``ALIASES``, an entry point of the group ``dtdr.logs``, or
            ``module:function`` (or ``module:Class``) of your own.

    Raises:
        InputError: there is none, or it cannot be imported.
    """
    name = name.strip()
    plain = name.replace("_", "-")
    if (known := FORMATS.get(ALIASES.get(plain, plain))) is not None:
        return known
    if name in installed():
        return _own_format(name, installed()[name].load())
    module, separator, attribute = name.partition(":")
    if not separator:
        raise unknown_choice("format", name, known_names())
    try:
        return _own_format(name, getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot import the format {name}: {error}") from error


def _own_format(name: str, value: Any) -> type[LogFormat]:
    """A class as it is; a function that yields conversations of a file as a format."""
    if isinstance(value, type) and issubclass(value, LogFormat):
        return value
    if not callable(value):
        raise InputError(f"the format {name} must be a function or a class of LogFormat")

    def read_file(path: Path) -> Iterator[Any]:
        if (url := as_url(path)) is not None:
            raise InputError(f"{name} reads files of this machine; copy {url} to it first")
        try:
            yield from value(path)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{name} cannot read {path}: {error}") from error

    members = {"name": name, "title": name, "read_file": staticmethod(read_file)}
    return type("OwnFormat", (MessageList,), members)


def recognize(reader: LogReader) -> tuple[type[LogFormat] | None, str]:
    """The format of the first records of a log; without one, why."""
    bad = BadRecords()
    records: list[Any] = []
    for record, *_ in reader.read(read_line, bad):
        records.append(record)
        if len(records) == _SAMPLE_RECORDS or reader.read_bytes > _SAMPLE_BYTES:
            break
    for fmt in FORMATS.values():
        for record in records:
            # A record that a format cannot even look at is not of that format.
            with contextlib.suppress(*UNUSABLE):
                if fmt.recognizes(record):
                    return fmt, ""
    if not records:
        is_empty = not (bad.count or sum(map(file_size, reader.paths)))
        return None, "it is empty" if is_empty else "it has no line of JSON"
    return None, "; ".join(dict.fromkeys(_lacking(records))) or _first_keys(records[0])


def _lacking(records: Iterable[Any]) -> Iterator[str]:
    for fmt in FORMATS.values():
        for record in records:
            with contextlib.suppress(*UNUSABLE):
                if lack := fmt.lacks(record):
                    yield f"it {lack}; {fmt.name} needs {fmt.needs}"
                    break


def _first_keys(record: Any) -> str:
    if not isinstance(record, dict):
        return f"its first record is a {type(record).__name__}, not a JSON object"
    return f"its first record has the keys {', '.join(sorted(map(str, record))[:6])}"


def detect_format(reader: LogReader, otherwise: type[LogFormat] | None = None) -> type[LogFormat]:
    """The format that the first records of a log look like.

    Args:
        reader: of the log.
        otherwise: the format of a log without records, or of one whose first record is an
            incomplete demonstration, so that errors explain what it lacks.

    Raises:
        InputError: they look like none; it says what the nearest formats need.
    """
    fmt, reason = recognize(reader)
    if fmt is not None:
        return fmt
    if otherwise is not None and _may_be_canonical(reader):
        return otherwise
    raise InputError(
        f"cannot detect the format of {show(reader.paths[0])}: {reason}. Name one of "
        "docs/formats.md, as in 'dtdr import FORMAT FILE', or write your own as module:function"
    )


def _may_be_canonical(reader: LogReader) -> bool:
    first = next(iter(reader.read(read_line, BadRecords())), (None,))[0]
    return not isinstance(first, dict) or bool(first.keys() & {"id", "query", "calls"})


def group_files(
    paths: Sequence[Path],
) -> tuple[dict[type[LogFormat], list[Path]], dict[str, list[Path]]]:
    """Files and folders by format; and files of folders that are of none, by the reason.

    Raises:
        InputError: a file that is named, not in a folder, is of no known format; or there is none.
    """
    groups: dict[type[LogFormat], list[Path]] = {}
    skipped: dict[str, list[Path]] = {}
    for path in paths:
        if not is_folder(path):
            groups.setdefault(detect_format(LogReader([path])), []).append(path)
            continue
        for file in find_logs(path):
            try:
                fmt, reason = recognize(LogReader([file]))
            except InputError as error:
                fmt, reason = None, str(error).replace(show(file), "it")
            if fmt is None:
                skipped.setdefault(reason, []).append(file)
            else:
                groups.setdefault(fmt, []).append(file)
    if not groups:
        first = next(iter(skipped), "it has no file that may be a log")
        raise InputError(f"no file in {show(paths[0])} is a log of a known format: {first}")
    return groups, skipped


def needs_grouping(paths: Sequence[Path]) -> bool:
    """Whether paths must be read twice to tell their formats: several files, or a folder."""
    return any(map(is_folder, paths)) or (len(paths) > 1 and not any(map(is_pipe, paths)))
