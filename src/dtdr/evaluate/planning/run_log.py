"""The planning run log: JSON lines, written as the run goes on, and continued after a break.

The first line is the header; each further line is one selection, or one whole plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, Literal

from dtdr.data.jsonl import BadRecords, has_content, iter_json_lines
from dtdr.errors import InputError, OutputError, other_version

FORMAT = "dtdr-planning-run"
FORMAT_VERSION = 1

Kind = Literal["selections", "plans"]


@dataclass(frozen=True, slots=True)
class PlanningHeader:
    """What was run on what.

    Attributes:
        kind: ``selections`` (teacher-forced steps) or ``plans`` (whole plans).
        dataset: name of the demonstrations.
        split_sha256: which demonstrations are on which side.
        subset_sha256: which steps or plans of the test side were run.
        size: how many of them there are.
        retriever: its name and ``parameters``.
        llm: name of the backend, without its folder, or an empty text.
        icl: the ICL method.
        select: the selection method, and the layout of prompts unless it is the default.
        mask: which tools counted as retrieved.
        seed: of the examples in the prompt.
        versions: of Python and of the packages that a result depends on.
        examples_sha256: which demonstrations the examples come from.
        max_steps: calls of one plan at most; None where single steps are selected.
        fill: who fills parameters; None where single steps are selected.
    """

    kind: Kind
    dataset: str
    split_sha256: str
    subset_sha256: str
    size: int
    retriever: Mapping[str, Any]
    llm: str
    icl: str
    select: Mapping[str, Any]
    mask: Mapping[str, Any]
    seed: int
    versions: Mapping[str, str]
    examples_sha256: str = ""
    max_steps: int | None = None
    fill: str | None = None


@dataclass(frozen=True, slots=True)
class PlanningLog:
    """A header and its records, keyed by plan id and step (-1 for a whole plan)."""

    header: PlanningHeader
    records: Mapping[tuple[str, int], Mapping[str, Any]]

    @property
    def is_complete(self) -> bool:
        """Whether every step or plan of the subset is there."""
        return len(self.records) == self.header.size

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.records.values())


class PlanningLogWriter:
    """Appends records; a file that is there already is continued.

    Raises:
        InputError: the file holds another run.
        OutputError: it cannot be written.
    """

    def __init__(self, path: str | Path, header: PlanningHeader) -> None:
        self._path = Path(path)
        self.records: dict[tuple[str, int], Mapping[str, Any]] = {}
        try:
            is_new = not has_content(self._path, FORMAT)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        if not is_new:
            log = read_planning_log(self._path)
            if differing := _difference(log.header, header):
                raise InputError(
                    f"{path} has a run with another {differing}; give another file, or remove it"
                )
            self.records = dict(log.records)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Half a character, which names may hold, is written as JSON's own escape.
            self._stream: IO[str] = self._path.open(
                "a", encoding="utf-8", errors="backslashreplace"
            )
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        if is_new:
            self._write({"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(header)})
        self.header = header

    def add(self, record: Mapping[str, Any]) -> None:
        """Write one record, so that an interruption loses at most the one being written."""
        self._write(record)
        self.records[_key(record)] = record

    def log(self) -> PlanningLog:
        """What was written so far."""
        return PlanningLog(self.header, self.records)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        try:
            self._stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
            self._stream.flush()
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror or error}") from error


def read_planning_log(path: str | Path) -> PlanningLog:
    """Read a planning run log; half a line at its end, left by an interruption, is ignored.

    Raises:
        InputError: naming file and line: the file cannot be read, is not a planning run log or one
            of another version, or a line of it is damaged.
    """
    bad = BadRecords()
    lines = iter_json_lines(path, bad=bad)
    _, header = next(lines, (0, None))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{path}:1: this is not a planning run log")
    if header.get("format_version") != FORMAT_VERSION:
        version, what = header.get("format_version"), f"{path}:1: this planning run log"
        raise other_version(what, version, FORMAT_VERSION, "run it again")
    missing = [
        item.name
        for item in fields(PlanningHeader)
        if item.name not in header and item.default is MISSING
    ]
    if missing:
        raise InputError(f"{path}:1: the header lacks {missing[0]!r}; run it again")
    records: dict[tuple[str, int], Mapping[str, Any]] = {}
    number = 1
    for number, record in lines:
        if not isinstance(record, dict) or not _is_record(record):
            raise InputError(f"{path}:{number}: this line of the run log is damaged; run it again")
        records[_key(record)] = record
    if bad.count > 1 or (bad.count == 1 and f":{number + 1}:" not in bad.first[0]):
        raise InputError(f"{bad.first[0]}; the run log is damaged, run it again")
    return PlanningLog(
        PlanningHeader(
            **{name: header[name] for one in fields(PlanningHeader) if (name := one.name) in header}
        ),
        records,
    )


def _is_record(record: Mapping[str, Any]) -> bool:
    if not isinstance(record.get("plan"), str) or not isinstance(record.get("step"), int):
        return False
    wanted = ("acceptable", "outcome") if record["step"] >= 0 else ("calls", "gold", "stopped")
    return all(name in record for name in wanted)


def _key(record: Mapping[str, Any]) -> tuple[str, int]:
    return record["plan"], record["step"]


def _difference(written: PlanningHeader, wanted: PlanningHeader) -> str:
    """The first field in which two runs differ, versions aside."""
    left = json.loads(json.dumps(asdict(written)))
    right = json.loads(json.dumps(asdict(wanted)))
    for name in left:
        if name != "versions" and left[name] != right[name]:
            return str(name).replace("_", " ")
    return ""
