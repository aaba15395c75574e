"""Reads logs of one format as a stream and yields demonstrations, each once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dtdr.data.calls import find_references
from dtdr.data.demonstration_files import SeenIds
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords, leave_out
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.logs.cut_options import CutOptions
from dtdr.logs.left_out import blame
from dtdr.logs.log_format import DEFAULT_BYTES, Group, TraceFormat, Window
from dtdr.logs.redaction import Redactor
from dtdr.logs.streams import STANDARD_INPUT, BadRecord, LogReader, is_pipe
from dtdr.logs.turns import Cutter

# Logs hold whatever a program wrote: where a list is expected, a number may stand. The
# readers say what they know is wrong; anything else of a wrong shape shows as one of these.
UNUSABLE = (InputError, RecursionError, TypeError, AttributeError, LookupError, ValueError)

_NUMBERS = """superseded_requests runs kept nested failed_runs calls failed_calls references
    cut_outputs unmatched_results truncated_streams""".split()  # noqa: SIM905  # as prose


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How logs are read.

    Attributes:
        cut: how conversations become demonstrations.
        window_bytes: records held of conversations and traces that may still go on.
        idle_gap: seconds of pause that end a run in formats without users.
    """

    cut: CutOptions = field(default_factory=CutOptions)
    window_bytes: int = DEFAULT_BYTES
    idle_gap: float = 300.0


def open_logs(paths: Sequence[str | Path]) -> LogReader:
    """What reads these logs: files, pipes, or ``-`` for standard input.

    Raises:
        InputError: there is none, or one is neither a file nor a pipe.
    """
    logs = [Path(path) for path in paths]
    for path in logs:
        if not path.is_file() and not is_pipe(path):
            reason = "it is a folder" if path.is_dir() else "no such file or directory"
            raise InputError(f"cannot read {path}: {reason}")
    if not logs:
        raise InputError("name at least one log file, or - for standard input")
    if logs.count(STANDARD_INPUT) > 1:
        raise InputError("standard input can be read once only; give - once")
    return LogReader(logs)


class Importer:
    """Reads logs of one format and yields demonstrations, each once.

    Args:
        fmt: the class of the format.
        paths: log files, pipes, or ``-`` for standard input, plain or gzipped; or their reader.
        options: how they are read.
        redactor: scrubs what is yielded; None leaves it as it is.
        bad: given, records that cannot be used are counted there and left out.
    """

    def __init__(
        self,
        fmt: type[TraceFormat],
        paths: Sequence[Path] | LogReader,
        options: ImportOptions | None = None,
        *,
        redactor: Redactor | None = None,
        bad: BadRecords | None = None,
    ) -> None:
        self.options = options or ImportOptions()
        self.reader = paths if isinstance(paths, LogReader) else open_logs(paths)
        self.paths = self.reader.paths
        self.window = Window(self.options.window_bytes)
        self.format = fmt(self.window, idle_gap=self.options.idle_gap)
        cut = self.options.cut
        if not cut.query and fmt.default_query:
            cut = replace(cut, query=fmt.default_query)
        self.cutter = Cutter(cut, redactor, fmt.name)
        self.redactor = redactor
        self.bad = bad
        self.reader.format = self.format
        self.records = 0
        self.failures: Counter[str] = Counter()

    def demonstrations(self) -> Iterator[Demonstration]:
        """Every demonstration in the logs, in the order in which conversations end.

        Raises:
            InputError: a record cannot be used and ``bad`` is None.
        """
        with contextlib.closing(SeenIds()) as seen:
            for key, group in self._conversations():
                for demonstration in self._cut(key, group):
                    if seen.add(demonstration.id):
                        self._count(demonstration)
                        yield demonstration
                    else:
                        self.cutter.dropped["held by another record"] += 1

    def _conversations(self) -> Iterator[tuple[str, Group]]:
        """The records of each conversation, when it has ended."""
        for record, raw, place in self.reader:
            self.records += 1
            if isinstance(record, BadRecord):
                self._leave_out(place, record.reason)
                continue
            try:
                self.format.add(record, raw, place)
            except UNUSABLE as error:
                self._leave_out(place, error)
                continue
            yield from self.window.pop_finished()
        yield from self.window.pop_finished(everything=True)

    def _cut(self, key: str, group: Group) -> list[Demonstration]:
        try:
            return [
                demonstration
                for trace in self.format.traces(group.payloads, key)
                for demonstration in self.cutter.cut(trace)
            ]
        except UNUSABLE as error:
            self._leave_out(group.place, error)
            return []

    def _count(self, demonstration: Demonstration) -> None:
        """Count what is kept, once for each demonstration, whatever the format repeats."""
        plan, counts = demonstration.plan, self.cutter.counts
        counts["kept"] += 1
        counts["nested"] += demonstration.parent is not None
        counts["calls"] += len(plan)
        counts["references"] += sum(len(find_references(call.arguments)) for call in plan.calls)
        if demonstration.outcome == "failure":
            counts["failed runs"] += 1
            self.failures.update(blame(demonstration))

    def tools(self) -> list[Tool]:
        """Definitions met so far, by name, scrubbed."""
        table = sorted(self.format.tools.by_name.values(), key=lambda tool: tool.name)
        if self.redactor is None:
            return table
        return [Tool.from_dict(_scrubbed_tool(tool, self.redactor)) for tool in table]

    def summary(self) -> dict[str, Any]:
        """What was read, kept and left out, and why."""
        numbers = {**self.format.counts, **self.cutter.counts}
        redacted = Counter() if self.redactor is None else self.redactor.counts
        by_name = {
            "dropped": self.cutter.dropped,
            "failures": self.failures,
            "redacted": redacted,
        }
        return {
            "format": self.format.name,
            "files": len(self.paths),
            "records": self.records,
            "bad_records": 0 if self.bad is None else self.bad.count,
            **{key: numbers.get(key.replace("_", " "), 0) for key in _NUMBERS},
            **{name: dict(sorted(counts.items())) for name, counts in by_name.items()},
            "tools": len(self.format.tools.by_name),
        }

    def _leave_out(self, place: tuple[int, int], error: Exception | str) -> None:
        reason = str(error)
        if isinstance(error, RecursionError):
            reason = "nested too deeply"
        elif not isinstance(error, InputError | str):
            reason = f"not of the shape of {self.format.name} records ({error})"
        leave_out(f"{self.reader.where(place)}: {reason}", self.bad)


def _scrubbed_tool(tool: Tool, redactor: Redactor) -> dict[str, Any]:
    record = tool.to_dict()
    record["description"] = redactor.text(record["description"])
    for parameter in record["parameters"]:
        parameter["description"] = redactor.text(parameter["description"])
    return record
