"""The lab's run log: what metrics and figures need of every step, in a tenth of the bytes.

The full ranking of every step (``dtdr evaluate --runs``) takes 15 MB for a set of 400 tools, and a
lab makes hundreds of runs; so a step keeps the places and probabilities of its acceptable tools and
the head of its ranking.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdr.errors import InputError
from dtdr.files import replacing_file

FORMAT = "dtdr-lab-run"
FORMAT_VERSION = 1

HEAD = 3
"""Names of the best tools that are kept of each step."""

LOWEST = 0.05
"""Probabilities above it are kept; there are at most 19."""

DIGITS = 5


@dataclass(frozen=True, slots=True)
class LabLog:
    """A header and the records of one run; ``records`` is empty where ``result`` says it all."""

    header: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...] = ()

    @property
    def result(self) -> Mapping[str, Any]:
        """What a run without steps measured."""
        found: Mapping[str, Any] = self.header["result"]
        return found


def write_log(path: Path, log: LabLog) -> str:
    """Write a log as a whole or not at all; the same log gives the same bytes.

    Returns:
        The SHA-256 of the file.
    """
    lines = [{"format": FORMAT, "format_version": FORMAT_VERSION, **log.header}, *log.records]
    text = "".join(f"{_compact(line)}\n" for line in lines)
    content = gzip.compress(text.encode("utf-8", "backslashreplace"), 6, mtime=0)
    with replacing_file(path) as stream:
        stream.buffer.write(content)  # type: ignore[attr-defined]  # it is a file, not any IO
    return hashlib.sha256(content).hexdigest()


def read_log(path: Path, key: str) -> LabLog:
    """Read and check a log.

    Raises:
        InputError: it is missing, damaged, of another version or of another run.
    """
    header, lines, _ = _lines(path, key)
    try:
        # One call for all lines: a third faster than one for each.
        return LabLog(header, tuple(json.loads(f"[{','.join(lines)}]")))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}); run it again") from error


def check_log(path: Path, key: str) -> tuple[Mapping[str, Any], str]:
    """Check a log without reading its records; the file's own checksum covers them.

    Returns:
        The header, and the SHA-256 of the file.

    Raises:
        InputError: as ``read_log``.
    """
    header, _, content_sha256 = _lines(path, key)
    return header, content_sha256


def _lines(path: Path, key: str) -> tuple[dict[str, Any], list[str], str]:
    """The checked header, the lines after it, and the SHA-256 of the file."""
    try:
        content = path.read_bytes()
        text = gzip.decompress(content).decode("utf-8")
        first, *lines = text.rstrip("\n").split("\n")
        header = json.loads(first)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}); run it again") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{path} is no run log of the lab; run it again")
    if header.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {header.get('format_version')!r}, this dtdr reads version "
            f"{FORMAT_VERSION}; run it again"
        )
    if header.get("key") != key or header.get("steps", 0) != len(lines):
        raise InputError(f"{path} is damaged: it is of another run, or cut; run it again")
    return header, lines, hashlib.sha256(content).hexdigest()


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
