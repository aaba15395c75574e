"""Writes what an import yields: one file, or a folder with a Parquet file for each log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data import parquet
from dtdr.data.demonstration_files import save_demonstrations, save_tools
from dtdr.data.demonstrations import Demonstration
from dtdr.data.engines import Engine
from dtdr.data.files import replace_file, replace_folder
from dtdr.data.jsonl import BadRecords
from dtdr.data.progress import progress_bar
from dtdr.data.tools import Tool
from dtdr.errors import InputError, OutputError
from dtdr.logs.importer import Importer, ImportOptions
from dtdr.logs.left_out import explain_dropped
from dtdr.logs.log_format import TraceFormat, digest
from dtdr.logs.redaction import Redactor
from dtdr.logs.redaction_rules import Rule
from dtdr.logs.streams import file_size, is_pipe

TOOLS = "tools.json"
_MEGABYTE = 1_000_000


def import_traces(
    importer: Importer, output: Path, *, tools_output: Path | None = None, force: bool = False
) -> None:
    """Write demonstrations as JSON lines or (``.parquet``) as Parquet, as a whole or not at all.

    Raises:
        InputError: a record cannot be used, or nothing could be kept.
        OutputError: a file exists and ``force`` is False, or cannot be written.
    """
    if tools_output is not None and tools_output.exists() and not force:
        raise OutputError(f"{tools_output} exists; pass --force to replace it")
    save_demonstrations(output, _with_progress(importer), force=force)
    if tools_output is not None:
        save_tools(tools_output, importer.tools(), force=force)


def _with_progress(importer: Importer) -> Iterator[Demonstration]:
    paths = importer.reader.paths
    is_packed = any(path.suffix == ".gz" for path in paths)
    size = 0 if is_packed else sum(map(file_size, paths))
    megabytes = 0
    with progress_bar("Importing", size // _MEGABYTE + 1 if size else None) as advance:
        for demonstration in importer.demonstrations():
            yield demonstration
            for _ in range(megabytes, importer.reader.read_bytes // _MEGABYTE):
                megabytes += 1
                advance()
    if not importer.cutter.counts["kept"]:
        raise InputError(_explain_nothing(importer))


def _explain_nothing(importer: Importer) -> str:
    dropped = importer.cutter.dropped
    if dropped:
        return f"nothing was kept: {explain_dropped(dropped, importer.cutter.counts['runs'])}"
    left_out = importer.bad.count if importer.bad is not None else 0
    return (
        f"no run was found in {importer.reader.records:,} records ({left_out:,} bad); "
        f"is this {importer.format.title}?"
    )


class _ImportedLog(NamedTuple):
    """The file that was written for a log, the importer's summary, and hashes of the ids in it."""

    file: Path
    summary: dict[str, Any]
    tools: list[Tool]
    bad: BadRecords
    ids: npt.NDArray[np.uint64]


def _import_log(
    item: tuple[Path, Path],
    fmt: type[TraceFormat],
    options: ImportOptions,
    rules: tuple[Rule, ...] | None,
    skip_bad: bool,
) -> _ImportedLog:
    """Import a log into a file; the same log always gives the same file."""
    log, file = item
    redactor = None if rules is None else Redactor(rules)
    bad = BadRecords(is_strict=not skip_bad)
    importer = Importer(fmt, [log], options, redactor=redactor, bad=bad)
    ids: list[int] = []

    def note_each() -> Iterator[Demonstration]:
        for demonstration in importer.demonstrations():
            ids.append(int(digest([demonstration.id], size=8), 16))
            yield demonstration

    save_demonstrations(file, note_each(), force=True)
    numbers = np.array(ids, np.uint64)
    return _ImportedLog(file, importer.summary(), importer.tools(), bad, numbers)


def import_logs(
    logs: Sequence[Path],
    output: Path,
    fmt: type[TraceFormat],
    options: ImportOptions,
    engine: Engine,
    *,
    rules: tuple[Rule, ...] | None = None,
    skip_bad: bool = False,
    force: bool = False,
) -> tuple[dict[str, Any], list[Tool], BadRecords]:
    """Import logs into a folder: a Parquet file per log, and one ``tools.json``.

    A conversation must not span logs. A demonstration that is in several logs is kept in the
    first, so the same logs in the same order give the same bytes on any engine. The folder takes
    its name when it is complete.

    Args:
        logs: files.
        output: the folder.
        fmt: the class of the format.
        options: how logs are read.
        engine: runs a task per log.
        rules: what is scrubbed; None leaves everything as it is.
        skip_bad: leave out and count records that cannot be used.
        force: replace the folder.

    Returns:
        What was read, kept and left out; the definitions of tools; and bad records.

    Raises:
        InputError: a log cannot be read, a record cannot be used, or nothing was kept.
        OutputError: the folder exists and ``force`` is False, or it cannot be written.
    """
    if any(map(is_pipe, logs)):
        raise InputError("a pipe is read by one process; leave --workers and --engine out")
    if output.exists() and not (force and (output / TOOLS).is_file()):
        remedy = "pass --force to replace it" if output.is_dir() else "name a new folder"
        raise OutputError(f"{output} exists; {remedy}")
    with replace_folder(output) as folder:
        files = [folder / f"part-{place:05}{parquet.SUFFIX}" for place in range(len(logs))]
        pairs = list(zip(logs, files, strict=True))
        arguments = (fmt, options, rules, skip_bad)
        done = list(engine.map(_import_log, pairs, *arguments, label="Importing"))
        for unfinished in folder.glob(".*.partial"):  # of a worker that was killed
            unfinished.unlink()
        repeats = _drop_repeats(done)
        summary = _add_up([log.summary for log in done])
        summary["kept"] -= repeats
        if repeats:
            summary["dropped"]["held by another log"] = repeats
        if not summary["kept"]:
            raise InputError(f"nothing was kept of {summary['runs']:,} runs in {len(logs):,} logs")
        by_name = {tool.name: tool for log in reversed(done) for tool in log.tools}
        tools = sorted(by_name.values(), key=lambda tool: tool.name)
        summary["tools"] = len(tools)
        save_tools(folder / TOOLS, tools)
        bad = BadRecords()
        for log in done:
            bad.update(log.bad)
    return summary, tools, bad


def _drop_repeats(done: Sequence[_ImportedLog]) -> int:
    """Remove demonstrations that an earlier log has, and files that become empty."""
    sizes = [len(log.ids) for log in done]
    _, first = np.unique(np.concatenate([log.ids for log in done]), return_index=True)
    keep = np.zeros(sum(sizes), np.bool_)
    keep[first] = True
    for log, end, size in zip(done, accumulate(sizes), sizes, strict=True):
        own = keep[end - size : end]
        if not own.any():
            log.file.unlink()
        elif not own.all():
            with log.file.open("rb") as source, replace_file(log.file) as stream:
                parquet.copy_rows(source, stream.buffer, own.tolist())
    return int(np.count_nonzero(~keep))


def _add_up(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = dict(summaries[0])
    for summary in summaries[1:]:
        for key, value in summary.items():
            if isinstance(value, dict):
                total[key] = dict(sorted((Counter(total[key]) + Counter(value)).items()))
            elif isinstance(value, int):
                total[key] += value
    return total
