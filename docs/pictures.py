"""Pictures of the documentation as SVG: the tool graph and the rankings of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from dtdr.data.calls import END
from dtdr.data.demonstrations import DemonstrationLike, as_demonstrations
from dtdr.data.run import Run
from dtdr.evaluate import charts
from dtdr.predict.model import Model

START = "(start)"
_COLUMN, _ROW, _BOX, _HIGH = 190, 44, 150, 26


def tool_graph(
    demonstrations: Iterable[DemonstrationLike], *, tools: int = 16, transitions: int = 24
) -> str:
    """Which tool follows which: the most frequent tools, and arrows as wide as they are frequent.

    Tools that are called early stand on the left. A node says in how many plans its tool is called.

    Args:
        demonstrations: or their JSON objects, or pairs ``(query, [tool names])``.
        tools: how many tools are drawn at most, the most frequent.
        transitions: how many arrows, the most frequent.
    """
    counts: Counter[str] = Counter()
    places: Counter[str] = Counter()
    arrows: Counter[tuple[str, str]] = Counter()
    plans = 0
    for demonstration in as_demonstrations(demonstrations):
        called = demonstration.plan.tools
        plans += bool(called)
        counts.update(set(called))
        for place, tool in enumerate(called):
            places[tool] += place / max(1, len(called) - 1) / called.count(tool)  # type: ignore[assignment]
        arrows.update(zip((START, *called), (*called, END), strict=True) if called else ())
    shown = [tool for tool, _ in counts.most_common(tools)]
    nodes = {START: plans, **{tool: counts[tool] for tool in shown}, END: plans}
    drawn = {
        pair: number
        for pair, number in arrows.most_common()
        if pair[0] in nodes and pair[1] in nodes and pair[0] != pair[1]
    }
    drawn = dict(list(drawn.items())[:transitions])
    linked = {name for pair in drawn for name in pair} | {START, END}
    order = sorted(
        (tool for tool in shown if tool in linked), key=lambda tool: places[tool] / counts[tool]
    )
    columns = _columns(order, drawn)
    return _graph(columns, nodes, drawn, plans)


def _columns(order: Sequence[str], arrows: Mapping[tuple[str, str], int]) -> list[list[str]]:
    """Tools in columns by their place in plans; in a column, near those that they follow."""
    height = max(3, min(6, round(len(order) ** 0.5) + 1))
    columns = [[START]]
    columns += [list(order[at : at + height]) for at in range(0, len(order), height)]
    columns.append([END])
    for number in range(1, len(columns)):
        before = {
            name: (place + 0.5) / len(column)
            for column in columns[:number]
            for place, name in enumerate(column)
        }

        def height_of(name: str, before: Mapping[str, float] = before) -> float:
            known = [(before[a], n) for (a, b), n in arrows.items() if b == name and a in before]
            total = sum(n for _, n in known)
            return sum(y * n for y, n in known) / total if total else 0.5

        columns[number].sort(key=height_of)
    return columns


def _graph(
    columns: Sequence[Sequence[str]],
    nodes: Mapping[str, int],
    arrows: Mapping[tuple[str, str], int],
    plans: int,
) -> str:
    rows = max(map(len, columns))
    width, height = _COLUMN * len(columns) - 20, _ROW * rows + 60
    at = {}
    for number, column in enumerate(columns):
        top = 16 + (rows - len(column)) * _ROW / 2
        for place, name in enumerate(column):
            at[name] = (10 + number * _COLUMN, top + place * _ROW)
    most = max(arrows.values(), default=1)
    parts = []
    for (first, second), number in sorted(arrows.items(), key=lambda item: item[1]):
        (x1, y1), (x2, y2) = at[first], at[second]
        y1, y2 = y1 + _HIGH / 2, y2 + _HIGH / 2
        if x2 > x1:
            x1 += _BOX
            bend = max(30.0, (x2 - x1) / 2)
            path = f"M{x1},{y1} C{x1 + bend:g},{y1} {x2 - bend:g},{y2} {x2 - 5:g},{y2}"
        else:  # back, or within a column: around the right
            x1, x2 = x1 + _BOX, x2 + _BOX
            path = f"M{x1},{y1} C{x1 + 36},{y1} {x2 + 36},{y2} {x2 + 5},{y2}"
        thick = 0.8 + 5 * number / most
        tip = f"{first} → {second}: {number:,} times"
        parts.append(
            f'<path class="line {"c1" if x2 > x1 else "c0"}" d="{path}" opacity=".55" '
            f'style="stroke-width:{thick:.1f}" marker-end="url(#head)">'
            f"<title>{escape(tip)}</title></path>"
        )
    for name, (x, y) in at.items():
        share = nodes[name] / plans
        shown = name if len(name) <= 20 else f"{name[:19]}…"
        parts.append(
            f'<g><rect class="node" x="{x}" y="{y:g}" width="{_BOX}" height="{_HIGH}" rx="5"/>'
            f'<rect class="c1 fill" opacity=".22" x="{x}" y="{y:g}" rx="5" '
            f'width="{_BOX * share:.0f}" height="{_HIGH}"/>'
            f'<text x="{x + _BOX / 2:g}" y="{y + 17:g}">{escape(shown)}</text>'
            f"<title>{escape(f'{name}: in {nodes[name]:,} of {plans:,} plans')}</title></g>"
        )
    note = "a bar: share of plans with this tool; an arrow: how often one follows the other"
    parts.append(f'<text class="tick start" x="10" y="{height - 12}">{note}</text>')
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="9" '
        'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path class="axis" '
        'd="M0,0L8,4L0,8z" fill="currentColor"/></marker></defs>'
    )
    return _page(f"{head}{''.join(parts)}", width, height, "Which tool follows which")


def rankings(model: Model, run: Run, *, tools: int = 4) -> str:
    """The tools that are ranked highest at each step of a run, with their probabilities.

    Args:
        model: a fitted one.
        run: its query and its calls, with what they returned; the tool that was called is marked.
        tools: how many are drawn a step.
    """
    session = model.session(run.query, before=run.before)
    parts, row = [], 0
    long = 330
    for number in range(len(run.calls) + 1):
        called = run.calls[number].tool if number < len(run.calls) else END
        after = f"after {run.calls[number - 1].tool}" if number else "before the first call"
        parts.append(f'<text class="name" x="12" y="{30 + 22 * row}">{escape(after)}</text>')
        row += 1
        for tool, probability in session.rank().top(tools):
            y = 14 + 22 * row
            colour = "c0" if tool == called else "c8"
            name = tool if len(tool) <= 24 else f"{tool[:23]}…"
            parts.append(
                f'<text class="end" x="180" y="{y + 14}">{escape(name)}</text>'
                f'<rect class="fill {colour}" x="190" y="{y + 2}" height="15" '
                f'width="{max(1, long * probability):.0f}"/>'
                f'<text class="tick start" x="{196 + long * probability:.0f}" y="{y + 14}">'
                f"{probability:.2f}</text>"
            )
            row += 1
        if number < len(run.calls):
            session.call(run.calls[number])
    height = 22 * row + 40
    parts.append(
        f'<text class="tick start" x="12" y="{height - 10}">in colour: the tool called next</text>'
    )
    return _page("".join(parts), 590, height, f"Rankings of {run.query}")


def figure_of(chart: str, label: str) -> str:
    """A chart of ``dtdr.evaluate.charts`` as a file."""
    inner = re.sub(r"^<svg[^>]*>|</svg>$", "", chart)
    return _page(inner, charts.WIDTH, charts.HEIGHT, label)


def _page(inner: str, width: int, height: int, label: str) -> str:
    """A whole file, with the colours of all charts."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"<style>{charts.read_asset('charts.css')}</style>"
        f'<rect class="page" width="{width}" height="{height}"/>{inner}</svg>\n'
    )
