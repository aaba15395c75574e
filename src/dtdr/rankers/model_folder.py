"""A model is a folder: ``config.json`` and ``model.safetensors``. No pickle, anywhere.

A folder may come from a stranger, so nothing in it is trusted: files are regular and of
bounded size before they are read, and their content is checked before it is used.
"""

from __future__ import annotations

import errno
import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dtdr.data.files import read_regular_file, replace_file, replace_folder
from dtdr.data.tools import Tool
from dtdr.deprecated import renamed_key
from dtdr.errors import InputError, ModelError, OutputError

P = TypeVar("P")

FORMAT = "dtdr-model"
FORMAT_VERSION = 5
PARTS = ("encoder", "arguments", "plans")
"""Keys in ``config.json`` of what is learned in addition, and before the dot of its arrays."""
_FILES = {"config.json", "model.safetensors"}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "ranker": str,
    "parameters": dict,
    "encoder": (dict, type(None)),
    "seed": int,
    "tools": list,
    "training_data": dict,
    "config_sha256": str,
    "versions": dict,
    "tensors_sha256": str,
}
"""The required keys of ``config.json`` and their types."""
_TRAINING_TYPES: dict[str, type | tuple[type, ...]] = {
    "demonstrations": int,
    "skipped_failures": int,
    "sha256": str,
    "erased": int,
    "failures": (int, type(None)),
}

_MAX_CONFIG_BYTES = 16_000_000
"""About 30,000 tools with their descriptions; twice as much would need over 200 MB to be read."""
_MAX_CONFIG_VALUES = 1_000_000
"""Values in ``config.json``: small ones need more memory than text."""
_MAX_TENSORS_BYTES = 4_000_000_000
_MAX_HEADER_BYTES = 1_000_000
"""Largest header of ``model.safetensors``; some 50 arrays need 5 kB."""
_MAX_VALUE = 1e12
"""Largest number in an array; squares and sums stay finite in single precision."""
_ATTEMPTS, _PAUSE_SECONDS = 20, 0.005
"""How often a folder is read that is replaced meanwhile."""


