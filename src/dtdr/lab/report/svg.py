"""Inline SVG charts: axes with titles, series with intervals, and a value for every point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from dtdr.lab.report.style import series_class

WIDTH, HEIGHT = 400, 280
"""Units of a chart. Text is 12 of them high: 11 px on a screen of 400 px, 15 px three abreast on
one of 1600 px."""

LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 46


@dataclass(frozen=True, slots=True)
class Point:
    """One value with its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    hover: str = ""


@dataclass(frozen=True)
class Series:
    """Points under one name; a dashed line for what stands for comparison."""

    name: str
    points: Sequence[Point]
    dashed: bool = False


@dataclass(frozen=True)
class Axis:
    """An axis: its title, how values become text, and places of its own."""

    title: str
    show: Callable[[float], str] = lambda value: f"{value:g}"
    log: bool = False
    ticks: Sequence[float] | None = None
    low: float | None = None
    high: float | None = None


def line_chart(series: Sequence[Series], x: Axis, y: Axis, *, label: str) -> str:
    """Lines with markers and error bars."""
    points = [point for one in series for point in one.points]
    place_x, ticks_x = _scale([point.x for point in points], x, LEFT + 6, WIDTH - RIGHT - 6)
    values = [value for p in points for value in (p.y, p.low, p.high) if value is not None]
    place_y, ticks_y = _scale(values, y, HEIGHT - BOTTOM, TOP + 4)
    parts = _frame(x, y, ticks_x, ticks_y, place_x, place_y)
    for number, one in enumerate(series):
        marks = [f'<g class="series {series_class(one.name)}" data-series="{escape(one.name)}">']
        line = " ".join(f"{place_x(p.x):.1f},{place_y(p.y):.1f}" for p in one.points)
        dash = ' stroke-dasharray="5 4"' if one.dashed else ""
        marks.append(f'<polyline class="line" points="{line}"{dash}/>')
        for point in one.points:
            h, v = place_x(point.x), place_y(point.y)
            if point.low is not None and point.high is not None:
                marks.append(_bar(h, place_y(point.low), h, place_y(point.high)))
            hover = point.hover or _hover(one.name, x, y, point)
            marks.append(_marker(number, h, v, hover))
        parts.append("".join(marks) + "</g>")
    return _svg(parts, label, HEIGHT)


@dataclass(frozen=True, slots=True)
class Dot:
    """A value in a row of a dot chart; hollow for somebody else's figure."""

    series: str
    value: float
    low: float | None = None
    high: float | None = None
    hollow: bool = False
    hover: str = ""


def dot_chart(rows: Sequence[tuple[str, Sequence[Dot]]], x: Axis, *, label: str) -> str:
    """One row a name, dots with intervals along a common axis."""
    left = LEFT + 7 * max((len(name) for name, _ in rows), default=0) - 30
    height = TOP + 26 * len(rows) + BOTTOM
    values = [
        v for _, dots in rows for d in dots for v in (d.value, d.low, d.high) if v is not None
    ]
    place, ticks = _scale(values, x, left, WIDTH - RIGHT - 6)
    bottom = height - BOTTOM
    parts = [_vertical(place(tick), TOP, bottom, x.show(tick)) for tick in ticks]
    parts.append(_title_x(x.title, (left + WIDTH - RIGHT) / 2, height))
    for number, (name, dots) in enumerate(rows):
        v = TOP + 26 * number + 13
        parts.append(f'<text class="label" x="{left - 8}" y="{v + 4}">{escape(name)}</text>')
        for dot in dots:
            kind = "series hollow" if dot.hollow else "series"
            parts.append(f'<g class="{kind} {series_class(dot.series)}" '
                         f'data-series="{escape(dot.series)}">')  # fmt: skip
            if dot.low is not None and dot.high is not None:
                parts.append(_bar(place(dot.low), v, place(dot.high), v))
            hover = dot.hover or f"{name}: {x.show(dot.value)}"
            parts.append(_marker(1 if dot.hollow else 0, place(dot.value), v, hover) + "</g>")
    return _svg(parts, label, height)


