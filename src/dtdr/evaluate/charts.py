"""Charts as SVG: axes with titles, series with intervals, and a value for every mark.

A chart takes its colours from ``charts.css``, for light and dark pages; a method has one colour in
every chart.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources

WIDTH, HEIGHT = 400, 280
"""Units of a chart. Text is 12 of them high: 11 px on a screen of 400 px, 15 px three abreast on
one of 1600 px."""

LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 46

SERIES = {
    "dtdr-f": 0,
    "dtdr-l": 1,
    "dtdr-c": 2,
    "lr": 3,
    "dr": 4,
    "tgr": 5,
    "qts": 6,
    "bm25": 7,
    "random": 8,
}
"""Number of a series' colour; the colours are in charts.css."""

COLOURS = 9

Scale = Callable[[float], float]


@cache
def css() -> str:
    """Colours and rules that every chart needs."""
    return resources.files("dtdr.evaluate").joinpath("charts.css").read_text("utf-8").strip()


def series_class(name: str) -> str:
    """The class of a series; an unknown name keeps its own colour."""
    first = name.split(" ")[0].rstrip(",")
    return f"c{SERIES.get(first, zlib.crc32(name.encode()) % COLOURS)}"


@dataclass(frozen=True, slots=True)
class Point:
    """One value with its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points under one name; a dashed line is for comparison."""

    name: str
    points: Sequence[Point]
    dashed: bool = False


@dataclass(frozen=True)
class Axis:
    """An axis: its title, how values become text, and its own ticks."""

    title: str
    show: Callable[[float], str] = lambda value: f"{value:g}"
    log: bool = False
    ticks: Sequence[float] | None = None

    def scale(
        self, values: Sequence[float], start: float, end: float
    ) -> tuple[Scale, Sequence[float]]:
        """The position of a value between two pixels, and the ticks."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if self.log:
            low, high = math.log10(max(low, 1e-9)), math.log10(max(high, 1e-9))
        if high - low < 1e-9:
            low, high = low - 0.5, high + 0.5
        ticks = self.ticks
        if ticks is None:
            ticks = _log_ticks(low, high) if self.log else _ticks(low, high)
            if not self.log:
                low, high = min(low, ticks[0]), max(high, ticks[-1])

        def place(value: float) -> float:
            position = math.log10(max(value, 1e-9)) if self.log else value
            return round(start + (end - start) * (position - low) / (high - low), 1)

        return place, ticks


def line_chart(series: Sequence[Series], x: Axis, y: Axis, *, label: str) -> str:
    """Lines with markers and error bars."""
    points = [point for one in series for point in one.points]
    across, ticks_x = x.scale([point.x for point in points], LEFT + 6, WIDTH - RIGHT - 6)
    values = [value for p in points for value in (p.y, p.low, p.high) if value is not None]
    up, ticks_y = y.scale(values, HEIGHT - BOTTOM, TOP + 4)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [_horizontal(up(tick), LEFT, right, y.show(tick)) for tick in ticks_y]
    for tick in ticks_x:
        parts += [_line("axis", across(tick), bottom, across(tick), bottom + 4)]
        parts += [_text("tick", across(tick), bottom + 17, x.show(tick))]
    parts += [_line("axis", LEFT, bottom, right, bottom)]
    parts += [_text("title", (LEFT + right) / 2, HEIGHT - 8, x.title)]
    parts += [_write_upright("title", 13, (TOP + bottom) / 2, y.title)]
    for number, one in enumerate(series):
        path = " ".join(f"{across(p.x)},{up(p.y)}" for p in one.points)
        dash = ' stroke-dasharray="5 4"' if one.dashed else ""
        marks = [f'<polyline class="line" points="{path}"{dash}/>']
        for point in one.points:
            if point.low is not None and point.high is not None:
                at = across(point.x)
                marks.append(_line("bar", at, up(point.low), at, up(point.high)))
            text = f"{one.name}, {x.title} {x.show(point.x)}: {point.y:.3f}"
            hover = _with_interval(text, point.low, point.high)
            marks.append(_marker(number, across(point.x), up(point.y), hover))
        parts.append(_group("series", one.name, marks))
    return _chart(parts, label, HEIGHT)


def _chart(parts: Sequence[str], label: str, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def _group(kind: str, series: str, marks: Sequence[str]) -> str:
    name = escape(series)
    return f'<g class="{kind} {series_class(series)}" data-series="{name}">{"".join(marks)}</g>'


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _write_upright(kind: str, x: float, y: float, text: str) -> str:
    turn = f"translate({x:g} {y:g}) rotate(-90)"
    return f'<text class="{kind}" transform="{turn}">{escape(text)}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _horizontal(y: float, left: float, right: float, text: str) -> str:
    return _line("grid", left, y, right, y) + _text("tick end", left - 6, y + 4, text)


def _marker(shape: int, x: float, y: float, hover: str) -> str:
    paths = (
        "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
        "M0,-5L5,0L0,5L-5,0z",
        "M-3.6,-3.6H3.6V3.6H-3.6z",
        "M0,-4.8L4.6,3.6H-4.6z",
    )
    return (
        f'<path class="dot" d="{paths[shape % len(paths)]}" '
        f'transform="translate({x:g} {y:g})" tabindex="0" data-tip="{escape(hover)}">'
        f"<title>{escape(hover)}</title></path>"
    )


def _with_interval(text: str, low: float | None, high: float | None) -> str:
    return text if low is None or high is None else f"{text} ({low:.3f} to {high:.3f})"


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers that enclose the values."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    for factor in (1, 2, 2.5, 5, 10):
        if (high - low) / (step * factor) <= 5:
            step *= factor
            break
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    ticks = [
        factor * 10.0**power
        for power in range(math.floor(low) - 1, math.ceil(high) + 1)
        for factor in (1, 2, 5)
        if low - 1e-9 <= math.log10(factor * 10.0**power) <= high + 1e-9
    ]
    return ticks if len(ticks) <= 8 else [tick for tick in ticks if math.log10(tick).is_integer()]
