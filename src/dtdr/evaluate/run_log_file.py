"""Run logs as files: one ``.npz`` with a JSON header and one array a column.

A log takes about a hundredth of the bytes of the full rankings of a large set of tools, and is read
in milliseconds.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dtdr.data.files import read_regular_file, replace_file
from dtdr.errors import InputError, other_version
from dtdr.evaluate.run_log import COLUMNS, COVERAGES, DIGITS, Column, RunHeader, RunLog

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
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    if not content.startswith(b"PK"):
        raise _not_a_log(path, content)
    try:
        _check_sizes(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as members:
            described = json.loads(members["header"].tobytes())
            header, plans, others = _header(path, described)
            arrays = {column.name: _read(column, members[column.name]) for column in COLUMNS}
    except InputError:
        raise
    except Exception as error:  # bytes of anybody: zipfile and numpy have a dozen ways to refuse
        raise InputError(f"{path}: the run log is damaged or cut; {_DAMAGED}") from error
    log = RunLog(header, plans, (*header.tools, *others), **arrays)
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


def _read(column: Column, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if stored.ndim != column.dimensions or stored.dtype != np.dtype(column.stored):
        raise ValueError(f"{column.name} has another shape or type")
    values = stored.astype(column.dtype)
    return values / _UNIT if column.is_probability else values


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


def _header(path: str | Path, record: Any) -> tuple[RunHeader, tuple[str, ...], tuple[str, ...]]:
    """The header, the ids of plans, and the names of tools outside the vocabulary."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise _not_a_log(path, b"")
    if (version := record.get("format_version")) != FORMAT_VERSION:
        raise other_version(f"{path}: this run log", version, FORMAT_VERSION, _DAMAGED)
    if missing := [item.name for item in fields(RunHeader) if item.name not in record]:
        raise InputError(f"{path}: the header lacks {missing[0]!r}; {_DAMAGED}")
    try:
        header = msgspec.convert(record, RunHeader)
        texts = [record.get(name) for name in ("plan_ids", "other_names")]
        plans, others = msgspec.convert(texts, tuple[tuple[str, ...], tuple[str, ...]])
        cuts = header.coverage_cuts
        if cuts is not None and len(cuts) != COVERAGES:
            raise ValueError("a cut is missing")
        if not np.isfinite([*(cuts or ()), header.familiarity_threshold or 0]).all():
            raise ValueError("a number is not finite")
    except ValueError as error:  # those of msgspec are, too
        raise InputError(f"{path}: the header is damaged; {_DAMAGED}") from error
    return header, plans, others


def _problem(log: RunLog) -> str:
    """The first thing that is wrong with a log's arrays, or an empty text."""
    count, tools, names = len(log), len(log.header.tools), len(log.names)
    sizes = 0 if log.header.coverage_cuts is None or not count else COVERAGES
    unknown = np.isnan(log.confidence)
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        (
            "columns differ in length",
            lambda: (
                all(len(getattr(log, column.name)) == count for column in COLUMNS)
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
                for column in COLUMNS
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
