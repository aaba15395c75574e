"""The folders of encoders that the user fitted with, by the checksum of their files.

A model folder does not name them: its author would choose which files of this machine are read.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from dtdr.data.files import cache_folder, read_regular_file, replace_file
from dtdr.errors import OutputError

_CHECKSUM = re.compile("[0-9a-f]{64}")
_MAX_BYTES = 10_000
"""Limit of a path."""


def remember(checksum: str, folder: str | Path) -> None:
    """Record the folder of files with a checksum for ``recall``, if the cache can be written.

    Args:
        checksum: SHA-256 of the encoder's files, in hexadecimal.
        folder: of the files.
    """
    with contextlib.suppress(OutputError), replace_file(_record(checksum)) as stream:
        stream.write(str(Path(folder).resolve()))


def recall(checksum: object) -> Path | None:
    """The folder that ``remember`` recorded for a checksum; None if there is none, or it is gone.

    Args:
        checksum: from a model folder; any value.
    """
    if not isinstance(checksum, str) or not _CHECKSUM.fullmatch(checksum):
        return None
    try:
        folder = Path(read_regular_file(_record(checksum), _MAX_BYTES).decode())
    except (OSError, ValueError):
        return None
    return folder if folder.is_dir() else None


def _record(checksum: str) -> Path:
    return cache_folder() / "encoder-folders" / checksum
