"""The versions of a model that learns from feedback, and their history."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dtdr.data.files import explain_os_errors, lock_file, replace_folder
from dtdr.errors import InputError, cannot_read
from dtdr.predict.model import Model
from dtdr.rankers.model_folder import read_config

_HISTORY = "history.jsonl"


@dataclass(frozen=True, slots=True)
class VersionChange:
    """One line of the history.

    Attributes:
        version: a number from 000001; of a refused change, the version that stays.
        outcome: ``begun``: the model's folder at the start; ``published``; ``refused``: worse than
            the served version; ``rolled back``: published again.
        checksum: of the version's ``config.json``, to recognise the model's folder.
        position: of the last entry of the log that is done.
        time: in UTC.
        demonstrations: of feedback that were learned, or refused.
        held_out: demonstrations that both versions were measured on.
        before: MRR on these of the served version.
        after: MRR of the new version.
    """

    version: str
    outcome: Literal["begun", "published", "refused", "rolled back"]
    checksum: str
    position: str
    time: str
    demonstrations: int = 0
    held_out: int = 0
    before: float | None = None
    after: float | None = None


def now() -> str:
    """The time for a line of the history."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Versions:
    """The folder ``MODEL.versions`` next to the model's: versions by name, and their history.

    A line of the history is on the disk before the model's folder is replaced. So a process that is
    killed in between finds the former model and, by its checksum, its position in the log.

    Args:
        model: the folder that servers watch.
    """

    def __init__(self, model: Path) -> None:
        self.model = Path(model)
        self.folder = self.model.with_name(self.model.name + ".versions")

    def history(self) -> list[VersionChange]:
        """All changes, oldest first.

        Raises:
            InputError: a line is damaged; half a line at the end, from a crash, is skipped.
        """
        path = self.folder / _HISTORY
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise cannot_read(path, error) from error
        changes = []
        for number, line in enumerate(lines[:-1], start=1):
            try:
                changes.append(VersionChange(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise InputError(
                    f"{path}:{number} is not a line of a history; restore it, or delete "
                    f"{self.folder} to begin again"
                ) from error
        return changes

    def add(self, change: VersionChange) -> None:
        """Add a line to the history, and wait for the disk.

        Raises:
            OutputError: it cannot be written.
        """
        path = self.folder / _HISTORY
        with explain_os_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("a+b") as stream:
                stream.seek(0)
                stream.truncate(stream.read().rfind(b"\n") + 1)  # half a line, from a crash
                stream.write(json.dumps(asdict(change)).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())

    def next_name(self, history: list[VersionChange]) -> str:
        """The name of the next version."""
        names = [int(change.version) for change in history]
        return f"{max(names, default=0) + 1:06d}"

    def save(self, name: str, model: Model) -> str:
        """Write a version without publishing it; returns its checksum.

        Raises:
            OutputError: it cannot be written.
        """
        model.save(self.folder / name, force=True)
        return checksum_of(self.folder / name)

    def publish(self, name: str) -> None:
        """Replace the model's folder with a version, at once for all readers.

        Raises:
            OutputError: it cannot be written; the former folder is intact.
        """
        copy_folder(self.folder / name, self.model)

    def list_names(self) -> list[str]:
        """Names of the versions, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(item.name for item in self.folder.iterdir() if item.name.isdigit())

    def prune(self, keep: int) -> None:
        """Delete the oldest versions, but never the served one."""
        served = checksum_of(self.model)
        for name in self.list_names()[:-keep]:
            if checksum_of(self.folder / name) != served:
                shutil.rmtree(self.folder / name)

    def roll_back(self, name: str) -> VersionChange:
        """Publish an earlier version; later feedback is not learned again.

        Raises:
            InputError: there is no such version.
            OutputError: it cannot be written.
        """
        if name not in self.list_names():
            kept = ", ".join(self.list_names()) or "none"
            raise InputError(f"{self.folder} has no version {name!r}; those kept are: {kept}")
        history = self.history()
        position = history[-1].position if history else ""
        change = VersionChange(
            name, "rolled back", checksum_of(self.folder / name), position, now()
        )
        self.add(change)
        self.publish(name)
        return change

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that one process alone changes the model.

        Raises:
            InputError: another process has locked it.
            OutputError: it cannot be written.
        """
        with explain_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            stream = (self.folder / "lock").open("ab")
        with stream:
            try:
                lock_file(stream, wait=False)
            except OSError as error:
                raise InputError(
                    f"another dtdr learn is at work on {self.model}; there is one at a time"
                ) from error
            yield


def copy_folder(source: Path, target: Path) -> None:
    """Replace a model folder with a copy of another; OutputError if it cannot be written."""
    with replace_folder(target) as temporary:
        for item in source.iterdir():
            shutil.copyfile(item, temporary / item.name)


def checksum_of(folder: Path) -> str:
    """The checksum of a model folder's configuration, which names the tensors' own.

    Raises:
        ModelError: it is not a usable model folder.
    """
    return str(read_config(folder).get("config_sha256", ""))
