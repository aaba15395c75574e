"""A model folder in an object store: watched, copied to this machine, and published."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from dtdr.data.files import replace_folder
from dtdr.data.shards import explain_unreachable, open_file_system
from dtdr.errors import ModelError, OutputError

_FILES = ("model.safetensors", "config.json")
"""In the order in which they are published: the configuration has the checksum of the tensors."""
_CHANGES = ("ETag", "etag", "md5", "md5Hash", "LastModified", "mtime", "created", "size")
"""Headers of stores that change with a file."""
_ATTEMPTS = 3

Stamp = tuple[Any, ...]


def is_url(folder: str) -> bool:
    """Whether a model folder is at a URL, such as ``s3://bucket/mail``."""
    return "://" in folder


class RemoteFolder:
    """A model folder at a URL that fsspec opens.

    Args:
        url: such as ``s3://bucket/mail``.

    Raises:
        InputError: the URL cannot be opened.
        MissingExtraError: fsspec, or its package for this kind of URL, is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._system, self._path = open_file_system(self.url)

    def stamp(self) -> Stamp | None:
        """Changes whenever a file of the model is written; None while one is missing.

        Raises:
            ModelError: the store cannot be reached.
        """
        try:
            self._system.invalidate_cache()
            infos = [self._system.info(f"{self._path}/{name}") for name in _FILES]
        except FileNotFoundError:
            return None
        except Exception as error:
            raise ModelError(str(explain_unreachable(self.url, error))) from error
        return tuple(str(item.get(name, "")) for item in infos for name in _CHANGES)

    def fetch(self, folder: Path) -> Stamp | None:
        """Replace a folder of this machine with a copy; returns the stamp of what was copied.

        Raises:
            ModelError: the store cannot be reached, or has no model there.
            OutputError: the copy cannot be written.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            before = self.stamp()
            if before is None:
                raise ModelError(f"{self.url} has no model; publish one with dtdr learn --publish")
            with replace_folder(folder) as temporary:
                try:
                    for name in _FILES:
                        self._system.get_file(f"{self._path}/{name}", str(temporary / name))
                except Exception as error:
                    raise ModelError(str(explain_unreachable(self.url, error))) from error
            if attempt == _ATTEMPTS or self.stamp() == before:
                break  # else another model was published meanwhile
        return before

    def publish(self, folder: Path) -> None:
        """Copy a folder of this machine to the store.

        Raises:
            OutputError: the store cannot be written.
        """
        try:
            self._system.makedirs(self._path, exist_ok=True)
            for name in _FILES:
                target = self._system.open(f"{self._path}/{name}", "wb")
                with (folder / name).open("rb") as source, target:
                    shutil.copyfileobj(source, target, 1 << 20)
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise OutputError(f"cannot write {self.url}: {reason}") from error
