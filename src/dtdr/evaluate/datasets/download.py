"""Fetching published sets from the hub (huggingface.co) into the cache folder."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

from dtdr.errors import DtdrError, InputError, MissingExtraError, OutputError
from dtdr.evaluate.datasets.source import Source, download_folder

Fetch = Callable[..., str]
"""As ``huggingface_hub.hf_hub_download``."""


def download(source: Source, *, force: bool = False, fetch: Fetch | None = None) -> list[Path]:
    """Download a set into the cache, where ``load`` finds it; returns its files.

    The files take their places only when all have arrived and the first demonstration was read.

    Args:
        source: a published set.
        force: download again what is there already.
        fetch: in place of ``huggingface_hub.hf_hub_download``.

    Raises:
        InputError: the set is not on the hub; the message names its origin.
        MissingExtraError: ``huggingface_hub`` is not installed.
        OutputError: the set is there already, or the cache cannot be written.
        DtdrError: there is no network, or the hub does not give the file.
    """
    cache = download_folder()
    if source.hub is None:
        raise InputError(
            f"dataset {source.name!r} is on no hub; get it from {source.origin} and put it at "
            f"{cache / source.files[0]}"
        )
    targets = {file: cache / remote for file, remote in source.hub.files.items()}
    if all(target.exists() for target in targets.values()) and not force:
        there = next(iter(targets.values()))
        raise OutputError(f"{there} exists; pass --force to download it again")
    fetch = fetch or _hub_download()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download.", dir=cache) as folder:
            got = {
                target: _fetch_one(fetch, source.hub.repository, file, target, folder)
                for file, target in targets.items()
            }
            _check(source, next(iter(got.values())))
            for target, path in got.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
    except OSError as error:
        raise OutputError(
            f"cannot write {cache}: {(error.strerror or str(error)).lower()}; set DTDR_CACHE to "
            "another folder"
        ) from error
    return list(got)


def _hub_download() -> Fetch:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise MissingExtraError("dtdr data download", "hub", "huggingface_hub") from error
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    fetch: Fetch = hf_hub_download
    return fetch


def _fetch_one(fetch: Fetch, repository: str, file: str, target: Path, folder: str) -> Path:
    try:
        return Path(fetch(repo_id=repository, filename=file, repo_type="dataset", local_dir=folder))
    except Exception as error:  # the hub's errors differ between its versions
        name = type(error).__name__
        refused = any(word in name for word in ("NotFound", "Gated", "Revision"))
        reason = f"huggingface.co cannot be reached ({name}); check the network"
        if refused and "LocalEntry" not in name:
            reason = f"the hub does not have it ({name})"
        raise DtdrError(
            f"cannot download {file} of {repository}: {reason}, or copy the file to {target} from "
            "a machine that has it"
        ) from error


def _check(source: Source, path: Path) -> None:
    try:
        next(iter(source.read(path, None)))
    except InputError as error:
        raise DtdrError(
            f"what the hub gave for {source.name!r} is not in its published format: {error}"
        ) from error
