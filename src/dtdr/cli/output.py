"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from dtdr.evaluate.datasets import Dataset

WIDTH = 100
"""Columns that every table fits; also the width if output is not a terminal."""


def console() -> Console:
    """A rich console on standard output: as wide as the terminal, or 100 columns without one."""
    from rich.console import Console

    unknown = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=WIDTH if unknown else None, highlight=False, soft_wrap=False)


def dataset_label(dataset: Dataset) -> str:
    """A dataset's title, marked if the demonstrations are synthetic."""
    hidden = dataset.synthetic and "synthetic" not in dataset.title
    return f"{dataset.title} (synthetic)" if hidden else dataset.title


def print_json(value: Any) -> None:
    """One JSON object per line, flushed so that a reader of a pipe gets it at once."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(sentence: str) -> None:
    """Print a sentence on standard error."""
    sys.stderr.write(f"dtdr: {printable(sentence)}\n")


def quote(text: str) -> str:
    """A word of a command line, in double quotes if the shell keeps it unchanged."""
    needs_more = any(character in text for character in '"$`\\!')
    return shlex.quote(text) if needs_more or shlex.quote(text) == text else f'"{text}"'


def printable(text: str) -> str:
    """Text of others for a terminal: what would control it is shown as its escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def shorten(text: str, width: int) -> str:
    """Text cut to a number of columns."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
