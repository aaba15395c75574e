"""Where logs are: files and folders of this machine, pipes, and object storage by its URL."""

from __future__ import annotations

import glob
from pathlib import Path, PurePath

from dtdr.data.shards import as_url, reach, url_of
from dtdr.errors import InputError

STANDARD_INPUT = Path("-")
"""The path that stands for standard input."""

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".log", ".txt", ".gz", ".eval", "")
"""Files of a folder that may be logs."""


def is_pipe(path: Path) -> bool:
    """Whether a path can be read only once."""
    return path == STANDARD_INPUT or path.is_fifo() or path.is_char_device()


def is_folder(path: Path) -> bool:
    """Whether a path is a folder of this machine or in object storage, or a pattern of URLs.

    Raises:
        InputError: object storage cannot be reached.
    """
    url = as_url(path)
    if url is None:
        return path.is_dir()
    with reach(url) as (system, remote):
        return glob.has_magic(remote) or bool(system.isdir(remote))


def require_file(path: Path) -> None:
    """Check that a path is a file or a pipe.

    Raises:
        InputError: it is a folder, there is none, or object storage cannot be reached.
    """
    url = as_url(path)
    if url is None:
        is_file = path.is_file() or is_pipe(path)
    else:
        with reach(url) as (system, remote):
            is_file = system.isfile(remote)
    if not is_file:
        reason = "it is a folder" if is_folder(path) else "no such file or directory"
        raise InputError(f"cannot read {show(path)}: {reason}")


def find_logs(folder: Path) -> list[Path]:
    """The files in a folder and its subfolders that may be logs, without hidden ones, sorted.

    Of a pattern of URLs, the files that match.

    Raises:
        InputError: object storage cannot be reached.
    """
    url = as_url(folder)
    if url is None:
        files = (path for path in folder.rglob("*") if path.is_file())
        return sorted(path for path in files if _may_be_log(path.relative_to(folder)))
    with reach(url) as (system, remote):
        if glob.has_magic(remote):  # the shell does not expand it
            return [Path(url_of(url, name)) for name in sorted(system.glob(remote))]
        root = remote.rstrip("/")
        names = (name for name in system.find(root) if _may_be_log(PurePath(name[len(root) + 1 :])))
        return sorted(Path(url_of(url, name)) for name in names)


def _may_be_log(path: PurePath) -> bool:
    return path.suffix in SUFFIXES and not any(part.startswith(".") for part in path.parts)


def file_size(path: Path) -> int:
    """Bytes of a stored file; 0 for a pipe, or if there is none."""
    url = as_url(path)
    if url is None:
        return 0 if is_pipe(path) or not path.exists() else path.stat().st_size
    with reach(url) as (system, remote):
        return int(system.size(remote) or 0) if system.isfile(remote) else 0


def show(path: Path) -> str:
    """The path as messages name it: a URL with both slashes, which ``Path`` makes one."""
    return as_url(path) or str(path)
