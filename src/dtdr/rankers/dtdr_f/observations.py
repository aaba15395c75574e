"""The context of a run: what calls returned, and what was said and done before.

Read once, as hashes and counts; no text is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from msgspec.json import Encoder

from dtdr.data import json_codec
from dtdr.data.calls import Status, ToolCall, is_reference
from dtdr.data.demonstrations import Message
from dtdr.data.outputs import (
    OUTPUT_LENGTH,
    READ_LENGTH,
    bound_output,
    iter_leaves,
    parse_output,
    resolve_pointer,
    status_of,
)
from dtdr.rankers.dtdr_f.values import NO_VALUES, ValueReader, Values

Hashes = npt.NDArray[np.int32]

REMOVED = -1
"""Index of a call of a tool that was removed from the vocabulary."""
STATUSES: tuple[Status, ...] = ("unknown", "ok", "empty", "error")
"""The status of a call, by number."""
EMPTY, ERROR = 2, 3

_encode = Encoder().encode
_BITS = 0xFFFFF
_MOST_WORDS = 256
"""Distinct words and keys of an output that count, the first ones."""
_MOST_SAID = 96
"""Distinct words of a message that count."""
_MOST_MESSAGES = 8
"""Earlier messages of the user that are read, the last ones."""
_MOST_CALLS = 32
"""Calls of earlier turns that count, the last ones."""
_AGENT_WEIGHT, _USER_WEIGHT = 2.0, 0.2
"""Weights of the agent's last words and of earlier user messages, as lengths of vectors."""
_LONGEST_VALUE = 100
"""Characters of an argument that is looked for in outputs."""
_SHORTEST_VALUE = 3
"""Characters of an argument that is looked for in lists."""
_MOST_LISTS = 8
"""Calls of earlier turns whose lists count, the last ones."""
MOST_LEFT = 3
"""Highest number of ``Outcome.left``: two values or more."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_IDENTIFIER = re.compile(r"\b(?=[\w#-]*\d)[\w#-]{3,100}")
"""A word of a query with a digit: a name of something that a call may be made for."""
_KEY = re.compile(r'"([^"\\]{1,40})":')
# Where crc32 starts: the same word hashes to another number in each of these.
_OUTPUT, _KEYS, _SHAPE, _AGENT, _USER, _FACTS = range(1, 7)
_MOST_FACTS, _MOST_ITEMS = 128, 8
"""Facts of an output, and items of a list in it, that count, the first ones."""
_LONGEST_FLAG = 24
"""Characters of a text that may be one of few values, such as a status."""
_THRESHOLDS = (-1e9, 0.1, 0.25, 0.5, 0.75, 0.9, *range(1, 6), 7, 10, 20, 50, 100, 1_000, 10_000)
"""A number becomes the thresholds that it reaches. So a rule such as "at least two approvals" needs
one weight."""
_LIMITS = [(limit, f" {limit}".encode()) for limit in _THRESHOLDS]


class Outcome:
    """The status and the output of a call.

    Attributes:
        status: its place in ``STATUSES``.
        left: how many values of a list in an earlier output, or of the identifiers in the query,
            the tool was not called with yet, where it was called with one of them, plus one and at
            most ``MOST_LEFT``; else 0. So it is 2 after ``get_order(#a1)`` if an output listed
            #a1 and #a2, then 1 after ``get_order(#a2)``.
        values: of its arguments and its output.

    Args:
        words, facts: if they were read before.
        output: bounded; read when ``words`` or ``facts`` are first asked for, since a ranking asks
            for those of the last step alone.
    """

    __slots__ = ("_facts", "_output", "_words", "left", "status", "values")

    def __init__(
        self,
        status: int,
        words: Hashes | None = None,
        facts: Hashes | None = None,
        left: int = 0,
        values: Values = NO_VALUES,
        *,
        output: Any = None,
    ) -> None:
        self.status, self.left, self.values = status, left, values
        self._words, self._facts, self._output = words, facts, output

    @property
    def words(self) -> Hashes:
        """Hashes of the words, keys, type and size of the output, sorted."""
        if self._words is None:
            self._words = _read_words(self._output)
        return self._words

    @property
    def facts(self) -> Hashes:
        """Hashes of the flags, short texts and numbers of the output, each with its key.

        Of a number, one hash for each threshold that it reaches. Sorted.
        """
        if self._facts is None:
            self._facts = _read_facts(self._output)
        return self._facts


@dataclass(frozen=True, slots=True)
class Context:
    """The conversation before a query.

    Attributes:
        calls: the tool and the status of each call of earlier turns, oldest first.
        words: hashes of the words of messages, sorted.
        weights: shape (words,): how much each counts.
        values: of each of the calls.
    """

    calls: tuple[tuple[int, int], ...]
    words: Hashes
    weights: npt.NDArray[np.float32]
    values: tuple[Values, ...] = ()


NO_WORDS = np.empty(0, np.int32)
NO_OUTCOME = Outcome(0, NO_WORDS, NO_WORDS)
NO_CONTEXT = Context((), NO_WORDS, np.empty(0, np.float32))


class RunReader:
    """Reads the calls of one run in their order.

    Lists in outputs are remembered: where a call takes one of their values, what is left of the
    list says whether the tool is called again.

    Args:
        before: what came before the query, oldest first.
        query: its identifiers are a list, too.

    Attributes:
        earlier: the values of the last calls of earlier turns.
        names: of these calls, the tool and whether it failed.
    """

    def __init__(self, before: Sequence[Message | ToolCall] = (), query: str = "") -> None:
        self._outputs: dict[str, Any] = {}
        self._lists: list[_Lists] = []
        self._used: dict[str, set[str]] = {}
        self._values_reader = ValueReader(query)
        self._last: ToolCall | None = None
        calls = [item for item in before if isinstance(item, ToolCall)]
        for call in calls[-_MOST_LISTS:]:
            self._follow(call)
        self.earlier = tuple(
            self._read_values(call, _bounded(call.output)) for call in calls[-_MOST_CALLS:]
        )
        self.names = [(call.tool, call.status == "error") for call in calls[-_MOST_CALLS:]]
        asked = dict.fromkeys(_IDENTIFIER.findall(query[:READ_LENGTH]))
        if len(asked) > 1:
            self._lists.append(_Lists.of(asked))

    def read(self, call: ToolCall | None) -> Outcome:
        """The outcome of the next call, read from the first 2,000 characters of its output."""
        if call is None:
            return NO_OUTCOME
        left = self._follow(call)
        if call.output is None:
            status, values = STATUSES.index(call.status), self._read_values(call, None)
            return Outcome(status, NO_WORDS, NO_WORDS, left, values) if status else NO_OUTCOME
        output = _bounded(call.output)
        values = self._read_values(call, output)
        return Outcome(_status(call, output), left=left, values=values, output=output)

    def copy(self) -> RunReader:
        """The same reader, to go on from in another way."""
        reader = copy(self)
        reader._outputs, reader._lists = self._outputs.copy(), self._lists.copy()
        reader._used = {tool: values.copy() for tool, values in self._used.items()}
        reader._values_reader = self._values_reader.copy()
        return reader

    def _read_values(self, call: ToolCall, output: Any) -> Values:
        if isinstance(output, str):
            output = parse_output(output)
        last, self._last = self._last, call
        return self._values_reader.read(call.arguments, output, is_parallel=is_parallel(last, call))

    def _follow(self, call: ToolCall) -> int:
        """Remember a call; see ``Outcome.left``: of several lists, the one with most left."""
        used = self._used.setdefault(call.tool, set())
        values = set(self._values(call))
        used |= values
        lists = filter(None, map(self._find_list, values))
        left = [1 + sum(value not in used for value in each) for each in lists]
        if call.output is not None:
            self._outputs[call.id] = call.output
            self._lists.append(_Lists(call.output))
        return min(max(left, default=0), MOST_LEFT)

    def _find_list(self, value: str) -> dict[str, None] | None:
        """The last list that contains a value."""
        try:
            encoded = _encode(value)[1:-1]
        except ValueError:  # half a surrogate pair
            encoded = b""
        matches = (lists.find(value, encoded) for lists in reversed(self._lists))
        return next((each for each in matches if each is not None), None)

    def _values(self, call: ToolCall) -> Iterator[str]:
        """Numbers, names and identifiers that a call was given, as texts; references resolved."""
        for _, value in iter_leaves(list(call.arguments.values()), is_reference):
            if is_reference(value):
                with suppress(LookupError):
                    value = resolve_pointer(self._outputs[value["$ref"]], value.get("path", ""))
            if (text := _to_text(value)) is not None:
                yield text


class _Lists:
    """Lists of one output by the values in them, read when a value may be in one of them.

    Args:
        output: of a call.
    """

    __slots__ = ("_encoded", "_lists", "_output")

    def __init__(self, output: Any) -> None:
        self._output, self._encoded = output, b""
        self._lists: dict[str, dict[str, None]] | None = None
        if not isinstance(output, (dict, list)):
            self._lists = {}
        else:
            with suppress(RecursionError, TypeError, ValueError):
                self._encoded = _encode(output)

    @classmethod
    def of(cls, values: dict[str, None]) -> _Lists:
        """One list."""
        lists = cls(None)
        lists._lists = dict.fromkeys(values, values)
        return lists

    def find(self, value: str, encoded: bytes) -> dict[str, None] | None:
        """The last list that contains a value.

        Args:
            value: a text or a number.
            encoded: its JSON without quotes.
        """
        if self._lists is None:
            if self._encoded and encoded not in self._encoded:
                return None
            self._lists = _read_lists(self._output)
        return self._lists.get(value)


def _read_lists(output: Any) -> dict[str, dict[str, None]]:
    """Values of one key in the objects of a list, or of a list itself, belong together."""
    lists: dict[str, dict[str, None]] = {}
    pending: list[tuple[str, Any, bool]] = [("", output, False)]
    characters = 0
    while pending and characters < OUTPUT_LENGTH:
        path, value, is_listed = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{path}/{key}", value[key], is_listed) for key in reversed(value)]
            characters += len(value)
        elif isinstance(value, list):
            pending += [(f"{path}/*", item, True) for item in reversed(value)]
            characters += len(value)
        elif (text := _to_text(value)) is not None:
            characters += len(text)
            if is_listed:
                lists.setdefault(path, {})[text] = None
    by_value: dict[str, dict[str, None]] = {}
    for each in lists.values():
        by_value.update(dict.fromkeys(each, each))
    return by_value


def _read_words(output: Any) -> Hashes:
    """See ``Outcome.words``."""
    is_text = isinstance(output, str)
    written = output.encode("utf-8", "replace") if is_text else json_codec.dumps(output)
    text = written.decode()
    words = {_hash(word, _OUTPUT) for word in _words(text, _MOST_WORDS)}
    if not is_text:
        words.update(_hash(key, _KEYS) for key in dict.fromkeys(_KEY.findall(text)))
    size = min(len(output).bit_length(), 7) if isinstance(output, (list, dict)) else -1
    words.add(_hash(f"{type(output).__name__} {size} {len(text).bit_length()}", _SHAPE))
    return np.array(sorted(words), np.int32)


def _read_facts(output: Any) -> Hashes:
    """See ``Outcome.facts``; a text that is JSON is parsed."""
    if isinstance(output, str) and output[:1] in "{[":
        with suppress(ValueError, RecursionError):
            output = json_codec.loads(output)
    facts: set[int] = set()
    pending: list[tuple[str, Any]] = [("", output)]
    while pending and len(facts) < _MOST_FACTS:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{key}/{name}", part) for name, part in reversed(value.items())]
        elif isinstance(value, list):
            pending += [(f"{key}/*", part) for part in value[:_MOST_ITEMS]]
            pending.append((f"{key}/#", len(value)))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            # A hash of the key goes on with what follows it.
            start = crc32(key.encode("utf-8", "replace"), _FACTS)
            facts.update(crc32(text, start) & _BITS for limit, text in _LIMITS if value >= limit)
            facts.add(crc32(b" number", start) & _BITS)
        elif not isinstance(value, str) or len(value) <= _LONGEST_FLAG:
            facts.add(_hash(f"{key}={value}", _FACTS))
    return np.array(sorted(facts), np.int32)


def _to_text(value: Any) -> str | None:
    """A text or a number that is worth comparing; None for all else."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        text = str(value) if isinstance(value, str) or abs(value) < 1 << 63 else ""
        return text if _SHORTEST_VALUE <= len(text) <= _LONGEST_VALUE else None
    return None


def _bounded(output: Any) -> Any:
    """An output, of a long one the start."""
    if isinstance(output, str):
        return output[:OUTPUT_LENGTH]
    length = 0
    with suppress(RecursionError, TypeError, ValueError):
        length = len(json_codec.dumps(output).decode())
    if not 0 < length <= OUTPUT_LENGTH:
        output, _ = bound_output(output, whole_length=OUTPUT_LENGTH + 1)
    return output


def _status(call: ToolCall, bounded: Any) -> int:
    """The place in ``STATUSES``; an output alone is ok or empty."""
    guess = call.status == "unknown" and call.output is not None
    return STATUSES.index(status_of(bounded, failed=False) if guess else call.status)


def is_parallel(before: ToolCall | None, call: ToolCall | None) -> bool:
    """Whether a call is of the same message of the agent as the call before it."""
    return call is not None and before is not None and None is not call.step == before.step


def read_context(
    before: Sequence[Message | ToolCall],
    index: Mapping[str, int],
    values: tuple[Values, ...],
) -> Context:
    """The conversation before a query.

    Args:
        before: messages and calls, oldest first.
        index: positions of the known tools.
        values: of the last calls, as ``RunReader.earlier`` has them.
    """
    calls = [item for item in before if isinstance(item, ToolCall)][-_MOST_CALLS:]
    said = [item for item in before if isinstance(item, Message)]
    agent = next((item.content for item in reversed(said) if item.role == "assistant"), "")
    user = [item.content for item in said if item.role == "user"]
    recent = " ".join(reversed([text[:OUTPUT_LENGTH] for text in user[-_MOST_MESSAGES:]]))
    words = _words(agent[-OUTPUT_LENGTH:], _MOST_SAID)
    weights: dict[int, float] = {}
    for kind, terms, weight in (
        (_USER, _words(recent, _MOST_SAID), _USER_WEIGHT),
        (_AGENT, words, _AGENT_WEIGHT),
        (_AGENT, [f"{first} {second}" for first, second in pairwise(words)], _AGENT_WEIGHT),
    ):  # the terms of each have this length together, as a vector
        weights |= {_hash(term, kind): weight / len(terms) ** 0.5 for term in terms}
    if not calls and not weights:
        return NO_CONTEXT
    columns = sorted(weights)
    return Context(
        tuple(
            (index.get(call.tool, REMOVED), _status(call, _bounded(call.output))) for call in calls
        ),
        np.array(columns, np.int32),
        np.array([weights[column] for column in columns], np.float16).astype(np.float32),
        values,
    )


def _hash(text: str, kind: int) -> int:
    return crc32(text.encode("utf-8", "replace"), kind) & _BITS


def _words(text: str, most: int) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(text.lower())))[:most]
