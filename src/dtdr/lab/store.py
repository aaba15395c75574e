"""The cache of a lab: run logs and results by key, failures, data sets, and labs' manifests."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtdr.errors import InputError, other_version
from dtdr.evaluation.run_log import RunLog
from dtdr.evaluation.run_log_file import read_run_log, write_run_log
from dtdr.files import cache_folder, read_regular_file, replace_file

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: two labs may do the same work twice, and both write the same
    fcntl = None

MANIFEST = "dtdr-lab"
MANIFEST_VERSION = 1
RESULT = "dtdr-lab-result"
RESULT_VERSION = 1

_LARGEST_JSON = 16_000_000
"""Bytes of a manifest; a thousand runs take 300 kB."""
_LARGEST_FILE = 256 << 20
_SMALL = 8_000_000
_LARGEST_RATIO = 50
"""Of the bytes of a result and of its compressed file; results have 3 to 15."""


class Store:
    """A cache folder; every file is replaced as a whole, so that two labs can share one.

    A run that ranks keeps a run log, any other a JSON object.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "lab"

    # -- runs ----------------------------------------------------------------------------------

    def path(self, key: str) -> Path | None:
        """The file of a run; None where there is none."""
        return next((path for path in self._paths(key) if path.exists()), None)

    def read_log(self, key: str) -> RunLog:
        """The log of a run that ranks.

        Raises:
            InputError: it is missing, damaged, of another version or of another run.
        """
        path = self._paths(key)[0]
        log = read_run_log(path)
        if log.header.details.get("key") != key:
            raise InputError(f"{path} is of another run; run it again")
        return log

    def read_result(self, key: str) -> Mapping[str, Any]:
        """The result of any other run.

        Raises:
            InputError: as ``read_log``.
        """
        path = self._paths(key)[1]
        result = _read_json(path)
        if result is None or result.get("format") != RESULT:
            raise InputError(f"{path} is damaged; run it again")
        if result.get("format_version") != RESULT_VERSION:
            version = result.get("format_version")
            raise other_version(str(path), version, RESULT_VERSION, "run it again")
        if result.get("key") != key:
            raise InputError(f"{path} is of another run; run it again")
        return result

    def read(self, key: str) -> RunLog | Mapping[str, Any]:
        """The log or the result of a run.

        Raises:
            InputError: as ``read_log``.
        """
        is_log = self._paths(key)[0].exists()
        return self.read_log(key) if is_log else self.read_result(key)

    def write(self, key: str, result: RunLog | Mapping[str, Any]) -> None:
        """Keep a log or a result, and forget a failure; the same one gives the same bytes."""
        log_path, result_path = self._paths(key)
        if isinstance(result, RunLog):
            details = {**result.header.details, "key": key}
            header = replace(result.header, details=details)
            write_run_log(log_path, replace(result, header=header), force=True)
        else:
            tags = {"format": RESULT, "format_version": RESULT_VERSION, "key": key}
            _write_compressed(result_path, {**tags, **result})
        self._failure(key).unlink(missing_ok=True)

    def _paths(self, key: str) -> tuple[Path, Path]:
        folder = self.folder / "runs" / key[:2]
        return folder / f"{key}.npz", folder / f"{key}.json.gz"

    # -- failures ------------------------------------------------------------------------------

    def failure(self, key: str) -> Mapping[str, Any] | None:
        """Why the run of a key failed the last time, or None."""
        try:
            failure = json.loads(read_regular_file(self._failure(key), _LARGEST_JSON))
        except (OSError, ValueError, RecursionError):
            return None
        return failure if isinstance(failure, dict) and "reason" in failure else None

    def write_failure(self, key: str, failure: Mapping[str, Any]) -> None:
        """Keep why a run failed."""
        _write_json(self._failure(key), failure)

    def _failure(self, key: str) -> Path:
        return self.folder / "failures" / f"{key}.json"

    # -- data sets -----------------------------------------------------------------------------

    def write_dataset_summary(self, sha256: str, summary: Mapping[str, Any]) -> None:
        """Keep what a report must know of a data set."""
        _write_compressed(self._dataset(sha256), summary)

    def has_dataset_summary(self, sha256: str) -> bool:
        """Whether a data set's summary is kept."""
        return self._dataset(sha256).is_file()

    def dataset_summary(self, sha256: str) -> Mapping[str, Any] | None:
        """What is known of a data set, or None."""
        return _read_json(self._dataset(sha256))

    def _dataset(self, sha256: str) -> Path:
        return self.folder / "data" / f"{sha256}.json.gz"

    # -- manifests -----------------------------------------------------------------------------

    def labs(self) -> list[str]:
        """Names of the labs that have been run, the last one first."""
        newest: dict[Path, float] = {}
        for path in (self.folder / "labs").glob("*/*.json"):
            with contextlib.suppress(OSError):  # a link that leads nowhere
                newest[path.parent] = max(path.stat().st_mtime, newest.get(path.parent, 0.0))
        return [path.name for path in sorted(newest, key=lambda path: (-newest[path], path.name))]

    def write_manifest(self, lab: str, suite: str, manifest: Mapping[str, Any]) -> None:
        """Keep which runs a suite consists of."""
        value = {"format": MANIFEST, "format_version": MANIFEST_VERSION, **manifest}
        _write_json(self.folder / "labs" / lab / f"{suite}.json", value)

    def manifests(self, lab: str) -> dict[str, Mapping[str, Any]]:
        """The suites of a lab by name.

        Raises:
            InputError: a manifest is damaged or of another version.
        """
        manifests: dict[str, Mapping[str, Any]] = {}
        for path in sorted((self.folder / "labs" / lab).glob("*.json")):
            again = f"run it again: dtdr lab run {path.stem}"
            try:
                value = json.loads(read_regular_file(path, _LARGEST_JSON))
            except (OSError, ValueError, RecursionError) as error:
                raise InputError(f"{path} is damaged; {again}") from error
            if not isinstance(value, dict) or value.get("format") != MANIFEST:
                raise InputError(f"{path} is not a manifest of a lab; {again}")
            if value.get("format_version") != MANIFEST_VERSION:
                version = value.get("format_version")
                raise other_version(str(path), version, MANIFEST_VERSION, again)
            manifests[path.stem] = value
        return manifests

    # -- two labs on one cache -----------------------------------------------------------------

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Hold a key while it is computed; False where another process holds it.

        The system frees what a process held when it ends, however it ends.
        """
        if fcntl is None:
            yield True
            return
        path = self.folder / "locks" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with replace_file(path) as stream:
        json.dump(value, stream, ensure_ascii=False, indent=1)
        stream.write("\n")


def _write_compressed(path: Path, value: Mapping[str, Any]) -> None:
    content = gzip.compress(json.dumps(value).encode("ascii"), 6, mtime=0)
    with replace_file(path) as stream:
        stream.buffer.write(content)


def _read_json(path: Path) -> Mapping[str, Any] | None:
    """A compressed JSON object; None where it is missing or damaged."""
    try:
        packed = read_regular_file(path, _LARGEST_FILE)
        largest = max(_SMALL, _LARGEST_RATIO * len(packed))
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            content = stream.read(largest + 1)
        value = None if len(content) > largest else json.loads(content)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
