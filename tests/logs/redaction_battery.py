"""Secrets and ordinary texts made from templates, to measure how well redaction tells them apart.

``python tests/logs/redaction_battery.py`` prints the rates, and with ``-v`` each miss. The random
parts differ with each seed.
"""

# ruff: noqa: T201, SIM905 (a command that prints; words are read more easily as text)

from __future__ import annotations

import argparse
import json
import random
import re
import string
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_HEX = "0123456789abcdef"
_URL = string.ascii_letters + string.digits
ALPHABETS = {
    "x": _HEX,
    "X": _HEX.upper(),
    "a": _URL,
    "A": string.ascii_letters,
    "U": string.ascii_uppercase + string.digits,
    "L": string.ascii_uppercase + "234567",
    "l": string.ascii_lowercase + string.digits,
    "d": string.digits,
    "b": _URL + "+/",
    "u": _URL + "-_",
    "e": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}
WORDS = """
garden invoice window meeting laptop coffee harbor printer bicycle ticket kitchen letter museum
rocket silver summer travel valley winter yellow bridge camera dinner engine flower guitar hammer
""".split()
PREFIXES = {"AKIA", "AA", "AIza", "EAA", "EAAA"}
"""No secrets without what follows them."""


@dataclass(frozen=True)
class Sample:
    """A text or JSON value, and the parts of it that redaction must remove."""

    name: str
    value: Any
    secrets: tuple[str, ...]


def _luhn(rng: random.Random) -> str:
    digits = [4, *(rng.randrange(10) for _ in range(14))]
    total = sum(d if i % 2 else sum(divmod(2 * d, 10)) for i, d in enumerate(digits))
    return "".join(map(str, digits)) + str(-total % 10)


def _iban(rng: random.Random) -> str:
    account = "".join(rng.choices(string.digits, k=18))
    return f"DE{98 - int(account + '131400') % 97:02d}{account}"


def _four(text: str) -> str:
    return " ".join(re.findall(".{1,4}", text))


def _jwt(rng: random.Random) -> str:
    return "eyJhbGciOiJIUzI1NiJ9.eyJ" + ".".join(
        "".join(rng.choices(ALPHABETS["u"], k=k)) for k in (60, 43)
    )


def _password(rng: random.Random, length: int) -> str:
    """A password has a capital, a small letter and a digit, and often a symbol."""
    parts = [
        rng.choice(p)
        for p in (string.ascii_uppercase, string.ascii_lowercase, string.digits, "!#%+_-@.")
    ]
    parts += rng.choices(string.ascii_letters + string.digits, k=length - 5)
    rng.shuffle(parts)
    return rng.choice(string.ascii_letters) + "".join(parts)


MADE = {
    "uuid": lambda r: "-".join("".join(r.choices(_HEX, k=k)) for k in (8, 4, 4, 4, 12)),
    "jwt": _jwt,
    "card": _luhn,
    "card4": lambda r: _four(_luhn(r)),
    "iban": _iban,
    "iban4": lambda r: _four(_iban(r)),
    "ssn": lambda r: f"{r.randrange(100, 666)}-{r.randrange(10, 99)}-{r.randrange(1000, 9999)}",
    "w": lambda r: r.choice(WORDS),
    "W": lambda r: r.choice(WORDS).title(),
    "month": lambda r: f"{r.randrange(1, 13):02d}",
    "day": lambda r: f"{r.randrange(1, 29):02d}",
    "hour": lambda r: f"{r.randrange(24):02d}",
    "minute": lambda r: f"{r.randrange(60):02d}",
}


def _make(kind: str, rng: random.Random) -> str:
    if kind.startswith("="):
        return kind[1:]
    if kind in MADE:
        return MADE[kind](rng)
    letter, length = kind[0], int(kind[1:])
    if letter == "p":
        return _password(rng, length)
    text = "".join(rng.choices(ALPHABETS[letter], k=length))
    return rng.choice("123456789") + text[1:] if letter == "d" else text


def _fill(template: str, rng: random.Random) -> tuple[str, tuple[str, ...]]:
    secrets: list[str] = []

    def replace(match: re.Match[str]) -> str:
        hidden, plain = match.groups()
        text = _make(hidden or plain, rng)
        if hidden:
            secrets.append(text)
        return text

    text = re.sub(r"<<(.+?)>>|\{\{(\w+|=[^}]*)\}\}", replace, template)
    return text, tuple(secret for secret in secrets if secret not in PREFIXES)


def samples(file: str, count: int, seed: int = 0) -> Iterator[Sample]:
    """Yields ``count`` samples, from each template of the file in turn."""
    lines = [
        x for x in (HERE / file).read_text("utf-8").splitlines() if x and not x.startswith("#")
    ]
    for index in range(count):
        name, _, template = lines[index % len(lines)].partition(" | ")
        rng = random.Random(f"{seed} {name} {index}")
        as_json = template.startswith("json | ")
        template = template.removeprefix("json | ").replace("\\\\", "\0")
        text, secrets = _fill(
            template.replace("\\n", "\n").replace("\0", "\\\\" if as_json else "\\"), rng
        )
        if as_json:
            text = text.replace("\n", "\\n")
        yield Sample(name, json.loads(text) if as_json else text, secrets)


def templates(file: str) -> int:
    return sum(bool(x) and x[0] != "#" for x in (HERE / file).read_text("utf-8").splitlines())


def _redact(value: Any) -> Any:
    from dtdr.logs.redaction import Redactor

    redactor = Redactor()
    return redactor.text(value) if isinstance(value, str) else redactor.value(value)


def leaked(sample: Sample) -> tuple[str, ...]:
    """Returns the secrets of a sample that are still in it after redaction."""
    result = _redact(sample.value)
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    bare = re.sub(r"\s", "", text)
    return tuple(s for s in sample.secrets if re.sub(r"\s", "", s) in bare)


def is_replaced(sample: Sample) -> bool:
    """Returns whether redaction changed an ordinary sample."""
    return _redact(sample.value) != sample.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secrets", default="secret_shapes.txt")
    parser.add_argument("--ordinary", default="ordinary_texts.txt")
    parser.add_argument("--count", type=int, default=5000, help="ordinary texts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    missed = total = 0
    for sample in samples(options.secrets, templates(options.secrets), options.seed):
        total += 1
        if rest := leaked(sample):
            missed += 1
            if options.verbose:
                print(f"missed   {sample.name}: {rest} in {sample.value!r:.300}")
    print(f"{total - missed} of {total} secret shapes removed")
    start, size, wrong = time.process_time(), 0, Counter[str]()
    for sample in samples(options.ordinary, options.count, options.seed):
        size += len(str(sample.value).encode())
        if is_replaced(sample):
            wrong[sample.name] += 1
            if options.verbose and wrong[sample.name] == 1:
                result = _redact(sample.value)
                print(f"replaced {sample.name}: {sample.value!r:.200} -> {result!r:.200}")
    if options.verbose:
        print(*wrong.most_common(), sep="\n")
    share = wrong.total() / options.count
    print(f"{wrong.total()} of {options.count} ordinary texts replaced ({share:.2%})")
    print(f"{size / 1e6 / (time.process_time() - start):.1f} MB of short texts per CPU second")


if __name__ == "__main__":
    main()
