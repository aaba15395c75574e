"""What secrets and personal data look like, one rule a kind.

Every expression takes time in proportion to the text: repetitions are bounded, or cannot be entered
at each position of what they run over.
"""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
SECRET_FIELD = re.compile(rf"(?:[\w.-]{{0,60}}[_.-])?(?:{_SECRET_WORD})", re.IGNORECASE)
SECRET_OPTION = re.compile(rf"--?{_SECRET_NAME}", re.IGNORECASE)
_DIGITS = frozenset("0123456789")

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
