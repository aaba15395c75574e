"""Replaces secrets and personal data by rule, before anything is written.

The search is bounded; what is beyond the bound is replaced without a look.
"""

# ruff: noqa: SIM905 (lists of words are read more easily as text)
from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dtdr.data import json_codec
from dtdr.data.calls import is_reference
from dtdr.logs.personal_data import is_personal, kind_of_field
from dtdr.logs.redaction_rules import BUILT_IN, COMMAND, DIGITS, HINTS, Rule, Scan
from dtdr.logs.secret_names import Secrecy, has_any, secrecy
from dtdr.logs.tables import scrub_tables

MAX_TEXT = 100_000
"""Characters of a text that are searched: at most 0.3 s, in which no other thread runs."""

MAX_VALUE = 1_000_000
"""Characters of a JSON value that are searched, with ``_VALUE_COST`` for each value in it."""

_VALUE_COST = 8
_BORDER = 400
"""Characters before the bound that are replaced too: a secret may begin there. The beginning of
longer ones is enough to recognize them."""
_LONG = "long-text"
_PLACEHOLDER = re.compile(r"\[[\w-]+\]")
_LABELS = frozenset("name Name key Key field header label variable parameter id type k".split())
_CONTENTS = tuple("value Value val content data default text v".split())
_SCHEMA_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_PRIVATE_PARTS = ("d", "p", "q", "dp", "dq", "qi", "k")  # of a JSON web key
# A name that is a value, or the key of an object or a list; others need no decoding.
_STRING = re.compile(r'"([\w.$-]{1,80})\\*"(?!\s*:\s*[^\s{\[])')
_IS_JSON = re.compile(r"\s*+[\[{\"]")


