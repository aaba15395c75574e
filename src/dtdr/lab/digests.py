"""Digests beside the logs that they are of, so that a report need not read every step again."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dtdr.errors import OutputError
from dtdr.files import replacing_file
from dtdr.lab.code_version import code_version
from dtdr.lab.digest import Digest, digest
from dtdr.lab.log import check_log, read_log

_DERIVED = tuple(field.name for field in fields(Digest) if field.name != "header")


def digest_of(folder: Path, log: Path, key: str) -> Digest:
    """The digest of a log: the kept one where it is of these very bytes, else a new one.

    Reading it takes a fifth of the time that reading the log takes, which is what a report of a
    thousand runs spends its time on.

    Args:
        folder: where digests are kept.
        log: file of the log.
        key: of the run.

    Raises:
        InputError: the log is missing, damaged or of another version.
    """
    header, content_sha256 = check_log(log, key)
    kept = _read(_path(folder, key), content_sha256)
    if kept is not None:
        try:
            return _restored(header, kept)
        except (KeyError, TypeError, ValueError):
            pass  # damaged or cut; the log itself is whole
    found = digest(read_log(log, key))
    keep_digest(folder, key, found, content_sha256)
    return found


def keep_digest(folder: Path, key: str, found: Digest, content_sha256: str) -> None:
    """Keep a digest; a folder that cannot be written costs time only.

    Args:
        folder: where digests are kept.
        key: of the run.
        found: the digest.
        content_sha256: of the log that it is of.
    """
    value = {"log": content_sha256, "code": _code(), **{n: getattr(found, n) for n in _DERIVED}}
    text = json.dumps(value, default=_plain, separators=(",", ":"))
    try:
        with replacing_file(_path(folder, key)) as stream:
            content = gzip.compress(text.encode("ascii"), 1, mtime=0)
            stream.buffer.write(content)  # type: ignore[attr-defined]  # it is a file
    except OutputError:
        return


def _restored(header: Mapping[str, Any], kept: Mapping[str, Any]) -> Digest:
    found = Digest(header, **{name: kept[name] for name in _DERIVED})
    return replace(
        found,
        plans=tuple(found.plans),
        by_plan={name: np.array(values, float) for name, values in found.by_plan.items()},
        top1_by_length={int(n): (int(h), int(s)) for n, (h, s) in found.top1_by_length.items()},
        recall=np.array(found.recall, float),
        hit=np.array(found.hit, float),
        sweep={float(cut): (shown, right) for cut, (shown, right) in found.sweep.items()},
        below={float(cut): value for cut, value in found.below.items()},
    )


def _read(path: Path, content_sha256: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    fits = found.get("log") == content_sha256 and found.get("code") == _code()
    return found if fits else None


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.json.gz"


@cache
def _code() -> str:
    return code_version("dtdr.lab.digest")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(type(value).__name__)
