"""API keys: random, kept as hashes only, compared in constant time.

A key is 256 random bits, so a plain SHA-256 of it cannot be searched; slow hashes are for what
people think up. The file is JSON; the keys themselves are shown once, when they are made.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from dtdr.errors import InputError, OutputError
from dtdr.files import replace_file

if sys.platform != "win32":
    import fcntl

Role = Literal["rank", "admin"]
"""``rank`` may rank and hold sessions; ``admin`` may also update, save and reload models."""

FORMAT = "dtdr-keys"
FORMAT_VERSION = 1
_PREFIX = "dtdr_"


@dataclass(frozen=True)
class ApiKey:
    """One key, without the key itself."""

    id: str
    sha256: str
    role: Role
    created: str
    note: str = ""


class KeyFile:
    """The keys of a server.

    Raises:
        InputError: the file cannot be read, or is not a key file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._stamp: tuple[int, int] | None = None
        self.keys: tuple[ApiKey, ...] = ()
        self._read()

    def find(self, presented: str) -> ApiKey | None:
        """The key that was presented, or None; takes as long whichever it is."""
        digest = _hash(presented)
        match = None
        for key in self.keys:
            if hmac.compare_digest(key.sha256, digest):
                match = key
        return match

    def refresh(self) -> bool:
        """Read the file again if it changed; one that cannot be read is tried again each time.

        Returns:
            Whether the file was read.

        Raises:
            InputError: it is missing, or no key file any more; the keys stay as they were.
        """
        stamp = self._look()
        if stamp is not None and stamp == self._stamp:
            return False
        self._read()
        return True

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    def _read(self) -> None:
        stamp = self._look()
        self.keys = read_keys(self.path)
        self._stamp = stamp


def read_keys(path: str | Path) -> tuple[ApiKey, ...]:
    """The keys of a file.

    Raises:
        InputError: the file cannot be read, or is not a key file.
    """
    try:
        record = json.loads(Path(path).read_bytes())
    except OSError as error:
        remedy = "" if Path(path).exists() else f"; make it with: dtdr keys create {path}"
        raise InputError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}{remedy}"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not a key file: it is not JSON") from error
    try:
        if record["format"] != FORMAT or record["format_version"] != FORMAT_VERSION:
            raise InputError(f"{path} is not a key file of version {FORMAT_VERSION}")
        keys = tuple(ApiKey(**item) for item in record["keys"])
        if any(key.role not in get_args(Role) or len(key.sha256) != 64 for key in keys):
            raise InputError(f"{path} is damaged: a key has no role, or no hash")
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} is not a key file; make one with: dtdr keys create") from error
    return keys


def create_key(path: str | Path, *, role: Role = "rank", note: str = "") -> tuple[str, ApiKey]:
    """Make a key and add its hash to a file, which is created where there is none.

    Returns:
        The key itself, which is kept nowhere, and what the file knows of it.

    Raises:
        InputError: the file is something else, or there is no such role.
        OutputError: the file cannot be written.
    """
    if role not in get_args(Role):
        raise InputError(f"unknown role {role!r}; choose one of {', '.join(get_args(Role))}")
    # Ids are public, in logs and listings, and say nothing about the key.
    identifier = secrets.token_hex(4)
    key = _PREFIX + secrets.token_urlsafe(32)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    entry = ApiKey(identifier, _hash(key), role, created, note)
    with _lock_folder(path):
        keys = read_keys(path) if Path(path).exists() else ()
        _write(path, (*keys, entry))
    return key, entry


def revoke_key(path: str | Path, identifier: str) -> None:
    """Take a key out of a file; a running server notices within seconds.

    Raises:
        InputError: no key has that id, or the file is not a key file.
        OutputError: the file cannot be written.
    """
    with _lock_folder(path):
        keys = read_keys(path)
        others = tuple(key for key in keys if key.id != identifier)
        if len(others) == len(keys):
            known = ", ".join(key.id for key in keys) or "none"
            raise InputError(f"{path} holds no key {identifier!r}; it holds: {known}")
        _write(path, others)


@contextlib.contextmanager
def _lock_folder(path: str | Path) -> Iterator[None]:
    """Lock the folder of a key file, so that no other process changes it between read and write.

    The file itself cannot be held, since it is replaced. The system frees what a process held when
    it ends, however it ends.
    """
    folder = Path(path).resolve().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":  # no folder can be held there
            yield
            return
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"cannot write {path}: {reason}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _write(path: str | Path, keys: tuple[ApiKey, ...]) -> None:
    record = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "keys": [asdict(key) for key in keys],
    }
    with replace_file(path) as stream:
        json.dump(record, stream, ensure_ascii=False, indent=1)
        stream.write("\n")
    os.chmod(path, 0o600)  # hashes only, but still private
