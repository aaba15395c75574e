"""Reads logs of one format as a stream, and writes their demonstrations, each once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtdr.data.calls import find_references
from dtdr.data.demonstration_files import SeenIds, save_demonstrations
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords, leave_out
from dtdr.data.progress import progress_bar
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.logs.log_format import Group, LogFormat, Window
from dtdr.logs.redaction import Redactor
from dtdr.logs.streams import LogReader, file_size
from dtdr.logs.turns import CutOptions, Cutter

# Logs contain whatever a program wrote: a number may be in the place of a list. The readers
# explain what they know is wrong; anything else of a wrong shape raises one of these.
UNUSABLE = (InputError, RecursionError, TypeError, AttributeError, LookupError, ValueError)

_NUMBERS = """superseded_requests runs kept nested failed_runs calls failed_calls references
    cut_outputs unmatched_results""".split()  # noqa: SIM905  # as prose

MANY = 0.05
"""Share of runs from which a command reports that they are left out."""

OPTIONS = {
    "no query in the log": "--set query=TEXT",
    "no tool was called": "--set empty=true",
}
"""Reasons why an import drops runs, and the option of ``dtdr import`` that keeps them."""


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
        options = replace(options, query=options.query or fmt.default_query)
        self.cutter = Cutter(options, redactor, fmt.name)
        self.redactor = redactor
        self.bad = bad

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
                        self.cutter.dropped["a record with this id was read before"] += 1

    def _conversations(self) -> Iterator[tuple[str, Group]]:
        """The records of each conversation, when it has ended."""
        for record, raw, place in self.reader.read(self.format.decode, self.bad):
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
                for trace in self.format.runs(group.payloads, key)
                for demonstration in self.cutter.cut(trace)
            ]
        except UNUSABLE as error:
            self._leave_out(group.place, error)
            return []

    def _count(self, demonstration: Demonstration) -> None:
        """Count a demonstration that is kept, once, even if the format repeats it."""
        plan, counts = demonstration.plan, self.cutter.counts
        counts["kept"] += 1
        counts["nested"] += demonstration.parent is not None
        counts["calls"] += len(plan)
        counts["references"] += sum(len(find_references(call.arguments)) for call in plan.calls)
        counts["failed runs"] += demonstration.outcome == "failure"

    def tools(self) -> list[Tool]:
        """Definitions read so far, sorted by name, scrubbed."""
        text = self.cutter.scrubber.text
        scrubbed = []
        for name, tool in sorted(self.format.tools.by_name.items()):
            parameters = (replace(p, description=text(p.description)) for p in tool.parameters)
            scrubbed.append(Tool(name, text(tool.description), tuple(parameters)))
        return scrubbed

    def summary(self) -> dict[str, Any]:
        """What was read, kept and left out, and why."""
        numbers = {**self.format.counts, **self.cutter.counts}
        by_name = {
            "dropped": self.cutter.dropped,
            "redacted": {} if self.redactor is None else self.redactor.counts,
        }
        return {
            "format": self.format.name,
            "files": len(self.reader.paths),
            "records": self.reader.records,
            "bad_records": 0 if self.bad is None else self.bad.count,
            **{key: numbers.get(key.replace("_", " "), 0) for key in _NUMBERS},
            **{name: dict(sorted(counts.items())) for name, counts in by_name.items()},
            "tools": len(self.format.tools.by_name),
        }

    def _leave_out(self, place: tuple[int, int], error: Exception) -> None:
        reason = str(error)
        if isinstance(error, RecursionError):
            reason = "nested too deeply"
        elif not isinstance(error, InputError):
            reason = f"not of the shape of {self.format.name} records ({error})"
        leave_out(f"{self.reader.where(place)}: {reason}", self.bad)


def import_logs(importer: Importer, output: Path, *, force: bool = False) -> None:
    """Write demonstrations as JSON lines or (``.parquet``) as Parquet, as a whole or not at all.

    Raises:
        InputError: a record cannot be used, or nothing could be kept.
        OutputError: a file exists and ``force`` is False, or cannot be written.
    """
    save_demonstrations(output, _with_progress(importer), force=force)


def _with_progress(importer: Importer) -> Iterator[Demonstration]:
    reader = importer.reader
    is_packed = any(path.suffix == ".gz" for path in reader.paths)
    size = 0 if is_packed else sum(map(file_size, reader.paths))
    done = 0
    with progress_bar("Importing", size or None) as advance:
        for demonstration in importer.demonstrations():
            yield demonstration
            advance(reader.read_bytes - done)
            done = reader.read_bytes
    about = importer.summary()
    if about["kept"]:
        return
    if about["dropped"]:
        raise InputError(f"nothing was kept: {explain_dropped(about['dropped'], about['runs'])}")
    raise InputError(
        f"no run was found in {about['records']:,} records ({about['bad_records']:,} bad); "
        f"is this {importer.format.title}?"
    )


def explain_failures(failed: int, runs: int) -> str:
    """A sentence about ``failed`` of ``runs``, which are marked as failed; empty if few are."""
    if failed <= MANY * runs:
        return ""
    return (
        f"{_share(failed, runs)} are marked as failed, and fit learns from them too; give it "
        "--no-failures to leave them out"
    )


def explain_dropped(dropped: Mapping[str, int], runs: int) -> str:
    """A sentence about runs that an import dropped, by reason; empty if they are few."""
    count = sum(dropped.values())
    if count <= MANY * runs:
        return ""
    options = [option for reason, option in OPTIONS.items() if reason in dropped]
    remedy = f"; to keep them, import with {' or '.join(options)}" if options else ""
    reasons = ", ".join(f"{name}: {number:,}" for name, number in Counter(dropped).most_common())
    return f"{_share(count, runs)} were dropped ({reasons}){remedy}"


def _share(count: int, runs: int) -> str:
    return f"{count:,} of {runs:,} runs ({count / runs:.0%})"
