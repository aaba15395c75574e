"""Sources of demonstrations, their folders, and the records in their files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration, as_demonstrations
from dtdr.data.files import cache_folder
from dtdr.data.jsonl import BadRecords
from dtdr.data.tools import Tool, as_tools
from dtdr.errors import InputError, cannot_read

Read = Callable[[Path, BadRecords | None], Iterator[Demonstration]]
"""Streams a source's file; ``(path, bad) -> demonstrations`` in record order."""


@dataclass(frozen=True, slots=True)
class Published:
    """Figures from the paper's table of dataset statistics (App. Dataset Statistics)."""

    plans: int
    tools: int
    calls: tuple[float, float]
    dependencies: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Hub:
    """Where huggingface.co has a set.

    Attributes:
        repository: its name there.
        files: ``{file there: file below the data folder}``.
    """

    repository: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """A published set: where it comes from and how its file is read.

    Attributes:
        name: what users type; hyphens are accepted for underscores.
        files: where its file may be, below a data folder. The first that any folder has is read.
        read: streams the demonstrations of a file.
        tools: reads the tools that belong to a file.
        hub: where huggingface.co has it.
        test_file: by name of a file, the file in its folder with the test side.
        note: what a reader of its figures must know.
        variants: title and note of files that have another set than ``title``.
    """

    name: str
    title: str
    files: tuple[str, ...]
    read: Read
    tools: Callable[[Path], tuple[Tool, ...]]
    origin: str
    licence: str
    note: str = ""
    hub: Hub | None = None
    published: Published | None = None
    variants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    test_file: Mapping[str, str] = field(default_factory=dict)

    def describe(self, path: Path) -> tuple[str, str]:
        """Title and note of the set that is read from a file."""
        return self.variants.get(path.name, (self.title, self.note))


@dataclass(frozen=True)
class Dataset:
    """A set of demonstrations in record order, which fixed splits refer to.

    Attributes:
        demonstrations: JSON objects of demonstrations become ``Demonstration`` objects.
        tools: the tools of the set, with descriptions; end of plan is not among them. Definitions
            become ``Tool`` objects.
        synthetic: True when a program wrote the demonstrations, not people or an agent.
        source: where it comes from.
        note: what a reader of its figures must know.
        folder: the data folder it was read from; None for the bundled set.
        test_from: position of the first demonstration of the test side that its publishers keep,
            which comes last; None where they keep none.
        remarks: what was left out or repaired while reading, one sentence each.
    """

    name: str
    title: str
    demonstrations: list[Demonstration]
    tools: tuple[Tool, ...]
    synthetic: bool
    source: str
    licence: str
    note: str = ""
    folder: Path | None = None
    test_from: int | None = None
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        set_field = partial(object.__setattr__, self)  # the class is frozen
        set_field("demonstrations", list(as_demonstrations(self.demonstrations)))
        set_field("tools", tuple(as_tools(self.tools)))

    def __len__(self) -> int:
        return len(self.demonstrations)


def canonical_name(name: str) -> str:
    """A dataset's name as it is registered: hyphens become underscores."""
    return name.strip().replace("-", "_")


def download_folder() -> Path:
    """Where downloaded sets are kept."""
    return cache_folder() / "datasets"


def data_folders(data_dir: str | Path | None = None) -> list[Path]:
    """Folders that may have published sets, in the order they are searched.

    A folder named by the user (the argument, or else ``DTDR_DATA_DIR``) is the only one besides
    the download cache, so that a typing error is not covered up by another copy.
    """
    named = data_dir or os.environ.get("DTDR_DATA_DIR")
    return [*([Path(named)] if named else []), download_folder()]


def find_file(source: Source, data_dir: str | Path | None = None) -> tuple[Path, Path]:
    """``(data folder, file)`` of a source.

    Raises:
        InputError: no folder has it; the message names the folders and the remedy.
    """
    folders = data_folders(data_dir)
    # File by file: a smaller form of a set in the first folder does not hide the whole one.
    for file in source.files:
        for folder in folders:
            if (folder / file).is_file():
                return folder, folder / file
    looked = ", ".join(str(folder) for folder in folders)
    remedy = (
        f"download it with 'dtdr data download {source.name}'"
        if source.hub
        else f"get it from {source.origin}"
    )
    raise InputError(
        f"dataset {source.name!r} was not found: no {' or '.join(source.files)} in {looked}; "
        f"{remedy}, or set DTDR_DATA_DIR to the folder that contains it"
    )


def read_json(path: Path) -> Any:
    """The value of a JSON file that is read as a whole.

    Raises:
        InputError: it cannot be read, or is not JSON.
    """
    try:
        return json_codec.loads(path.read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({json_codec.explain(error)})") from error


def object_records(path: Path) -> Iterator[tuple[str, tuple[str, Any]]]:
    """``(where, (key, value))`` for each member of a file that is one JSON object.

    One member is in memory at a time: TinyAgent's file on the hub has 734 MB.

    Raises:
        InputError: it cannot be read, is not a JSON object, or repeats a key.
    """
    from dtdr.logs.documents import iter_members

    seen: set[str] = set()
    try:
        with path.open("rb") as stream:
            for index, (key, record) in enumerate(iter_members(path, stream)):
                if key in seen:
                    raise InputError(f"{path}: the key {key!r} appears twice in one object")
                seen.add(key)
                yield f", record {index} (id {key!r})", (key, record)
    except OSError as error:
        raise cannot_read(path, error) from error


def member(record: object, *names: str, kind: type | tuple[type, ...] = str) -> Any:
    """The first of ``names`` that a record has.

    Raises:
        InputError: the record is not an object, has none of them, or has another type there.
    """
    if not isinstance(record, dict):
        raise InputError(f"a JSON object is needed, not {type(record).__name__}")
    for name in names:
        if name in record:
            value = record[name]
            if not isinstance(value, kind):
                wanted = kind.__name__ if isinstance(kind, type) else "another type"
                raise InputError(f"{name!r} is {type(value).__name__}, expected {wanted}")
            return value
    raise InputError(f"{' or '.join(map(repr, names))} is missing")


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy with ``change`` applied to each leaf: everything but lists, objects and keys."""
    if isinstance(value, (list, tuple)):
        return [map_leaves(item, change) for item in value]
    if isinstance(value, dict):
        return {str(key): map_leaves(item, change) for key, item in value.items()}
    return change(value)


def mark_references(
    text: str, pattern: re.Pattern[str], target: Callable[[re.Match[str]], str | None]
) -> Any:
    """A text with its references to calls as dtdr writes them; the text itself without any.

    Args:
        text: of an argument.
        pattern: how the set writes a reference.
        target: the id of the call that a match refers to; None where it is only text.
    """
    parts: list[Any] = []
    done = 0
    for match in pattern.finditer(text):
        if (identifier := target(match)) is not None:
            parts += text[done : match.start()], {"$ref": identifier}
            done = match.end()
    parts = [part for part in (*parts, text[done:]) if part != ""]
    if not done:
        return text
    return parts[0] if len(parts) == 1 else {"$join": parts}