class SavedPart(Protocol):
    """A part of a model that is saved with its ranker."""

    def config(self) -> dict[str, Any]:
        """The JSON part of the state."""

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays, by name."""


@dataclass(frozen=True)
class ModelFolder:
    """The content of a model folder, checked as far as possible without its ranker.

    Attributes:
        config: the contents of ``config.json``.
        arrays: by name, those of the ranker.
        part_arrays: by key in ``PARTS``, then by name, the arrays of what is learned in addition.
    """

    config: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    part_arrays: dict[str, dict[str, npt.NDArray[Any]]]

    def restore(
        self, key: str, restore: Callable[[dict[str, Any], dict[str, npt.NDArray[Any]]], P]
    ) -> P | None:
        """Restore a part from its configuration and arrays; None without a part."""
        config = self.config.get(key)
        return None if config is None else restore(config, self.part_arrays[key])


# -- writing ---------------------------------------------------------------------------------------


def write(
    folder: str | Path,
    config: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    parts: Mapping[str, SavedPart | None],
    *,
    force: bool = False,
) -> None:
    """Write a model folder; see ``Model.save``.

    Whoever loads it meanwhile gets the former model or this one.

    Args:
        folder: its place.
        config: what ``config.json`` says of the ranker.
        arrays: what the ranker learned.
        parts: by key in ``PARTS``, what was learned in addition; None where nothing was.
        force: replace the model that is there.

    Raises:
        OutputError: as ``check_target``, or the folder cannot be written.
    """
    from safetensors.numpy import save as serialise

    check_target(folder, force=force)
    learned = {key: part for key, part in parts.items() if part is not None}
    arrays = dict(arrays)
    for key, part in learned.items():
        arrays |= {f"{key}.{name}": array for name, array in part.arrays().items()}
    tensors = serialise({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    whole = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **config,
        **{key: part.config() for key, part in learned.items()},
        "versions": versions(),
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
    }
    whole["config_sha256"] = config_checksum(whole)
    try:
        text = json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False)
        content = f"{text}\n".encode()
    except ValueError as error:  # numbers that are not finite, half a surrogate pair in a name
        reason = " ".join(str(error).split())[:120]
        raise OutputError(
            f"cannot write {folder}: its parameters and tools are not JSON ({reason})"
        ) from error
    if problem := _too_large(content):
        raise OutputError(f"cannot write {folder}: its config.json {problem}; use fewer tools")
    with replace_folder(folder) as temporary:
        (temporary / "model.safetensors").write_bytes(tensors)
        (temporary / "config.json").write_bytes(content)


def config_checksum(config: Mapping[str, Any]) -> str:
    """SHA-256 of all of a configuration but the checksum itself, whatever the order of its keys."""
    rest = {key: value for key, value in config.items() if key != "config_sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def mark_erased(folder: str | Path, demonstrations: int) -> None:
    """Say in a model folder that it learned from demonstrations that were erased since.

    A fit of the folder takes the mark away, an update keeps it. A server that watches the folder
    loads the model again, and warns.

    Raises:
        ModelError: it is not a model folder.
        OutputError: it cannot be written.
    """
    config = read_config(folder)
    training = config["training_data"]
    training["erased"] += demonstrations
    config["config_sha256"] = config_checksum(config)
    with replace_file(Path(folder) / "config.json") as stream:
        stream.write(json.dumps(config, ensure_ascii=False, indent=1) + "\n")


def check_target(folder: str | Path, *, force: bool) -> None:
    """Refuse to put a model where something else would be lost.

    Raises:
        OutputError: there is something and ``force`` is False, or it is more than a model.
    """
    path = Path(folder)
    if not path.exists():
        return
    if not path.is_dir() or not {item.name for item in path.iterdir()} <= _FILES:
        raise OutputError(
            f"{folder} contains something other than a model, which is never replaced; "
            "give the name of a new folder"
        )
    if not force:
        raise OutputError(f"{folder} exists; pass --force (force=True) to replace it")


@cache  # reading them takes 3 ms, and a lab asks for each of its runs
def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    installed = {"python": platform.python_version()}
    for package in ("dtdr", "numpy", "scipy", "scikit-learn"):
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            installed[package] = "unknown"
    return installed


# -- reading ---------------------------------------------------------------------------------------


def read(folder: str | Path) -> ModelFolder:
    """Read a model folder.

    Raises:
        ModelError: naming what is wrong with the folder.
    """
    config, arrays = _read_both(Path(folder))
    of_ranker: dict[str, npt.NDArray[Any]] = {}
    parts: dict[str, dict[str, npt.NDArray[Any]]] = {key: {} for key in PARTS}
    for name, array in arrays.items():
        key, _, rest = name.partition(".")
        if key in parts:
            parts[key][rest] = array
        else:
            of_ranker[name] = array
    return ModelFolder(config, of_ranker, parts)


def describe(folder: str | Path) -> dict[str, Any]:
    """The content of a model folder, as ``dtdr inspect`` shows it.

    Raises:
        ModelError: naming what is wrong with the folder.
    """
    config, arrays = _read_both(Path(folder))
    config["tensors"] = {
        name: {"shape": list(array.shape), "dtype": str(array.dtype), "bytes": array.nbytes}
        for name, array in sorted(arrays.items())
    }
    try:
        config["tools"] = [Tool.from_dict(record).to_dict() for record in config["tools"]]
    except InputError as error:
        raise ModelError(f"{folder} is damaged: {error}; fit the model again") from error
    config["bytes"] = sum(item.stat().st_size for item in Path(folder).iterdir())
    return config


def read_config(folder: str | Path) -> dict[str, Any]:
    """The checked ``config.json`` of a model folder.

    Raises:
        ModelError: the folder or file is missing, is not a model, or has another format version.
    """
    path = Path(folder) / "config.json"
    if not Path(folder).exists():
        raise ModelError(f"{folder} does not exist; fit a model with: dtdr fit DATA -o {folder}")
    try:
        content = _read_file(path, _MAX_CONFIG_BYTES)
    except OSError as error:
        raise ModelError(
            f"{folder} is not a model folder: it has no readable config.json; "
            "make one with: dtdr fit DATA -o FOLDER"
        ) from error
    if problem := _too_large(content):
        raise ModelError(f"{path} {problem}; fit the model again")
    try:
        config = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged (not JSON); fit the model again") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelError(f"{folder} is not a dtdr model folder: its config.json has another format")
    if config.get("format_version") != FORMAT_VERSION:
        raise ModelError(
            f"{folder} has model format version {str(config.get('format_version'))[:40]}, but "
            f"this dtdr reads version {FORMAT_VERSION}; fit the model again or install the version "
            "that wrote it"
        )
    checksum = config_checksum(config)
    config = renamed_key(config, "retriever", "ranker")
    _check_types(path, config, _TYPES)
    _check_types(path, config["training_data"], _TRAINING_TYPES)
    if config["config_sha256"] != checksum:
        raise ModelError(
            f"{path} is damaged: it was changed after it was written; fit the model again"
        )
    return config


def _check_types(
    path: Path, record: Mapping[str, Any], types: Mapping[str, type | tuple[type, ...]]
) -> None:
    for name, kind in types.items():
        if name not in record:
            raise ModelError(f"{path} is damaged: {name!r} is missing; fit it again")
        if not isinstance(record[name], kind) or isinstance(record[name], bool):
            raise ModelError(f"{path} is damaged: {name!r} has another type; fit the model again")


def _read_both(folder: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Configuration and arrays of one and the same model, also while another takes its place."""
    for attempt in range(1, _ATTEMPTS + 1):
        before = _identity(folder)
        try:
            config = read_config(folder)
            return config, _read_tensors(folder / "model.safetensors", config["tensors_sha256"])
        except ModelError:
            # Two files of one folder, or two folders: only the first is worth a report.
            if attempt == _ATTEMPTS or _identity(folder) == before is not None:
                raise
            if before is None and attempt > 2:
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError


