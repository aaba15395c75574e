"""The versions of a model that learns from feedback, and their history."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dtdr.data.files import explain_os_errors, lock_file, replace_folder
from dtdr.errors import DtdrError, InputError, cannot_read
from dtdr.predict.model import Model
from dtdr.rankers.model_folder import read_config

_HISTORY = "history.jsonl"


class ReplacedError(DtdrError):
    """Another process has replaced the model's folder; it stays as that process left it."""


@dataclass(frozen=True, slots=True)
class VersionChange:
    """One line of the history.

    Attributes:
        version: a number from 000001; of a refused change, the version that stays.
        outcome: ``begun``: the model's folder at the start; ``published``; ``refused``: worse than
            the served version; ``held``: waits for a person; ``rolled back``: published again.
        checksum: of the version's ``config.json``, to recognise the model's folder.
        position: of the last entry of the log that is done.
        time: in UTC.
        demonstrations: of feedback that were learned, or refused.
        held_out: demonstrations that both versions were measured on.
        before: MRR on these of the served version.
        after: MRR of the new version.
        gains: of a version that is held, the tools that it ranks much higher where demonstrations
            do not call them, with the mean gain in 1 / rank.
        senders: how many of the demonstrations each key sent, by the id of the key.
    """

    version: str
    outcome: Literal["begun", "published", "refused", "held", "rolled back"]
    checksum: str
    position: str
    time: str
    demonstrations: int = 0
    held_out: int = 0
    before: float | None = None
    after: float | None = None
    gains: dict[str, float] = field(default_factory=dict)
    senders: dict[str, int] = field(default_factory=dict)


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
        for line_number, line in enumerate(lines[:-1], start=1):
            try:
                changes.append(VersionChange(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise InputError(
                    f"{path}:{line_number} is not a line of a history; restore it, or delete "
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

    def publish(self, change: VersionChange, served: str | None = None) -> None:
        """Add a change, and replace the model's folder with its version, at once for all readers.

        Args:
            change: names the version.
            served: checksum that the model's folder must have; None replaces any.

        Raises:
            ReplacedError: the folder has another checksum; nothing has changed.
            OutputError: it cannot be written; the former folder is intact.
        """

        def confirm() -> None:
            if served is not None and checksum_of(self.model) != served:
                raise ReplacedError(f"another process has replaced {self.model}; try again")
            self.add(change)

        copy_folder(self.folder / change.version, self.model, confirm)

    def salt(self) -> bytes:
        """A secret of this folder, made at its first use.

        Raises:
            OutputError: it cannot be written.
        """
        path = self.folder / "salt"
        with explain_os_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "w") as stream:
                    stream.write(secrets.token_hex(16))
            return path.read_bytes()

    def held(self) -> VersionChange | None:
        """The version that waits for a person, if any."""
        last = self.history()[-1:]
        return last[0] if last and last[0].outcome == "held" else None

    def review(self, *, publish: bool) -> VersionChange:
        """Publish or refuse the version that waits for a person.

        Raises:
            InputError: no version waits.
            ReplacedError: another process has replaced the model since; the version still waits.
            OutputError: it cannot be written.
        """
        held, served = self.held(), checksum_of(self.model)
        if held is None:
            raise InputError(f"no version of {self.model} waits for a review")
        base = next((item for item in self.history() if item.checksum == served), None)
        if base is None:
            raise ReplacedError(
                f"{self.model} was fitted again since {held.version} was made; run dtdr learn"
            )
        if publish:
            change = replace(held, outcome="published", time=now())
            self.publish(change, served)
        else:
            change = replace(
                held, outcome="refused", time=now(), version=base.version, checksum=served
            )
            self.add(change)
        return change

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
        self.publish(change)
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


def copy_folder(source: Path, target: Path, confirm: Callable[[], object] | None = None) -> None:
    """Replace a model folder with a copy of another; for ``confirm`` see ``replace_folder``.

    Raises:
        OutputError: it cannot be written.
    """
    with replace_folder(target, confirm) as temporary:
        for item in source.iterdir():
            shutil.copyfile(item, temporary / item.name)


def checksum_of(folder: Path) -> str:
    """The checksum of a model folder's configuration, which names the tensors' own.

    Raises:
        ModelError: it is not a usable model folder.
    """
    return str(read_config(folder).get("config_sha256", ""))
