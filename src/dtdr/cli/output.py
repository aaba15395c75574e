"""Output of commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from dtdr.evaluate.tables import Cell, Column, Table, count, share

WIDTH = 100
"""Columns that every table fits; also the width if output is not a terminal."""

_NUMBER = re.compile(r"[\d.,%±()<+\- ]*\d[\d.,%±()<+\- ]*")


def console() -> Console:
    """A rich console on standard output: as wide as the terminal, or 100 columns without one."""
    unknown = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=WIDTH if unknown else None, highlight=False, soft_wrap=False)


def say(text: str, style: str = "") -> None:
    """Print a paragraph, wrapped at the width of the terminal."""
    from rich.text import Text

    console().print(Text(text, style))


def print_table(
    headers: Iterable[str | Column],
    rows: Iterable[Sequence[Any]],
    *,
    title: str = "",
    caption: str = "",
) -> None:
    """Print a table, with columns of numbers on the right.

    Whole numbers get separators of thousands, and fractions three decimals. A list has one line per
    item. Text cannot control the terminal.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    texts = [[cell.text for cell in column] for column in zip(*cells, strict=True)]
    columns = [
        Column(header, numeric=_are_numbers(texts[index] if texts else []))
        if isinstance(header, str)
        else header
        for index, header in enumerate(headers)
    ]
    console().print(Table(columns, cells, title, caption).to_rich())


def _cell(value: Any) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell("-")
    if isinstance(value, (int, float)):
        return Cell(count(value) if isinstance(value, int) else share(value))
    items = [value] if isinstance(value, str) else value
    return Cell("\n".join(map(printable, items)))


def _are_numbers(texts: Sequence[str]) -> bool:
    known = [text for text in texts if text not in ("", "-", "?")]
    return bool(known) and all(map(_NUMBER.fullmatch, known))


def print_json(value: Any) -> None:
    """One JSON object per line, flushed so that a reader of a pipe gets it at once."""
    print_unwrapped(json.dumps(value, ensure_ascii=False, allow_nan=False))


def print_unwrapped(text: str) -> None:
    """Print text for another program, whose lines must not be broken."""
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


class PrintableFormatter(logging.Formatter):
    """A log record without control characters: no server forges lines or controls the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """The record on one line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802
        """The traceback."""
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


def plural(count: int, noun: str) -> str:
    """A number with its noun: ``1 call``, ``2,000 calls``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
