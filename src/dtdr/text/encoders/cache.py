"""A cache of vectors on disk, so that a model encodes each text once.

One table in one SQLite file, ``embeddings/vectors.db`` under ``$DTDR_CACHE`` or ``~/.cache/dtdr``.
SQLite's locks let several processes use it, and a process that dies leaves no half-written entry.
The key of an entry is the SHA-256 of the encoder's fingerprint and the text. An entry ends with a
checksum. The cache contains no texts.

A cache never fails. It starts a damaged file again, and does without one that cannot be used, both
with a ``CacheWarning``.
"""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TypeVar

import numpy as np

from dtdr.data.files import cache_folder
from dtdr.errors import EncoderError
from dtdr.text.encoders.base import Encoder, Floats32, Vectors, with_progress

Result = TypeVar("Result")

MAX_BYTES = 2**30
"""Above this limit, the oldest quarter is deleted: 1 GiB, about 600,000 vectors of 384 numbers."""

_BLOCK = 512  # texts encoded between two writes: what an interrupted run loses at most
_LOOKUP = 500  # keys in one SELECT; SQLite allows 999 at least
_LOCK_SECONDS = 30.0
_CHECKSUM_BYTES = 4
_SCHEMA = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)"
_DAMAGE = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class CacheWarning(UserWarning):
    """The cache could not be used; results are the same without it."""


def clear() -> None:
    """Delete every cached vector; safe while other processes use the cache."""
    VectorCache().clear()


class VectorCache:
    """The SQLite file; the same vectors as without it, to the last bit.

    Each method opens the file again: that takes 43 µs of the 5 ms of MiniLM for a text, and threads
    and forked processes share nothing.
    """

    def __init__(self) -> None:
        self._path = cache_folder() / "embeddings" / "vectors.db"
        self._is_usable = True

    def encode(self, encoder: Encoder, texts: Sequence[str]) -> Vectors:
        """Vectors of texts; an encoder without a fingerprint computes them all.

        Args:
            encoder: of dense vectors.
            texts: already cut.

        Returns:
            Shape (texts, dimension).

        Raises:
            EncoderError: cached vectors have another length than computed ones.
        """
        fingerprint = encoder.fingerprint()
        if fingerprint is None or not texts:
            return encoder.compute(texts)
        keys = [_key(fingerprint, text) for text in texts]
        known = self.read(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        starts = range(0, len(missing), _BLOCK)
        for start in with_progress(starts, len(missing), encoder.name, len(starts)):
            block = list(missing)[start : start + _BLOCK]
            vectors = np.asarray(encoder.compute([missing[key] for key in block]), np.float32)
            computed = dict(zip(block, vectors, strict=True))
            self.write(computed)
            known.update(computed)
        rows = [known[key] for key in keys]
        if len({row.shape for row in rows}) > 1:
            raise EncoderError(
                f"the cache has vectors of another length for encoder {encoder.name!r}, whose "
                "model must have changed; clear the cache with: dtdr.text.encoders.cache.clear()"
            )
        return np.stack(rows)

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Floats32]:
        """The cached vectors; shape (dimension,) each."""
        distinct = list(dict.fromkeys(keys))

        def select(connection: sqlite3.Connection) -> dict[bytes, Floats32]:
            vectors = {}
            for start in range(0, len(distinct), _LOOKUP):
                part = distinct[start : start + _LOOKUP]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"  # noqa: S608  # marks only
                for key, content in connection.execute(query, part):
                    vectors[key] = _unpack(content)
            return vectors

        return self._run(select) or {}

    def write(self, vectors: Mapping[bytes, Floats32]) -> None:
        """Add vectors of shape (dimension,), all or none of them."""
        rows = [(key, _pack(vector)) for key, vector in vectors.items()]

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
            _drop_oldest(connection)
            connection.execute("COMMIT")

        self._run(insert)

    def clear(self) -> None:
        """Delete every vector."""
        if self._path.exists():
            self._run(lambda connection: connection.executescript("DELETE FROM vectors; VACUUM"))

    def _run(self, action: Callable[[sqlite3.Connection], Result]) -> Result | None:
        if not self._is_usable:
            return None
        try:
            with self._connect() as connection:
                return action(connection)
        except (sqlite3.Error, OSError) as error:
            if _is_damage(error):
                for name in (self._path.name, f"{self._path.name}-journal"):
                    with suppress(OSError):
                        self._path.with_name(name).unlink()
                _warn(f"the cache {self._path} is damaged ({error}) and is started again")
            else:
                self._is_usable = False
                _warn(f"the cache {self._path} cannot be used ({error}); going on without it")
        return None

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Closing rolls back what was not committed, after Ctrl-C too.
        with closing(
            sqlite3.connect(self._path, timeout=_LOCK_SECONDS, isolation_level=None)
        ) as connection:
            # A machine that dies may damage the file, which costs no more than computing again.
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute(_SCHEMA)
            yield connection


def _drop_oldest(connection: sqlite3.Connection) -> None:
    def number(query: str) -> int:
        return int(connection.execute(query).fetchone()[0])

    pages = number("PRAGMA page_count") - number("PRAGMA freelist_count")
    used = pages * number("PRAGMA page_size")
    if used <= MAX_BYTES:
        return
    count = number("SELECT COUNT(*) FROM vectors")
    left = int(count * 0.75 * MAX_BYTES / used)
    connection.execute(
        "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors ORDER BY rowid LIMIT ?)",
        (count - left,),
    )


def _is_damage(error: Exception) -> bool:
    # What Python itself finds, such as text that is not UTF-8, has no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return isinstance(error, sqlite3.Error) and code & 0xFF in _DAMAGE  # higher bits tell details


def _pack(vector: Floats32) -> bytes:
    content = vector.astype("<f4").tobytes()
    return content + zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def _unpack(packed: object) -> Floats32:
    if isinstance(packed, bytes) and len(packed) % 4 == 0 and len(packed) > _CHECKSUM_BYTES:
        content, checksum = packed[:-_CHECKSUM_BYTES], packed[-_CHECKSUM_BYTES:]
        if zlib.crc32(content) == int.from_bytes(checksum, "little"):
            return np.frombuffer(content, "<f4")
    raise sqlite3.DatabaseError("a checksum is wrong")


def _key(fingerprint: str, text: str) -> bytes:
    digest = hashlib.sha256(fingerprint.encode("utf-8", "surrogatepass"))
    digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.digest()


def _warn(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=2)
