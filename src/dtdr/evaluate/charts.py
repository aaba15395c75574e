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
from importlib import resources
from typing import Any

from dtdr.errors import MissingExtraError
from dtdr.evaluate.tables import prose_to_html

WIDTH, HEIGHT = 400, 280
"""Units of a chart. Text is 12 of them high: 11 px on a screen of 400 px, 15 px three abreast on
one of 1600 px."""

LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 46

SERIES = ("dtdr-f", "dtdr-l", "dtdr-c", "lr", "dr", "tgr", "qts", "bm25", "random")
"""Each has its place as the number of its colour; the colours are in charts.css."""

_SHAPES = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M0,-5L5,0L0,5L-5,0z",
    "M-3.6,-3.6H3.6V3.6H-3.6z",
    "M0,-4.8L4.6,3.6H-4.6z",
)
"""Markers that tell two series of one colour apart."""

Scale = Callable[[float], float]


def series_class(name: str) -> str:
    """The class of a series; an unknown name keeps its own colour."""
    first = name.split(" ")[0].rstrip(",")
    slot = zlib.crc32(name.encode()) % len(SERIES)
    return f"c{SERIES.index(first) if first in SERIES else slot}"


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
    """Lines with markers and error bars.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    points = [point for line in series for point in line.points]
    across, ticks_x = x.scale([point.x for point in points], LEFT + 6, WIDTH - RIGHT - 6)
    heights = [value for p in points for value in (p.y, p.low, p.high) if value is not None]
    up, ticks_y = y.scale(heights, HEIGHT - BOTTOM, TOP + 4)

    sizes = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "top": TOP}
    scales = {"x": x, "across": across, "ticks_x": ticks_x, "y": y, "up": up, "ticks_y": ticks_y}
    values: dict[str, Any] = {
        **sizes,
        **scales,
        "bottom": HEIGHT - BOTTOM,
        "series": series,
        "label": label,
    }
    return render("chart.svg.jinja", shapes=_SHAPES, **values)


def render(template: str, **values: Any) -> str:
    """A template of this package, filled in; texts are escaped.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    check_installed()
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(prose=prose_to_html, series_class=series_class, g="{:g}".format)
    return environment.from_string(read_asset(template)).render(**values)


def check_installed() -> None:
    """Check that a report can be rendered, before hours of experiments.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("the page of a report", "lab", "jinja2") from error


@cache
def read_asset(name: str) -> str:
    """A template, style sheet or script of this package."""
    return resources.files("dtdr.evaluate").joinpath(name).read_text("utf-8").strip()


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers that enclose the values."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    for factor in (1, 2, 2.5, 5, 10):
        if (high - low) / (step * factor) <= 5:
            step *= factor
            break
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(multiple * step, 10) for multiple in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    ticks = [
        factor * 10.0**power
        for power in range(math.floor(low) - 1, math.ceil(high) + 1)
        for factor in (1, 2, 5)
        if low - 1e-9 <= math.log10(factor * 10.0**power) <= high + 1e-9
    ]
    return ticks if len(ticks) <= 8 else [tick for tick in ticks if math.log10(tick).is_integer()]
