"""JSON-RPC messages that may be damaged: what can be read, and an error for what cannot.

The SDK drops a message that it cannot read, so that whoever sent a request waits for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import mcp_types as types
import msgspec
from pydantic import ValidationError

DEEPEST = 200
"""Levels of a message that the SDK reads."""

MOST_TOKENS = 100_000
"""Read to say what is wrong with a message, which takes a tenth of a second at most."""

LONG_NUMBER = "an integer of a message has at most 4,300 digits"

_LONG_NUMBER = re.compile(rb"\d{4301}")
"""Python raises an error on integers of more than 4,300 digits."""

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_TOKEN = re.compile(
    rb'"(?:[^"\\]|\\.)*+"?|[\[{]++|[\]}]++|[:,]|[^\s"\[\]{},:]++', re.DOTALL
)  # possessive, so that no text takes long
_ID = b'"id"'
_NUMBER = re.compile(rb"-?\d{1,4300}(\.\d+)?")
_LAST_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)(?:\s*,\s*"jsonrpc"[^{}]*)?\s*\}\s*$')


class BadMessageError(Exception):
    """A message that cannot be read.

    Attributes:
        id: the JSON of its id; null if there is none that can be answered.
        is_request: whether its sender waits for an answer.
        is_answer: whether it answers a request.
    """

    def __init__(self, code: int, reason: str, fields: Mapping[bytes, bytes] = {}) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason
        identity = fields.get(_ID, b"")
        is_text = len(identity) > 1 and identity[:1] == identity[-1:] == b'"'
        self.id = identity if is_text or _NUMBER.fullmatch(identity) else b"null"
        has_method = b'"method"' in fields
        self.is_answer = not has_method and (b'"result"' in fields or b'"error"' in fields)
        self.is_request = not self.is_answer and (_ID in fields or not has_method)

    def to_line(self) -> bytes:
        """The error as the answer to a request, on one line."""
        error = json.dumps({"code": self.code, "message": self.reason}).encode()
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (self.id, error)

    def to_error(self) -> types.JSONRPCError:
        """The error in the place of an answer; its id is a number or a text."""
        try:
            identity = json.loads(mend(self.id))
        except ValueError:  # a number that Python does not read
            identity = None
        error = types.ErrorData(code=types.INTERNAL_ERROR, message=self.reason)
        identity = identity if isinstance(identity, (int, str)) else None
        return types.JSONRPCError(jsonrpc="2.0", id=identity, error=error)


def mend(data: bytes) -> bytes:
    """JSON whose halves of surrogate pairs are U+FFFD, also where they are not escaped.

    A program that cuts a text within an emoji sends such a half.
    """
    if _SURROGATE.search(data):
        data = _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], data)
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    return data


def read_message(data: bytes) -> types.JSONRPCMessage:
    """One message.

    Raises:
        BadMessageError: it cannot be read, or not be written again.
    """
    data = mend(data)
    try:
        message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
        if _LONG_NUMBER.search(data):
            message.model_dump_json()
    except ValidationError as error:
        is_json = error.errors(include_input=False)[0]["type"] != "json_invalid"
        code = types.INVALID_REQUEST if is_json else types.PARSE_ERROR
        raise BadMessageError(code, _problem_of(data, is_json), read_fields(data)) from error
    except ValueError as error:
        raise BadMessageError(types.INVALID_REQUEST, LONG_NUMBER, read_fields(data)) from error
    if isinstance(message, types.JSONRPCNotification) and _ID in data:
        fields = read_fields(data)
        if _ID in fields:  # which the SDK took for none
            reason = "an id must be a text or an integer"
            raise BadMessageError(types.INVALID_REQUEST, reason, fields)
    return message


def _problem_of(data: bytes, is_json: bool) -> str:
    """Why a message cannot be read."""
    if _is_deep(data):
        return f"a message has at most {DEEPEST} levels"
    if _LONG_NUMBER.search(data):
        return LONG_NUMBER
    if not is_json:
        return "this is not JSON"
    return (
        "this is not a message of JSON-RPC 2.0, whose params are an object, and whose id is a text "
        "or an integer"
    )


def iter_messages(
    line: bytes, check: Callable[[bytes], str | None] = lambda _: None
) -> Iterator[types.JSONRPCMessage | BadMessageError]:
    """The messages of a line: one, or those of a batch, each as if it came alone.

    ``check`` says why a message is refused before it is read, or None.
    """
    parts = [line]
    if line.lstrip()[:1] == b"[":
        try:
            parts = [bytes(part) for part in msgspec.json.decode(line, type=list[msgspec.Raw])]
        except (ValueError, RecursionError):
            yield BadMessageError(types.PARSE_ERROR, "this is not a batch of messages")
            return
        if not parts or any(part.lstrip()[:1] == b"[" for part in parts):
            yield BadMessageError(
                types.INVALID_REQUEST, "a batch has one message or more, no batches"
            )
            return
    for part in parts:
        try:
            if reason := check(part):
                raise BadMessageError(types.INVALID_REQUEST, reason, read_fields(part))
            yield read_message(part)
        except BadMessageError as error:
            yield error


def read_fields(data: bytes, end: bytes = b"") -> dict[bytes, bytes]:
    """The fields of a JSON object, also of a damaged one, by the JSON of their names.

    A value is its JSON, but nothing if it is an object or a list. Of a long message, the beginning
    and the id at its end are read.

    Args:
        data: the message, or its beginning.
        end: the end of a message that is cut.
    """
    fields: dict[bytes, bytes] = {}
    depth, key, is_value = 0, b"", False
    for match in islice(_TOKEN.finditer(data), MOST_TOKENS):
        token = match[0]
        if token[0] in b"[{":
            depth += len(token)
        elif token[0] in b"]}":
            depth -= len(token)
        elif depth != 1:
            continue
        elif token == b":":
            is_value, fields[key] = True, b""
        elif token == b",":
            is_value = False
        elif is_value:
            fields[key] = token
        else:
            key = token
    if _ID not in fields and (last := _LAST_ID.search((end or data)[-1_000:])):
        fields[_ID] = last[1]
    return fields


def _is_deep(data: bytes) -> bool:
    depth = 0
    for match in islice(_TOKEN.finditer(data), MOST_TOKENS):
        if match[0][0] in b"[{":
            depth += len(match[0])
        elif match[0][0] in b"]}":
            depth -= len(match[0])
        if depth > DEEPEST:
            return True
    return False
