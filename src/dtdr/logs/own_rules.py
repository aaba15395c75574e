"""Rules of redaction that a user adds, from a file."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from dtdr.errors import InputError, cannot_read
from dtdr.logs.redaction_rules import Rule


def read_rules(path: str | Path) -> tuple[Rule, ...]:
    """Rules from a TOML or JSON file: an object ``name -> regular expression``.

    A group named ``secret`` in the expression limits what is replaced.

    Raises:
        InputError: the file cannot be read, or an expression is invalid or matches the empty text.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        value = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except OSError as error:
        raise cannot_read(path, error) from error
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
