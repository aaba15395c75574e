"""Reads logs as a stream, and writes their demonstrations, each once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtdr.conversation.events import LoggedCall, LoggedRun, UserMessage
from dtdr.conversation.groups import find_group
from dtdr.conversation.values import digest
from dtdr.data import json_codec
from dtdr.data.calls import find_references
from dtdr.data.demonstration_files import SeenIds, save_demonstrations
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords, leave_out
from dtdr.data.progress import progress_bar
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.logs.advice import explain_nothing, is_odd_name
from dtdr.logs.log_format import UNUSABLE, Group, LogFormat, Window
from dtdr.logs.redaction import Redactor
from dtdr.logs.sources import file_size
from dtdr.logs.streams import LogReader
from dtdr.logs.turns import CutOptions, Cutter

_NUMBERS = """superseded_requests replayed_turns messages runs kept nested failed_runs calls
    failed_calls references cut_outputs unmatched_results""".split()  # noqa: SIM905  # as prose

SAMPLES = 3
"""Turns that a summary shows of each format."""


class Importer:
    """Reads logs of one format and yields demonstrations, each once.

    Args:
        fmt: the class of the format.
        paths: log files, pipes, or ``-`` for standard input, plain or gzipped; or their reader.
        options: how they are read.
        redactor: scrubs what is yielded; None leaves it as it is.
        bad: if given, counts records that cannot be used, which are left out.
    """

    def __init__(
        self,
        fmt: type[LogFormat],
        paths: Sequence[Path] | LogReader,
        options: CutOptions | None = None,
        *,
        redactor: Redactor | None = None,
        bad: BadRecords | None = None,
    ) -> None:
        options = options or CutOptions()
        self.reader = paths if isinstance(paths, LogReader) else LogReader(paths)
        self.window = Window(options.window_bytes)
        self.format = fmt(self.window)
        self.format.group_by = options.group_by
        options = replace(options, query=options.query or fmt.default_query)
        self.cutter = Cutter(options, redactor, fmt.name)
        self.redactor = redactor
        self.bad = bad
        self.paths = self.reader.paths
        self.samples: list[dict[str, Any]] = []
        self.kept: Counter[str] = Counter()
        self._odd_names: Counter[str] = Counter()

    def demonstrations(self, seen: SeenIds | None = None) -> Iterator[Demonstration]:
        """Every demonstration in the logs, in the order in which conversations end.

        Args:
            seen: ids that other importers yielded.

        Raises:
            InputError: a record cannot be used and ``bad`` is None.
        """
        with contextlib.ExitStack() as stack:
            if seen is None:
                seen = stack.enter_context(contextlib.closing(SeenIds()))
            self.cutter.is_new = stack.enter_context(contextlib.closing(SeenIds())).add
            for group in self.groups():
                for demonstration in self.leave_new(group, seen.add):
                    self.count(demonstration)
                    yield demonstration

    def groups(self) -> Iterator[list[Demonstration]]:
        """The demonstrations of each conversation, when it has ended, repeated ones too."""
        for key, group in self._conversations():
            yield self._cut(key, group)

    def leave_new(
        self, group: Sequence[Demonstration], add: Callable[[str], bool]
    ) -> Iterator[Demonstration]:
        """Demonstrations of a group that are new; other runs get another id if theirs is taken.

        Args:
            group: demonstrations of a conversation.
            add: remembers an id, and returns whether it is new; called with both ``own_ids``.
        """
        renamed: dict[str, str] = {}
        for demonstration in group:
            identifier, other = own_ids(demonstration)
            is_free, is_other = add(identifier), add(other)
            if not is_other:
                self.cutter.dropped["a record with this id was read before"] += 1
                continue
            if not is_free:
                renamed[identifier] = other
                demonstration = replace(demonstration, id=other)
            parent = demonstration.parent
            if parent is not None and parent.id in renamed:
                parent = replace(parent, id=renamed[parent.id])
                demonstration = replace(demonstration, parent=parent)
            yield demonstration

    def _conversations(self) -> Iterator[tuple[str, Group]]:
        """The records of each conversation, when it has ended."""
        read = self.reader.read(self.format.decode, self.bad, self.format.read_file)
        file = 0
        for record, raw, origin in read:
            if origin[0] != file and not self.format.spans_files:
                yield from self.window.pop_finished(everything=True)
            file = origin[0]
            try:
                if self.cutter.options.group_by:
                    self.window.name = find_group(record, self.cutter.options.group_by)
                self.format.add(record, raw, origin)
            except UNUSABLE as error:
                self._leave_out(origin, error)
                continue
            yield from self.window.pop_finished()
        yield from self.window.pop_finished(everything=True)

    def _cut(self, key: str, group: Group) -> list[Demonstration]:
        try:
            demonstrations: list[Demonstration] = []
            for run in self.format.runs(group.payloads, key):
                self._look_at(run)
                self._name_group(run, group)
                demonstrations += self.cutter.cut(run)
            return demonstrations
        except UNUSABLE as error:
            self._leave_out(group.origin, error)
            return []

    def _name_group(self, run: LoggedRun, group: Group) -> None:
        """Take the name that was asked for, or look for one if the format knows none."""
        run.group = group.name or run.group
        if run.demonstration is not None and group.name:
            run.demonstration = replace(run.demonstration, group=group.name)
        for payload in () if run.group else group.payloads:
            with contextlib.suppress(ValueError):
                run.group = run.group or find_group(json_codec.loads(payload))

    def _look_at(self, run: LoggedRun) -> None:
        """Count what a run has, and note names of tools that no API accepts."""
        self.cutter.counts["messages"] += sum(
            isinstance(event, UserMessage) or not isinstance(event, LoggedCall)
            for event in run.events
        )
        for event in run.events:
            if isinstance(event, LoggedCall) and is_odd_name(event.tool):
                self._odd_names[event.tool] += 1

    def count(self, demonstration: Demonstration) -> None:
        """Count a demonstration that is kept, once, even if the format repeats it."""
        plan, counts = demonstration.plan, self.kept
        counts["kept"] += 1
        counts["nested"] += demonstration.parent is not None
        counts["calls"] += len(plan)
        counts["references"] += sum(len(find_references(call.arguments)) for call in plan.calls)
        counts["failed runs"] += demonstration.outcome == "failure"
        if len(self.samples) < SAMPLES and demonstration.parent is None:
            outcome = demonstration.outcome
            calls = [f"{call.tool} ({call.status})" for call in plan.calls]
            self.samples.append({"query": demonstration.query, "calls": calls, "outcome": outcome})

    @property
    def read_bytes(self) -> int:
        """Bytes of the records up to now."""
        return self.reader.read_bytes

    def tools(self) -> list[Tool]:
        """Definitions read so far, sorted by name, scrubbed."""
        text = self.cutter.scrubber.text
        scrubbed = []
        for name, tool in sorted(self.format.tools.by_name.items()):
            parameters = (replace(p, description=text(p.description)) for p in tool.parameters)
            scrubbed.append(Tool(name, text(tool.description), tuple(parameters)))
        return scrubbed

    def tallies(self) -> dict[str, Counter[str]]:
        """Counts of what was read and left out, by name or reason; not of what was kept."""
        return {
            "numbers": self.format.counts,
            "cut": self.cutter.counts,
            "dropped": self.cutter.dropped,
            "ignored": self.format.ignored,
            "unknown": self.format.unknown,
            "odd_names": self._odd_names,
            "redacted": Counter() if self.redactor is None else self.redactor.counts,
        }

    def summary(self) -> dict[str, Any]:
        """Counts of what was read, kept and left out, with reasons."""
        by_name = self.tallies()
        numbers = {**by_name.pop("numbers"), **by_name.pop("cut"), **self.kept}
        return {
            "format": self.format.name,
            "files": len(self.reader.paths),
            "records": self.reader.records,
            "bad_records": 0 if self.bad is None else self.bad.count,
            **{key: numbers.get(key.replace("_", " "), 0) for key in _NUMBERS},
            **{name: dict(sorted(counts.items())) for name, counts in by_name.items()},
            "tools": len(self.format.tools.by_name),
            "samples": self.samples,
        }

    def _leave_out(self, origin: tuple[int, int], error: Exception) -> None:
        reason = str(error)
        if isinstance(error, RecursionError):
            reason = "nested too deeply"
        elif not isinstance(error, InputError):
            reason = f"not of the shape of {self.format.name} records ({error})"
        leave_out(f"{self.reader.where(origin)}: {reason}", self.bad)


def own_ids(demonstration: Demonstration) -> tuple[str, str]:
    """The id of a demonstration, and the one that it gets if another run has that id."""
    return demonstration.id, f"{demonstration.id}~{digest([demonstration.query], 4)}"


class MixedImporter:
    """Reads logs of several formats, one after the other, and yields demonstrations, each once.

    Args:
        files: the files of each format.
        options: how they are read.
        redactor: scrubs what is yielded; None leaves it as it is.
        bad: if given, counts records that cannot be used, which are left out.
        skipped: files that are of no known format, by the reason.
        importer: the class that reads the files of one format.
    """

    def __init__(
        self,
        files: Mapping[type[LogFormat], Sequence[Path]],
        options: CutOptions | None = None,
        *,
        redactor: Redactor | None = None,
        bad: BadRecords | None = None,
        skipped: Mapping[str, Sequence[Path]] | None = None,
        importer: Callable[..., Importer] = Importer,
    ) -> None:
        self.importers = [
            importer(fmt, paths, options, redactor=redactor, bad=bad)
            for fmt, paths in files.items()
        ]
        self.bad = bad
        self.skipped = dict(skipped or {})

    @property
    def paths(self) -> list[Path]:
        """All files that are read."""
        return [path for importer in self.importers for path in importer.reader.paths]

    def demonstrations(self) -> Iterator[Demonstration]:
        """Every demonstration in the logs, format by format; see ``Importer.demonstrations``."""
        with contextlib.closing(SeenIds()) as seen:
            for importer in self.importers:
                yield from importer.demonstrations(seen)

    @property
    def read_bytes(self) -> int:
        """Bytes of the records up to now, of all formats."""
        return sum(importer.read_bytes for importer in self.importers)

    def tools(self) -> list[Tool]:
        """Definitions read so far, sorted by name, scrubbed; the first of each name."""
        by_name: dict[str, Tool] = {}
        for importer in self.importers:
            for tool in importer.tools():
                by_name.setdefault(tool.name, tool)
        return [by_name[name] for name in sorted(by_name)]

    def summary(self) -> dict[str, Any]:
        """The sums over all formats, with ``formats`` and ``skipped``, which counts files."""
        each = [importer.summary() for importer in self.importers]
        total: dict[str, Any] = {}
        for about in each:
            for key, value in about.items():
                if isinstance(value, dict):
                    total[key] = dict(Counter(total.get(key, {})) + Counter(value))
                elif isinstance(value, (int, list)):
                    total[key] = total[key] + value if key in total else value
        total["format"] = ", ".join(about["format"] for about in each)
        total["bad_records"] = 0 if self.bad is None else self.bad.count
        total["tools"] = len(self.tools())
        total["redacted"] = each[0]["redacted"]  # of all, since they share the redactor
        total["skipped"] = {reason: list(map(str, paths)) for reason, paths in self.skipped.items()}
        return {**total, "formats": each}


def import_logs(importer: Importer | MixedImporter, output: Path, *, force: bool = False) -> None:
    """Write demonstrations as JSON lines or (``.parquet``) as Parquet, as a whole or not at all.

    Raises:
        InputError: a record cannot be used, or nothing could be kept.
        OutputError: a file exists and ``force`` is False, or cannot be written.
    """
    save_demonstrations(output, _with_progress(importer), force=force)


def _with_progress(importer: Importer | MixedImporter) -> Iterator[Demonstration]:
    is_packed = any(path.suffix == ".gz" for path in importer.paths)
    size = 0 if is_packed else sum(map(file_size, importer.paths))
    done = 0
    with progress_bar("Importing", size or None) as advance:
        for demonstration in importer.demonstrations():
            yield demonstration
            advance(importer.read_bytes - done)
            done = importer.read_bytes
    check_kept(importer)


def check_kept(importer: Importer | MixedImporter) -> None:
    """Raise an InputError that says why, if an import kept nothing."""
    about = importer.summary()
    if not about["kept"]:
        raise InputError(explain_nothing(about))
