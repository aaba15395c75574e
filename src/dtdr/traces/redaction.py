"""Scrubs secrets and personal data by rule, before anything is written.

How much is searched is bounded, and what is beyond the bound is replaced without being looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dtdr.calls import is_reference
from dtdr.traces.redaction_rules import BUILT_IN, SECRET_FIELD, SECRET_OPTION, Rule

MAX_TEXT = 100_000
"""Characters of one text that are searched: at most 0.15 s, in which no other thread runs."""

MAX_VALUE = 1_000_000
"""Characters of one JSON value that are searched, with ``_VALUE_COST`` for each value in it."""

_VALUE_COST = 8
_BORDER = 400
"""Characters before the bound that are replaced too: a secret may have begun there. Those that are
longer are known by less."""
_LONG = "long-text"
_PLACEHOLDER = re.compile(r"\[[\w-]+\]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PROSE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz \n,.;!?'\"()")
_IS_PROSE = re.compile(r"[A-Za-z \n,.;!?'\"()]*+\Z")


class _Budget:
    """What may still be searched in one call."""

    def __init__(self, characters: int) -> None:
        self.left = characters

    @property
    def is_spent(self) -> bool:
        return self.left <= 0


class Redactor:
    """Replaces secrets in texts and JSON values, and counts what it replaced by rule.

    Of one text ``MAX_TEXT`` characters are searched, of one value ``MAX_VALUE``; what is beyond is
    replaced by ``[long-text]``.
    """

    def __init__(self, rules: Sequence[Rule] = BUILT_IN) -> None:
        self.rules = tuple(rules)
        self._by_field = any(rule.name == "secret" for rule in rules)
        self._on_prose = tuple(r for r in rules if not r.needs or r.needs & _PROSE)
        self.counts: Counter[str] = Counter()
        self._clean: set[str] = set()

    def text(self, text: str) -> str:
        """The text with every match replaced by the rule's name in brackets."""
        return self._text(text, _Budget(MAX_TEXT))

    def _text(self, text: str, budget: _Budget) -> str:
        if text in self._clean:
            return text
        most = max(0, min(MAX_TEXT, budget.left))
        budget.left -= len(text)
        if len(text) <= most:
            return self._search(text)
        self.counts[_LONG] += 1
        return f"{self._search(text[:most])[:-_BORDER]}[{_LONG}]"

    def _search(self, text: str) -> str:
        # Most rules need a digit or a mark, which most words and sentences do not have.
        if _IS_PROSE.match(text):
            rules, characters = self._on_prose, _PROSE
        else:
            rules, characters = self.rules, frozenset(text)
        before = text
        for rule in rules:
            if rule.needs and rule.needs.isdisjoint(characters):
                continue
            if rule.hints and not any(map(text.__contains__, rule.hints)):
                continue
            text = rule.pattern.sub(partial(self._replace, rule), text)
        if text == before and len(text) <= 40 and len(self._clean) < 50_000:
            self._clean.add(text)  # keys and words come again and again
        return text

    def value(self, value: Any) -> Any:
        """A JSON value with its texts, keys and long numbers scrubbed; references stay.

        Whatever stands under a key such as ``password`` or ``apiKey``, or after an option such as
        ``--password`` in a list, is replaced; of objects and lists every text and number in them.
        """
        return self._value(value, _Budget(MAX_VALUE))

    def _value(self, value: Any, budget: _Budget) -> Any:
        budget.left -= _VALUE_COST
        if isinstance(value, str):
            return self._text(value, budget)
        if isinstance(value, dict):
            if is_reference(value):
                return self._reference(value, budget)
            scrubbed: dict[str, Any] = {}
            for key, item in value.items():
                if budget.is_spent:
                    scrubbed[self._find_unused(self._mark_long(), scrubbed)] = None
                    break
                name = self._find_unused(self._text(key, budget), scrubbed)
                scrubbed[name] = self._field(key, item, budget)
            return scrubbed
        if isinstance(value, list):
            items: list[Any] = []
            for item in value:
                if budget.is_spent:
                    items.append(self._mark_long())
                    break
                items.append(self._after(value[len(items) - 1] if items else None, item, budget))
            return items
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**11:
            text = self._text(str(value), budget)
            return value if text == str(value) else text
        return value

    def _mark_long(self) -> str:
        self.counts[_LONG] += 1
        return f"[{_LONG}]"

    def _reference(self, value: Mapping[str, Any], budget: _Budget) -> Mapping[str, Any]:
        """A reference; without its path where that names a key that is scrubbed."""
        keys = str(value.get("path", "")).split("/")
        if all(self._text(key, budget) == key for key in keys):
            return value
        return {"$ref": value["$ref"]}

    def _field(self, key: str, value: Any, budget: _Budget) -> Any:
        if self._by_field and (
            SECRET_FIELD.fullmatch(_CAMEL.sub("_", key))
            or (isinstance(value, str) and key.casefold() == "pass")
        ):
            return self._mask(value, budget)
        return self._value(value, budget)

    def _after(self, former: Any, value: Any, budget: _Budget) -> Any:
        """An item of a list, which an option may come before: ``["--password", "x"]``."""
        is_value = isinstance(value, str) and isinstance(former, str)
        if is_value and self._by_field and former[:1] == "-" and SECRET_OPTION.fullmatch(former):
            return self._mask(value, budget)
        return self._value(value, budget)

    def _mask(self, value: Any, budget: _Budget) -> Any:
        """What stands under a secret name: every text and number in it replaced."""
        if isinstance(value, dict):
            if is_reference(value):
                return self._reference(value, budget)
            return {
                self._text(key, budget): self._mask(item, budget) for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._mask(item, budget) for item in value]
        if value is None or isinstance(value, (bool, float)) or value == "":
            return value
        self.counts["secret"] += 1
        return "[secret]"

    def _replace(self, rule: Rule, match: re.Match[str]) -> str:
        groups = match.re.groupindex
        group: str | int = "secret" if "secret" in groups else 0
        if "quoted" in groups and match.group("quoted"):
            group = "quoted"
        secret = match.group(group)
        if not secret or _PLACEHOLDER.fullmatch(secret) or (rule.check and not rule.check(secret)):
            return match.group()
        self.counts[rule.name] += 1
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        whole = match.group()
        return f"{whole[:start]}[{rule.name}]{whole[end:]}"

    def _find_unused(self, name: str, taken: Mapping[str, Any]) -> str:
        candidate, number = name, 2
        while candidate in taken:
            candidate, number = f"{name}-{number}", number + 1
        return candidate