def _identity(folder: Path) -> tuple[int, ...] | None:
    """Another one for another model in the same place; None where there is none."""
    try:
        about, config = folder.stat(), (folder / "config.json").stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino, config.st_ino, config.st_mtime_ns, config.st_size


def _read_file(path: Path, limit: int, first: int | None = None) -> bytes:
    """See ``read_regular_file``.

    Raises:
        OSError: it cannot be read.
        ModelError: it is a device, a pipe or larger than the limit.
    """
    try:
        return read_regular_file(path, limit, first)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            raise
        raise ModelError(f"{path}: {error.strerror}; fit the model again") from error


def _too_large(config: bytes) -> str:
    if len(config) > _MAX_CONFIG_BYTES:
        return f"has more than {_MAX_CONFIG_BYTES:,} bytes"
    if config.count(b",") + config.count(b"[") + config.count(b"{") > _MAX_CONFIG_VALUES:
        return f"has more than {_MAX_CONFIG_VALUES:,} values"
    return ""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _read_tensors(path: Path, sha256: str) -> dict[str, npt.NDArray[Any]]:
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import load as deserialise

    try:
        header = int.from_bytes(_read_file(path, _MAX_TENSORS_BYTES, 8), "little")
        if header > _MAX_HEADER_BYTES:
            raise SafetensorError("its header is too long")
        with safe_open(path, "numpy"):  # compares header and size before the file is read
            content = _read_file(path, _MAX_TENSORS_BYTES)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ModelError(
                f"{path} is damaged: it is truncated, or not the file that config.json was written "
                "with; fit the model again"
            )
        arrays: dict[str, npt.NDArray[Any]] = deserialise(content)
    except OSError as error:
        raise ModelError(f"{path} is missing or cannot be read; fit the model again") from error
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:80]
        raise ModelError(
            f"{path} is damaged: it is truncated, larger than its arrays, or not a safetensors "
            f"file ({reason}); fit the model again"
        ) from error
    for name, array in arrays.items():
        if not array.size or array.dtype.kind != "f":
            continue
        # Not written as "larger than": nothing is larger or smaller than NaN.
        if not -_MAX_VALUE <= float(array.min()) <= float(array.max()) <= _MAX_VALUE:
            raise ModelError(
                f"{path} is damaged: array {name[:60]!r} has values that are not numbers, or "
                "too large ones; fit the model again"
            )
    return arrays
