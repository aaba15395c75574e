"""Scrubs secrets and personal data by rule, before anything is written.

Every expression takes time in proportion to the text: repetitions are bounded, or cannot be entered
at each position of what they run over. How much is searched is bounded too, and what is beyond the
bound is replaced without being looked at.
"""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dtdr.calls import is_reference
from dtdr.errors import InputError
from dtdr.traces.secret_formats import KEYS

# Lengths of IBANs by country, from the registry that SWIFT keeps for ISO 13616.
_IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FO FI GL NL SD", 19: "MK SI",
        20: "AT BA EE KZ XK LT LU MN", 21: "HR LV LI CH",
        22: "BH BG CR GE DE IE ME RS GB VA", 23: "TL GI IQ IL OM SO AE",
        24: "AD CZ MD PK RO SA SK ES SE TN VG", 25: "LY PT ST", 26: "IS TR",
        27: "BI DJ FR GR IT MR MC SM", 28: "AL AZ BY CY DO SV GT HU LB NI PL",
        29: "BR EG PS QA UA", 30: "JO KW MU", 31: "MT SC", 32: "LC", 33: "RU",
    }.items()
    for country in countries.split()
}  # fmt: skip
# One branch a country, since the length tells where the number ends in running text.
_IBAN = "|".join(
    rf"{country}\d\d(?: ?[A-Z0-9]){{{length - 4}}}" for country, length in _IBAN_LENGTHS.items()
)

MAX_TEXT = 100_000
"""Characters of one text that are searched: at most 0.15 s, in which no other thread runs."""

MAX_VALUE = 1_000_000
"""Characters of one JSON value that are searched, with ``_VALUE_COST`` for each value in it."""