def stacked_bars(
    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], x: Axis, *, label: str
) -> str:
    """One bar a row, made of named parts."""
    left = LEFT + 7 * max((len(name) for name, _ in rows), default=0) - 30
    height = TOP + 24 * len(rows) + BOTTOM
    totals = [0.0, *(math.fsum(value for _, value in parts) for _, parts in rows)]
    place, ticks = _scale(totals, x, left, WIDTH - RIGHT - 10)
    parts = [_vertical(place(tick), TOP, height - BOTTOM, x.show(tick)) for tick in ticks]
    parts.append(_title_x(x.title, (left + WIDTH - RIGHT) / 2, height))
    for number, (name, segments) in enumerate(rows):
        v = TOP + 24 * number + 4
        parts.append(f'<text class="label" x="{left - 8}" y="{v + 12}">{escape(name)}</text>')
        start = 0.0
        for series, value in segments:
            a, b = place(start), place(start + value)
            hover = f"{name}, {series}: {x.show(value)}"
            parts.append(
                f'<rect class="fill {series_class(series)}" data-series="{escape(series)}" '
                f'x="{a:.1f}" y="{v}" width="{max(0.5, b - a):.1f}" height="16" '
                f'data-tip="{escape(hover)}"><title>{escape(hover)}</title></rect>'
            )
            start += value
    return _svg(parts, label, height)


def _svg(parts: Sequence[str], label: str, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def _frame(
    x: Axis,
    y: Axis,
    ticks_x: Sequence[float],
    ticks_y: Sequence[float],
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick in ticks_y:
        v = place_y(tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{v:.1f}" y2="{v:.1f}"/>'
            f'<text class="tick end" x="{LEFT - 6}" y="{v + 4:.1f}">{escape(y.show(tick))}</text>'
        )
    for tick in ticks_x:
        h = place_x(tick)
        parts.append(
            f'<line class="axis" x1="{h:.1f}" x2="{h:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            f'<text class="tick" x="{h:.1f}" y="{bottom + 17}">{escape(x.show(tick))}</text>'
        )
    parts.append(
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    )
    parts.append(_title_x(x.title, (LEFT + WIDTH - RIGHT) / 2, HEIGHT))
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text class="title" transform="translate(13 {middle:.0f}) rotate(-90)">'
        f"{escape(y.title)}</text>"
    )
    return parts


def _title_x(text: str, middle: float, height: float) -> str:
    return f'<text class="title" x="{middle:.0f}" y="{height - 8:g}">{escape(text)}</text>'


def _vertical(h: float, top: float, bottom: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{h:.1f}" x2="{h:.1f}" y1="{top}" y2="{bottom}"/>'
        f'<text class="tick" x="{h:.1f}" y="{bottom + 17}">{escape(text)}</text>'
    )


def _bar(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="bar" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _marker(shape: int, x: float, y: float, hover: str) -> str:
    paths = (
        "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
        "M0,-5L5,0L0,5L-5,0z",
        "M-3.6,-3.6H3.6V3.6H-3.6z",
        "M0,-4.8L4.6,3.6H-4.6z",
    )
    return (
        f'<path class="dot" d="{paths[shape % len(paths)]}" '
        f'transform="translate({x:.1f} {y:.1f})" tabindex="0" data-tip="{escape(hover)}">'
        f"<title>{escape(hover)}</title></path>"
    )


def _hover(name: str, x: Axis, y: Axis, point: Point) -> str:
    text = f"{name}, {x.title} {x.show(point.x)}: {point.y:.3f}"
    if point.low is not None and point.high is not None:
        text += f" ({point.low:.3f} to {point.high:.3f})"
    return text


def _scale(
    values: Sequence[float], axis: Axis, start: float, end: float
) -> tuple[Callable[[float], float], Sequence[float]]:
    """Where a value stands between two pixels, and the ticks."""
    low = min(values, default=0.0) if axis.low is None else axis.low
    high = max(values, default=1.0) if axis.high is None else axis.high
    if axis.log:
        low, high = math.log10(max(low, 1e-9)), math.log10(max(high, 1e-9))
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    ticks = axis.ticks
    if ticks is None:
        ticks = _log_ticks(low, high) if axis.log else _ticks(low, high)
        if not axis.log and axis.low is None:
            low = min(low, ticks[0])
        if not axis.log and axis.high is None:
            high = max(high, ticks[-1])

    def place(value: float) -> float:
        position = math.log10(max(value, 1e-9)) if axis.log else value
        # An interval may go on outside of what the axis can show, such as a share above 1.
        position = min(high, max(low, position))
        return start + (end - start) * (position - low) / (high - low)

    return place, ticks


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
    found = [
        factor * 10.0**power
        for power in range(math.floor(low) - 1, math.ceil(high) + 1)
        for factor in (1, 2, 5)
        if low - 1e-9 <= math.log10(factor * 10.0**power) <= high + 1e-9
    ]
    return found if len(found) <= 8 else [tick for tick in found if math.log10(tick).is_integer()]
