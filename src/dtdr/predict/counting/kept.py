"""Counts of each shard, kept next to a model so that the next fit counts only what changed."""

from __future__ import annotations

import hashlib
import io
import json
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dtdr.data.files import replace_file
from dtdr.data.jsonl import longest_line
from dtdr.errors import InputError, OutputError
from dtdr.predict.counting.counts import Counts, Numbers

_SUFFIX = ".counts"
_VERSION = 2
"""Of what is counted and of how it is written: a change of either makes it another."""
_DIGEST = hashlib.sha256().digest_size
_RECORD = ("total", "skipped", "empty", "tools", "rare")
"""Attributes of the counts of a part that are JSON."""


@dataclass(frozen=True, slots=True)
class KeptCounts:
    """A folder of counts, one file a part, named by the hash of what was counted.

    Attributes:
        folder: made where there is none.
    """

    folder: Path

    @classmethod
    def of_model(cls, model: Path) -> KeptCounts:
        """The folder next to a model's, ``MODEL.counts``."""
        model = Path(model).absolute()  # workers may have another folder of their own
        return cls(model.with_name(model.name + _SUFFIX))

    def read(self, name: str, empty: Counts) -> tuple[Counts, Numbers] | None:
        """The counts of a part, and the number of each of its ids.

        Args:
            name: the hash of the part.
            empty: says in which way they have to be counted.

        Returns:
            None where there are none, or they were counted in another way.

        Raises:
            InputError: there is something that cannot be used.
        """
        path = self._path(name)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"cannot read {path}: {reason}; counted again") from error
        body = content[_DIGEST:]
        if hashlib.sha256(body).digest() != content[:_DIGEST]:
            raise InputError(f"{path} is damaged, or not a file of counts; counted again")
        arrays = np.load(io.BytesIO(body))
        record, numbers = json.loads(arrays["record"].tobytes()), arrays["numbers"]
        if record.pop("way") != _way(empty):
            return None
        lowest = np.sort(numbers)[: empty.size]
        return replace(empty, **record, lowest=lowest, phrases=arrays["phrases"]), numbers

    def write(self, name: str, counts: Counts, numbers: Numbers) -> None:
        """Keep the counts of a part.

        Raises:
            OutputError: they cannot be written.
        """
        assert counts.phrases is not None  # those of one part are never too many
        record = {name: getattr(counts, name) for name in _RECORD} | {"way": _way(counts)}
        content = io.BytesIO()
        text = np.frombuffer(json.dumps(record).encode(), np.uint8)
        np.savez(content, record=text, numbers=numbers, phrases=counts.phrases)
        body = content.getvalue()
        with replace_file(self._path(name)) as stream:
            stream.buffer.write(hashlib.sha256(body).digest() + body)

    def prune(self, names: Collection[str]) -> None:
        """Delete all counts but those of some parts.

        Raises:
            OutputError: some cannot be deleted.
        """
        keep = {self._path(name) for name in names}
        try:
            for path in self.folder.glob(f"*{_SUFFIX}"):
                if path not in keep:
                    path.unlink(missing_ok=True)
            for path in self.folder.glob(f".*{_SUFFIX}.*.partial"):  # a fit was killed
                path.unlink(missing_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OutputError(f"cannot delete {error.filename}: {reason}") from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"


def _way(counts: Counts) -> list[Any]:
    """What the counts of the same bytes depend on; the size of the sample is not among it."""
    return [_VERSION, unicodedata.unidata_version, longest_line(), counts.seed, counts.failures]
