"""Finds and deletes what a killed command left: partial files, folders, and temporary folders.

A process locks what it writes until the end. What can be locked by another is left over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

_PARTIAL = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}\.(?P<kind>partial|former)")


def lock_file(stream: IO[bytes] | int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock a file until it is closed or the process ends; does nothing on Windows.

    Args:
        stream: the open file, or its descriptor.
        shared: allow other shared locks.
        wait: for other locks to end.

    Raises:
        BlockingIOError: another process, or another stream of this one, has a lock.
        OSError: its file system has no locks.
    """
    if sys.platform != "win32":
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(stream, kind if wait else kind | fcntl.LOCK_NB)


def is_copy(partial: Path, path: Path) -> bool:
    """Whether a file or folder is an unfinished copy of a path."""
    parts = _PARTIAL.fullmatch(partial.name)
    return parts is not None and parts["name"] == path.name


def find_partials(folder: Path) -> list[Path]:
    """The unfinished files and folders in a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as items:
            return sorted(Path(item.path) for item in items if _PARTIAL.fullmatch(item.name))
    except OSError:
        return []


def delete_partials(folder: Path) -> None:
    """Delete the unfinished files and folders in a folder that no process is writing.

    A folder that was to be replaced, and is missing, is put back.
    """
    for path in find_partials(folder):
        _settle(path)


def _settle(path: Path) -> None:
    parts = _PARTIAL.fullmatch(path.name)
    target = path.with_name(parts["name"]) if parts else path
    if parts is None or parts["kind"] == "partial" or target.exists():
        _delete_if_left(path)
    elif not path.with_suffix(".partial").exists():
        with contextlib.suppress(OSError):
            path.rename(target)


def _delete_if_left(path: Path) -> None:
    """Delete a file or folder that no process has locked and that may be deleted."""
    handle = None
    with contextlib.suppress(OSError):
        if sys.platform != "win32":  # open files cannot be deleted there
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            lock_file(handle, wait=False)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        logger.info("deleted %s, which an interrupted command left", path)
    if handle is not None:
        os.close(handle)


@contextlib.contextmanager
def lock_new(make: Callable[[], Path]) -> Iterator[Path]:
    """Make a file or folder and lock it, so that ``delete_partials`` leaves it alone."""
    while True:
        path = make()
        handle = _lock(path)
        try:
            # Another process may have deleted it before it was locked.
            if handle is not None and not _is_open(path, handle):
                continue
            yield path
            return
        finally:
            if handle is not None:
                os.close(handle)


@contextlib.contextmanager
def lock_existing(path: Path) -> Iterator[None]:
    """Lock a file or folder, the one that has the path when the lock is free; none if missing."""
    while True:
        handle = _lock(path)
        try:
            if handle is not None and not _is_open(path, handle):
                continue
            yield
            return
        finally:
            if handle is not None:
                os.close(handle)


def _lock(path: Path) -> int | None:
    if sys.platform == "win32":
        return None
    handle = None
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        lock_file(handle)
    return handle


def _is_open(path: Path, handle: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


class TemporaryFolder:
    """A private folder that is deleted with this object or at the end of the process.

    After a kill, the next process that makes one with the same prefix deletes it.

    Attributes:
        path: the folder.
    """

    def __init__(self, prefix: str) -> None:
        for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            _delete_if_left(path)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self.delete = weakref.finalize(self, _delete_folder, self.path, _lock(self.path))


def _delete_folder(path: Path, handle: int | None) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if handle is not None:
        os.close(handle)
