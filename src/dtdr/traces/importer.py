"""Reads logs of one format as a stream and yields demonstrations, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dtdr.demonstration_files import SeenIds
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.jsonl import BadRecords
from dtdr.tools import Tool
from dtdr.traces.base import TraceFormat
from dtdr.traces.cut_options import CutOptions
from dtdr.traces.redaction import Redactor
from dtdr.traces.streams import STANDARD_INPUT, BadRecord, LogReader, Position, is_pipe
from dtdr.traces.turns import Cutter
from dtdr.traces.window import DEFAULT_BYTES, Group, Window

# Logs hold whatever a program wrote: where a list is expected, a number may stand. The
# readers say what they know is wrong; anything else of a wrong shape shows as one of these.
UNUSABLE = (InputError, RecursionError, TypeError, AttributeError, LookupError, ValueError)


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
        self._seen = SeenIds()
        self._finished: list[tuple[str, Group]] = []

    def demonstrations(self) -> Iterator[Demonstration]:
        """Every demonstration in the logs, in the order in which conversations end.

        Raises:
            InputError: a record cannot be used and ``bad`` is None.
        """
        for _ in self.steps():
            yield from self.take_ended()

    def steps(self) -> Iterator[None]:
        """Read record by record; ``taken`` gives what each step finished."""
        for record, raw, place in self.reader:
            self.records += 1
            if isinstance(record, BadRecord):
                self._leave_out(place, record.reason)
                continue
            try:
                self.format.add(record, raw, place)
            except UNUSABLE as error:
                self._leave_out(place, self._sentence(error))
                continue
            yield
        self._finished = list(self.window.pop_finished(everything=True))
        yield

    def take_ended(self) -> Iterator[Demonstration]:
        """Demonstrations of the conversations that have ended."""
        ended, self._finished = self._finished, []
        for key, group in (*ended, *self.window.pop_finished()):
            try:
                demonstrations = [
                    demonstration
                    for trace in self.format.traces(group.payloads, key)
                    for demonstration in self.cutter.cut(trace)
                ]
            except UNUSABLE as error:
                self._leave_out(group.place, self._sentence(error))
                continue
            for demonstration in demonstrations:
                if self._seen.add(demonstration.id):
                    self.cutter.counts["kept"] += 1
                    self.cutter.counts["nested"] += demonstration.parent is not None
                    yield demonstration
                else:
                    self.cutter.dropped["held by another record"] += 1

    def tools(self) -> list[Tool]:
        """Definitions met so far, by name, scrubbed."""
        table = sorted(self.format.tools.by_name.values(), key=lambda tool: tool.name)
        if self.redactor is None:
            return table
        return [Tool.from_dict(_scrubbed_tool(tool, self.redactor)) for tool in table]

    def summary(self) -> dict[str, Any]:
        """What was read, kept and left out, and why."""
        counts, cut = self.format.counts, self.cutter.counts
        return {
            "format": self.format.name,
            "files": len(self.paths),
            "records": self.records,
            "bad_records": 0 if self.bad is None else self.bad.count,
            "superseded_requests": counts["superseded requests"],
            "runs": cut["runs"],
            "kept": cut["kept"],
            "nested": cut["nested"],
            "dropped": dict(sorted(self.cutter.dropped.items())),
            "calls": cut["calls"],
            "failed_calls": cut["failed calls"],
            "dropped_calls": cut["dropped calls"],
            "references": cut["references"],
            "cut_outputs": cut["cut outputs"],
            "unmatched_results": cut["unmatched results"],
            "truncated_streams": counts["truncated streams"],
            "tools": len(self.format.tools.by_name),
            "redacted": {} if self.redactor is None else dict(sorted(self.redactor.counts.items())),
        }

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, without the open conversations."""
        return {
            "position": asdict(self.reader.position),
            "documents": self.reader.documents,
            "records": self.records,
            "bad": [0, []] if self.bad is None else [self.bad.count, self.bad.first],
            "counts": [dict(self.format.counts), dict(self.cutter.counts)],
            "dropped": dict(self.cutter.dropped),
            "redacted": {} if self.redactor is None else dict(self.redactor.counts),
            "tools": [tool.to_dict() for tool in self.format.tools.by_name.values()],
        }

    def restore(self, state: Mapping[str, Any], groups: Iterator[Any], ids: Iterator[str]) -> None:
        """Go on where a checkpoint was written."""
        self.reader.position = Position(**state["position"])
        self.reader.documents = list(state["documents"])
        self.records = state["records"]
        if self.bad is not None:
            self.bad.count, self.bad.first = state["bad"][0], list(state["bad"][1])
        self.format.counts = Counter(state["counts"][0])
        self.cutter.counts.update(state["counts"][1])
        self.cutter.dropped.update(state["dropped"])
        if self.redactor is not None:
            self.redactor.counts = Counter(state["redacted"])
        known = map(Tool.from_dict, state["tools"])
        self.format.tools.by_name = {tool.name: tool for tool in known}
        for key, place, payloads in groups:
            packed = [payload.encode("utf-8", "surrogateescape") for payload in payloads]
            self.format.readmit(key, packed, (place[0], place[1]))
        for identifier in ids:
            self._seen.add(identifier)

    def close(self) -> None:
        """Drop what is held on disk."""
        self._seen.close()

    def _sentence(self, error: Exception) -> str:
        if isinstance(error, InputError):
            return str(error)
        if isinstance(error, RecursionError):
            return "nested too deeply"
        return f"not of the shape of {self.format.name} records ({error})"

    def _leave_out(self, place: tuple[int, int], reason: str) -> None:
        reason = f"{self.reader.where(place)}: {reason}"
        if self.bad is None:
            raise InputError(f"{reason}; fix it or pass --skip-bad")
        self.bad.add(reason)


def _scrubbed_tool(tool: Tool, redactor: Redactor) -> dict[str, Any]:
    record = tool.to_dict()
    record["description"] = redactor.text(record["description"])
    for parameter in record["parameters"]:
        parameter["description"] = redactor.text(parameter["description"])
    return record
