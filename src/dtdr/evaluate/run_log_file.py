"""Run logs as files: one ``.npz`` with a JSON header and one array a column.

A log takes about a hundredth of the bytes of the full rankings of a large set of tools, and is read
in milliseconds.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dtdr.data.files import read_regular_file, replace_file
from dtdr.deprecated import renamed_key
from dtdr.errors import InputError, cannot_read, other_version
from dtdr.evaluate.run_log import COLUMNS, DIGITS, LogColumn, RunHeader, RunLog

FORMAT = "dtdr-run"
FORMAT_VERSION = 4

_UNIT = 10**DIGITS
_LARGEST_FILE = 1 << 30
_SMALL = 32_000_000
_LARGEST_RATIO = 100
"""Largest ratio of the bytes of the arrays to those of the file; logs have 5 to 20."""


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
    for column in COLUMNS:
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
        raise cannot_read(path, error) from error
    if not content.startswith(b"PK"):
        raise InputError(
            f"{path}: this is not a dtdr run log; write one with: dtdr evaluate --runs FOLDER"
        )
    try:
        _check_sizes(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as members:
            header, plans, others = _read_header(json.loads(members["header"].tobytes()))
            arrays = {column.name: _read(column, members[column.name]) for column in COLUMNS}
        log = RunLog(header, plans, (*header.tools, *others), **arrays)
        _check(log)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:  # untrusted bytes: zipfile and numpy have a dozen ways to refuse
        reason = f" ({error})" if isinstance(error, _DamageError) else ""
        raise InputError(
            f"{path}: the run log is damaged or cut{reason}; run the evaluation again"
        ) from error
    return log


class _DamageError(ValueError):
    """Something in a run log is not what ``write_run_log`` writes."""


def _check_sizes(content: bytes) -> None:
    """Refuse arrays that would take far more memory than a log of this size does."""
    with zipfile.ZipFile(io.BytesIO(content)) as members:
        size = sum(member.file_size for member in members.infolist())
    if size > max(_SMALL, _LARGEST_RATIO * len(content)):
        raise _DamageError("it unfolds to far more than it is")


def _read(column: LogColumn, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if stored.ndim != column.dimensions or stored.dtype != np.dtype(column.stored):
        raise _DamageError(f"{column.name!r} has another shape or type")
    values = stored.astype(column.dtype)
    return values / _UNIT if column.is_probability else values


def _read_header(record: Any) -> tuple[RunHeader, tuple[str, ...], tuple[str, ...]]:
    """The header, the ids of plans, and the names of tools outside the vocabulary."""
    if record["format"] != FORMAT:
        raise _DamageError("its format has another name")
    if (version := record["format_version"]) != FORMAT_VERSION:
        raise other_version("this run log", version, FORMAT_VERSION, "run the evaluation again")
    parts = (renamed_key(record, "retriever", "ranker"), record["plan_ids"], record["other_names"])
    try:
        return msgspec.convert(parts, tuple[RunHeader, tuple[str, ...], tuple[str, ...]])
    except msgspec.ValidationError as error:
        raise _DamageError("its header") from error


def _check(log: RunLog) -> None:
    """Refuse arrays that do not fit together, or positions and numbers out of range."""
    count, tools, names = len(log), len(log.header.tools), len(log.names)
    shapes = {array.shape for array in (log.ranks, log.probabilities, log.in_log)}
    if any(len(getattr(log, column.name)) != count for column in COLUMNS) or shapes != {
        log.acceptable.shape
    }:
        raise _DamageError("columns differ in length")
    limits: dict[str, tuple[float, float]] = {
        "plan": (0, len(log.plan_ids) - 1),
        "step": (0, np.inf),
        "called": (0, names - 1),
        "acceptable": (-1, names - 1),
        "ranks": (0, tools),
        "in_log": (0, 1),
        "best": (0, tools - 1),
        "end_rank": (0, tools),
        "confidence": (0, 1),
        **{column.name: (0, 1) for column in COLUMNS if column.is_probability},
    }
    for name, (low, high) in limits.items():
        values = getattr(log, name)
        if ((values < low) | (values > high)).any():  # NaN: not known
            raise _DamageError(f"{name!r} is out of range")
    if not (log.accepted > 0).all():
        raise _DamageError("'acceptable' must name a tool")
    if log.in_log[log.acceptable < 0].any():
        raise _DamageError("'in_log' marks what is not acceptable")
    if len(set(zip(log.plan.tolist(), log.step.tolist(), strict=True))) < count:
        raise _DamageError("a step is there twice")
