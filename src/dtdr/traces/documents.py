"""One large JSON document, an array or an object around one: its records one by one."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from dtdr import json_codec
from dtdr.errors import InputError, MissingExtraError
from dtdr.jsonl import longest_line, too_long

WHOLE_BYTES = 32_000_000
"""A JSON document up to this size is read at once; parsed, it takes about five times as much."""


def is_document(head: list[bytes]) -> bool:
    """Whether a file is one JSON value, not one a line."""
    if not head or head[0][:1] not in (b"[", b"{"):
        return False
    first = head[0].removeprefix(b"\xef\xbb\xbf")
    if len(first) >= WHOLE_BYTES - 2:
        return True
    if first in (b"[", b"{", b"[{"):
        return True
    if _is_json(first):
        return len(head) == 1
    # A broken first line of JSON lines, or the first line of a document over several lines?
    return len(head) == 1 or not _is_json(head[1])


def _is_json(text: bytes) -> bool:
    try:
        return isinstance(json_codec.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def _parse(path: Path, text: bytes) -> Any:
    try:
        return json_codec.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({json_codec.explain(error)})") from error


def iter_items(path: Path, stream: IO[bytes], wrappers: Mapping[str, str]) -> Iterator[Any]:
    """The records of a JSON document: of its array, or of the array under a known key."""
    text = stream.read(WHOLE_BYTES + 1)
    if len(text) > WHOLE_BYTES:
        stream.seek(0)
        del text
        yield from _large_items(path, stream, wrappers)
        return
    value = _parse(path, text)
    del text
    if isinstance(value, list):
        yield from value
        return
    for key, prefix in wrappers.items():
        if isinstance(value.get(key), list):
            yield from _descend(value, prefix.split("."))
            return
    yield value


def first_items(
    path: Path, stream: IO[bytes], wrappers: Mapping[str, str], count: int
) -> list[Any]:
    """A JSON document that is one record, and the first of those that it may hold."""
    text = stream.read(WHOLE_BYTES + 1)
    stream.seek(0)
    if len(text) > WHOLE_BYTES:
        return list(itertools.islice(_large_items(path, stream, wrappers), count))
    value = _parse(path, text)
    if isinstance(value, list):
        return value[:count]
    inner = (part for key in wrappers if isinstance(value.get(key), list) for part in value[key])
    return [value, *itertools.islice(inner, count)]


def _descend(value: Any, prefix: list[str]) -> Iterator[Any]:
    if not prefix:
        yield value
    elif prefix[0] == "item":
        for item in value if isinstance(value, list) else ():
            yield from _descend(item, prefix[1:])
    elif isinstance(value, dict) and prefix[0] in value:
        yield from _descend(value[prefix[0]], prefix[1:])


def _large_items(path: Path, stream: IO[bytes], wrappers: Mapping[str, str]) -> Iterator[Any]:
    try:
        ijson: Any = importlib.import_module("ijson")
    except ImportError as error:
        raise MissingExtraError(
            f"reading {path}, one JSON document of more than {WHOLE_BYTES // 1_000_000} MB,",
            "traces",
            "ijson",
        ) from error
    try:
        prefix = _prefix(ijson, _MeteredStream(path, stream), wrappers)
        if prefix is None:
            raise InputError(
                f"{path} is one JSON object of more than {WHOLE_BYTES // 1_000_000} MB without a "
                f"list of records under {' or '.join(map(repr, wrappers))}; export it as JSON lines"
            )
        stream.seek(0)
        metered = _MeteredStream(path, stream)
        for item in ijson.items(metered, prefix, use_float=True):
            metered.reset()
            yield item
    except ijson.JSONError as error:
        raise InputError(f"{path} is not JSON ({' '.join(str(error).split())})") from error


class _MeteredStream:
    """A document whose records are bounded: none of them may need more bytes than a line has."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path = path
        self._stream = stream
        self._limit = longest_line()
        self._read = 0

    def reset(self) -> None:
        """A record ended."""
        self._read = 0

    def read(self, size: int) -> bytes:
        """As of a file.

        Raises:
            InputError: the record is too large.
        """
        self._read += size
        if self._read > self._limit + (1 << 20):  # the parser reads ahead
            raise InputError(f"{self._path}: a record is too large: {too_long(self._limit)}")
        return self._stream.read(size)


def _prefix(ijson: Any, stream: _MeteredStream, wrappers: Mapping[str, str]) -> str | None:
    for prefix, event, value in ijson.parse(stream):
        stream.reset()
        if prefix == "" and event == "start_array":
            return "item"
        if prefix == "" and event == "map_key" and value in wrappers:
            return wrappers[value]
    return None
