"""Refuses tools whose servers changed the definitions that were pinned."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dtdr.data.files import explain_os_errors, lock_file, replace_file
from dtdr.errors import DtdrError, InputError, OutputError, cannot_read

logger = logging.getLogger("dtdr.mcp")


LOCK_SECONDS = 5.0
"""How long a gateway waits for others that write the file."""

_Digests = dict[str, dict[str, str]]


class Pins:
    """Digests of the tools' definitions as they were first seen, in a file.

    A tool with another definition is neither listed nor called until its entry is removed from the
    file; neither is a new tool whose digest cannot be written. Gateways may share a file: each
    reads it again before it adds to it, and when it changed.

    Args:
        path: JSON ``{server: {tool: digest}}``; created if it is missing. None pins nothing.

    Raises:
        InputError: the file cannot be read.
        OutputError: it cannot be created.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._digests: _Digests = {}
        self._refused: dict[tuple[str, str], str] = {}
        self._seen: object = None
        self._has_failed = False
        self._turn = threading.Lock()
        if path is not None:
            self._add(path, "", {})

    def iter_tools(self) -> Iterator[tuple[str, str]]:
        """``(server, tool)`` of every digest."""
        return ((upstream, tool) for upstream, tools in self._digests.items() for tool in tools)

    def is_outdated(self, *, tries_again: bool = False) -> bool:
        """Whether tools must be accepted again: the file changed since it was read.

        ``tries_again`` also if it could not be written.
        """
        if self._path is None:
            return False
        return _signature(self._path) != self._seen or (tries_again and self._has_failed)

    def accept(self, upstream: str, definitions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The definitions of a server that may be used; new ones are pinned.

        May be called in any thread, and waits for other gateways.
        """
        if self._path is None:
            return list(definitions)
        digests = {definition["name"]: _digest(definition) for definition in definitions}
        with self._turn:
            problem = ""
            try:
                self._add(self._path, upstream, digests)
            except DtdrError as error:
                problem = str(error)
                logger.warning("%s", problem)
            self._has_failed = bool(problem)
            known = self._digests.get(upstream, {})
            refused = {
                (upstream, tool): self._refusal(upstream, tool, tool in known, problem)
                for tool, digest in digests.items()
                if known.get(tool) != digest
            }
            for tool, reason in refused.items():
                if tool not in self._refused:
                    logger.warning("%s", reason)
            # One that is not listed any more is still not called.
            others = {
                tool: reason
                for tool, reason in self._refused.items()
                if tool[0] != upstream or tool[1] not in digests
            }
            self._refused = others | refused
        return [item for item in definitions if (upstream, item["name"]) not in refused]

    def refusal(self, upstream: str, tool: str) -> str | None:
        """Why a tool cannot be called; None if it can."""
        return self._refused.get((upstream, tool))

    def _refusal(self, upstream: str, tool: str, is_known: bool, problem: str) -> str:
        if is_known:
            return (
                f"the server {upstream!r} changed the definition of its tool {tool!r}, which "
                f"differs from the one pinned in {self._path}; no call is made"
            )
        return (
            f"the definition of the tool {tool!r} of the server {upstream!r} cannot be pinned "
            f"({problem}); no call is made"
        )

    def _add(self, path: Path, upstream: str, digests: Mapping[str, str]) -> None:
        """Read the file, and write it if it lacks some of these tools; a lock is held meanwhile.

        Raises:
            InputError: it cannot be read.
            OutputError: it cannot be written.
        """
        with _lock(path):
            try:
                kept = _read(path)
                known = kept.setdefault(upstream, {}) if digests else {}
                if digests.keys() - known.keys() or not path.exists():
                    known.update({tool: digests[tool] for tool in digests.keys() - known.keys()})
                    with replace_file(path) as stream:
                        stream.write(json.dumps(kept, indent=1, sort_keys=True) + "\n")
                self._digests = kept
            finally:
                self._seen = _signature(path)


def _read(path: Path) -> _Digests:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Digests)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise cannot_read(path, error) from error
    except ValueError as error:
        raise InputError(
            f'{path} must be JSON {{"server": {{"tool": "digest"}}}}; remove it to pin again'
        ) from error


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is another file: the first is replaced."""
    path = path.resolve()
    with explain_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.with_name(f".{path.name}.lock").open("ab")
    with stream:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                lock_file(stream, wait=False)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    raise OutputError(f"cannot write {path}: another process locks it") from error
                time.sleep(0.01)
            except OSError as error:
                raise OutputError(f"cannot lock {path}: {error.strerror}") from error
        yield


def _signature(path: Path) -> object:
    """Differs after every replacement of a file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size


def _digest(definition: dict[str, Any]) -> str:
    """A digest of everything that a model or a client sees of a tool."""
    shown = {key: value for key, value in definition.items() if key != "_meta"}
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
