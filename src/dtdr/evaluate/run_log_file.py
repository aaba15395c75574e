"""Run logs as files: one ``.npz`` with a JSON header and one array a column.

A log takes about a hundredth of the bytes of the full rankings of a large set of tools, and is read
in milliseconds.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dtdr.data.files import read_regular_file, replace_file
from dtdr.errors import InputError, other_version
from dtdr.evaluate.run_log import COVERAGES, DIGITS, Floats, RunHeader, RunLog

FORMAT = "dtdr-run"
FORMAT_VERSION = 3
"""Versions 1 and 2 were JSON lines with the full ranking of every step."""

_UNIT = 10**DIGITS
_DAMAGED = "run the evaluation again"
_LARGEST_FILE = 1 << 30
_SMALL = 32_000_000
_LARGEST_RATIO = 100
"""Of the bytes of the arrays and of the file; logs have 5 to 20."""


def write_run_log(path: str | Path, log: RunLog, *, force: bool = False) -> None:
    """Write a run log as a whole or not at all; the same log gives the same bytes.

    Raises:
        OutputError: the file exists and ``force`` is False, or it cannot be written.
    """
    # Not asdict(), which copies what is nested.
    described = {item.name: getattr(log.header, item.name) for item in fields(RunHeader)}
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **described,
        "plan_ids": log.plan_ids,
        "other_names": log.names[len(log.header.tools) :],
    }
    arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode("ascii"), np.uint8)}
    for column in _COLUMNS:
        values = getattr(log, column.name)
        if column.is_probability:  # whole numbers are a third of the bytes of decimal fractions
            values = np.rint(values * _UNIT)
        arrays[column.name] = values.astype(column.stored)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    with replace_file(path, force=force) as stream:
        stream.buffer.write(content.getbuffer())


def read_run_log(path: str | Path) -> RunLog:
    """Read and check a run log.

    Raises:
        InputError: the file cannot be read, is not a run log, is one of another version, or is
            damaged.
    """
    try:
        content = read_regular_file(path, _LARGEST_FILE)
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    if not content.startswith(b"PK"):
        raise _not_a_log(path, content)
    try:
        _check_sizes(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as members:
            described = json.loads(members["header"].tobytes())
            header = _header(path, described)
            arrays = {column.name: column.read(members[column.name]) for column in _COLUMNS}
    except InputError:
        raise
    except Exception as error:  # bytes of anybody: zipfile and numpy have a dozen ways to refuse
        raise InputError(f"{path}: the run log is damaged or cut; {_DAMAGED}") from error
    plans, others = described.get("plan_ids"), described.get("other_names")
    if not _is_texts(plans) or not _is_texts(others):
        raise InputError(f"{path}: the header is damaged; {_DAMAGED}")
    log = RunLog(header, tuple(plans), (*header.tools, *others), **arrays)
    if problem := _problem(log):
        raise InputError(f"{path}: the run log is damaged ({problem}); {_DAMAGED}")
    return log


def _check_sizes(content: bytes) -> None:
    """Refuse arrays that would take far more memory than a log of this size does.

    Raises:
        ValueError: they would.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as members:
        size = sum(member.file_size for member in members.infolist())
    if size > max(_SMALL, _LARGEST_RATIO * len(content)):
        raise ValueError("it unfolds to far more than it is")


