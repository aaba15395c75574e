"""The cache of a lab: run logs and results by key, failures, and labs' manifests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtdr.data.files import cache_folder, read_regular_file, replace_file
from dtdr.deprecated import renamed_key
from dtdr.errors import InputError, other_version
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.run_log_file import read_run_log, write_run_log

FORMAT = "dtdr-lab"
VERSION = 2

_LARGEST_FILE = 64 << 20
"""Bytes of a JSON file: a manifest of 1,000 experiments takes .3 MB."""


class Store:
    """A cache folder; every file is replaced as a whole, so two labs can share one.

    An experiment that ranks has a run log, any other a JSON object. Nothing is pickled, since a
    cache may
    come from a stranger.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "lab"

    def path(self, key: str) -> Path | None:
        """The file of an experiment; None without one."""
        return next((path for path in self._paths(key) if path.exists()), None)

    def read(self, key: str) -> RunLog | Mapping[str, Any]:
        """The log of an experiment that ranks, the result of any other.

        Raises:
            InputError: it is missing, damaged, of another version or of another experiment.
        """
        log_path, path = self._paths(key)
        result: RunLog | Mapping[str, Any]
        if log_path.exists():
            path = log_path
            result = read_run_log(path)
            kept_key = result.header.details.get("key")
        else:
            result = _read_json(path, "run it again")
            kept_key = result.get("key")
        if kept_key != key:
            raise InputError(f"{path} is of another experiment; run it again")
        return result

    def write(self, key: str, result: RunLog | Mapping[str, Any]) -> None:
        """Keep a log or a result, and forget a failure; the same one gives the same bytes."""
        log_path, path = self._paths(key)
        if isinstance(result, RunLog):
            header = replace(result.header, details={**result.header.details, "key": key})
            write_run_log(log_path, replace(result, header=header), force=True)
        else:
            _write_json(path, {**result, "key": key})
        self.write_failure(key, None)

    def _paths(self, key: str) -> tuple[Path, Path]:
        folder = self.folder / "runs" / key[:2]
        return folder / f"{key}.npz", folder / f"{key}.json"

    def failure(self, key: str) -> str | None:
        """Why the experiment of a key failed the last time, or None."""
        try:
            return str(_read_json(self._failure(key), "")["reason"])
        except (InputError, KeyError):
            return None

    def write_failure(self, key: str, reason: str | None) -> None:
        """Keep why an experiment failed; None forgets it."""
        if reason is None:
            self._failure(key).unlink(missing_ok=True)
        else:
            _write_json(self._failure(key), {"reason": reason})

    def _failure(self, key: str) -> Path:
        return self.folder / "failures" / f"{key}.json"

    def labs(self) -> list[str]:
        """Names of the labs that have been run, the last one first."""
        newest: dict[Path, float] = {}
        for path in (self.folder / "labs").glob("*/*.json"):
            with contextlib.suppress(OSError):  # a link that leads nowhere
                newest[path.parent] = max(path.stat().st_mtime, newest.get(path.parent, 0.0))
        return [path.name for path in sorted(newest, key=lambda path: (-newest[path], path.name))]

    def write_manifest(self, lab: str, suite: str, manifest: Mapping[str, Any]) -> None:
        """Keep which experiments a suite consists of."""
        _write_json(self.folder / "labs" / lab / f"{suite}.json", manifest)

    def manifests(self, lab: str) -> dict[str, Mapping[str, Any]]:
        """The suites of a lab by name.

        Raises:
            InputError: a manifest is damaged or of another version.
        """
        paths = sorted((self.folder / "labs" / lab).glob("*.json"))
        manifests: dict[str, Mapping[str, Any]] = {}
        for path in paths:
            manifest = _read_json(path, f"run it again: dtdr lab run {path.stem}")
            manifests[path.stem] = renamed_key(manifest, "runs", "experiments")
        return manifests

    def last_suites(self, lab: str) -> list[str]:
        """The suites of the command that was run last in a lab.

        Raises:
            InputError: a manifest is damaged or of another version.
        """
        manifests = self.manifests(lab)
        folder = self.folder / "labs" / lab
        newest = max(
            manifests, key=lambda name: (folder / f"{name}.json").stat().st_mtime_ns, default=None
        )
        if newest is None:
            return []
        command = manifests[newest].get("command")
        return [name for name, item in manifests.items() if item.get("command") == command]


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with replace_file(path) as stream:
        json.dump({"format": FORMAT, "format_version": VERSION, **value}, stream)
        stream.write("\n")


def _read_json(path: Path, remedy: str) -> Mapping[str, Any]:
    try:
        value = json.loads(read_regular_file(path, _LARGEST_FILE))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged; {remedy}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(f"{path} is not a file of a lab; {remedy}")
    if value.get("format_version") != VERSION:
        raise other_version(str(path), value.get("format_version"), VERSION, remedy)
    return value
