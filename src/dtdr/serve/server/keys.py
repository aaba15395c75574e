"""API keys: random, kept as hashes only, compared in constant time.

A key is 256 random bits, so a plain SHA-256 of it cannot be searched. The file is JSON; a key is
shown once, when it is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dtdr.data.files import explain_os_errors, lock_file, replace_file
from dtdr.errors import InputError, cannot_read

Role = Literal["rank", "admin"]
"""``rank`` may rank; ``admin`` may also update, save and reload models."""

_PREFIX = "dtdr_"


class ApiKey(msgspec.Struct, frozen=True):
    """One key, without the key itself."""

    id: str
    sha256: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
    role: Role
    created: str
    note: str = ""


class _KeyFile(msgspec.Struct):
    """A key file."""

    format: Literal["dtdr-keys"]
    format_version: Literal[1]
    keys: tuple[ApiKey, ...]


def find_key(keys: Iterable[ApiKey], presented: str) -> ApiKey | None:
    """The key that was presented, or None, in constant time."""
    digest = _hash(presented)
    match = None
    for key in keys:
        if hmac.compare_digest(key.sha256, digest):
            match = key
    return match


def read_keys(path: str | Path) -> tuple[ApiKey, ...]:
    """The keys of a file.

    Raises:
        InputError: the file cannot be read, or is not a key file.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_KeyFile).keys
    except OSError as error:
        remedy = "" if Path(path).exists() else f"; make it with: dtdr keys create {path}"
        raise cannot_read(path, error, remedy) from error
    except ValueError as error:
        raise InputError(
            f"{path} is not a key file of version 1, or damaged ({error}); "
            "make one with: dtdr keys create"
        ) from error


def create_key(path: str | Path, *, role: Role = "rank", note: str = "") -> tuple[str, ApiKey]:
    """Make a key and add its hash to a file, which may be new.

    Returns:
        The key itself, which is kept nowhere, and its entry.

    Raises:
        InputError: the file is not a key file.
        OutputError: the file cannot be written.
    """
    # Ids are public, in logs and listings, and say nothing about the key.
    identifier = secrets.token_hex(4)
    key = _PREFIX + secrets.token_urlsafe(32)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    entry = ApiKey(identifier, _hash(key), role, created, note)
    with _lock(path):
        keys = read_keys(path) if Path(path).exists() else ()
        _write(path, (*keys, entry))
    return key, entry


def revoke_key(path: str | Path, identifier: str) -> None:
    """Take a key out of a file; a running server notices within seconds.

    Raises:
        InputError: no key has that id, or the file is not a key file.
        OutputError: the file cannot be written.
    """
    with _lock(path):
        keys = read_keys(path)
        others = tuple(key for key in keys if key.id != identifier)
        if len(others) == len(keys):
            known = ", ".join(key.id for key in keys) or "none"
            raise InputError(f"{path} has no key {identifier!r}; it has: {known}")
        _write(path, others)


@contextlib.contextmanager
def _lock(path: str | Path) -> Iterator[None]:
    """Let no other process change a key file between read and write.

    Locks another file, since the key file is replaced.
    """
    lock = Path(f"{path}.lock")
    with explain_os_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("ab")
    with stream:
        lock_file(stream)
        yield


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _write(path: str | Path, keys: tuple[ApiKey, ...]) -> None:
    content = msgspec.json.format(msgspec.json.encode(_KeyFile("dtdr-keys", 1, keys)), indent=1)
    with replace_file(path) as stream:
        stream.write(content.decode() + "\n")
    os.chmod(path, 0o600)  # hashes only, but still private
