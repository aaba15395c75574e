"""Reads a run: its calls in their order, and the conversation before the query.

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

import numpy as np
import numpy.typing as npt
from msgspec.json import Encoder

from dtdr.data import json_codec
from dtdr.data.calls import ToolCall, is_reference
from dtdr.data.demonstrations import Message
from dtdr.data.outputs import (
    OUTPUT_LENGTH,
    READ_LENGTH,
    bound_output,
    parse_output,
    resolve_pointer,
    status_of,
)
from dtdr.rankers.dtdr_f.lists import OutputLists, to_text
from dtdr.rankers.dtdr_f.outcomes import (
    AGENT,
    NO_OUTCOME,
    NO_WORDS,
    STATUSES,
    USER,
    Hashes,
    Outcome,
    distinct_words,
    hash_term,
)
from dtdr.rankers.dtdr_f.values import ValueReader, Values

REMOVED = -1
"""Index of a call of a tool that was removed from the vocabulary."""
_encode = Encoder().encode
_MOST_SAID = 96
"""Distinct words of a message that count."""
_MOST_MESSAGES = 8
"""Earlier messages of the user that are read, the last ones."""
_MOST_CALLS = 32
"""Calls of earlier turns that count, the last ones."""
_AGENT_WEIGHT, _USER_WEIGHT = 2.0, 0.2
"""Weights of the agent's last words and of earlier user messages, as lengths of vectors."""
_MOST_LISTS = 8
"""Calls of earlier turns whose lists count, the last ones."""
MOST_LEFT = 3
"""Highest number of ``Outcome.left``: two values or more."""
_IDENTIFIER = re.compile(r"\b(?=[\w#-]*\d)[\w#-]{3,100}")
"""A word of a query with a digit: a name of something that a call may be made for."""


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


NO_CONTEXT = Context((), NO_WORDS, np.empty(0, np.float32))
"""Nothing came before the query, or nothing of it is known."""


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
        self._lists: list[OutputLists] = []
        self._used: dict[str, set[str]] = {}
        self._values_reader = ValueReader(query)
        self._last: ToolCall | None = None
        calls = [item for item in before if isinstance(item, ToolCall)]
        calls = calls[-_MOST_CALLS:]
        outputs = [_bounded(call.output) for call in calls]
        both = list(zip(calls, outputs, strict=True))
        for call, (output, encoded) in both[-_MOST_LISTS:]:
            self._follow(call, encoded if output is call.output else b"")
        self.earlier = tuple(self._read_values(call, output) for call, (output, _) in both)
        self.names = [(call.tool, call.status == "error") for call in calls]
        asked = dict.fromkeys(_IDENTIFIER.findall(query[:READ_LENGTH]))
        if len(asked) > 1:
            self._lists.append(OutputLists.of(asked))

    def read(self, call: ToolCall | None) -> Outcome:
        """The outcome of the next call, read from the first 2,000 characters of its output."""
        if call is None:
            return NO_OUTCOME
        if call.output is None:
            left, values = self._follow(call), self._read_values(call, None)
            # Later calls are compared with its arguments; how it went is not known.
            if call.status == "unknown":
                return NO_OUTCOME
            return Outcome(STATUSES.index(call.status), NO_WORDS, NO_WORDS, left, values)
        output, encoded = _bounded(call.output)
        is_whole = output is call.output
        left = self._follow(call, encoded if is_whole else b"")
        values = self._read_values(call, output)
        return Outcome(_status(call), left=left, values=values, output=(output, encoded))

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

    def _follow(self, call: ToolCall, encoded: bytes = b"") -> int:
        """Remember a call; see ``Outcome.left``: of several lists, the one with most left."""
        used = self._used.setdefault(call.tool, set())
        values = set(self._values(call))
        used |= values
        lists = filter(None, map(self._find_list, values))
        left = [1 + sum(value not in used for value in each) for each in lists]
        if call.output is not None:
            self._outputs[call.id] = call.output
            self._lists.append(OutputLists(call.output, encoded))
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
        pending = list(call.arguments.values())
        while pending:
            value = pending.pop()
            if is_reference(value):
                with suppress(LookupError):
                    value = resolve_pointer(self._outputs[value["$ref"]], value.get("path", ""))
            elif isinstance(value, dict):
                pending += value.values()
            elif isinstance(value, list):
                pending += value
            if (text := to_text(value)) is not None:
                yield text


NEW_RUN = RunReader()
"""Reads a run of which nothing came before; copied where it is read."""


def _bounded(output: Any) -> tuple[Any, bytes]:
    """An output, of a long one the start; and its JSON, empty where it is a text or no JSON."""
    if isinstance(output, str):
        return output[:OUTPUT_LENGTH], b""
    encoded = _encode_output(output)
    if not encoded or (len(encoded) > OUTPUT_LENGTH and len(encoded.decode()) > OUTPUT_LENGTH):
        output, _ = bound_output(output, whole_length=OUTPUT_LENGTH + 1)
        encoded = _encode_output(output)
    return output, encoded


def _encode_output(output: Any) -> bytes:
    with suppress(RecursionError, TypeError, ValueError):
        return json_codec.dumps(output)
    return b""


def _status(call: ToolCall) -> int:
    """The place in ``STATUSES``; an output alone is ok or empty."""
    if call.status != "unknown" or call.output is None:
        return STATUSES.index(call.status)
    output, _ = _bounded(call.output)
    return STATUSES.index(status_of(output, failed=False))


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
    words = distinct_words(agent[-OUTPUT_LENGTH:], _MOST_SAID)
    weights: dict[int, float] = {}
    for kind, terms, weight in (
        (USER, distinct_words(recent, _MOST_SAID), _USER_WEIGHT),
        (AGENT, words, _AGENT_WEIGHT),
        (AGENT, [f"{first} {second}" for first, second in pairwise(words)], _AGENT_WEIGHT),
    ):  # the terms of each have this length together, as a vector
        weights |= {hash_term(term, kind): weight / len(terms) ** 0.5 for term in terms}
    if not calls and not weights:
        return NO_CONTEXT
    columns = sorted(weights)
    return Context(
        tuple((index.get(call.tool, REMOVED), _status(call)) for call in calls),
        np.array(columns, np.int32),
        np.array([weights[column] for column in columns], np.float16).astype(np.float32),
        values,
    )
