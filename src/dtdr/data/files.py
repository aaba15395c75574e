"""Writes files and folders as a whole, also in a crash, on a full disk or at Ctrl-C."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from dtdr.data.partials import delete_partials, lock_existing, lock_new
from dtdr.data.partials import lock_file as lock_file
from dtdr.errors import OutputError

CACHE_VARIABLE = "DTDR_CACHE"


def cache_folder() -> Path:
    """The folder of downloads and embeddings: ``$DTDR_CACHE``, or ``~/.cache/dtdr``."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured) if configured else Path.home() / ".cache" / "dtdr"


def read_regular_file(path: str | Path, limit: int, first: int | None = None) -> bytes:
    """The content, or the ``first`` bytes, of a file from an untrusted source.

    Raises:
        OSError: it cannot be read, is a device or a pipe, or has more than ``limit`` bytes.
    """
    # Opening a pipe would wait for a writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if about.st_size > limit:
            reason = f"it has {about.st_size:,} bytes, more than the {limit:,} that are read"
            raise OSError(errno.EFBIG, reason)
        return stream.read(limit if first is None else first)


@contextlib.contextmanager
def replace_file(
    path: str | Path, *, force: bool = True, private: bool = False
) -> Iterator[TextIO]:
    """Open a text file that replaces ``path`` when the block ends without error.

    It keeps the permissions of an old file. A link to that leads to the new one. What killed
    commands left in the folder is deleted.

    Args:
        path: the file.
        force: replace an old file.
        private: let no other user read a new file.

    Raises:
        OutputError: the file exists and ``force`` is False, or it cannot be written.
    """
    path = Path(path)
    if path.exists() and not force:
        raise OutputError(f"{path} exists; pass --force to replace it")
    with explain_os_errors(path, "; nothing was replaced"):
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with _new_partial(target, is_folder=False) as temporary:
            # Half a surrogate pair cannot be UTF-8; JSON writes it as \udXXX.
            with temporary.open("w", encoding="utf-8", errors="backslashreplace") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            former = stat.S_IMODE(target.stat().st_mode) if target.is_file() else None
            usual = 0o600 if private else 0o666 & ~_umask()
            temporary.chmod(usual if former is None else former)
            temporary.replace(target)


@contextlib.contextmanager
def replace_folder(path: str | Path, confirm: Callable[[], object] | None = None) -> Iterator[Path]:
    """Give a temporary folder that replaces ``path`` when the block ends without error.

    The caller has checked that the old folder may be lost. A link to it leads to the new one.

    Args:
        path: of the folder.
        confirm: called while every other replacement of the folder waits; an error that it raises
            leaves the old folder.

    Raises:
        OutputError: it cannot be written.
    """
    path = Path(path).resolve()
    with explain_os_errors(path, "; nothing was replaced"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _new_partial(path, is_folder=True) as temporary:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            for item in temporary.iterdir():
                with item.open("rb") as stream:
                    os.fsync(stream.fileno())
            with lock_existing(path):
                if confirm is not None:
                    confirm()
                former = _swap(temporary, path)
            if former is not None:
                # Another process may have begun to delete it.
                shutil.rmtree(former, ignore_errors=True)


@contextlib.contextmanager
def _new_partial(target: Path, *, is_folder: bool) -> Iterator[Path]:
    """A locked file or folder beside the target, which is deleted after an error."""
    prefix, suffix = f".{target.name}.", ".partial"

    def make() -> Path:
        if is_folder:
            return Path(tempfile.mkdtemp(suffix, prefix, target.parent))
        handle, name = tempfile.mkstemp(suffix, prefix, target.parent)
        os.close(handle)
        return Path(name)

    delete_partials(target.parent)
    with lock_new(make) as temporary:
        try:
            yield temporary
        except BaseException:
            if is_folder:
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)
            raise


def _swap(temporary: Path, path: Path) -> Path | None:
    """Put a folder where another may be; returns where the other one is now."""
    if not path.exists():
        temporary.rename(path)
        return None
    if _exchange(temporary, path):
        return temporary
    # Two renames: for a moment there is no folder.
    former = temporary.with_suffix(".former")
    path.rename(former)
    try:
        temporary.rename(path)
    except BaseException:
        former.rename(path)
        raise
    return former


def _exchange(path: Path, other: Path) -> bool:
    """Exchange two names in one step; False if the system cannot."""
    if os.name != "posix":
        return False
    library = ctypes.CDLL(None)
    names = os.fsencode(path), os.fsencode(other)
    if hasattr(library, "renameat2"):  # Linux: both from the current folder, RENAME_EXCHANGE
        return bool(library.renameat2(-100, names[0], -100, names[1], 2) == 0)
    if hasattr(library, "renamex_np"):  # macOS: RENAME_SWAP
        return bool(library.renamex_np(*names, 2) == 0)
    return False


@contextlib.contextmanager
def explain_os_errors(path: Path, outcome: str = "") -> Iterator[None]:
    """Turn an error of the system into an OutputError about ``path``, and add the outcome."""
    try:
        yield
    except OSError as error:
        reason = (
            "the disk is full"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else (error.strerror or str(error)).lower()
        )
        raise OutputError(f"cannot write {path}: {reason}{outcome}") from error


def open_private(name: str, flags: int) -> int:
    """An opener for ``open``: other users cannot read a file that it makes."""
    return os.open(name, flags, 0o600)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
