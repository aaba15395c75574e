"""A model is a folder: ``config.json`` and ``model.safetensors``. No pickle, anywhere."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr import encoders
from dtdr.demonstrations import Tool
from dtdr.errors import InputError, ModelError, OutputError
from dtdr.files import replacing_folder
from dtdr.retrievers import create, retriever_class
from dtdr.retrievers.base import Retriever, TrainingData

FORMAT = "dtdr-model"
FORMAT_VERSION = 1
_ENCODER = "encoder."
_FILES = {"config.json", "model.safetensors"}


def save_model(retriever: Retriever, folder: str | Path, *, force: bool = False) -> None:
    """Write a fitted retriever; see ``Retriever.save``."""
    from safetensors.numpy import save as serialise

    check_target(folder, force=force)
    arrays = dict(retriever._state())
    encoder = retriever.encoder
    if encoder is not None:
        arrays.update({f"{_ENCODER}{name}": array for name, array in encoder.arrays().items()})
    tensors = serialise({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "retriever": retriever.name,
        "parameters": retriever.parameters(),
        "encoder": None if encoder is None else encoder.config(),
        "seed": retriever.seed,
        "tools": [tool.to_dict() for tool in retriever.tools_],
        "training_data": vars(retriever.training_),
        "versions": versions(),
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
    }
    text = json.dumps(config, ensure_ascii=False, indent=1)
    with replacing_folder(folder) as temporary:
        (temporary / "model.safetensors").write_bytes(tensors)
        (temporary / "config.json").write_text(text + "\n", encoding="utf-8")


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
            f"{folder} holds something else than a model, which is never replaced; "
            "give the name of a new folder"
        )
    if not force:
        raise OutputError(f"{folder} exists; pass --force (force=True) to replace it")


def load_model(folder: str | Path, **given: Any) -> Retriever:
    """Read a model folder.

    Args:
        folder: what ``Retriever.save`` wrote.
        given: constructor keywords that a folder cannot hold, such as ``llm`` of less-is-more, or
            an ``encoder`` object for one that was made by hand.

    Raises:
        ModelError: naming what is wrong with the folder.
    """
    config = read_config(folder)
    path = Path(folder) / "model.safetensors"
    arrays = _read_tensors(path, str(config["tensors_sha256"]))
    try:
        parameters = dict(config["parameters"])
        encoder_config = config["encoder"]
        if encoder_config is not None and "encoder" not in given:
            given["encoder"] = encoders.restore(
                encoder_config,
                {
                    name.removeprefix(_ENCODER): array
                    for name, array in arrays.items()
                    if name.startswith(_ENCODER)
                },
            )
        retriever = create(config["retriever"], **parameters, **given)
        retriever._install_tools(tuple(map(Tool.from_dict, config["tools"])))
        retriever.training_ = TrainingData(**config["training_data"])
        retriever._restore(
            {name: array for name, array in arrays.items() if not name.startswith(_ENCODER)}
        )
    except ModelError as error:
        raise ModelError(
            f"{folder} holds no usable model of retriever {config['retriever']!r}: {error}"
        ) from error
    except (KeyError, TypeError, IndexError, InputError) as error:
        if isinstance(error, InputError) and not str(error).startswith("unknown retriever"):
            raise
        raise ModelError(
            f"{folder} holds no usable model of retriever {config.get('retriever')!r} "
            f"({type(error).__name__}: {error}); fit it again"
        ) from error
    return retriever


def read_config(folder: str | Path) -> dict[str, Any]:
    """The checked ``config.json`` of a model folder.

    Raises:
        ModelError: the folder or file is missing, is no model, or has another format version.
    """
    path = Path(folder) / "config.json"
    if not Path(folder).exists():
        raise ModelError(f"{folder} does not exist; fit a model with: dtdr fit DATA -o {folder}")
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(
            f"{folder} is no model folder: it has no readable config.json; "
            "make one with: dtdr fit DATA -o FOLDER"
        ) from error
    except ValueError as error:
        raise ModelError(f"{path} is damaged (not JSON); fit the model again") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelError(f"{folder} is no dtdr model folder: its config.json has another format")
    if config.get("format_version") != FORMAT_VERSION:
        raise ModelError(
            f"{folder} has model format version {config.get('format_version')!r}, this dtdr reads "
            f"version {FORMAT_VERSION}; fit the model again or install the version that wrote it"
        )
    missing = {"retriever", "parameters", "encoder", "tools", "training_data", "tensors_sha256"}
    missing -= config.keys()
    if missing:
        raise ModelError(f"{path} is damaged: {sorted(missing)[0]!r} is missing; fit it again")
    shapes = {"retriever": str, "parameters": dict, "tools": list, "training_data": dict}
    for name, shape in shapes.items():
        if not isinstance(config[name], shape):
            raise ModelError(f"{path} is damaged: {name!r} has another type; fit the model again")
    return config


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {"python": platform.python_version()}
    for package in ("dtdr", "numpy", "scipy", "scikit-learn"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "unknown"
    return found


def describe(folder: str | Path) -> dict[str, Any]:
    """What is in a model folder, as ``dtdr inspect`` shows it.

    Raises:
        ModelError: naming what is wrong with the folder.
    """
    config = read_config(folder)
    path = Path(folder) / "model.safetensors"
    arrays = _read_tensors(path, str(config["tensors_sha256"]))
    config["needs_descriptions"] = retriever_class(config["retriever"]).needs_descriptions
    config["tensors"] = {
        name: {"shape": list(array.shape), "dtype": str(array.dtype), "bytes": array.nbytes}
        for name, array in sorted(arrays.items())
    }
    config["bytes"] = sum(item.stat().st_size for item in Path(folder).iterdir())
    return config


def _read_tensors(path: Path, sha256: str) -> dict[str, npt.NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as deserialise

    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} is missing or cannot be read; fit the model again") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ModelError(
            f"{path} is damaged: it is truncated, or not the file that config.json was written "
            "with; fit the model again"
        )
    try:
        arrays: dict[str, npt.NDArray[Any]] = deserialise(content)
    except SafetensorError as error:
        raise ModelError(f"{path} is no safetensors file ({error}); fit the model again") from error
    return arrays
