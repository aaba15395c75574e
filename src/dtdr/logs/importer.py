"""Reads logs of one format as a stream and yields demonstrations, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from dtdr.logs.streams import STANDARD_INPUT, BadRecord, LogReader, Position, is_pipe
from dtdr.logs.turns import Cutter

# Logs hold whatever a program wrote: where a list is expected, a number may stand. The
# readers say what they know is wrong; anything else of a wrong shape shows as one of these.
UNUSABLE = (InputError, RecursionError, TypeError, AttributeError, LookupError, ValueError)

_NUMBERS = """superseded_requests runs kept nested failed_runs calls failed_calls dropped_calls
    references cut_outputs unmatched_results truncated_streams""".split()  # noqa: SIM905  # as prose


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
                self._leave_out(place, error)
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
                self._leave_out(group.place, error)
                continue
            for demonstration in demonstrations:
                if self._seen.add(demonstration.id):
                    self._count(demonstration)
                    yield demonstration
                else:
                    self.cutter.dropped["held by another record"] += 1

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
        counts = {name: dict(sorted(count.items())) for name, count in self._counts().items()}
        numbers = {**counts["format"], **counts["cut"]}
        return {
            "format": self.format.name,
            "files": len(self.paths),
            "records": self.records,
            "bad_records": 0 if self.bad is None else self.bad.count,
            **{key: numbers.get(key.replace("_", " "), 0) for key in _NUMBERS},
            **{key: counts[key] for key in ("dropped", "failures", "redacted")},
            "tools": len(self.format.tools.by_name),
        }

    def _counts(self) -> dict[str, Counter[str]]:
        """All that is counted by name."""
        return {
            "format": self.format.counts,
            "cut": self.cutter.counts,
            "dropped": self.cutter.dropped,
            "failures": self.failures,
            "redacted": Counter() if self.redactor is None else self.redactor.counts,
        }

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, without the open conversations."""
        return {
            "position": asdict(self.reader.position),
            "documents": self.reader.documents,
            "records": self.records,
            "bad": [0, []] if self.bad is None else [self.bad.count, self.bad.first],
            "counts": {name: dict(count) for name, count in self._counts().items()},
            "tools": [tool.to_dict() for tool in self.format.tools.by_name.values()],
        }

    def restore(self, state: Mapping[str, Any], groups: Iterator[Any], ids: Iterator[str]) -> None:
        """Go on where a checkpoint was written."""
        self.reader.position = Position(**state["position"])
        self.reader.documents = list(state["documents"])
        self.records = state["records"]
        if self.bad is not None:
            self.bad.count, self.bad.first = state["bad"][0], list(state["bad"][1])
        for name, count in self._counts().items():
            count.update(state["counts"][name])
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
