"""Vectors kept on disk, so that no text is encoded twice by the same model.

One SQLite file, ``embeddings/vectors.sqlite3`` under ``$DTDR_CACHE`` or ``~/.cache/dtdr``. SQLite's
write-ahead log lets several processes read while one writes, and a process that dies leaves no
half-written entry; files of our own would need locks for both. An entry is found by the SHA-256 of
the encoder's fingerprint and the text, and holds a checksum; texts themselves are not stored.

A cache never fails: what is damaged is computed again, and a cache that cannot be used is passed
over, both with a ``CacheWarning``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from dtdr.encoders.base import Encoder, Floats32, Vectors, with_progress
from dtdr.errors import EncoderError, InputError
from dtdr.files import cache_folder

Result = TypeVar("Result")

DEFAULT_MAX_BYTES = 2**30
"""1 GiB holds about 600,000 vectors of 384 dimensions."""

_BLOCK = 512  # texts encoded between two writes: what an interrupted run loses at most
_LOOKUP = 500  # keys in one SELECT; SQLite allows 999 at least
_LOCK_SECONDS = 30.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS vectors "
    "(id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, checksum INTEGER NOT NULL, "
    "vector BLOB NOT NULL)"
)


class CacheWarning(UserWarning):
    """The cache, or a part of it, could not be used; results are the same without it."""


def clear(folder: str | Path | None = None) -> None:
    """Forget every cached vector; safe while other processes use the cache.

    Args:
        folder: the cache's; by default ``cache_folder()``.
    """
    path = _database_path(folder)
    if path.exists():
        _Store(path, None).clear()


class CachedEncoder(Encoder):
    """An encoder whose vectors are kept on disk; the same vectors, to the last bit.

    Args:
        encoder: gives dense vectors; one without a ``fingerprint`` is passed through.
        folder: of the cache; by default ``cache_folder()``.
        max_bytes: when the cache grows past it, the oldest quarter is dropped; None: no limit.

    Raises:
        InputError: ``max_bytes`` is below 1.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        folder: str | Path | None = None,
        max_bytes: int | None = DEFAULT_MAX_BYTES,
    ) -> None:
        if max_bytes is not None and max_bytes < 1:
            raise InputError(f"max_bytes is {max_bytes}; it must be at least 1 or None")
        self.encoder = encoder
        self.name = encoder.name  # type: ignore[misc]  # of the class, elsewhere
        self._store = _Store(_database_path(folder), max_bytes)
        self._columns: int | None = None

    @property
    def dimension(self) -> int:
        """The encoder's."""
        return self.encoder.dimension if self._columns is None else self._columns

    def fit(self, texts: Sequence[str]) -> Self:
        """Fit the encoder, if it learns."""
        self.encoder.fit(texts)
        return self

    def fingerprint(self) -> str | None:
        """The encoder's."""
        return self.encoder.fingerprint()

    def config(self) -> dict[str, Any]:
        """The encoder's."""
        return self.encoder.config()

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The encoder's."""
        return self.encoder.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The encoder that ``config`` names, with the default cache."""
        from dtdr import encoders

        return cls(encoders.restore(config, arrays, cache=False))

    def clear(self) -> None:
        """Forget every cached vector, those of other encoders too."""
        self._store.clear()

    def _encode(self, texts: Sequence[str]) -> Vectors:
        fingerprint = self.encoder.fingerprint()
        if fingerprint is None or not texts:
            return self.encoder.encode(texts)
        keys = [_key(fingerprint, text) for text in texts]
        found = self._store.read(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        unknown = list(missing)
        starts = range(0, len(unknown), _BLOCK)
        for start in with_progress(starts, len(unknown), self.name, len(starts)):
            block = unknown[start : start + _BLOCK]
            vectors = np.asarray(self.encoder.encode([missing[key] for key in block]), np.float32)
            fresh = dict(zip(block, vectors, strict=True))
            self._store.write(fresh)
            found.update(fresh)
        rows = [found[key] for key in keys]
        if len({row.shape for row in rows}) > 1:
            raise EncoderError(
                f"the cache holds vectors of another length for encoder {self.name!r}, whose model "
                "must have changed; clear the cache with: dtdr.encoders.cache.clear()"
            )
        self._columns = len(rows[0])
        return np.stack(rows)


class _Store:
    """The SQLite file; every method warns and goes on when the file cannot be used."""

    def __init__(self, path: Path, max_bytes: int | None) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = -1

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Floats32]:
        """The vectors that are there and whole."""
        found: dict[bytes, Floats32] = {}
        damaged = 0
        for key, checksum, vector in self._run(lambda connection: _select(connection, keys)) or ():
            if _is_whole(checksum, vector):
                found[key] = np.frombuffer(vector, "<f4")
            else:
                damaged += 1
        if damaged:
            _warn(f"{damaged} damaged entries of {self._path} are computed again")
        return found

    def write(self, vectors: Mapping[bytes, Floats32]) -> None:
        """Add vectors, all or none of them."""
        rows = [
            (key, zlib.crc32(content), content)
            for key, content in ((key, row.astype("<f4").tobytes()) for key, row in vectors.items())
        ]
        self._run(lambda connection: _insert(connection, rows, self._max_bytes))

    def clear(self) -> None:
        """Drop every vector."""
        self._run(_delete_all)

    def _run(self, action: Callable[[sqlite3.Connection], Result]) -> Result | None:
        with self._lock:
            try:
                return action(self._open())
            except (sqlite3.OperationalError, OSError) as error:
                self._close()
                _warn(f"the cache {self._path} cannot be used ({error}); going on without it")
            except sqlite3.DatabaseError as error:
                self._close()
                self._remove()
                _warn(f"the cache {self._path} is damaged ({error}) and is started anew")
            except BaseException:
                self._close()  # Ctrl-C: an open transaction is rolled back
                raise
        return None

    def _open(self) -> sqlite3.Connection:
        if self._process != os.getpid():  # SQLite connections do not survive a fork
            self._connection, self._process = None, os.getpid()
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                _prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()


def _prepare(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            # Switching to the write-ahead log does not wait for a lock as everything else does.
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(_SCHEMA)


def _select(connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[tuple[Any, Any, Any]]:
    distinct = list(dict.fromkeys(keys))
    rows: list[tuple[Any, Any, Any]] = []
    for start in range(0, len(distinct), _LOOKUP):
        part = distinct[start : start + _LOOKUP]
        marks = ",".join("?" * len(part))
        rows += connection.execute(
            f"SELECT key, checksum, vector FROM vectors WHERE key IN ({marks})", part
        )
    return rows


def _insert(
    connection: sqlite3.Connection, rows: Sequence[tuple[bytes, int, bytes]], limit: int | None
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(
            "INSERT OR REPLACE INTO vectors (key, checksum, vector) VALUES (?, ?, ?)", rows
        )
        if limit is not None:
            _drop_oldest(connection, limit)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _drop_oldest(connection: sqlite3.Connection, limit: int) -> None:
    def number(query: str) -> int:
        return int(connection.execute(query).fetchone()[0])

    pages = number("PRAGMA page_count") - number("PRAGMA freelist_count")
    used = pages * number("PRAGMA page_size")
    if used <= limit:
        return
    count = number("SELECT COUNT(*) FROM vectors")
    kept = int(count * 0.75 * limit / used)
    connection.execute(
        "DELETE FROM vectors WHERE id IN (SELECT id FROM vectors ORDER BY id LIMIT ?)",
        (count - kept,),
    )


def _delete_all(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM vectors")
    connection.execute("VACUUM")


def _is_whole(checksum: object, vector: object) -> bool:
    return isinstance(vector, bytes) and len(vector) % 4 == 0 and zlib.crc32(vector) == checksum


def _key(fingerprint: str, text: str) -> bytes:
    digest = hashlib.sha256(fingerprint.encode("utf-8", "surrogatepass"))
    digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.digest()


def _database_path(folder: str | Path | None) -> Path:
    return Path(folder or cache_folder()) / "embeddings" / "vectors.sqlite3"


def _warn(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=2)