class Redactor:
    """Replaces secrets in texts and JSON values, by rule and by the names of fields; counts both.

    It searches ``MAX_TEXT`` characters of a text and ``MAX_VALUE`` of a value. ``[long-text]``
    replaces the rest.
    """

    def __init__(self, rules: Sequence[Rule] = BUILT_IN) -> None:
        self.rules = tuple(rules)
        self.counts: Counter[str] = Counter()
        self._clean: set[str] = set()
        self._left = 0  # characters that may still be searched in one call

    def text(self, text: str) -> str:
        """The text with every match replaced by the rule's name in brackets."""
        self._left = MAX_TEXT
        return self._text(text)

    def _text(self, text: str, name: str = "") -> str:
        if text in self._clean:
            return text
        most = max(0, min(MAX_TEXT, self._left))
        self._left -= len(text)
        if len(text) <= most:
            return self._search(text, name)
        return f"{self._search(text[:most], name)[:-_BORDER]}{self._mark_long()}"

    def _search(self, text: str, field: str) -> str:
        before, small = text, text.lower()
        hinted, has_digit = has_any(small, HINTS), has_any(small, DIGITS)
        if hinted and _IS_JSON.match(text) and _has_secret_name(text):
            text = self._decoded(text)
        if hinted and ("\n" in text or "values" in small):
            text = scrub_tables(text, self._mark)
        for rule in self.rules:
            if rule.hints is HINTS:
                is_possible = hinted
            elif rule.hints is DIGITS:
                is_possible = has_digit
            else:
                is_possible = (has_digit or not rule.needs_digit) and has_any(small, rule.hints)
            if is_possible:
                text = self._apply(rule, text, field)
        is_short = text == before and len(text) <= 40 and len(self._clean) < 50_000
        # Keys and words repeat. The meaning of digits depends on the field.
        if is_short and not has_digit:
            self._clean.add(text)
        return text

    def _decoded(self, text: str) -> str:
        """A JSON text with its value scrubbed."""
        try:
            value = json_codec.loads(text)
            scrubbed = self._value(value)
        except (ValueError, RecursionError):
            return text
        if scrubbed == value:
            return text
        separators = None if '": ' in text else (",", ":")
        return json.dumps(scrubbed, ensure_ascii=False, separators=separators)

    def _apply(self, rule: Rule, text: str, field: str) -> str:
        pieces: list[str] = []
        end, scan = 0, Scan(field)
        for match in rule.pattern.finditer(text):
            span = rule.find(match, scan) if match.start() >= end else None
            if span is None or span[0] == span[1] or _PLACEHOLDER.fullmatch(text, *span):
                continue
            pieces += text[end : span[0]], f"[{rule.name}]"
            end = span[1]
            self.counts[rule.name] += 1
        return "".join(pieces) + text[end:] if pieces else text

    def value(self, value: Any) -> Any:
        """A JSON value with its texts, keys and long numbers scrubbed; references stay.

        Everything under a key such as ``password``, or after an option such as ``--password`` in a
        list, is replaced; in objects and lists, every text and number.
        """
        self._left = MAX_VALUE
        return self._value(value)

    def _value(self, value: Any) -> Any:
        self._left -= _VALUE_COST
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            if is_reference(value):
                return self._reference(value)
            fields = _fields(value)
            scrubbed: dict[str, Any] = {}
            uses: Counter[str] = Counter()
            for key, item in value.items():
                if self._left <= 0:
                    scrubbed[_find_unused(self._mark_long(), scrubbed, uses)] = None
                    break
                name = _find_unused(self._text(key), scrubbed, uses)
                scrubbed[name] = self._under(self._secrecy(name, item, fields), item, key)
            return scrubbed
        if isinstance(value, list):
            items: list[Any] = []
            for item in value:
                if self._left <= 0:
                    items.append(self._mark_long())
                    break
                items.append(self._under(_after(value, len(items)), item))
            return items
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**11:
            text = self._text(str(value))
            return value if text == str(value) else text
        return value

    def _secrecy(self, key: str, value: Any, fields: Mapping[str, Secrecy]) -> Secrecy:
        if isinstance(value, str) and key.casefold() == "pass":
            return Secrecy.SURE
        return max(secrecy(_PLACEHOLDER.sub("", key)), fields.get(key, Secrecy.NONE))

    def _mark(self, _: str) -> str:
        self.counts["secret"] += 1
        return "[secret]"

    def _mark_long(self) -> str:
        self.counts[_LONG] += 1
        return f"[{_LONG}]"

    def _reference(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """A reference; without its path if that has a key that is scrubbed."""
        keys = str(value.get("path", "")).split("/")
        if all(self._text(key) == key for key in keys):
            return value
        return {"$ref": value["$ref"]}

    def _under(self, certainty: Secrecy, value: Any, key: str = "") -> Any:
        """A value under a name, with every secret text and number in it replaced."""
        scrubbed = self._hide(certainty, value, key)
        is_atom = isinstance(value, (str, int)) and not isinstance(value, bool)
        if not is_atom or not key or _PLACEHOLDER.fullmatch(str(scrubbed)):
            return scrubbed
        if not is_personal(key, str(value)):
            return scrubbed
        self.counts["personal"] += 1
        return "[personal]"

    def _hide(self, certainty: Secrecy, value: Any, key: str) -> Any:
        if isinstance(value, str) and not certainty.covers(value):
            return self._text(value, key)
        if isinstance(value, list) and kind_of_field(key):
            return [self._under(certainty, item, key) for item in value]
        if certainty is Secrecy.NONE or value is None or isinstance(value, (bool, float)):
            return self._value(value)
        if isinstance(value, list):
            return [self._under(certainty, item) for item in value]
        if isinstance(value, dict):
            is_schema = value.get("type") in _SCHEMA_TYPES  # a parameter, not its value
            if is_reference(value) or is_schema or certainty is not Secrecy.SURE:
                return self._value(value)
            return {self._text(k): self._under(certainty, v) for k, v in value.items()}
        if not certainty.covers(str(value)):
            return self._value(value)
        self.counts["secret"] += 1
        return "[secret]"


def _find_unused(name: str, taken: Mapping[str, Any], uses: Counter[str]) -> str:
    """The name, with a number if it is taken; ``uses`` has the last number of each."""
    candidate = name
    while candidate in taken:
        uses[name] += 1
        candidate = f"{name}-{uses[name] + 1}"
    return candidate


def _has_secret_name(text: str) -> bool:
    names = set(_STRING.findall(text))
    return "kty" in text or any(secrecy(name) > Secrecy.RANDOM for name in names)


def _fields(value: Mapping[str, Any]) -> dict[str, Secrecy]:
    """Fields that another field makes secret: ``{"name": "password", "value": "x"}``."""
    secrecies = dict.fromkeys(_PRIVATE_PARTS if "kty" in value else (), Secrecy.SURE)
    if value.get("kind") == "Secret":  # of Kubernetes
        secrecies = dict.fromkeys(("data", "stringData"), Secrecy.SURE)
    labels = [value[key] for key in _LABELS.intersection(value)]
    label = max((secrecy(label) for label in labels if isinstance(label, str)), default=0)
    return {**dict.fromkeys(_CONTENTS, Secrecy(label)), **secrecies} if label else secrecies


def _after(items: Sequence[Any], index: int) -> Secrecy:
    """Whether the item before makes one secret: ``["--password", "x"]``, ``["password", "x"]``."""
    former, item = items[index - 1], items[index]
    if not index or not isinstance(former, str) or not isinstance(item, str):
        return Secrecy.NONE
    certainty = secrecy(former)
    if former[:1] == "-" and certainty > Secrecy.RANDOM:
        return Secrecy.SURE
    if len(items) == 2 and certainty:
        is_word = former.isidentifier() and former.islower() and item.isidentifier()
        plain = certainty is not Secrecy.SURE or is_word
        return min(certainty, Secrecy.MIXED) if plain else certainty
    if "-" in (former[:1], item[:1]) and isinstance(items[0], str):
        words = [items[0], *map(str, items[max(1, index - 6) : index]), item]
        command = " ".join(word[:200] for word in words)
        ends = [match.end() for match in COMMAND.finditer(command) if not match.lastgroup]
        if ends and len(command) - len(item[:200]) <= ends[-1] < len(command):
            return Secrecy.SURE
    return Secrecy.NONE
