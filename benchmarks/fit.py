"""How fitting grows with the demonstrations: seconds and peak memory.

    python benchmarks/fit.py [--smoke] [--sizes 1000 10000 100000] [--retriever NAME ...]
        [--tools 47] [--figure growth.html]

Every line is measured in a process of its own, on generated (synthetic) demonstrations, with the
lexical encoder. Peak memory is that of the whole process, demonstrations included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from dtdr.evaluate.charts import Axis, Point, Series, line_chart
from dtdr.evaluate.lab.report.page import Figure, Figures, Page, Section, to_html
from dtdr.evaluate.tables import Column, Table, count, duration
from dtdr.predict import create
from synthetic_runs import generate, tools


def measure(retriever: str, demonstrations: int, tool_count: int) -> dict[str, Any]:
    """One line of the table, measured in this process."""
    started = time.perf_counter()
    known = tools(tool_count)
    train = list(generate(demonstrations, tool_count))
    generated = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fitted = create(retriever).fit(train, known)
    done = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        fitted.save(path)
        size = sum(item.stat().st_size for item in path.iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "retriever": retriever,
        "demonstrations": demonstrations,
        "generate_seconds": generated - started,
        "fit_seconds": done - generated,
        "data_mb": before / 1024,
        "peak_mb": peak / 1024,
        "model_kb": size / 1024,
    }


def main() -> None:
    """Measure every retriever and size, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument(
        "--retriever", nargs="+", default=["dr", "lr", "dtdr-c", "dtdr-l", "dtdr-f"]
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--tools", type=int, default=len(tools()), help="size of the vocabulary")
    parser.add_argument("--figure", type=Path, metavar="FILE.html", help="draw the growth")
    parser.add_argument("--one", nargs=3, metavar=("RETRIEVER", "DEMONSTRATIONS", "TOOLS"))
    given = parser.parse_args()
    if given.one:
        name, size, tool_count = given.one
        print(json.dumps(measure(name, int(size), int(tool_count))))
        return
    if given.smoke:
        given.sizes = [100, 300]
    rows: list[dict[str, Any]] = []
    for name in given.retriever:
        former: dict[str, Any] | None = None
        for size in given.sizes:
            command = [sys.executable, __file__, "--one", name, str(size)]
            command.append(str(given.tools))
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            row = json.loads(done.stdout)
            if former is not None:
                row["ratio"] = row["fit_seconds"] / former["fit_seconds"]
            rows.append(row)
            former = row
            if given.json:
                print(json.dumps(row), flush=True)
    if given.figure is not None:
        given.figure.write_text(figure(rows, given.tools), encoding="utf-8")
    if given.json:
        return
    columns = [
        Column("Retriever", "retriever"),
        Column("Demonstrations", "demonstrations", count, numeric=True),
        Column("Fit s", "fit_seconds", duration, numeric=True),
        Column("Ratio", "ratio", lambda value: f"{value:.1f}", numeric=True),
        Column("Data MB", "data_mb", count, numeric=True),
        Column("Peak MB", "peak_mb", count, numeric=True),
        Column("Model KB", "model_kb", count, numeric=True),
    ]
    caption = (
        "Ratio: of fit time to the line above. Data: the process with its demonstrations in "
        "memory,\nbefore the fit. Peak: of the whole process."
    )
    title = f"Fitting on synthetic demonstrations over {given.tools} tools, lexical encoder"
    Console(width=100).print(Table(columns, rows, title, caption).to_rich())


def figure(rows: Sequence[dict[str, Any]], tool_count: int) -> str:
    """A page with fit time and peak memory by demonstrations, both axes logarithmic."""
    names = list(dict.fromkeys(row["retriever"] for row in rows))
    across = Axis("Demonstrations, thousands", lambda value: f"{value / 1e3:g}", log=True)
    figures = []
    for key, title in (("fit_seconds", "Fit, seconds"), ("peak_mb", "Peak memory, MB")):
        series = [
            Series(
                name,
                [
                    Point(row["demonstrations"], row[key])
                    for row in rows
                    if row["retriever"] == name
                ],
            )
            for name in names
        ]
        up = Axis(title, lambda value: f"{value:g}", log=True)
        chart = line_chart(series, across, up, label=f"{title} by number of demonstrations")
        figures.append(Figure(title, chart, "", names))
    heading = f"Fitting on synthetic demonstrations over {tool_count} tools"
    return to_html(Page(heading, "", [Section("fit", "Time and memory", [Figures(figures)])]))


if __name__ == "__main__":
    main()
