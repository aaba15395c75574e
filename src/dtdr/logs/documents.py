"""Reads one large JSON document, a list or an object with a list in it, record by record."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

from dtdr.data import json_codec
from dtdr.data.jsonl import longest_line, too_long
from dtdr.errors import InputError

HEAD_BYTES = 32_000_000
"""Bytes of a first line that are read at most; a longer line is taken for a document."""

WRAPPERS = frozenset(
    "data items runs spans resourceSpans resource_spans samples simulations traces".split()  # noqa: SIM905
)
"""Keys under which exports that are one JSON object have their list of records."""

CHUNK = 1 << 16
_UNSURE = 16
"""Characters at the end of a piece that may be half a number, a name or an escape."""


def is_document(head: list[bytes]) -> bool:
    """Whether a file is one JSON value instead of one value per line, by its first two lines."""
    if not head or head[0][:1] not in (b"[", b"{"):
        return False
    first = head[0]
    if len(first) >= HEAD_BYTES - 2 or first in (b"[", b"{", b"[{"):
        return True
    # A broken first line of JSON lines, or the first line of a document over several lines?
    return len(head) == 1 or not (is_json(first) or is_json(head[1]))


def is_json(text: bytes | str) -> bool:
    """Whether a text is a whole JSON object or list."""
    try:
        return isinstance(json_codec.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def iter_items(name: str, stream: IO[bytes]) -> Iterator[Any]:
    """The records of a JSON document, in constant memory.

    An object without a list under one of ``WRAPPERS`` is one record. Several values may follow each
    other, over as many lines as they like.

    Args:
        name: of the document, for errors.
        stream: the document, at its beginning.

    Raises:
        InputError: the document is not JSON, or a record is larger than a line may be.
    """
    document = _Document(name, stream)
    is_begin = True
    while is_begin or document.peek():
        is_begin = False
        if document.peek() == "[":
            yield from document.elements()
            continue
        document.begin()
        record: dict[str, Any] | None = {}
        for key in document.members("{"):
            if record is None:
                document.record()
            elif key in WRAPPERS and document.peek() == "[":
                record = None
                yield from document.elements()
            else:
                record[key] = document.value()
        if record is not None:
            yield record


def iter_members(path: Path, stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """The keys and values of a document that is one object, in constant memory.

    Raises:
        InputError: the document is not one JSON object, or a value is larger than a line may be.
    """
    document = _Document(str(path), stream)
    if document.peek() != "{":
        document.value()  # not JSON at all, or another value
        raise InputError(f"{path} must contain one JSON object, id to record")
    for key in document.members("{"):
        yield key, document.record()
    document.end()


class _Document:
    """Reads a JSON document from left to right and keeps only the text of the current record."""

    def __init__(self, name: str, stream: IO[bytes]) -> None:
        self._name = name
        self._stream = stream
        self._limit = longest_line()
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._record = self._position = 0  # where the current record begins, and the next token
        self._is_whole = False

    def elements(self) -> Iterator[Any]:
        """The elements of a list, each a record."""
        for _ in self.members("["):
            yield self.record()

    def members(self, opening: str) -> Iterator[str]:
        """The keys of an object, or an empty text per element; the caller reads the value."""
        closing = "]" if opening == "[" else "}"
        self._expect(opening)
        while self.peek() != closing:
            key = ""
            if opening == "{":
                if self.peek() != '"':
                    self._fail("a key is missing")
                key = self.value()
                self._expect(":")
            yield key
            if self.peek() != closing:
                self._expect(",")
        self._expect(closing)

    def record(self) -> Any:
        """The next value, which is one record: the text before it is dropped."""
        self._record = self._position
        return self.value()

    def begin(self) -> None:
        """Begin a record: the text before it is dropped."""
        self._record = self._position

    def end(self) -> None:
        """Check that nothing follows."""
        if self.peek():
            self._fail("extra data")

    def peek(self) -> str:
        """The next character that is not a space; empty at the end."""
        while True:
            while self._text[self._position : self._position + 1].isspace():
                self._position += 1
            if self._position < len(self._text) or self._is_whole:
                return self._text[self._position : self._position + 1]
            self._read_on()

    def value(self) -> Any:
        """The next JSON value."""
        self.peek()
        while True:
            try:
                value, end = json_codec.decode_at(self._text, self._position)
            except json.JSONDecodeError as error:
                is_half = error.pos > len(self._text) - _UNSURE or "Unterminated" in error.msg
                if self._is_whole or not is_half:
                    self._fail(error.msg)
            except RecursionError:
                self._fail("nested too deeply")
            else:
                is_closed = isinstance(value, (str, list, dict))
                if is_closed or self._is_whole or end + _UNSURE < len(self._text):
                    self._position = end
                    return value
            self._read_on()

    def _expect(self, character: str) -> None:
        if self.peek() != character:
            self._fail(f"expecting {character!r}")
        self._position += 1

    def _read_on(self) -> None:
        size = len(self._text) - self._record
        if size > self._limit:
            raise InputError(
                f"{self._name}: a record is too large: {too_long(self._limit)}, or export the log "
                "as JSON lines"
            )
        data = self._stream.read(max(CHUNK, size))  # twice as much each time, for linear cost
        self._is_whole = not data
        try:
            more = self._decoder.decode(data, self._is_whole)
        except UnicodeDecodeError as error:
            self._fail(json_codec.explain(error))
        self._text = self._text[self._record :] + more
        self._position -= self._record
        self._record = 0

    def _fail(self, reason: str) -> NoReturn:
        raise InputError(f"{self._name} is not JSON ({reason})")
