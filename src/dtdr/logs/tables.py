"""Removes secrets from columns: CSV, Markdown tables and SQL that inserts rows."""

from __future__ import annotations

import re
from collections.abc import Callable

from dtdr.logs.secret_names import Secrecy, secrecy

_HEADER = re.compile(r"[\w .\"'`*-]{0,40}")
_INSERT = re.compile(
    r"""(?i)\((?P<names>[\w\s,"`\[\].]{3,400})\)\s{0,9}VALUES\s{0,9}(?P<rows>\([^;]{1,4000})"""
)
_SQL_VALUE = re.compile(r"'(?:[^'\n]|'')*'|[^,()'\n]+")
_MARKS = " \t\"'`*[]"

Replace = Callable[[str], str]
"""Gives what is written for a secret."""


def scrub_tables(text: str, replace: Replace) -> str:
    """Replace the secrets in the tables of a text: values in columns with a secret's name.

    A table is SQL (``INSERT … VALUES``), or a header line and the lines after it that have as many
    separators.
    """
    if "values" in text.lower():
        text = _INSERT.sub(lambda match: _scrub_insert(match, replace), text)
    lines = text.split("\n")
    row = 0
    while row < len(lines) - 1:
        header = lines[row]
        row += 1
        for separator in "|\t;,":
            columns = _secret_columns(header, separator)
            if not columns:
                continue
            while row < len(lines) and lines[row].count(separator) == header.count(separator):
                lines[row] = _scrub_cells(lines[row].split(separator), columns, separator, replace)
                row += 1
            break
    return "\n".join(lines)


def _secret_columns(line: str, sign: str) -> dict[int, Secrecy]:
    if sign not in line or len(line) > 1000:
        return {}
    cells = line.split(sign)
    if not all(_HEADER.fullmatch(cell) and len(cell.split()) < 4 for cell in cells):
        return {}
    names = {index: secrecy(cell.strip(_MARKS)) for index, cell in enumerate(cells)}
    return {index: certainty for index, certainty in names.items() if certainty}


def _scrub_cells(cells: list[str], columns: dict[int, Secrecy], sign: str, replace: Replace) -> str:
    for index, certainty in columns.items():
        value = cells[index].strip(_MARKS)
        if is_value(value, certainty):
            cells[index] = cells[index].replace(value, replace(value))
    return sign.join(cells)


def is_value(value: str, certainty: Secrecy) -> bool:
    """Whether a cell is a secret, and no word, rule or placeholder."""
    is_plain = value.isalpha() and value.islower()
    return any(map(str.isalnum, value)) and not is_plain and certainty.covers(value)


def _scrub_insert(match: re.Match[str], replace: Replace) -> str:
    """The statement without the secrets in its rows."""
    names = match["names"].split(",")
    certainties = [secrecy(name.strip(_MARKS + "\n")) for name in names]
    if not any(certainties):
        return match[0]
    column = -1

    def scrub(value: re.Match[str]) -> str:
        """A value, as they follow each other through the columns of all rows."""
        nonlocal column
        if value[0].isspace():  # between two values
            return value[0]
        column = (column + 1) % len(certainties)
        text = value[0].strip(_MARKS)
        is_secret = text and certainties[column].covers(text)
        return value[0].replace(text, replace(text)) if is_secret else value[0]

    rows = _SQL_VALUE.sub(scrub, match["rows"])
    return match[0][: match.start("rows") - match.start()] + rows
