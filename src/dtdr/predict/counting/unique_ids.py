"""Tells how many ids stand more than once, however many there are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from dtdr.errors import OutputError
from dtdr.predict.counting.counts import Numbers, sort_unique

_RANGES = 256


class UniqueIds:
    """Numbers of ids: in memory up to a limit, beyond it in temporary files by their first byte.

    Args:
        most: numbers in memory, 8 bytes each.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[Numbers] = []
        self._count = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, numbers: Numbers) -> None:
        """Remember further numbers.

        Raises:
            OutputError: there is no room for a temporary file.
        """
        self._held.append(numbers)
        self._count += len(numbers)
        if self._count > self._most:
            self._spill()

    def count_repeats(self) -> int:
        """How many numbers are equal to one before."""
        if self._folder is not None:
            self._spill()
        return sum(
            len(numbers) - len(sort_unique(numbers)) for numbers in self._ranges() if len(numbers)
        )

    def _ranges(self) -> Iterator[Numbers]:
        """All numbers, in parts of which no two hold an equal one."""
        if self._folder is None:
            yield np.concatenate([np.empty(0, np.uint64), *self._held])
            return
        for path in sorted(Path(self._folder.name).iterdir()):
            yield np.fromfile(path, np.uint64)

    def _spill(self) -> None:
        try:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="dtdr-ids-")
            numbers = np.sort(np.concatenate([np.empty(0, np.uint64), *self._held]))
            borders = np.arange(1, _RANGES, dtype=np.uint64) << np.uint64(56)
            pieces = np.split(numbers, np.searchsorted(numbers, borders))
            for place, piece in enumerate(pieces):
                if len(piece):
                    with (Path(self._folder.name) / f"{place:03}").open("ab") as stream:
                        piece.tofile(stream)
        except OSError as error:
            raise OutputError(
                f"cannot keep the ids seen so far ({error.strerror or error}); free space in the "
                "temporary folder, set TMPDIR to another, or give more --memory"
            ) from error
        self._held, self._count = [], 0
