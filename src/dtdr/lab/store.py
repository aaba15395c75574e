"""The cache of a lab: logs by key, failures, what is known of data sets, and labs' manifests."""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dtdr.errors import InputError
from dtdr.files import cache_folder, replacing_file
from dtdr.lab.digest import Digest, digest
from dtdr.lab.digests import digest_of, keep_digest
from dtdr.lab.log import LabLog, check_log, read_log, write_log

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: two labs may do the same work twice, and both write the same
    fcntl = None

MANIFEST = "dtdr-lab"
MANIFEST_VERSION = 1


class Store:
    """A cache folder; every file is replaced as a whole, so that two labs can share one."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "lab"

    # -- logs ----------------------------------------------------------------------------------

    def path(self, key: str) -> Path:
        """Where the log of a key is, or would be."""
        return self.folder / "runs" / key[:2] / f"{key}.jsonl.gz"

    def read(self, key: str) -> LabLog:
        """The log of a key.

        Raises:
            InputError: it is missing, damaged or of another version.
        """
        return read_log(self.path(key), key)

    def check(self, key: str) -> None:
        """Raise an InputError where ``read`` would; a tenth of its time."""
        check_log(self.path(key), key)

    def digest(self, key: str) -> Digest:
        """The digest of the ``rank`` or ``peer`` log of a key.

        Raises:
            InputError: the log is missing, damaged or of another version.
        """
        return digest_of(self.folder / "digests", self.path(key), key)

    def write(self, key: str, log: LabLog, *, ranked: bool = False) -> None:
        """Keep a log, with its digest where it is of ``rank`` or ``peer``; forget a failure."""
        content_sha256 = write_log(self.path(key), LabLog({"key": key, **log.header}, log.records))
        if ranked:
            keep_digest(self.folder / "digests", key, digest(log), content_sha256)
        self._failure(key).unlink(missing_ok=True)

    # -- failures ------------------------------------------------------------------------------

    def failure(self, key: str) -> Mapping[str, Any] | None:
        """Why the run of a key failed the last time, or None."""
        try:
            found = json.loads(self._failure(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write_failure(self, key: str, failure: Mapping[str, Any]) -> None:
        """Keep why a run failed."""
        _write_json(self._failure(key), failure)

    def _failure(self, key: str) -> Path:
        return self.folder / "failures" / f"{key}.json"

    # -- data sets -----------------------------------------------------------------------------

    def write_card(self, sha256: str, card: Mapping[str, Any]) -> None:
        """Keep what a report must know of a data set."""
        path = self._card(sha256)
        content = gzip.compress(json.dumps(card, ensure_ascii=True).encode(), 6, mtime=0)
        with replacing_file(path) as stream:
            stream.buffer.write(content)  # type: ignore[attr-defined]  # it is a file

    def has_card(self, sha256: str) -> bool:
        """Whether a data set's card is kept."""
        return self._card(sha256).is_file()

    def card(self, sha256: str) -> Mapping[str, Any] | None:
        """What is known of a data set, or None."""
        try:
            found = json.loads(gzip.decompress(self._card(sha256).read_bytes()))
        except (OSError, EOFError, zlib.error, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _card(self, sha256: str) -> Path:
        return self.folder / "data" / f"{sha256}.json.gz"

    # -- manifests -----------------------------------------------------------------------------

    def labs(self) -> list[str]:
        """Names of the labs that have been run, the last one first."""
        folders = [path for path in (self.folder / "labs").glob("*") if any(path.glob("*.json"))]
        newest = {path: max(file.stat().st_mtime for file in path.glob("*.json"))
                  for path in folders}  # fmt: skip
        return [path.name for path in sorted(folders, key=lambda path: (-newest[path], path.name))]

    def write_manifest(self, lab: str, suite: str, manifest: Mapping[str, Any]) -> None:
        """Keep which runs a suite consists of."""
        value = {"format": MANIFEST, "format_version": MANIFEST_VERSION, **manifest}
        _write_json(self.folder / "labs" / lab / f"{suite}.json", value)

    def manifests(self, lab: str) -> dict[str, Mapping[str, Any]]:
        """The suites of a lab by name.

        Raises:
            InputError: a manifest is damaged or of another version.
        """
        found: dict[str, Mapping[str, Any]] = {}
        for path in sorted((self.folder / "labs" / lab).glob("*.json")):
            again = f"run it again: dtdr lab run {path.stem}"
            try:
                value = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(f"{path} is damaged; {again}") from error
            if not isinstance(value, dict) or value.get("format") != MANIFEST:
                raise InputError(f"{path} is no manifest of a lab; {again}")
            if value.get("format_version") != MANIFEST_VERSION:
                raise InputError(
                    f"{path} has format version {value.get('format_version')!r}, this dtdr reads "
                    f"version {MANIFEST_VERSION}; {again}"
                )
            found[path.stem] = value
        return found

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
    with replacing_file(path) as stream:
        json.dump(value, stream, ensure_ascii=False, indent=1)
        stream.write("\n")
