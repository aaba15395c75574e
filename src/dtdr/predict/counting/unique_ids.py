"""Counts ids that occur more than once, however many there are."""

from __future__ import annotations

import tempfile
from typing import Self

import numpy as np

from dtdr.errors import OutputError
from dtdr.predict.counting.counts import Numbers


class UniqueIds:
    """Numbers of ids, 8 bytes each, in a temporary file that is sorted in place."""

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile(prefix="dtdr-ids-")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, numbers: Numbers) -> None:
        """Remember further numbers.

        Raises:
            OutputError: there is no room for the temporary file.
        """
        try:
            self._file.write(numbers.tobytes())
            self._file.flush()
        except OSError as error:
            raise OutputError(
                f"cannot keep the ids seen so far ({error.strerror or error}); free space in the "
                "temporary folder, or set TMPDIR to another"
            ) from error

    def count_repeats(self) -> int:
        """How many numbers are equal to one before."""
        if not self._file.tell():
            return 0
        numbers = np.memmap(self._file, np.uint64)
        numbers.sort()
        return int(np.count_nonzero(numbers[1:] == numbers[:-1]))
