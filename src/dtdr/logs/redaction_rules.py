"""What secrets and personal data look like, one rule a kind.

Every expression takes time in proportion to the text: repetitions are bounded, or cannot be entered
at each position of what they run over.
"""

# ruff: noqa: SIM905 (lists of words are read more easily as text)
from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dtdr.errors import InputError
from dtdr.logs.secret_formats import PREFIXES, SHAPES, TELLING, Secrecy, is_random, secrecy

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


Match = re.Match[str]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    Attributes:
        name: written in its place, in brackets.
        pattern: the group ``secret`` is replaced, or the whole match where there is none.
        needs: characters one of which a text must have; spares most texts the search.
        hints: parts one of which a text in small letters must have, likewise.
        check: a match for which this is False stays; it gets the name of the field too.
        value: where what is replaced begins and ends, for a pattern that ends before it.
    """

    name: str
    pattern: re.Pattern[str]
    needs: frozenset[str] = frozenset()
    hints: tuple[str, ...] = ()
    check: Callable[[Match, str], bool] | None = None
    value: Callable[[Match], tuple[int, int] | None] | None = None

    def find(self, match: Match, name: str = "") -> tuple[int, int] | None:
        """Where the secret of a match begins and ends; None where it is none.

        Args:
            match: of the rule's pattern.
            name: of the field that has the text; empty where it is in none.
        """
        if self.value is not None:
            return self.value(match)
        if self.check is not None and not self.check(match, name):
            return None
        return match.span("secret" if "secret" in match.re.groupindex else 0)


def _is_card(match: Match, _name: str) -> bool:
    digits = re.sub("[ -]", "", match[0])
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def _is_iban(match: Match, _name: str) -> bool:
    compact = match[0].replace(" ", "")
    return int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1


_VERSION = re.compile(
    r"(?:version|release|build|firmware|driver|\bv|\bver|\brev|[=~<>^]="
    r"|(?:chrome|chromium|edg|safari|webkit)/)\W{0,4}\Z",
    re.I,
)
_NUMBERED = re.compile(
    r"(?:art|article|item|part|sku|order|ref|no|nr|number|invoice|id)\W{1,3}\Z", re.I
)


def _before(pattern: re.Pattern[str], match: Match, name: str) -> bool:
    """Whether the text before a match, or the name of the field it is in, ends like this."""
    text = match.string[max(0, match.start() - 20) : match.start()]
    return pattern.search(f"{name[-20:]}: {text}" if match.start() < 20 else text) is not None


def _is_address(match: Match, name: str) -> bool:
    """An IP address: no version of four parts, and no path of names such as ``a::b``."""
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
        (max(parts) > 31 or parts[0] == 10) and parts[0] > 0 and not _before(_VERSION, match, name)
    )


def _is_phone(match: Match, name: str) -> bool:
    text = match[0]
    digits = [character for character in text if character.isdigit()]
    if text[0] == "+" or text.startswith("00"):
        return 8 <= len(digits) <= 16 and not re.fullmatch(r"\+\d+\.\d+", text)
    # In North America neither the area nor the exchange begins with 0 or 1.
    has_area = text[0] == "("  # other numbers are not written so
    return min(digits[0], digits[3]) > "1" and (has_area or not _before(_NUMBERED, match, name))


_QUOTE = r"""(?:["']{3}|\\{0,15}["'`]|&quot;|%22)"""
_CLOSE = rf"(?:{_QUOTE}|[\])*]){{0,4}}"
_SIGN = r"(?:=>|:=|={1,3}|:{1,2}(?=\s)|[:：＝]|%3[AaDd]|[,(](?=\s?[\"']))"
_QUOTED = re.compile(rf"@?(?P<q>{_QUOTE})(?P<secret>[^\n]{{1,4000}}?)(?<!\\)(?P=q)")
_BARE = re.compile(r"""(?P<secret>[^\s"'`\\,;&<>{}()\[\]|*][^\s"'`\\,;&<>{}\[\]|]{2,4000})""")
_WHOLE_LINE = re.compile(
    r"""(?P<secret>[^\s"'`\\\[{<|>&*]\S*(?:[ \t][^\s#]\S*){0,4})(?=[ \t]*(?:#|[\r\n]|\Z))"""
)
_ENVIRONMENT = re.compile(r"""(?P<secret>[^\s"'`\\\[{<][^\s"']*)""")
_BLOCK = re.compile(r"[|>][+-]?\n(?P<secret>(?:[ \t]+\S[^\n]*(?:\n|\Z)){1,200})")
_ELEMENT = re.compile(r"(?:<!\[CDATA\[)?(?P<secret>[^<>&\[\]]{1,4000})(?=\]\]>|</|&lt;/)")
_HEADER = re.compile(
    r"""(?P<secret>[\w-]{2,40}\s(?:\w+="[^"\n]*"[,\s]*){1,20}|[^\s\[\\"'][^\r\n"'\\]*)"""
)
_PROSE = re.compile(
    r"(?:must|is|are|was|should|the|an?|for|required|not|may|can|has|have|and|or|to|your|please|of"
    r"|as|will|in|on|at|with|from|by|it|this|mindestens|höchstens|muss|darf|doit|au|debe|mínimo|that|we|you|if|when|cannot|invalid|expired|incorrect)\b"
    r"|(?:str|string|int|bytes|bool|optional|secretstr)\b|[a-z_.]+\(.*\Z"
    r"|(?:self|this|os|process|config|settings|req|request|args|env)\.[\w.]+(?:\Z|[\[(])",
    re.IGNORECASE,
)
_PROSE_AFTER = re.compile(r" [a-z]{2,}")
_WORDS_BEFORE = re.compile(r"(?:[^\W\d_]+[ _-]){1,2}\Z")
_ATTRIBUTE = re.compile(r"""(?:name|key|id)=\\?["']([^"'\\]{1,80})""")
_KEY_BEFORE = re.compile(r"<key>([^<>]{1,80})</key>\s{0,40}\Z")
_DIGITS = frozenset("0123456789")
Span = tuple[int, int]


def _read(
    match: Match, found: Secrecy, *expressions: re.Pattern[str], least: int = 4
) -> Span | None:
    """Where the value after a match begins and ends; None where it is no secret."""
    for expression in (_QUOTED, *expressions, _BARE):
        value = expression.match(match.string, match.end())
        if value is None:
            continue
        words = value["secret"]
        if expression is not _QUOTED:
            called = match.string[value.end() : value.end() + 1] == "("
            if called or _PROSE.match(words) or (len(words) < least and not words.isdigit()):
                return None
        return value.span("secret") if found.covers(words) else None
    return None


def _assigned(match: Match) -> Span | None:
    """The value of ``name=value``, ``"name": "value"``, ``Name: SCHEME value`` and the like."""
    text, name = match.string, match["name"]
    found = secrecy(name)
    if not found and name.lower() not in TELLING:
        return None
    if found and name.lower().endswith(("authorization", "cookie")) and ":" in match[0]:
        return _read(match, Secrecy.SURE, _HEADER)
    if text[match.start() - 1 : match.start()] in ("?", "&") and match.start():
        # A query of a web address has no other words that tell.
        span = _read(match, max(found, min(secrecy(f"api {name}"), Secrecy.MIXED)))
        if span is None and found:
            span = _read(match, Secrecy.MIXED)
        return span if span and (found > Secrecy.RANDOM or span[1] - span[0] >= 16) else None
    line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    if found < Secrecy.SURE and (before := _WORDS_BEFORE.search(line[-30:])):
        found = max(found, secrecy(before[0] + name))
    if not found:
        return None
    sign = match[0][match.end("name") - match.start() :]
    if any(mark in sign for mark in ("\n", "==", ",", "(")):
        return _read(match, min(found, Secrecy.MIXED))
    begins = line.strip(" \t-") in ("", "export", "set", "env")
    whole = () if not begins else (_ENVIRONMENT,) if sign == "=" else (_BLOCK, _WHOLE_LINE)
    span = _read(match, found, *whole)
    word = "" if span is None else text[slice(*span)].rstrip(".,;!?")
    # "The secret: patience." is prose; "password: patience" need not be.
    bare = name.lower() in ("secret", "credential", "credentials")
    if span and word.isalpha() and word.islower() and text[match.end()] == word[0]:
        return (
            None
            if bare or (":" in sign and not begins and _PROSE_AFTER.match(text, span[1]))
            else span
        )
    return span


def _named(match: Match) -> Span | None:
    """The value after an option, or after the ``value`` that follows a ``name``."""
    found = secrecy(match["name"])
    return _read(match, Secrecy.SURE if found > Secrecy.RANDOM else found)


def _element(match: Match) -> Span | None:
    """The content of ``<password>``, ``<item name="password">`` or what follows ``<key>``."""
    before = match.string[max(0, match.start() - 130) : match.start()]
    names = (match["tag"], *_ATTRIBUTE.findall(match[0]), *_KEY_BEFORE.findall(before))
    value = _ELEMENT.match(match.string, match.end())
    found = max(map(secrecy, names))
    return value.span("secret") if value and found.covers(value["secret"]) else None


def _spoken(match: Match) -> Span | None:
    """The value after ``the password of x is``, or after ``password`` alone."""
    name = match["name"] or match["alone"]
    found = secrecy(name)
    quoted = _QUOTED.match(match.string, match.end()) is not None
    password = secrecy(name.split()[0]) is Secrecy.SURE and not name.lower().startswith("secret")
    clear = quoted or (match["link"] or "").startswith("lautet")
    span = _read(match, found if clear and password else min(found, Secrecy.MIXED))
    word = "" if span is None else match.string[slice(*span)]
    fits = match["link"] or (password and (quoted or (len(word) > 5 and not word.isdigit())))
    return span if fits or is_random(word) else None


def _told(match: Match) -> Span | None:
    # After "mysql -p" and a space, a plain word is the name of a database.
    is_apart = match[0].startswith(("mysql", "mariadb")) and match[0][-1].isspace()
    return _read(match, Secrecy.MIXED if is_apart else Secrecy.SURE, least=1)


def _is_userinfo(match: Match, _name: str) -> bool:
    return ":" in match["secret"] or is_random(match["secret"])


def _is_email(match: Match, _name: str) -> bool:
    return not match[0].lstrip("/").startswith("git@")


def _is_key(match: Match, _name: str) -> bool:
    return is_random(match[0]) or match[0].startswith("xox")


def _is_token(match: Match, _name: str) -> bool:
    secret = match["secret"]
    return is_random(secret) or (
        match[0][0] in "Bb" and len(secret) > 9 and Secrecy.MIXED.covers(secret) and "." in secret
    )


HINTS = tuple(
    """pass pwd pw psw secret token key auth cred cookie .sid sid= sess kennw contras senha
    wachtwoord lösenord salasana adgangskode hasło haslo heslo jelsz şifre пароль 密 口令 パス 비밀
    jwt cvv cvc psk mdp pin otp _pat sig= ature= n_string nstring mnemonic phrase parole _code
    kty assertion""".split()
)
_SPOKEN = (
    r"passw(?:or)?ds?|passwort|kennwort|passphrase|passcode|pin|secret|token"
    r"|credentials?|api[ -]?key|mot de passe|contraseña|senha|wachtwoord"
    r"|lösenord|parola|пароль|密码|密碼|口令|パスワード|비밀번호"
)
_NAME = r"[\w.$-]{2,80}"
_PROGRAMS = {  # options after which a password stands -> programs
    r"-p\s?": r"mysql\w*|mariadb|sshpass|mongo\w*|cqlsh|rdesktop|7z|(?:docker|podman|az)\slogin",
    r"-P\s?": r"sqlcmd|bcp|zip|unzip|mosquitto_\w+|ipmitool",
    r"-a\s": "redis-cli",
    r"-U\s\S{1,80}?%": "smbclient|rpcclient",
    r"-w\s": r"ldap\w+",
    r"-pw\s": "plink|pscp",
    r"(?:-[uUa]|--user|--proxy-user|--auth)[ =]?[\"']?[^\s:\"']{0,80}:": "curl|wget|http",
}
COMMAND = re.compile(
    "".join(
        rf"\b(?:{programs})\b(?:[^\n|;&]{{0,300}}?\s)??{option}(?!-)|"
        for option, programs in _PROGRAMS.items()
    )
    + r"(?<!\S)[\w.-]{1,40}:(?=[^\s@]{1,100}@tcp\()|jdbc:oracle:\w+:\w+/(?=\S{1,100}@)|\spass:"
    r"|(?i:identified\s(?:with\s\w+\s)?by|requirepass|securestring"
    r"|login\s{1,9}\S{1,99}\s{1,9}password)\s{1,4}(?:-String\s)?"
)


BUILT_IN: tuple[Rule, ...] = (
    Rule(
        "private-key",
        re.compile(
            r"-{4,5} ?BEGIN (?P<kind>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?) ?-{4,5}[\s\S]*?"
            r"(?:-{4,5} ?END (?P=kind) ?-{4,5}|\Z)"
            r"|(?<=Private-Lines: )\d{1,4}(?:[\r\n]|\\[rn])[\w+/=\s\\]{1,20000}"
            r"(?:Private-MAC: \w+)?"
            # What keys of RSA, elliptic curves and OpenSSH begin with, where the head is lost.
            r"|(?<![\w+/])(?:MII[\w+/]{2}[AQgw]IBA(?:A|DANBgkqhk)|MII[\w+/]{2,4}BOBgkqhk"
            r"|MH[cQ]CAQEE|MI[GH]\w(?:AgEAMB[AM]G|AgEBBE?[DI])|MC4CAQAwBQYDK2Vw|b3BlbnNzaC1rZXktdjE)"
            r"[\w+/=\s\\]{20,}(?:-----END [A-Z ]{0,40}-----)?"
            r"|(?<![\w+/-])[\w+/]{60,76}(?:(?:\s|\\[rn]){1,4}[\w+/=]{1,76}){0,200}"
            r"(?:\s|\\[rn]){1,4}-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        ),
        hints=("private", "mii", "mig", "mih", "mhc", "mhq", "mc4c", "b3blbn"),
    ),
    Rule(
        "url-credentials",
        re.compile(r"(?<![\w+.-])[a-zA-Z][a-zA-Z0-9+.-]{0,30}://(?P<secret>[^\s/?#\"'<>]{1,300})@"),
        frozenset(":"),
        hints=("://",),
        check=_is_userinfo,
    ),
    Rule(
        "webhook",
        re.compile(
            r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/-]{20,200}"
            r"|(?<=discord\.com/api/)webhooks/\d{5,25}/[\w-]{20,200}"
            r"|(?<=api\.telegram\.org/)bot\d{5,12}:[\w-]{30,50}"
            r"|(?<=webhook\.office\.com/)webhookb2/[\w@/-]{20,300}"
        ),
        hints=("hooks.slack.com", "discord.com/api", "telegram.org", "webhook.office.com"),
    ),
    Rule(
        "api-key",
        re.compile(
            rf"(?<![\w-])(?=[\w~.$:/+=-]{{11}})(?:{'|'.join(SHAPES)}"
            rf"|(?:{'|'.join(map(re.escape, PREFIXES))})[\w.=+/-]{{8,}})"
        ),
        _DIGITS | {"-", "_"},
        check=_is_key,
    ),
    Rule(
        "token",
        re.compile(
            r"\b(?:bearer|basic|token|apikey|negotiate|splunk|geniekey)[\s:]{1,8}"
            r"(?P<secret>[\w.~+/-]{8,}=*)(?!\w)",
            re.IGNORECASE,
        ),
        hints=("bearer", "basic", "token", "apikey", "negotiate", "splunk", "geniekey"),
        check=_is_token,
    ),
    Rule(
        "secret",
        re.compile(rf"(?<![\w.$-])(?P<name>[\w.$-]++){_CLOSE}\s{{0,4}}{_SIGN}\**\s{{0,4}}"),
        frozenset(":=：＝%("),
        HINTS,
        value=_assigned,
    ),
    Rule(
        "secret",
        re.compile(
            rf"(?<!\w)(?=[nkfhviNKFHVI])(?:name|key|field|header|variable|id)"
            rf"{_QUOTE}?\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}?"
            rf"(?P<name>{_NAME}){_QUOTE}?(?:(?:\r?\n|\\r\\n|\\n){{2}}|[\s,;]{{0,40}}{_QUOTE}?"
            rf"(?:value|val|content|default){_QUOTE}?\s{{0,4}}[:=]\s{{0,4}})",
            re.IGNORECASE,
        ),
        frozenset(":="),
        HINTS,
        value=_named,
    ),
    Rule(
        "secret",
        re.compile(r"(?:<|&lt;)(?:\w{1,20}:)?(?P<tag>[\w.-]{1,80})[^<>&]{0,300}(?:>|&gt;)"),
        frozenset("<&"),
        ("</", "&lt;/"),
        value=_element,
    ),
    Rule(
        "secret",
        re.compile(rf"(?<![\w-])--?(?P<name>[A-Za-z]{_NAME})\s{{1,4}}(?!-)"),
        frozenset("-"),
        HINTS,
        value=_named,
    ),
    Rule(
        "secret",
        re.compile(
            rf"(?<![A-Za-z-])(?=[psktcamwlпПPSKTCAMWL密口パ비])"
            rf"(?:(?P<name>(?:{_SPOKEN})(?:\s[\w()]{{1,20}}){{0,3}}?)\s{{0,2}}(?P<link>"
            r"(?:(?<!\w)(?:is|lautet|ist|est|es|was|to)\b:?|是|为|は|[:=：|→]|[-=]>|[-–—]\s)\s{0,4}[«„“]?\s?)"
            rf"|(?P<alone>{_SPOKEN})\s{{1,4}})",
            re.IGNORECASE,
        ),
        hints=HINTS,
        value=_spoken,
    ),
    Rule(
        "secret",
        COMMAND,
        frozenset("-:'"),
        (" -p", " -u", " -a", " -w", "--", "pass", "identified", "securestring", "@tcp(", "oracle"),
        value=_told,
    ),
    Rule(
        "email",
        re.compile(
            r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}+@(?!\dx\.)(?:[^\W_](?:[\w-]{0,62}[^\W_])?\.){1,30}"
            r"(?:xn--[\w-]{1,60}|(?!(?:service|socket|timer|png|jpg|svg|js|tgz)\b)[^\W\d_]{2,63})"
        ),
        frozenset("@"),
        check=_is_email,
    ),
    Rule(
        "iban",
        re.compile(rf"\b(?=[A-Z]{{2}}\d)(?:{_IBAN})(?![A-Za-z0-9])"),
        _DIGITS,
        check=_is_iban,
    ),
    Rule(
        "card",
        re.compile(
            r"(?<![\w.])(?:(?:4\d{15}|5[1-5]\d{14}|2[2-7]\d{14}|6(?:011|[245]\d\d)\d{12}|35\d{14}"
            r"|3[47]\d{13}|3[068]\d{12})(?!\w)"
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
        _DIGITS,
        check=_is_address,
    ),
    Rule(
        "phone",
        re.compile(
            r"(?<![\w.+-])(?:(?:\+[1-9]\d{0,2}[\s./-]?|00[1-9]\d{0,2}[\s./-])"
            r"(?:\(?\d{1,5}\)?[\s./-]?){1,5}\d{2,5}"
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
        raise InputError(f'{path} must contain an object such as {{"employee": "E[0-9]{{6}}"}}')
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
