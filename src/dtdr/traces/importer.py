"""Imports logs: reads them as a stream, writes demonstrations, and can go on after a break."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from dtdr.demonstrations import Demonstration, Tool
from dtdr.errors import InputError, OutputError
from dtdr.files import replacing_file
from dtdr.jsonl import BadRecords, SeenIds, save_tools
from dtdr.traces import json_codec
from dtdr.traces.base import TraceFormat
from dtdr.traces.redaction import Redactor
from dtdr.traces.streams import BadRecord, LogReader, Position
from dtdr.traces.turns import CutOptions, Cutter
from dtdr.traces.window import DEFAULT_BYTES, Group, Window

CHECKPOINT_BYTES = 128_000_000
"""Read between two checkpoints; writing one takes some 50 ms, reading so much seconds."""

# Logs hold whatever somebody's program wrote: where a list is expected, a number may stand. The
# readers say what they know is wrong; anything else of a wrong shape shows as one of these.
_UNUSABLE = (InputError, RecursionError, TypeError, AttributeError, LookupError, ValueError)


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


class Importer:
    """Reads logs of one format and yields demonstrations, each once.

    Args:
        fmt: the class of the format.
        paths: log files, plain or gzipped.
        options: how they are read.
        redactor: scrubs what is yielded; None leaves it as it is.
        bad: given, records that cannot be used are counted there and left out.
    """

    def __init__(
        self,
        fmt: type[TraceFormat],
        paths: Sequence[Path],
        options: ImportOptions | None = None,
        *,
        redactor: Redactor | None = None,
        bad: BadRecords | None = None,
    ) -> None:
        self.options = options or ImportOptions()
        self.paths = list(paths)
        for path in self.paths:
            if not path.is_file():
                reason = "it is a folder" if path.is_dir() else "there is no such file"
                raise InputError(f"cannot read {path}: {reason}")
        if not self.paths:
            raise InputError("name at least one log file")
        self.window = Window(self.options.window_bytes)
        self.format = fmt(self.window, idle_gap=self.options.idle_gap)
        cut = self.options.cut
        if not cut.query and fmt.default_query:
            cut = CutOptions(cut.turns, cut.failed, cut.empty, fmt.default_query, cut.references)
        self.cutter = Cutter(cut, redactor, fmt.name)
        self.redactor = redactor
        self.bad = bad
        self.reader = LogReader(self.paths, self.format)
        self.records = 0
        self._seen = SeenIds()

    def demonstrations(self) -> Iterator[Demonstration]:
        """Every demonstration in the logs, in the order in which conversations end.

        Raises:
            InputError: a record cannot be used and ``bad`` is None.
        """
        for _ in self.steps():
            yield from self.taken()

    def steps(self) -> Iterator[None]:
        """Read record by record; ``taken`` gives what each step finished."""
        self._finished: list[tuple[str, Group]] = []
        for record, raw, place in self.reader:
            self.records += 1
            if isinstance(record, BadRecord):
                self._leave_out(place, record.reason)
                continue
            try:
                self.format.add(record, raw, place)
            except _UNUSABLE as error:
                self._leave_out(place, self._sentence(error))
                continue
            yield
        self._finished = list(self.window.finished(everything=True))
        yield

    def taken(self) -> Iterator[Demonstration]:
        """Demonstrations of the conversations that have ended."""
        ended, self._finished = self._finished, []
        for key, group in (*ended, *self.window.finished()):
            try:
                found = [
                    demonstration
                    for trace in self.format.traces(group.payloads, key)
                    for demonstration in self.cutter.cut(trace)
                ]
            except _UNUSABLE as error:
                self._leave_out(group.place, self._sentence(error))
                continue
            for demonstration in found:
                if self._seen.add(demonstration.id):
                    self.cutter.counts["kept"] += 1
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
            "dropped": dict(sorted(self.cutter.dropped.items())),
            "calls": cut["calls"],
            "failed_calls": cut["failed calls"],
            "dropped_calls": cut["dropped calls"],
            "references": cut["references"],
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
        self.cutter.counts = Counter(state["counts"][1])
        self.cutter.dropped = Counter(state["dropped"])
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


def import_traces(
    importer: Importer,
    output: Path,
    *,
    tools_output: Path | None = None,
    force: bool = False,
    resume: bool = False,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
) -> Iterator[int]:
    """Write ``demonstrations.jsonl``; yields bytes read so far, about once a megabyte.

    The file takes its name only when all is read. Until then it is ``NAME.partial``, and
    ``NAME.checkpoint`` tells ``resume`` where to go on; both stay behind when the import is
    interrupted after a first checkpoint.

    Raises:
        InputError: a record cannot be used, nothing could be kept, or there is nothing to resume.
        OutputError: a file exists and ``force`` is False, or cannot be written.
    """
    for path in (output, tools_output):
        if path is not None and path.exists() and not force:
            raise OutputError(f"{path} exists; pass --force to replace it")
    work = _Work(importer, output)
    if not resume and not force and work.checkpoint.exists():
        raise OutputError(
            f"{work.checkpoint} is from an import that was interrupted; pass --resume to go on "
            "with it or --force to begin again"
        )
    started = time.perf_counter()
    try:
        with work.opened(resume=resume) as stream:
            next_checkpoint = importer.reader.read_bytes + checkpoint_bytes
            told = 0
            for _ in importer.steps():
                for demonstration in importer.taken():
                    stream.write(json_codec.dumps(demonstration.to_dict()) + b"\n")
                read = importer.reader.read_bytes
                if read - told >= 1_000_000:
                    told = read
                    yield read
                if read >= next_checkpoint:
                    work.save(stream)
                    next_checkpoint = read + checkpoint_bytes
            stream.flush()
            os.fsync(stream.fileno())
        if not importer.cutter.counts["kept"]:
            work.discard()
            raise InputError(_nothing(importer))
        if tools_output is not None:
            save_tools(tools_output, importer.tools(), force=force)
        work.finish()
    except BaseException as error:
        if not work.checkpoint.exists():
            work.discard()
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "the disk is full" if full else (error.strerror or str(error)).lower()
            raise OutputError(f"cannot write {output}: {reason}; nothing was replaced") from error
        raise
    finally:
        importer.close()
    importer.cutter.counts["microseconds"] = int((time.perf_counter() - started) * 1e6)
    yield importer.reader.read_bytes


class _Work:
    """The unfinished output and its checkpoint."""

    def __init__(self, importer: Importer, output: Path) -> None:
        self.importer = importer
        self.output = output
        self.partial = output.with_name(output.name + ".partial")
        self.checkpoint = output.with_name(output.name + ".checkpoint")

    def opened(self, *, resume: bool) -> IO[bytes]:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            self.checkpoint.unlink(missing_ok=True)
            return self.partial.open("wb")
        try:
            lines = self.checkpoint.open("rb")
        except FileNotFoundError as error:
            raise InputError(
                f"there is nothing to resume: {self.checkpoint} does not exist; leave --resume out"
            ) from error
        with lines:
            try:
                header = json_codec.loads(next(lines))
                length = int(header["length"])
                fingerprint, state = header["fingerprint"], header["state"]
                if self.partial.stat().st_size < length:
                    raise ValueError("the partial output is shorter than it was")
            except (ValueError, KeyError, TypeError, StopIteration, OSError) as error:
                raise InputError(
                    f"{self.checkpoint} cannot be used ({error}); begin again with --force"
                ) from error
            if fingerprint != self._fingerprint():
                raise InputError(
                    f"{self.checkpoint} is about other logs or other options; give the same ones, "
                    "or begin again with --force"
                )
            os.truncate(self.partial, length)
            groups = (json.loads(line) for line in lines)
            self.importer.restore(state, groups, self._ids())
        return self.partial.open("ab")

    def save(self, stream: IO[bytes]) -> None:
        """Write a checkpoint, whole or not at all."""
        stream.flush()
        os.fsync(stream.fileno())
        header = {
            "fingerprint": self._fingerprint(),
            "length": stream.tell(),
            "state": self.importer.state(),
        }
        with replacing_file(self.checkpoint) as checkpoint:
            json.dump(header, checkpoint)
            checkpoint.write("\n")
            for key, group in self.importer.window.open_groups():
                payloads = [item.decode("utf-8", "surrogateescape") for item in group.payloads]
                json.dump([key, group.place, payloads], checkpoint)
                checkpoint.write("\n")

    def finish(self) -> None:
        self.partial.replace(self.output)
        self.checkpoint.unlink(missing_ok=True)

    def discard(self) -> None:
        self.partial.unlink(missing_ok=True)
        self.checkpoint.unlink(missing_ok=True)

    def _ids(self) -> Iterator[str]:
        with self.partial.open("rb") as written:
            for line in written:
                yield json_codec.loads(line)["id"]

    def _fingerprint(self) -> list[Any]:
        importer = self.importer
        rules = () if importer.redactor is None else importer.redactor.rules
        return [
            importer.format.name,
            [[str(path), path.stat().st_size] for path in importer.paths],
            json.loads(json.dumps(asdict(importer.options))),
            [[rule.name, rule.pattern.pattern] for rule in rules],
        ]


def _nothing(importer: Importer) -> str:
    dropped = importer.cutter.dropped
    if dropped:
        reasons = "; ".join(f"{count:,} x {reason}" for reason, count in sorted(dropped.items()))
        return f"nothing was kept of {importer.cutter.counts['runs']:,} runs: {reasons}"
    left_out = importer.bad.count if importer.bad is not None else 0
    return (
        f"no run was found in {importer.records:,} records ({left_out:,} bad); "
        f"is this {importer.format.title}?"
    )


def _scrubbed_tool(tool: Tool, redactor: Redactor) -> dict[str, Any]:
    record = tool.to_dict()
    record["description"] = redactor.text(record["description"])
    for parameter in record["parameters"]:
        parameter["description"] = redactor.text(parameter["description"])
    return record