_VALUE_COST = 8
_BORDER = 400
"""Characters before the bound that are replaced too: a secret may have begun there. Those that are
longer are known by less."""
_LONG = "long-text"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    Attributes:
        name: written in its place, in brackets.
        pattern: the group ``secret`` is replaced, or the whole match where there is none.
        needs: characters one of which a text must have; spares most texts the search.
        hints: parts one of which a text must have, likewise.
        check: a match for which this is False stays.
    """

    name: str
    pattern: re.Pattern[str]
    needs: frozenset[str] = frozenset()
    hints: tuple[str, ...] = ()
    check: Callable[[str], bool] | None = None


def _is_card(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    compact = text.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(character.isalnum() for character in text)


def _is_phone(text: str) -> bool:
    return 8 <= sum(map(str.isdigit, text)) <= 16


def _is_token(text: str) -> bool:
    return len(text) >= 20 or any(character.isdigit() for character in text)


_PLACEHOLDER = re.compile(r"\[[\w-]+\]")
# A name that tells that what stands under it is secret, alone or at the end of a longer one.
_SECRET_WORD = (
    r"api[_-]?keys?|secret(?:[_-]?(?:access[_-]?)?key)?|passw(?:or)?d|passwort|passphrase|passcode"
    r"|pwd|(?:access|auth|refresh|bearer|id|session|bot|api)?[_-]?token|(?:private|signing"
    r"|encryption|account|storage|license|service|access|master|shared[_-]?access|webhook"
    r"|subscription|deploy|admin)[_-]?key|credentials?|authorization|pin[_-]?code|cvv|cvc"
    r"|(?:db|database|user|root|admin|smtp|mysql|pg|postgres|redis|ftp|mail|login|ssh|sudo"
    r"|proxy|ldap)[_-]?pass|connection[_-]?string|session[_-]?cookie|set[_-]?cookie|jwt"
)
_SECRET_NAME = rf"(?:[\w-]{{0,60}}(?:[_-]|(?-i:(?<=[a-z0-9])(?=[A-Z]))))?(?:{_SECRET_WORD})"
_SECRET_FIELD = re.compile(rf"(?:[\w.-]{{0,60}}[_.-])?(?:{_SECRET_WORD})", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OPTION = re.compile(rf"--?{_SECRET_NAME}", re.IGNORECASE)
_DIGITS = frozenset("0123456789")
_PROSE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz \n,.;!?'\"()")
_IS_PROSE = re.compile(r"[A-Za-z \n,.;!?'\"()]*+\Z")

BUILT_IN: tuple[Rule, ...] = (
    Rule(
        "private-key",
        re.compile(
            r"-----BEGIN (?P<kind>[A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?)-----[\s\S]*?"
            r"(?:-----END (?P=kind)-----|\Z)"
        ),
        frozenset("-"),
        hints=("PRIVATE KEY",),
    ),
    Rule(
        "url-credentials",
        re.compile(r"(?<![\w+.-])[a-zA-Z][a-zA-Z0-9+.-]{0,30}://(?P<secret>[^\s/?#\"'<>]{1,300})@"),
        frozenset(":"),
        hints=("://",),
    ),
    Rule(
        "webhook",
        re.compile(
            r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/-]{20,200}"
            r"|(?<=discord\.com/api/)webhooks/\d{5,25}/[\w-]{20,200}"
            r"|(?<=api\.telegram\.org/)bot\d{5,12}:[\w-]{30,50}"
            r"|(?<=webhook\.office\.com/)webhookb2/[\w@/-]{20,300}"
        ),
        frozenset("/"),
        hints=("hooks.slack.com", "discord.com/api", "telegram.org", "webhook.office.com"),
    ),
    Rule(
        "api-key",
        re.compile(rf"(?<![\w-])(?=[\w~.$:/+=-]{{11}})(?:{'|'.join(KEYS.values())})"),
        _DIGITS | {"-", "_"},
    ),
    Rule(
        "token",
        re.compile(
            r"\b(?:bearer|basic|token)[\s:]{1,8}(?P<secret>[\w.~+/-]{8,}=*)(?!\w)", re.IGNORECASE
        ),
        hints=("earer", "asic", "oken", "EARER", "ASIC", "OKEN"),
        check=_is_token,
    ),
    Rule(
        "secret",
        re.compile(
            # "The secret: patience." is prose; "password: patience" need not be.
            r"(?<![\w-])(?!(?:secret|token|credentials?):\s{1,2}(?-i:[a-z]{1,19})[.,;!?]?(?:\s|\Z))"
            rf"(?:-{{0,2}}{_SECRET_NAME}"
            r"[\\\"']{0,4}\s{0,4}(?:[:=]|=>|:=)\s{0,4}|--(?:" + _SECRET_WORD + r")\s{1,4})"
            r"(?:(?P<quote>\\{0,2}[\"'])(?P<quoted>(?!\[)[^\"'\\\n]{1,300})(?P=quote)"
            r"|[\\\"']{0,4}(?P<secret>[^\s\\\"',;&<>{}()\[]{4,}))",
            re.IGNORECASE,
        ),
        frozenset(":=-"),
    ),
    Rule(
        "secret",
        re.compile(
            r"[?&](?:sig|signature|X-Amz-Signature|X-Goog-Signature|key)=(?P<secret>[\w%+/=-]{16,})"
        ),
        frozenset("="),
        hints=("sig=", "ignature=", "key="),
    ),
    Rule(
        "email",
        re.compile(
            r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}+@(?:[^\W_](?:[\w-]{0,62}[^\W_])?\.){1,30}"
            r"(?:xn--[\w-]{1,60}|[^\W\d_]{2,63})"
        ),
        frozenset("@"),
    ),
    Rule("iban", re.compile(rf"\b(?:{_IBAN})(?![A-Za-z0-9])"), _DIGITS, check=_is_iban),
    Rule(
        "card",
        re.compile(
            r"(?<![\w.])(?:[2-6]\d{12,18}(?!\w)"
            r"|[2-6]\d{3}(?P<gap>[ -])\d{4}(?P=gap)\d{4}(?P=gap)\d{4}(?!\d)"
            r"|3[47]\d\d(?P<gap3>[ -])\d{6}(?P=gap3)\d{5}(?!\d))"
        ),
        _DIGITS,
        check=_is_card,
    ),
    Rule(
        "ip",
        re.compile(
            r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)"
            r"|(?<!\w)(?:[0-9A-Fa-f]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4})(?!\w)"
        ),
        _DIGITS | {":"},
        check=_is_address,
    ),
    Rule(
        "phone",
        re.compile(
            r"(?<![\w.+-])(?:(?:\+\d{1,3}[\s./-]?|00\d{1,3}[\s./-])(?:\(?\d{1,5}\)?[\s./-]?){1,5}\d{2,5}"
            r"|\(?\d{3}\)?[\s.-]\d{3}[\s.-]\d{4})(?![\w-])"
        ),
        _DIGITS,
        check=_is_phone,
    ),
)
"""In the order they are applied: what contains another kind comes before it."""


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
            _SECRET_FIELD.fullmatch(_CAMEL.sub("_", key))
            or (isinstance(value, str) and key.casefold() == "pass")
        ):
            return self._mask(value, budget)
        return self._value(value, budget)

    def _after(self, former: Any, value: Any, budget: _Budget) -> Any:
        """An item of a list, which an option may come before: ``["--password", "x"]``."""
        is_value = isinstance(value, str) and isinstance(former, str)
        if is_value and self._by_field and former[:1] == "-" and _OPTION.fullmatch(former):
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


def read_rules(path: str | Path) -> tuple[Rule, ...]:
    """Rules from a TOML or JSON file: an object ``name -> regular expression``.

    A group named ``secret`` in the expression limits what is replaced.

    Raises:
        InputError: the file cannot be read, or an expression is none or matches nothing at all.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        value = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise InputError(f"{path} is neither JSON nor (as .toml) TOML: {error}") from error
    if not isinstance(value, dict) or not value:
        raise InputError(f'{path} must hold an object such as {{"employee": "E[0-9]{{6}}"}}')
    rules = []
    for name, expression in value.items():
        try:
            pattern = re.compile(expression)
        except (re.error, TypeError) as error:
            raise InputError(
                f"{path}: rule {name!r} is not a regular expression: {error}"
            ) from error
        if pattern.match(""):
            raise InputError(f"{path}: rule {name!r} matches the empty text; make it match secrets")
        rules.append(Rule(name, pattern))
    return tuple(rules)
