"""Finds the files of a data set: one file, a folder, a pattern, or object storage."""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dtdr.data.partials import delete_partials
from dtdr.errors import DtdrError, InputError, MissingExtraError, cannot_read

SUFFIXES = (".jsonl", ".parquet")
"""Files of a folder that contain demonstrations."""

UNFOLDS = 200
"""Times its size that a compressed file may expand to. Repetitive chat logs have 100."""
ROOM = 64_000_000
"""Bytes that a compressed file may expand to in addition."""
SHORT_LINE = 100
"""Bytes that a line counts at least, since a blank line takes as long to read."""

_BUFFER_BYTES = 1 << 16

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)")


@dataclass(frozen=True)
class Shard:
    """A file of a data set, with its name in errors, and how to open it."""

    name: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def find_shards(path: str | Path, *, tidy: bool = True) -> list[Shard]:
    """The files of a path, sorted by name.

    A folder means every ``.jsonl`` and ``.parquet`` file in it and its subfolders, without
    names that begin with ``.`` or ``_``; a pattern such as ``runs/*.parquet`` for its matches. A
    URL such as ``s3://bucket/runs`` is a file, folder or pattern that fsspec opens.

    Args:
        path: a file, folder, pattern or URL.
        tidy: delete what killed commands left in its folders.

    Raises:
        InputError: a folder or pattern has no such file, or object storage cannot be reached.
        MissingExtraError: a URL is given and fsspec is not installed.
    """
    text = str(path)
    if (url := as_url(text)) is not None:
        return _remote_shards(url)
    local = Path(path)
    for folder in local_folders(path) if tidy else ():
        delete_partials(folder)
    if local.is_dir():
        files = [item for item in sorted(local.rglob("*")) if _is_shard(item.relative_to(local))]
        paths = [str(item) for item in files if item.is_file()]
    elif glob.has_magic(text) and not local.exists():
        paths = sorted(item for item in glob.glob(text, recursive=True) if Path(item).is_file())
    else:
        return [local_shard(text)]
    return list(map(local_shard, _require_some(paths, text)))


def open_shard(name: str) -> Shard:
    """The file that ``find_shards`` gave this name, without listing its folder.

    Raises:
        InputError: object storage cannot be reached.
        MissingExtraError: the name is a URL and fsspec is not installed.
    """
    url = as_url(name)
    if url is None:
        return local_shard(name)
    system, remote = open_file_system(url)
    return _remote_shard(system, remote, url)


def find_beside(path: str | Path, name: str) -> Shard | None:
    """The file of a name in the folder of a path, or in the folder that the path is.

    None if there is none.

    Raises:
        InputError: object storage cannot be reached.
    """
    url = as_url(path)
    if url is None:
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        return local_shard(str(folder / name)) if (folder / name).is_file() else None
    with reach(url) as (system, remote):
        is_folder = not glob.has_magic(remote) and system.isdir(remote)
        parent = remote.rstrip("/") if is_folder else remote.rpartition("/")[0]
        sibling = f"{parent}/{name}"
        if not system.isfile(sibling):
            return None
    return _remote_shard(system, sibling, url_of(url, sibling))


def local_folders(path: str | Path) -> list[Path]:
    """The folders of this machine with the files of a path or their copies; none of a URL."""
    text, local = str(path), Path(path)
    if as_url(text) is not None:
        return []
    if local.is_dir():
        return [
            local.resolve().parent,
            local,
            *(item for item in local.rglob("*") if item.is_dir()),
        ]
    if glob.has_magic(text) and not local.exists():
        files = [*glob.glob(text, recursive=True), text]
        return sorted({Path(item).parent for item in files})
    return [local.resolve().parent]


def is_sharded(path: str | Path) -> bool:
    """Whether a path is a folder, a pattern, a URL or Parquet, not a single file of lines."""
    text = str(path)
    if Path(path).suffix == ".parquet" or Path(path).is_dir() or as_url(text) is not None:
        return True
    return glob.has_magic(text) and not Path(path).exists()


def as_url(path: str | Path) -> str | None:
    """The URL that a path is, or None; ``pathlib`` makes ``s3:/bucket`` of ``s3://bucket``."""
    parts = _URL.fullmatch(str(path))
    if parts is None or Path(path).exists():
        return None
    return f"{parts[1]}://{parts[2]}"