@dataclass(frozen=True, slots=True)
class _Column:
    """How one array of a log is stored, and its number of dimensions."""

    name: str
    stored: str
    dimensions: int = 1
    is_probability: bool = False

    def read(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if stored.ndim != self.dimensions or stored.dtype != np.dtype(self.stored):
            raise ValueError(f"{self.name} has another shape or type")
        if self.is_probability:
            return cast(Floats, stored / _UNIT)
        return stored.astype(np.float64 if stored.dtype.kind == "f" else np.int64)


_COLUMNS = (
    _Column("plan", "<i4"),
    _Column("step", "<i4"),
    _Column("plan_length", "<i4"),
    _Column("called", "<i4"),
    _Column("acceptable", "<i4", 2),
    _Column("ranks", "<i4", 2),
    _Column("probabilities", "<u4", 2, is_probability=True),
    _Column("in_log", "u1", 2),
    _Column("head", "<i4", 2),
    _Column("head_probabilities", "<u4", 2, is_probability=True),
    _Column("set_sizes", "<u2", 2),
    _Column("confidence", "<f8"),
    _Column("familiarity", "<f8"),
    _Column("end_rank", "<i4"),
    _Column("end_probability", "<u4", is_probability=True),
    _Column("is_new", "u1"),
)


def _not_a_log(path: str | Path, content: bytes) -> InputError:
    try:
        first = json.loads(content.partition(b"\n")[0])
        version = first["format_version"] if first["format"] == FORMAT else None
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if version is None:
        return InputError(
            f"{path}: this is not a dtdr run log; write one with: dtdr evaluate --runs FOLDER"
        )
    return other_version(f"{path}: this run log", version, FORMAT_VERSION, _DAMAGED)


def _header(path: str | Path, record: Any) -> RunHeader:
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise _not_a_log(path, b"")
    if record.get("format_version") != FORMAT_VERSION:
        version = record.get("format_version")
        raise other_version(f"{path}: this run log", version, FORMAT_VERSION, _DAMAGED)
    missing = [item.name for item in fields(RunHeader) if item.name not in record]
    if missing:
        raise InputError(f"{path}: the header lacks {missing[0]!r}; {_DAMAGED}")
    cuts, threshold = record["coverage_cuts"], record["familiarity_threshold"]
    objects = ("split", "parameters", "training_data", "versions", "details")
    if (
        not _is_texts(record["tools"])
        or not all(isinstance(record[key], dict) for key in objects)
        or not isinstance(record["encoder"], dict | None)
        or not (cuts is None or (isinstance(cuts, list) and all(map(_is_number, cuts))))
        or len(cuts or range(COVERAGES)) != COVERAGES
        or not (threshold is None or _is_number(threshold))
    ):
        raise InputError(f"{path}: the header is damaged; {_DAMAGED}")
    record["tools"] = tuple(record["tools"])
    record["coverage_cuts"] = None if cuts is None else tuple(cuts)
    return RunHeader(**{item.name: record[item.name] for item in fields(RunHeader)})


def _problem(log: RunLog) -> str:
    """The first thing that is wrong with a log's arrays, or an empty text."""
    count, tools, names = len(log), len(log.header.tools), len(log.names)
    sizes = 0 if log.header.coverage_cuts is None or not count else COVERAGES
    unknown = np.isnan(log.confidence)
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        (
            "columns differ in length",
            lambda: (
                all(len(getattr(log, column.name)) == count for column in _COLUMNS)
                and log.acceptable.shape == log.ranks.shape == log.probabilities.shape
                and log.acceptable.shape == log.in_log.shape
                and log.head.shape == log.head_probabilities.shape
                and log.set_sizes.shape == (count, sizes)
            ),
        ),
        ("'plan' is out of range", lambda: _is_within(log.plan, 0, len(log.plan_ids) - 1)),
        ("'step' is out of range", lambda: bool((log.step >= 0).all())),
        ("'called' is out of range", lambda: _is_within(log.called, 0, names - 1)),
        (
            "'acceptable' must name a tool",
            lambda: _is_within(log.acceptable, -1, names - 1) and bool((log.accepted > 0).all()),
        ),
        (
            "'ranks' is out of range",
            lambda: _is_within(log.ranks, 0, tools) and _is_within(log.end_rank, 0, tools),
        ),
        (
            "'in_log' marks what is not acceptable",
            lambda: _is_within(log.in_log, 0, 1) and not log.in_log[log.acceptable < 0].any(),
        ),
        ("'head' is out of range", lambda: _is_within(log.head, -1, tools - 1)),
        (
            "a probability is not from 0 to 1",
            lambda: all(
                _is_within(getattr(log, column.name), 0, 1)
                for column in _COLUMNS
                if column.is_probability
            ),
        ),
        ("'confidence' is not from 0 to 1", lambda: _is_within(log.confidence[~unknown], 0, 1)),
        ("'familiarity' is not a finite number", lambda: not np.isinf(log.familiarity).any()),
        (
            "a step is there twice",
            lambda: len(set(zip(log.plan.tolist(), log.step.tolist(), strict=True))) == count,
        ),
    )
    return next((problem for problem, is_right in checks if not is_right()), "")


def _is_within(values: npt.NDArray[Any], low: float, high: float) -> bool:
    return bool(((values >= low) & (values <= high)).all())


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(cast(float, value))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
