"""Finds which arguments of a call were outputs of earlier calls, by matching values.

Logs do not say where an argument came from. A value counts as taken from an output if it is
distinctive, the output existed before the call, and nothing else can be its source: not the user,
the instructions, or an argument of an earlier call. If several outputs contain it, the earliest is
the source; of several places in that output, the first.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from dtdr.conversation.events import LoggedCall
from dtdr.conversation.values import decode_json
from dtdr.data import json_codec
from dtdr.data.calls import is_reference
from dtdr.data.outputs import iter_leaves, to_pointer
from dtdr.logs.scrubbing import Scrubber

COMMON_WORDS = frozenset(
    """
    true false none null nil yes no on off ok okay done success successful succeeded completed
    complete failed failure error errors default unknown pending active inactive open closed all
    any new old high medium low normal text string number integer boolean object array list
    result results output input value values data name title message content status type user
    json html xml csv markdown plain utf-8 english today tomorrow yesterday
    """.split()  # noqa: SIM905  # readable as prose, not as seventy quoted lines
)
"""Words that outputs and arguments have in common by chance."""

MAX_LEAVES = 20_000
MAX_TEXT = 1_000_000
"""Characters of an output that are searched for identifiers; 1 MB takes some 50 µs per value."""

MAX_BUCKET = 256
_MIN_LENGTH = 4
"""Characters of a text that is a whole argument."""
_MIN_EMBEDDED = 8
"""Characters of an output inside a longer argument."""
_MIN_DIGITS = 5
"""Digits of a number; years and counts have fewer."""
_TOKEN = re.compile(r"[\w@.+/:#-]*\w")
_IDENTIFIER = re.compile(r"(?=\S*[\d@/_:#.-])\S{6,}")


_Path = tuple[str | int, ...]
"""Keys that lead to a part of an output; empty for the whole."""


@dataclass(slots=True, eq=False)
class _Output:
    """The output of a call, and its position."""

    value: Any
    id: str
    ended: float
    text: str = ""


class ReferenceFinder:
    """Rewrites the arguments of a conversation's calls, one call after the other.

    Args:
        find: False leaves every argument as it is.
        scrubber: removes secrets from arguments; a pointer with a secret in it is left out.
    """

    def __init__(self, find: bool, scrubber: Scrubber) -> None:
        self.find = find
        self._scrubber = scrubber
        self._given: list[str] = []
        self._own: set[str] = set()
        # Outputs since the last call, and those that are indexed, in the order of time. Values and
        # first words lead to the earliest output that contains them.
        self._waiting: list[_Output] = []
        self._outputs: list[_Output] = []
        self._values: dict[str, tuple[_Output, _Path]] = {}
        self._structures: dict[int, list[tuple[_Output, Any, _Path]]] = {}
        self._starts: dict[str, list[tuple[float, int, str]]] = {}

    def give(self, text: str) -> None:
        """Add a text that the agent knows from elsewhere, such as the user's words."""
        if text:
            self._given.append(text.casefold())

    def resolve(self, call: LoggedCall, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call with references in place of earlier outputs.

        Secrets go between the two searches: a whole argument that is a secret may become a
        reference, which does not contain it; inside a longer text secrets go first, since a
        reference to a part of one would leave the rest.
        """
        if not self.find:
            return self._scrubber.arguments(arguments)
        for output in sorted(self._waiting, key=attrgetter("ended")):
            self._index(output)
            bisect.insort(self._outputs, output, key=attrgetter("ended"))
        self._waiting.clear()
        has_sources = bool(self._outputs) and self._outputs[0].ended <= call.started
        if has_sources:
            arguments = {k: self._whole(value, call.started) for k, value in arguments.items()}
        self._remember(arguments)
        arguments = self._scrubber.arguments(arguments)
        if has_sources:
            arguments = {k: self._embedded(value, call.started) for k, value in arguments.items()}
        return arguments

    def add_output(self, call: LoggedCall, call_id: str) -> None:
        """Make a call's output a possible source, unless the call failed."""
        if not self.find or call.failed or call.output is None or call.ended is None:
            return
        self._waiting.append(_Output(call.output, call_id, call.ended))

    def _index(self, output: _Output) -> None:
        raw = output.value
        value = decode_json(raw.strip() if isinstance(raw, str) else raw)
        pending: list[tuple[Any, _Path]] = [(value, ())]
        leaves = 0
        texts: list[str] = []
        while pending and leaves < MAX_LEAVES:
            item, path = pending.pop()
            if isinstance(item, (dict, list)):
                parts = item.items() if isinstance(item, dict) else enumerate(item)
                pending += [(part, (*path, key)) for key, part in parts][::-1]
                if len(item) > 1:
                    self._structures.setdefault(_structure(item), []).append((output, item, path))
            elif item is not None and not isinstance(item, bool):
                leaves += 1
                key = _key(item)
                if isinstance(item, str):
                    texts.append(item)
                known = self._values.get(key)
                if known is not None and known[0].ended <= output.ended:
                    continue
                self._values[key] = (output, path)
                if len(key) >= _MIN_EMBEDDED and (head := _TOKEN.match(key)):
                    bucket = self._starts.setdefault(head.group(), [])
                    if len(bucket) < MAX_BUCKET:
                        bisect.insort(bucket, (output.ended, -len(key), key))
        text = raw if isinstance(raw, str) and raw is value else "\n".join(texts)
        output.text, output.value = text[:MAX_TEXT], None

    def _whole(self, value: Any, until: float) -> Any:
        """The value with references for all values in it that are whole outputs."""
        if isinstance(value, (dict, list)):
            if len(value) > 1 and (source := self._same_structure(value, until)):
                return self._reference(*source)
            if isinstance(value, list):
                return [self._whole(item, until) for item in value]
            return {key: self._whole(item, until) for key, item in value.items()}
        if value is None or isinstance(value, bool):
            return value
        key = _key(value)
        if self._is_distinctive(value, key):
            source = self._source(key, until)
            if source is not None and self._is_new(key):
                return self._reference(*source)
        return value

    def _source(self, key: str, until: float) -> tuple[_Output, _Path] | None:
        """The earliest output that contains a value as a whole, or as a word in its text."""
        known = self._values.get(key)
        if known is not None and known[0].ended > until:
            known = None
        if _IDENTIFIER.fullmatch(key):
            whole_word = rf"(?<![\w-]){re.escape(key)}(?![\w-])"
            for output in self._outputs:
                if output.ended > until or (known is not None and output is known[0]):
                    break
                if key in output.text and re.search(whole_word, output.text):
                    return output, ()
        return known

    def _same_structure(self, value: Any, until: float) -> tuple[_Output, _Path] | None:
        """The output that is, or contains, an object or list equal to the value."""
        for output, known, path in self._structures.get(_structure(value), ()):
            if output.ended <= until and value == known:
                return output, path
        return None

    def _embedded(self, value: Any, until: float) -> Any:
        """The value with references for outputs inside its longer texts."""
        if isinstance(value, dict):
            if is_reference(value):
                return value
            return {key: self._embedded(item, until) for key, item in value.items()}
        if isinstance(value, list):
            return [self._embedded(item, until) for item in value]
        if isinstance(value, str) and len(value) > _MIN_EMBEDDED:
            return self._rewrite_text(value, until)
        return value

    def _rewrite_text(self, text: str, until: float) -> Any:
        """A text with outputs inside as ``$join``, in linear time from word to word."""
        parts: list[Any] = []
        taken = 0
        for token in _TOKEN.finditer(text):
            start = token.start()
            if start < taken or token.group() not in self._starts:
                continue
            leaf = self._leaf_at(text, start, token.group(), until)
            if leaf is not None:
                if start > taken:
                    parts.append(text[taken:start])
                parts.append(self._reference(*self._values[leaf]))
                taken = start + len(leaf)
        if not parts:
            return text
        if taken < len(text):
            parts.append(text[taken:])
        return parts[0] if len(parts) == 1 else {"$join": parts}

    def _leaf_at(self, text: str, start: int, head: str, until: float) -> str | None:
        for ended, _, leaf in self._starts[head]:
            end = start + len(leaf)
            if (
                ended <= until
                and text.startswith(leaf, start)
                and not (end < len(text) and text[end].isalnum() and leaf[-1].isalnum())
                and self._is_distinctive(leaf, leaf)
                and self._is_new(leaf)
            ):
                return leaf
        return None

    def _is_distinctive(self, value: Any, key: str) -> bool:
        if isinstance(value, (int, float)):
            return sum(map(str.isdigit, key)) >= _MIN_DIGITS
        if len(key) < _MIN_LENGTH or key.casefold() in COMMON_WORDS:
            return False
        if key.isdigit():
            return len(key) >= _MIN_DIGITS
        return any(map(str.isalnum, key))

    def _is_new(self, key: str) -> bool:
        """Whether the agent can only have the value from an output."""
        folded = key.casefold()
        return key not in self._own and not any(folded in text for text in self._given)

    def _remember(self, value: Any) -> None:
        for _, leaf in iter_leaves(value, is_reference):
            if not (leaf is None or isinstance(leaf, (bool, dict))):
                self._own.add(_key(leaf))

    def _reference(self, output: _Output, path: _Path) -> dict[str, str]:
        if path and all(self._scrubber.text(str(key)) == str(key) for key in path):
            return {"$ref": output.id, "path": to_pointer(path)}
        return {"$ref": output.id}


def escape(value: Any) -> Any:
    """A JSON value whose keys ``$ref`` and ``$join`` are written ``$$ref`` and ``$$join``.

    Numbers that JSON does not have become texts.
    """
    if isinstance(value, dict):
        return {
            f"${key}" if key in ("$ref", "$join") else key: escape(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [escape(item) for item in value]
    return json_codec.finite(value) if isinstance(value, float) else value


def _key(value: Any) -> str:
    return value.strip() if isinstance(value, str) else str(value)


def _structure(value: dict[str, Any] | list[Any]) -> int:
    """A hash that equal objects or lists share, and most others do not."""
    if isinstance(value, dict):
        return hash(frozenset(value))
    first = value[0]
    return hash((len(value), first if isinstance(first, str) else ""))