def _is_shard(path: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return path.suffix in SUFFIXES and not hidden


def _require_some(paths: list[str], text: str) -> list[str]:
    if not paths:
        raise InputError(
            f"{text} has no demonstrations; name a file, or a folder or pattern with files that "
            f"end in {' or '.join(SUFFIXES)}"
        )
    return paths


def local_shard(name: str, path: Path | None = None) -> Shard:
    """A file on this machine, plain or gzipped; ``path`` if its name in errors is another.

    Reading raises an InputError if it fails.
    """

    @contextlib.contextmanager
    def open_file() -> Iterator[IO[bytes]]:
        try:
            with Path(path or name).open("rb") as disk:
                yield _unpack(disk, name)
        except (EOFError, zlib.error) as error:
            raise _damaged(name) from error
        except OSError as error:
            raise cannot_read(name, error) from error

    return Shard(name, open_file)


def _unpack(stream: io.BufferedReader, name: str) -> io.BufferedReader:
    """The stream, or what is compressed in it."""
    if stream.peek(2)[:2] != b"\x1f\x8b":
        return stream
    # gzip's own buffer would decompress 8 kB at a time.
    return io.BufferedReader(_Unpacked(stream, name), 1 << 18)


def _damaged(name: str) -> InputError:
    return InputError(f"cannot read {name}: the compressed data is damaged or cut off")


class _Unpacked(gzip.GzipFile):
    """A compressed file that may expand to ``UNFOLDS`` times its size and ``ROOM``."""

    def __init__(self, packed: IO[bytes], name: str) -> None:
        self._packed = packed
        self._path = name
        self._lines = 0
        super().__init__(fileobj=packed)

    def read(self, size: int | None = -1) -> bytes:
        """At most ``size`` bytes; InputError if the file expands to too much."""
        data = super().read(size)
        self._lines += data.count(b"\n")
        if max(self.tell(), self._lines * SHORT_LINE) > ROOM + UNFOLDS * self._packed.tell():
            raise InputError(
                f"{self._path} unfolds to more than {UNFOLDS} times its size and {ROOM:,} bytes; "
                "unpack it first if it is meant to"
            )
        return data


def open_file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"reading {url}", "parquet", "fsspec") from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except Exception as error:
        raise explain_unreachable(url, error) from error
    return system, path


@contextlib.contextmanager
def reach(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL, and the path in it, for a block that asks about files.

    Raises:
        InputError: object storage cannot be reached, or does not answer in the block.
        MissingExtraError: fsspec is not installed.
    """
    system, path = open_file_system(url)
    try:
        yield system, path
    except DtdrError:
        raise
    except Exception as error:
        raise explain_unreachable(url, error) from error


def url_of(url: str, path: str) -> str:
    """The URL of a path in the file system of another URL."""
    return f"{url.partition('://')[0]}://{path.lstrip('/')}"


def _remote_shards(url: str) -> list[Shard]:
    with reach(url) as (system, path):
        if glob.has_magic(path):
            paths = sorted(system.glob(path))
        elif system.isdir(path):
            start = len(path.rstrip("/")) + 1
            paths = sorted(item for item in system.find(path) if _is_shard(Path(item[start:])))
        else:
            return [_remote_shard(system, path, url)]
    return [_remote_shard(system, item, url_of(url, item)) for item in _require_some(paths, url)]


def _remote_shard(system: Any, path: str, name: str) -> Shard:
    @contextlib.contextmanager
    def open_file() -> Iterator[IO[bytes]]:
        try:
            with system.open(path, "rb") as stream:
                # A driver's own lines are of any length.
                yield _unpack(io.BufferedReader(stream, _BUFFER_BYTES), name)
        except DtdrError:
            raise
        except (EOFError, zlib.error) as error:
            raise _damaged(name) from error
        except Exception as error:
            raise explain_unreachable(name, error) from error

    return Shard(name, open_file)


def explain_unreachable(url: str, error: Exception) -> InputError:
    """One sentence about any error of a storage driver."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"cannot read {url}: no such file or folder")
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(f"cannot read {url}: {reason}")
