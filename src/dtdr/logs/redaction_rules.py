"""Rules for secrets and personal data: their patterns are in ``secrets.toml``, the checks are here.

Every expression takes time in proportion to the text: repetitions are bounded, or cannot begin at
each position of what they match.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dtdr.logs.personal_data import CANDIDATE, NUMBERED, context_of, fits, is_identity
from dtdr.logs.secret_names import KNOWN, PATTERNS, TELLING, Secrecy, is_random, secrecy

_OUTER_BAR = re.compile(r"\|(?![^()]*\))")
Match = re.Match[str]
Span = tuple[int, int]


@dataclass(slots=True)
class Scan:
    """One search of a text by one rule.

    Attributes:
        field: name of the field that the text is in; empty if it is in none.
        clear: end of a part of the text that is read already and has no secret ...
        certainty: ... under names of this certainty.
    """

    field: str = ""
    clear: int = 0
    certainty: Secrecy = Secrecy.NONE


Check = Callable[[Match, Scan], bool | Span | None]
"""Whether a match is a secret, or the span of the secret."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    Attributes:
        name: written in its place, in brackets.
        pattern: its group ``secret`` is replaced, or the whole match if there is no such group.
        hints: a text in small letters that has none is not searched.
        needs_digit: nor is a text without a digit.
        check: decides about a match; without it, each match is a secret.
    """

    name: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ("",)
    needs_digit: bool = False
    check: Check | None = None

    def find(self, match: Match, scan: Scan) -> Span | None:
        """The span of the secret of a match; None if it is none."""
        checked = True if self.check is None else self.check(match, scan)
        if checked is True:
            return match.span("secret" if "secret" in match.re.groupindex else 0)
        return checked or None


def _by_first_letter(words: Iterable[str]) -> str:
    """An expression for one of the words, by first letters: ``[tT](?i:oken|est)|[kK](?i:ey)``."""
    endings: dict[str, list[str]] = {}
    for word in words:
        first = word[:2] if word.startswith("\\") else word[:1]  # escaped, or a letter
        endings.setdefault(first, []).append(word[len(first) :])
    return "|".join(
        f"[{first}{first.upper()}](?i:{'|'.join(rest)})" for first, rest in endings.items()
    )


def _names_of(*lists: str) -> str:
    words = "|".join(KNOWN["parts"][name].replace("\n", "") for name in lists)
    return f"(?:{_by_first_letter(re.split(_OUTER_BAR, words))})"


def _is_card(match: Match, scan: Scan) -> bool:
    if context_of(match.string, match.start(), scan.field).kind == NUMBERED:
        return False
    digits = re.sub("[ -]", "", match[0])
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def _is_iban(match: Match, scan: Scan) -> bool | Span:
    """The longest beginning of a match, up to the end of a word, with right check digits."""
    spaces = [space.start() for space in re.finditer(" ", match[0])]
    for end in (match.end(), *(match.start() + at for at in reversed(spaces))):
        compact = match.string[match.start() : end].replace(" ", "")
        digits = "".join(str(int(character, 36)) for character in compact[4:] + compact[:4])
        if len(compact) >= 15 and int(digits) % 97 == 1:
            return match.start(), end
    return False


def _before(pattern: str, match: Match, scan: Scan) -> bool:
    """Whether the text before a match, or the name of its field, ends with the pattern."""
    text = match.string[max(0, match.start() - 20) : match.start()]
    search = PATTERNS[pattern].search
    return search(f"{scan.field[-20:]}: {text}" if match.start() < 20 else text) is not None


def _is_address(match: Match, scan: Scan) -> bool:
    """An IP address, but not a version of four parts or a path of names such as ``a::b``."""
    text = match[0]
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    if ":" in text:
        return (
            text == "::1"
            or any(len(part) > 2 and any(map(str.isdigit, part)) for part in re.split("[:.]", text))
            or text.count(".") == 3
        )
    parts = list(map(int, text.split(".")))
    return (
        (max(parts) > 31 or parts[0] == 10) and parts[0] > 0 and not _before("version", match, scan)
    )


def _is_phone(match: Match, scan: Scan) -> bool:
    text = match[0]
    digits = [character for character in text if character.isdigit()]
    context = context_of(match.string, match.start(), scan.field)
    if context.kind == NUMBERED:
        return False
    if text[0] == "+" or text.startswith("00"):
        return 8 <= len(digits) <= 16 and not re.fullmatch(r"\+\d+\.\d+", text)
    # In North America neither the area nor the exchange begins with 0 or 1.
    if min(digits[0], digits[3]) <= "1":
        return False
    # Other numbers have no area in brackets.
    return text[0] == "(" or context.kind in ("", "phone", "dial") or context.leads


def _personal(match: Match, scan: Scan) -> Span | None:
    """The span of a number that is personal by the words before it, or by its form."""
    context = context_of(match.string, match.start(), scan.field)
    value = match[0].rstrip(" ./-")
    end = match.start() + len(value)
    if context.kind != "address" and fits(context.kind, value):
        return match.start(), end
    return (match.start(), end) if is_identity(value, context) else None


_QUOTED = re.compile(
    rf"@?(?P<q>{KNOWN['parts']['QUOTE']})(?P<secret>[^\n]{{1,4000}}?)(?<!\\)(?P=q)"
)
_OPENINGS = frozenset("@\"'`\\&%")
"""Characters that a quoted value begins with."""
_JOINT = re.compile("[ _-]")
_IN_ADDRESSES = frozenset(KNOWN["addresses"]["random"].split())
_FUNCTION_WORDS = frozenset(KNOWN["addresses"]["words"].split())
_LOOSE_NAMES = frozenset(["secret", "secrets", "credential", "credentials"])
"""Names that texts use for other things than one password."""
_PROSE_AFTER = re.compile(r" [a-z]{2,}")
_FIRST = 256
"""Characters of a value that decide whether it is secret. Without a limit, a text such as
``sid=sid=sid=`` would be read from each of its names to the end."""


def _read(
    match: Match, scan: Scan, certainty: Secrecy, *patterns: str, least: int = 4
) -> Span | None:
    """The span of the value after a match; None if it is not a secret."""
    text, start = match.string, match.end()
    quotes = (_QUOTED,) if text[start : start + 1] in _OPENINGS else ()
    for expression in (*quotes, *map(PATTERNS.__getitem__, patterns), PATTERNS["bare"]):
        quoted, bare = expression is _QUOTED, expression is PATTERNS["bare"]
        if bare and start < scan.clear and certainty <= scan.certainty:
            return None
        limit = len(text) if quoted else start + _FIRST
        value: Match | None = expression.match(text, start, limit)
        if value is None:
            continue
        words = value["secret"]
        if not quoted:
            is_call = text[value.end() : value.end() + 1] == "("
            is_short = len(words) < least and not words.isdigit()
            if is_call or is_short or PATTERNS["prose"].match(words):
                return None
        if not certainty.covers(words[:_FIRST]):
            if bare and certainty < Secrecy.SURE:
                scan.clear, scan.certainty = value.end(), certainty
            return None
        if value.end() == limit:
            value = expression.match(text, start) or value
        return value.span("secret")
    return None


def _words_before(line: str) -> str:
    """The last two words of a line that ends in a space or hyphen, as in ``secret access key=``."""
    *words, last = _JOINT.split(line[-30:])
    if last or not words or not words[-1].isalpha():
        return ""
    return " ".join(words[-2:]) if words[-2:-1] and words[-2].isalpha() else words[-1]


def _assigned(match: Match, scan: Scan) -> Span | None:
    """The value of ``name=value``, ``"name": "value"``, ``Name: SCHEME value`` and the like."""
    text, name = match.string, match["name"]
    certainty = secrecy(name)
    if name.isdigit() and len(name) < 3:  # "Unseal Key 1: x"
        line = text[max(0, match.start() - 40) : match.start()].rpartition("\n")[2]
        certainty = secrecy(_words_before(line))
    if not certainty and name.lower() not in TELLING and name.lower() not in _IN_ADDRESSES:
        return None
    if certainty and name.lower().endswith(("authorization", "cookie")) and ":" in match[0]:
        return _read(match, scan, Secrecy.SURE, "header")
    if text[match.start() - 1 : match.start()] in ("?", "&") and match.start():
        # The query of a web address has no other words.
        if name.lower() in _IN_ADDRESSES:
            certainty = max(certainty, Secrecy.RANDOM)
        span = _read(match, scan, max(certainty, min(secrecy(f"api {name}"), Secrecy.MIXED)))
        if span is None and certainty:
            span = _read(match, scan, Secrecy.MIXED)
        return span if span and (certainty > Secrecy.RANDOM or span[1] - span[0] >= 16) else None
    if match.end() < scan.clear and certainty <= scan.certainty:
        return None
    first = max(0, match.start() - 80)
    _, is_start, line = text[first : match.start()].rpartition("\n")
    if certainty < Secrecy.SURE and (before := _words_before(line)):
        certainty = max(certainty, secrecy(f"{before} {name}"))
    if not certainty:
        return None
    sign = match[0][match.end("name") - match.start() :]
    if any(mark in sign for mark in ("\n", "==", ",", "(")):
        return _read(match, scan, min(certainty, Secrecy.MIXED))
    begins = line.strip(" \t-") in ("", "export", "set", "env") and (not first or bool(is_start))
    whole = () if not begins else ("environment",) if sign == "=" else ("block", "whole_line")
    span = _read(match, scan, certainty, *whole)
    if span and text[match.end()] == text[span[0]] and _is_prose(text, span, name, begins=begins):
        return None
    return span


def _is_prose(text: str, span: Span, name: str, *, begins: bool) -> bool:
    """Whether a value without quotes is words of a sentence, as in "secret: patience"."""
    words = [word.strip(".,;:!?'") for word in text[slice(*span)].split()]
    if not all(map(str.isalpha, words)):
        return False
    if len(words) > 1 and not _FUNCTION_WORDS.isdisjoint(map(str.lower, words)):
        return True
    if name.lower() in _LOOSE_NAMES:
        return len(words) > 1 or words[0].islower()
    # "password: patience" need not be prose.
    return not begins and words[0].islower() and _PROSE_AFTER.match(text, span[1]) is not None


def _named(match: Match, scan: Scan) -> Span | None:
    """The value after an option, or after the ``value`` that follows a ``name``."""
    certainty = secrecy(match["name"])
    return _read(match, scan, Secrecy.SURE if certainty > Secrecy.RANDOM else certainty)


def _element(match: Match, scan: Scan) -> Span | None:
    """The content of ``<password>``, ``<item name="password">`` or what follows ``<key>``."""
    before = match.string[max(0, match.start() - 130) : match.start()]
    names = PATTERNS["attribute"].findall(match[0]) + PATTERNS["key_before"].findall(before)
    value = PATTERNS["element"].match(match.string, match.end())
    certainty = max(map(secrecy, (match["tag"], *names)))
    return value.span("secret") if value and certainty.covers(value["secret"]) else None


def _spoken(match: Match, scan: Scan) -> Span | None:
    """The value after ``the password of x is``, or after ``password`` alone."""
    name, link = match["name"] + (match["more"] or ""), match["link"] or ""
    # Names in some languages are known here only.
    certainty = secrecy(name) if secrecy(match["name"]) else Secrecy.MIXED
    text, begin = match.string, match.end()
    is_quoted = text[begin : begin + 1] in _OPENINGS and _QUOTED.match(text, begin) is not None
    # "secret" is an adjective, too: "the secret garden".
    is_password = secrecy(name.split()[0]) is Secrecy.SURE and not name.lower().startswith("secret")
    # "Das Passwort lautet x": what follows this verb is a value, never a description.
    is_stated = is_quoted or link.startswith("lautet")
    is_sure = is_stated and is_password
    span = _read(match, scan, certainty if is_sure else min(certainty, Secrecy.MIXED))
    word = "" if span is None else text[slice(*span)]
    if word.isdigit() or (span is None and link):
        return _spoken_code(match, name, link)
    is_believed = link or (is_password and (is_quoted or len(word) > 5))
    return span if is_believed or is_random(word) else None


def _spoken_code(match: Match, name: str, link: str) -> Span | None:
    """The digits after ``the PIN is`` or ``security code``."""
    is_code = _CODE.match(name) or name[:3].lower() == "pin"
    if not is_code or not (link or "code" in name.lower()):
        return None
    digits = PATTERNS["code"].match(match.string, match.end())
    return digits.span("secret") if digits else None


def _command(match: Match, scan: Scan) -> Span | None:
    if match.lastgroup:  # "none"
        return None
    # After "mysql -p" and a space, a plain word is the name of a database.
    is_apart = match[0].startswith(("mysql", "mariadb")) and match[0][-1].isspace()
    is_pair = match[0].rstrip()[-1:] in ("/", "|") and "/user" not in match[0]
    return _read(match, scan, Secrecy.MIXED if is_apart or is_pair else Secrecy.SURE, least=1)


def _is_token(match: Match, scan: Scan) -> bool:
    secret = match["secret"]
    return is_random(secret) or (
        match[0][0] in "Bb" and len(secret) > 9 and Secrecy.MIXED.covers(secret) and "." in secret
    )


HINTS = tuple(hint.replace("~", " ") for hint in KNOWN["hints"].split())
DIGITS = tuple("0123456789")
_CHECKS: dict[str, Check] = {
    "userinfo": lambda match, _: ":" in match["secret"] or is_random(match["secret"]),
    "key": lambda match, _: is_random(match[0]) or match[0].startswith("xox"),
    "token": _is_token,
    "assigned": _assigned,
    "named": _named,
    "element": _element,
    "spoken": _spoken,
    "command": _command,
    "email": lambda match, _: not match[0].lstrip("/").startswith("git@"),
    "iban": _is_iban,
    "card": _is_card,
    "ip": _is_address,
    "phone": _is_phone,
    "personal": _personal,
}
_PARTS = {
    **{name: pattern.strip() for name, pattern in KNOWN["parts"].items()},
    "CANDIDATE": CANDIDATE,
    "SHAPES": "|".join(KNOWN["shapes"]),
    "PREFIXES": "|".join(map(re.escape, KNOWN["prefixes"].split())),
    "PROGRAMS": "|".join(
        # Without the option, the arguments are skipped: no other program there reads them again.
        rf"\b(?:{programs})\s(?:(?:[^\n|;&]{{0,300}}?\s)??{option}(?!-)"
        rf"|(?P<none{index}>)[^\n|;&]{{0,300}})"
        for index, (option, programs) in enumerate(KNOWN["programs"])
    ),
}
_PART = re.compile("|".join(_PARTS))
_PARTS["SPOKEN"] = _names_of("SPOKEN", "CODE")
_CODE = re.compile(_names_of("CODE"), re.VERBOSE)


def _known(rule: dict[str, Any]) -> Rule:
    """A rule of the file, with the parts of its pattern filled in."""
    hints = rule.get("hints")
    special = {None: DIGITS, "names": HINTS}
    return Rule(
        rule["name"],
        re.compile(_PART.sub(lambda part: _PARTS[part[0]], rule["pattern"].strip()), re.VERBOSE),
        tuple(hints) if isinstance(hints, list) else special[hints],
        rule["name"] == "address",
        _CHECKS.get(rule.get("check", "")),
    )


BUILT_IN: tuple[Rule, ...] = tuple(map(_known, KNOWN["rules"]))
COMMAND = next(rule.pattern for rule in BUILT_IN if rule.check is _command)
"""Pattern of the text before a password on a command line."""
