"""Colours and the page's style and script; a method has one colour in every figure."""

from __future__ import annotations

import zlib
from importlib import resources

COLOURS = {
    "dtdr-f": 0,
    "dtdr-l": 1,
    "dtdr-c": 2,
    "lr": 3,
    "dr": 4,
    "tgr": 5,
    "qts": 6,
    "bm25": 7,
    "random": 8,
    "constant": 1,
    "variable": 0,
}
"""Series by number; the colours are in report.css."""

COUNT = 9


def series_class(name: str) -> str:
    """The class of a series; an unknown name gets a colour of its own that stays."""
    first = name.split(" ")[0].rstrip(",")
    number = COLOURS.get(first)
    if number is None:
        number = zlib.crc32(name.encode()) % COUNT
    return f"c{number}"


def css() -> str:
    """The style sheet."""
    return _text("report.css")


def script() -> str:
    """Hover values on touch screens, and legends that hide a series."""
    return _text("report.js")


def _text(name: str) -> str:
    return resources.files("dtdr.lab.report").joinpath(name).read_text("utf-8").strip()
