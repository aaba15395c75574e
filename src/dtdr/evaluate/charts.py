"""Charts as SVG: axes with titles, series with intervals, and a value for every mark.

A chart takes its colours from ``charts.css``, for light and dark pages; a method has one colour in
every chart. ``reliability_chart`` is a file of its own, the others are parts of a page.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources

from dtdr.evaluate.reliability import Bin

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

FEW = 10
"""Bins of fewer steps say next to nothing: they are pale, and the line passes them by."""

Scale = Callable[[float], float]


@cache
def css() -> str:
    """Colours and rules that every chart needs."""
    return resources.files("dtdr.evaluate").joinpath("charts.css").read_text("utf-8").strip()


def series_class(name: str) -> str:
    """The class of a series; an unknown name gets a colour of its own that stays."""
    first = name.split(" ")[0].rstrip(",")
    return f"c{SERIES.get(first, zlib.crc32(name.encode()) % COLOURS)}"


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

    def scale(
        self, values: Sequence[float], start: float, end: float
    ) -> tuple[Scale, Sequence[float]]:
        """Where a value stands between two pixels, and the ticks."""
        low = min(values, default=0.0) if self.low is None else self.low
        high = max(values, default=1.0) if self.high is None else self.high
        if self.log:
            low, high = math.log10(max(low, 1e-9)), math.log10(max(high, 1e-9))
        if high - low < 1e-9:
            low, high = low - 0.5, high + 0.5
        ticks = self.ticks
        if ticks is None:
            ticks = _log_ticks(low, high) if self.log else _ticks(low, high)
            if not self.log and self.low is None:
                low = min(low, ticks[0])
            if not self.log and self.high is None:
                high = max(high, ticks[-1])

        def place(value: float) -> float:
            position = math.log10(max(value, 1e-9)) if self.log else value
            # An interval may go on outside of what the axis can show, such as a share above 1.
            position = min(high, max(low, position))
            return round(start + (end - start) * (position - low) / (high - low), 1)

        return place, ticks


SHARE = Axis("", lambda value: f"{value:.1f}", low=0.0, high=1.0, ticks=(0, 0.2, 0.4, 0.6, 0.8, 1))
"""From 0 to 1, without a title."""


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
            hover = point.hover or _with_interval(text, point.low, point.high)
            marks.append(_marker(number, across(point.x), up(point.y), hover))
        parts.append(_group("series", one.name, marks))
    return _chart(parts, label, HEIGHT)


_PLOT, _GAP, _COUNTS, _ABREAST = 240, 14, 46, 3
_PANEL = (66 + _PLOT + 22, 52 + _PLOT + _GAP + _COUNTS + 48)
_LEGEND = f"dashed: perfect calibration; whiskers: 95 % interval; pale: fewer than {FEW} steps"


def reliability_chart(runs: Sequence[tuple[str, Sequence[Bin], float]], *, title: str) -> str:
    """A reliability diagram a run, three abreast, as a file of its own.

    A point is a bin of steps: mean confidence against the share whose best tool was acceptable,
    with its 95 % interval, pale where it holds few steps; the dashed diagonal is where confidence
    is right. Below, how many steps each bin holds.

    Args:
        runs: for each a name, its bins, and its expected calibration error.
        title: above all panels.

    Returns:
        The SVG, readable on light and on dark pages.
    """
    height = 56 + -(-len(runs) // _ABREAST) * _PANEL[1]
    # At least as wide as the longer line above the panels.
    longest = max(8 * len(title), 6 * len(_LEGEND)) + 2 * 16
    width = max(min(len(runs), _ABREAST) * _PANEL[0], longest)
    parts = [
        f"<style>{css()}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        _text("name", 16, 26, title),
        _text("tick start", 16, 44, _LEGEND),
    ]
    for number, (name, bins, error) in enumerate(runs):
        x, y = number % _ABREAST * _PANEL[0], 56 + number // _ABREAST * _PANEL[1]
        parts += [f'<g transform="translate({x} {y})">', *_panel(name, bins, error), "</g>"]
    label = escape(f"Reliability of {', '.join(name for name, _, _ in runs)}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        + "\n".join([*parts, "</svg>\n"])
    )


def _panel(name: str, bins: Sequence[Bin], error: float) -> list[str]:
    left, top = 66, 52
    right, bottom = left + _PLOT, top + _PLOT
    floor = bottom + _GAP + _COUNTS
    (across, ticks), (up, _) = SHARE.scale([], left, right), SHARE.scale([], bottom, top)
    steps = sum(item.steps for item in bins)
    parts = [
        _text("name", left, 22, name),
        _text("tick start", left, 40, f"calibration error {error:.3f}, {steps:,} steps"),
        *(_horizontal(up(tick), left, right, SHARE.show(tick)) for tick in ticks),
        *(_line("grid", across(tick), top, across(tick), bottom) for tick in ticks),
        *(_text("tick", across(tick), floor + 16, SHARE.show(tick)) for tick in ticks),
        f'<rect class="frame" x="{left}" y="{top}" width="{_PLOT}" height="{_PLOT}"/>',
        _line("ideal", left, bottom, right, top),
    ]
    marks = []
    sure = [f"{across(one.confidence)},{up(one.accuracy)}" for one in bins if one.steps >= FEW]
    if sure:
        marks.append(f'<polyline class="line" points="{" ".join(sure)}"/>')
    for one in bins:
        x, (low, high) = across(one.confidence), one.interval()
        hover = f"confidence {one.confidence:.3f}, accuracy {one.accuracy:.3f}, {one.steps:,} steps"
        marks += [
            '<g class="few">' if one.steps < FEW else "<g>",
            _line("bar", x, up(low), x, up(high)),
            _marker(0, x, up(one.accuracy), hover) + "</g>",
        ]
    most = max((one.steps for one in bins), default=0)
    for one in bins:
        height = round(_COUNTS * one.steps / most, 1)
        marks.append(
            f'<rect class="fill" x="{across(one.confidence) - 5:.1f}" y="{floor - height:.1f}" '
            f'width="10" height="{height}"/>'
        )
    parts += [_line("axis", left, floor, right, floor), f'<g class="c1">{"".join(marks)}</g>']
    if most:
        parts.append(_text("tick end", left - 7, floor - _COUNTS + 9, f"{most:,}"))
    return [
        *parts,
        _text("title", left + _PLOT / 2, _PANEL[1] - 12, "Confidence"),
        _write_upright("title", 16, top + _PLOT / 2, "Best tool acceptable (share)"),
        _write_upright("title", 16, floor - _COUNTS / 2, "Steps"),
    ]


def _chart(parts: Sequence[str], label: str, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def _group(kind: str, series: str, marks: Sequence[str]) -> str:
    name = escape(series)
    return f'<g class="{kind} {series_class(series)}" data-series="{name}">{"".join(marks)}</g>'


def _text(kind: str, x: float, y: float, text: str, whole: str = "") -> str:
    title = f"<title>{escape(whole)}</title>" if whole not in ("", text) else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}{title}</text>'


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
