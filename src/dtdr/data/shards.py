"""One file, a folder of them, a pattern, or object storage: what a path of data means."""

from __future__ import annotations

import contextlib
import glob
import io
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dtdr.errors import DtdrError, InputError, MissingExtraError

SUFFIXES = (".jsonl", ".parquet")
"""Files of a folder that hold demonstrations."""

_BUFFER_BYTES = 1 << 16

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)")


@dataclass(frozen=True)
class Shard:
    """One file of a data set.

    Attributes:
        name: how errors name it.
        open: opens it for reading.
    """

    name: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def find_shards(path: str | Path) -> list[Shard]:
    """The files that a path means, sorted by name.

    A folder means every ``.jsonl`` and ``.parquet`` file in it and its subfolders, but for names
    that begin with ``.`` or ``_``; a pattern such as ``runs/*.parquet`` means what it matches; a
    URL such as ``s3://bucket/runs`` is a file, folder or pattern that fsspec opens.

    Raises:
        InputError: a folder or pattern has no such file, or object storage cannot be reached.
        MissingExtraError: a URL is given and fsspec is not installed.
    """
    text = str(path)
    if (url := _as_url(text)) is not None:
        return _remote_shards(url)
    local = Path(path)
    if local.is_dir():
        files = [item for item in sorted(local.rglob("*")) if _is_shard(item.relative_to(local))]
        paths = [str(item) for item in files if item.is_file()]
    elif glob.has_magic(text) and not local.exists():
        paths = sorted(item for item in glob.glob(text, recursive=True) if Path(item).is_file())
    else:
        return [local_shard(text)]
    return list(map(local_shard, _require_some(paths, text)))


def is_sharded(path: str | Path) -> bool:
    """Whether a path is a folder, a pattern, a URL or Parquet: no single file of lines."""
    text = str(path)
    if Path(path).suffix == ".parquet" or Path(path).is_dir() or _as_url(text) is not None:
        return True
    return glob.has_magic(text) and not Path(path).exists()


def _as_url(text: str) -> str | None:
    """The URL that a text is; ``pathlib`` makes ``s3:/bucket`` of ``s3://bucket``."""
    parts = _URL.fullmatch(text)
    if parts is None or Path(text).exists():
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


def local_shard(name: str) -> Shard:
    """A file on this machine; opening it raises an InputError where it cannot be read."""

    def open_file() -> IO[bytes]:
        try:
            return Path(name).open("rb")
        except OSError as error:
            raise InputError(
                f"cannot read {name}: {(error.strerror or str(error)).lower()}"
            ) from error

    return Shard(name, open_file)


def _remote_shards(url: str) -> list[Shard]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"reading {url}", "parquet", "fsspec") from error
    try:
        system, path = fsspec.core.url_to_fs(url)
        if glob.has_magic(path):
            paths = sorted(system.glob(path))
        elif system.isdir(path):
            start = len(path.rstrip("/")) + 1
            paths = sorted(item for item in system.find(path) if _is_shard(Path(item[start:])))
        else:
            return [_remote_shard(system, path, url)]
    except Exception as error:
        raise _explain_unreachable(url, error) from error
    scheme = url.partition("://")[0]
    return [
        _remote_shard(system, item, f"{scheme}://{item.lstrip('/')}")
        for item in _require_some(paths, url)
    ]


def _remote_shard(system: Any, path: str, name: str) -> Shard:
    @contextlib.contextmanager
    def open_file() -> Iterator[IO[bytes]]:
        try:
            with system.open(path, "rb") as stream:
                # A driver's own lines are of any length.
                yield io.BufferedReader(stream, _BUFFER_BYTES)
        except DtdrError:
            raise
        except Exception as error:
            raise _explain_unreachable(name, error) from error

    return Shard(name, open_file)


def _explain_unreachable(url: str, error: Exception) -> InputError:
    """Storage drivers raise whatever they like: each is one sentence."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"cannot read {url}: no such file or folder")
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(f"cannot read {url}: {reason}")
