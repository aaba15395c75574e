"""The planning run log: JSON lines, written as the run goes on and continued after a break.

The first line is the header. Each further line is one selection, or one whole plan.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdr.data.files import open_private
from dtdr.data.jsonl import BadRecords, iter_json_lines
from dtdr.errors import InputError, OutputError, other_version

FORMAT = "dtdr-planning-run"
FORMAT_VERSION = 1

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanningLog:
    """A planning run.

    Attributes:
        header: what was run on what: the ``kind`` (``selections`` or ``plans``), the data, the
            hashes of the split, of the steps or plans that are run (``subset_sha256``, ``size`` of
            them) and of the examples, the model, the LLM and how it is asked, and versions.
        records: by plan id and step; the step of a whole plan is -1.
    """

    header: Mapping[str, Any]
    records: dict[tuple[str, int], Record]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records.values())


@contextmanager
def append_log(
    path: str | Path, header: Mapping[str, Any]
) -> Iterator[tuple[PlanningLog, Callable[[Record], None]]]:
    """Open a log, and continue it if the file exists; with it comes a function to add a record.

    Each record is written at once, so an interruption loses at most one.

    Raises:
        InputError: the file has another run.
        OutputError: it cannot be written.
    """
    path = Path(path)
    with _explain(path):
        is_new = not _drop_half_line(path)
    log = PlanningLog(header, {}) if is_new else read_planning_log(path)
    if differing := _difference(log.header, header):
        raise InputError(
            f"{path} has a run with another {differing}; give another file, or remove it"
        )
    with _explain(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a character, which names may contain, is written as JSON's own escape.
        stream = open(path, "a", encoding="utf-8", errors="backslashreplace", opener=open_private)  # noqa: SIM115

    def write(value: Record) -> None:
        with _explain(path):
            stream.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
            stream.flush()

    def add(record: Record) -> None:
        write(record)
        log.records[_key(record)] = record

    with stream:
        if is_new:
            write({"format": FORMAT, "format_version": FORMAT_VERSION, **header})
        yield log, add


def read_planning_log(path: str | Path) -> PlanningLog:
    """Read a planning run log; half a line at its end, left by an interruption, is ignored.

    Raises:
        InputError: naming file and line: the file cannot be read, is not a planning run log or one
            of another version, or a line of it is damaged.
    """
    bad = BadRecords()
    lines = iter_json_lines(path, bad=bad)
    _, header = next(lines, (0, None))
    if not isinstance(header, dict) or header.pop("format", None) != FORMAT:
        raise InputError(f"{path}:1: this is not a planning run log")
    if (version := header.pop("format_version", None)) != FORMAT_VERSION:
        what = f"{path}:1: this planning run log"
        raise other_version(what, version, FORMAT_VERSION, "run it again")
    records: dict[tuple[str, int], Record] = {}
    line = 1
    for line, record in lines:
        if not isinstance(record, dict) or not _is_record(record):
            raise InputError(f"{path}:{line}: this line of the run log is damaged; run it again")
        records[_key(record)] = record
    if bad.count > 1 or (bad.count == 1 and f":{line + 1}:" not in bad.first[0]):
        raise InputError(f"{bad.first[0]}; the run log is damaged, run it again")
    return PlanningLog(header, records)


def _drop_half_line(path: Path) -> bool:
    """Drop half a line at the end of a log, from an interruption; whether lines are left."""
    content = path.read_bytes() if path.exists() else b""
    begin = json.dumps({"format": FORMAT}).removesuffix("}").encode()
    if content and content[-1:] != b"\n" and content.startswith(begin[: len(content)]):
        content = content[: content.rfind(b"\n") + 1]
        os.truncate(path, len(content))
    return bool(content)


@contextmanager
def _explain(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _is_record(record: Record) -> bool:
    if not isinstance(record.get("plan"), str) or not isinstance(record.get("step"), int):
        return False
    wanted = ("acceptable", "outcome") if record["step"] >= 0 else ("calls", "gold", "stopped")
    return all(name in record for name in wanted)


def _key(record: Record) -> tuple[str, int]:
    return record["plan"], record["step"]


def _difference(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The first entry in which two headers differ, versions aside."""
    wanted = json.loads(json.dumps(wanted))
    for name in (*wanted, *written):
        if name != "versions" and written.get(name) != wanted.get(name):
            return name.replace("_", " ")
    return ""
