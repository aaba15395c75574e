"""What a source of demonstrations is, where its files are looked for, and how records are read."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from dtdr.data.demonstrations import Demonstration
from dtdr.data.files import cache_folder
from dtdr.data.jsonl import BadRecords
from dtdr.data.tools import Tool
from dtdr.errors import InputError

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
        files: ``{file there: file below the data folder}``, by form; the first form whose files
            are there is downloaded.
    """

    repository: str
    files: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A published set: where it comes from and how its file is read.

    Attributes:
        name: what users type; hyphens are accepted for underscores.
        files: where its file may be, below a data folder. The first that any folder has is read.
        read: streams the demonstrations of a file.
        tools: reads the tools that belong to a file.
        hub: where huggingface.co has it.
        test_file: the file beside a file of that name that holds its test side.
        note: what a reader of its figures must know.
        variants: title and note where the file of that name holds another set than ``title`` says.
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
        tools: the tools of the set, with descriptions; end of plan is not among them.
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

    def __len__(self) -> int:
        return len(self.demonstrations)


def canonical_name(name: str) -> str:
    """A dataset's name as it is registered: hyphens become underscores."""
    return name.strip().replace("-", "_")


def download_folder() -> Path:
    """Where downloaded sets are kept."""
    return cache_folder() / "datasets"


def data_folders(data_dir: str | Path | None = None) -> list[Path]:
    """Folders that may hold published sets, in the order they are searched.

    A folder named by the user (the argument, or else ``DTDR_DATA_DIR``) is the only one besides
    the download cache, so that a typing error is not covered up by another copy.
    """
    named = data_dir or os.environ.get("DTDR_DATA_DIR")
    if named:
        folders = [Path(named)]
    else:
        folders = [Path.cwd().parent / "shared" / "data"]
        checkout = Path(__file__).resolve().parents[4]
        if (checkout / "pyproject.toml").exists():
            folders.append(checkout.parent / "shared" / "data")
    return list(dict.fromkeys([*folders, download_folder()]))


def find_file(source: Source, data_dir: str | Path | None = None) -> tuple[Path, Path]:
    """``(data folder, file)`` of a source.

    Raises:
        InputError: no folder holds it, naming where it was looked for and the remedy.
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
    """The value of a JSON file that must be held as a whole.

    Raises:
        InputError: it cannot be read, is not JSON, or repeats a key of one object.
    """
    try:
        return json.loads(path.read_bytes(), object_pairs_hook=_without_repeats)
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not JSON (invalid UTF-8)") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})") from error
    except RecursionError as error:
        raise InputError(f"{path} is not JSON (nested too deeply)") from error


def object_records(path: Path) -> Iterator[tuple[str, tuple[str, Any]]]:
    """``(where, (key, value))`` for each member of a file that is one JSON object.

    One member is in memory at a time: TinyAgent's file on the hub has 734 MB.

    Raises:
        InputError: as ``read_json``, or the file holds something else than an object.
    """
    try:
        with path.open("rb") as stream:
            members = _JsonMembers(stream)
            for number, (key, record) in enumerate(members):
                yield f", record {number} (id {key!r})", (key, record)
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not JSON (invalid UTF-8)") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON ({error.msg})") from error
    except RecursionError as error:
        raise InputError(f"{path} is not JSON (nested too deeply)") from error
    except _NotAnObjectError as error:
        raise InputError(f"{path} must contain one JSON object, id to record") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


class _NotAnObjectError(Exception):
    """The file holds another JSON value."""


_CHUNK = 1 << 20
_NEAR_END = 16
"""A value that goes on in the next chunk is an error at most so far before the end of this one,
unless it is a string that is not closed."""

_NUMBER = "0123456789+-.eE"


class _JsonMembers:
    """Key and value of each member of one JSON object, read chunk by chunk."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._json = json.JSONDecoder(object_pairs_hook=_without_repeats)
        self._text, self._at = "", 0

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        if self._next() != "{":
            self._value()  # not JSON at all, or another value
            raise _NotAnObjectError
        self._at += 1
        seen: set[str] = set()
        while self._next() != "}" or seen:
            key = self._value()
            if not isinstance(key, str):
                raise json.JSONDecodeError("a key is not text", self._text, self._at)
            if key in seen:
                raise InputError(f"the key {key!r} appears twice in one object")
            seen.add(key)
            self._take(":")
            yield key, self._value()
            if self._next() == "}":
                break
            self._take(",")
        self._take("}")
        if self._next():
            raise json.JSONDecodeError("more follows the object", self._text, self._at)

    def _next(self) -> str:
        """The next character that is not white space; empty at the end of the file."""
        while True:
            rest = len(self._text)
            while self._at < rest and self._text[self._at] in " \t\n\r":
                self._at += 1
            if self._at < rest:
                return self._text[self._at]
            if not self._more():
                return ""

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise json.JSONDecodeError(f"{character!r} is missing", self._text, self._at)
        self._at += 1

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                goes_on = error.msg.startswith("Unterminated") or (
                    error.pos >= len(self._text) - _NEAR_END
                )
                if not (goes_on and self._more()):
                    raise
                continue
            # A number, or its ".5" and "e3", may go on in the next chunk.
            is_cut = end + _NEAR_END > len(self._text) and not self._text[end:].strip(_NUMBER)
            if is_cut and isinstance(value, (int, float)) and self._more():
                continue
            self._at = end
            return value

    def _more(self) -> bool:
        left = self._text[self._at :]
        # As much again as there is, so that one long value is not parsed for each chunk of it.
        chunk = self._stream.read(max(_CHUNK, len(left)))
        self._text, self._at = left + self._decode(chunk, final=not chunk), 0
        return bool(chunk)


def member(record: object, *names: str, kind: type | tuple[type, ...] = str) -> Any:
    """The first of ``names`` that a record has.

    Raises:
        InputError: the record is not an object, has none of them, or holds another type there.
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


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"the key {repeated!r} appears twice in one object")
    return value
