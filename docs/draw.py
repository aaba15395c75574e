"""Draws the pictures of the documentation: ``python docs/draw.py``.

The runs are from the example log, the growth is from the table in scale.md, the first runs are from
that in results.md.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pictures

import dtdr
import dtdr.logs
from dtdr.evaluate import charts

HERE = Path(__file__).parent
LOG = HERE.parent / "examples" / "hotel" / "openai-chat.jsonl"


def draw_growth() -> str:
    """Processor time by the number of plans, as measured."""
    text = (HERE / "scale.md").read_text(encoding="utf-8")
    table = text.partition("| plans | learned from | CPU s | counting alone, CPU s |")[2]
    row = re.compile(r"^\| ([0-9,]+) \| [0-9,]+ \| ([0-9.]+) \| ([0-9.]+) \|", re.MULTILINE)
    rows = [
        [float(cell.replace(",", "")) for cell in cells]
        for cells in row.findall(table.partition("\n\n")[0])
    ]
    series = [
        charts.Series(name, [charts.Point(cells[0], cells[column]) for cells in rows])
        for column, name in ((1, "learning from 20,000"), (2, "counting and sampling alone"))
    ]
    chart = charts.line_chart(
        series,
        charts.Axis("Plans", lambda value: f"10^{math.log10(value):.0f}", log=True),
        charts.Axis("CPU seconds", log=True),
        label="CPU seconds by number of plans",
    )
    return pictures.figure_of(chart, "Growth of processor time")


def draw_first_runs() -> str:
    """MRR on T-Eval by the number of demonstrations, as measured."""
    text = (HERE / "results.md").read_text(encoding="utf-8")
    table = text.partition("| Set, ranker |")[2]
    sizes = [cell.strip() for cell in table.partition("\n")[0].strip(" |").split("|")]
    series, names = [], []
    left, right = charts.LEFT + 6, charts.WIDTH - charts.RIGHT - 6
    low, high = charts.HEIGHT - charts.BOTTOM, charts.TOP + 4
    for name, named_at, away in (
        ("dtdr-f", 3, -10), ("dtdr-l", 2, -14), ("forest", 4, 26), ("bm25", 1, -10)
    ):  # fmt: skip
        row = table.partition(f"| T-Eval, {name} |")[2].partition("\n")[0].strip(" |").split("|")
        values = [cell.strip() for cell in row]
        if len(values) < len(sizes):  # learns nothing
            values = values[:1] * len(sizes)
        points = [
            charts.Point(place, float(value)) for place, value in enumerate(values) if value != "-"
        ]
        series.append(charts.Series(name, points))
        x = left + (right - left) * named_at / (len(sizes) - 1)
        y = low + (high - low) * float(values[named_at]) + away
        names.append(f'<text class="tick" x="{x:.0f}" y="{y:.0f}">{name}</text>')
    chart = charts.line_chart(
        series,
        charts.Axis("Demonstrations", lambda at: sizes[round(at)], ticks=range(len(sizes))),
        charts.Axis("MRR of the next tool"),
        label="MRR on T-Eval by number of demonstrations",
    )
    chart = chart.replace("</svg>", "".join(names) + "</svg>")
    return pictures.figure_of(chart, "MRR from no demonstration to 300")


def _save(name: str, svg: str) -> None:
    (HERE / "_static" / f"{name}.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    """Write ``docs/_static/*.svg``."""
    runs = list(dtdr.logs.open_demonstrations([LOG]))
    _save("tool-graph", pictures.tool_graph(runs))
    _save("growth", draw_growth())
    _save("first-runs", draw_first_runs())
    model = dtdr.fit(LOG)
    asked = "Move the stay of Emi Patel to Friday."
    calls = ["find_guest", "search_bookings", "check_availability", "change_booking", "send_email"]
    run = dtdr.Run.from_dict({"query": asked, "calls": calls})
    _save("rankings", pictures.rankings(model, run, tools=3))
    for state in ("clean", "dirty"):
        status = {"tool": "get_room_status", "output": {"room": "214", "is": state}, "step": 3}
        before = [
            {"tool": "find_guest", "output": {"guest_id": "G-1"}, "step": 1},
            {"tool": "search_bookings", "output": {"bookings": [{"room": "214"}]}, "step": 2},
        ]
        ranking = model.rank("Check in Emi Patel.", [*before, status])
        print(state, ranking.top(3))


if __name__ == "__main__":
    main()
