"""Model folders as somebody would make them who wants to break what loads them."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.helpers import change_config, sha256_of

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2**31, 2**63, -(10**400), 1e308, -1e-308, 0.5]),
    st.sampled_from(["", "end", "x" * 5_000, "\x1b[2J", "\ud800", "lexical", "paper"]),
    st.just([]),
    st.just({}),
    st.just([[[[1]]]]),
    st.just({"name": "endpoint"}),
    st.just({"name": 5}),
).map(copy.deepcopy)  # what is drawn may be changed in its turn
CASTS = ("int8", "uint8", "bool", "int64", "uint64", "float16", "float32", "float64", "uint32")
CHANGES = (
    *("nan", "inf", "drop", "rename", "cast", "flat", "deeper", "shorter", "longer", "empty"),
    *("zeros", "negative", "huge", "noise", "tiny", "scalar", "reverse"),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a JSON value has something in it."""
    if isinstance(value, dict):
        return [path, *(p for key, item in value.items() for p in places(item, (*path, key)))]
    if isinstance(value, list):
        return [path, *(p for key, item in enumerate(value) for p in places(item, (*path, key)))]
    return [path]


def edit_config(folder: Path, draw: Any) -> None:
    """Put something else, or nothing, in one place of the configuration."""
    config = json.loads((folder / "config.json").read_bytes())
    path = draw(st.sampled_from(places(config)[1:]))
    *outer, last = path
    inner = config
    for key in outer:
        inner = inner[key]
    if draw(st.integers(0, 5)):
        inner[last] = draw(VALUES)
    else:
        del inner[last]
    (folder / "config.json").write_text("{}")
    change_config(folder, **config)


def edit_array(folder: Path, draw: Any) -> None:
    """Change one array, and make the checksums fit."""
    path = folder / "model.safetensors"
    arrays = {name: array.copy() for name, array in load_file(path).items()}
    if not arrays:
        return
    name = draw(st.sampled_from(sorted(arrays)))
    changed = change_array(arrays.pop(name), draw(st.sampled_from(CHANGES)), draw)
    if changed is not None:
        arrays[name if draw(st.integers(0, 9)) else "other"] = np.ascontiguousarray(changed)
    save_file(arrays, path)
    change_config(folder, tensors_sha256=sha256_of(path))


def change_array(array: Any, change: str, draw: Any) -> Any:
    number = np.random.default_rng(draw(st.integers(0, 9)))
    if change == "drop":
        return None
    if change == "cast":
        with np.errstate(all="ignore"):
            return array.astype(draw(st.sampled_from(CASTS)))
    if change in ("nan", "inf"):
        flat = array.astype(np.float32).ravel()
        flat[: max(1, len(flat) // 3)] = np.nan if change == "nan" else -np.inf
        return flat.reshape(array.shape)
    if change == "huge":
        top = np.finfo(array.dtype).max if array.dtype.kind == "f" else np.iinfo(array.dtype).max
        return np.full_like(array, top)
    return {
        "rename": lambda: array,
        "flat": lambda: array.ravel(),
        "deeper": lambda: array[None],
        "shorter": lambda: array[: len(array) // 2] if array.ndim else array,
        "longer": lambda: np.concatenate([array, array]) if array.ndim else array,
        "empty": lambda: array.ravel()[:0],
        "zeros": lambda: np.zeros_like(array),
        "negative": lambda: (
            (-array.astype(np.float64) - 1).astype(array.dtype)
            if array.dtype.kind == "f"
            else np.full_like(array, -1 if array.dtype.kind == "i" else 1)
        ),
        "noise": lambda: (
            (number.random(array.shape) * 100 - 50).astype(array.dtype)
            if array.dtype.kind in "fi"
            else number.integers(0, 200, array.shape).astype(array.dtype)
        ),
        "tiny": lambda: np.full(array.shape, 1e-300 if array.dtype.itemsize > 4 else 1).astype(
            array.dtype
        ),
        "scalar": lambda: array.ravel()[0] if array.size else array,
        "reverse": lambda: array[::-1] if array.ndim else array,
    }[change]()


def edit_bytes(folder: Path, draw: Any) -> None:
    """Change bytes of one file, without making the checksum fit or with it."""
    path = folder / draw(st.sampled_from(["config.json", "model.safetensors"]))
    content = bytearray(path.read_bytes())
    place = draw(st.integers(0, len(content) - 1))
    match draw(st.sampled_from(["flip", "cut", "insert", "nothing"])):
        case "flip":
            content[place] ^= 1 << draw(st.integers(0, 7))
        case "cut":
            del content[place:]
        case "insert":
            content[place:place] = draw(st.binary(max_size=20))
        case _:
            content.clear()
    path.write_bytes(content)
    if path.suffix == ".safetensors" and draw(st.booleans()):
        change_config(folder, tensors_sha256=sha256_of(path))


def change(value: Any, draw: Any) -> Any:
    """A copy of a JSON value with something else, or nothing, in up to three places."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(value)))
        if not path:
            continue
        *outer, last = path
        inner = value
        for key in outer:
            inner = inner[key]
        match draw(st.integers(0, 3)):
            case 0:
                del inner[last]
            case 1 if isinstance(inner, list):
                inner.insert(last, copy.deepcopy(inner[last]))
            case 2:
                other = draw(st.sampled_from(places(value)))
                found = value
                for key in other:
                    found = found[key]
                inner[last] = copy.deepcopy(found)
            case _:
                inner[last] = draw(VALUES)
    return value
