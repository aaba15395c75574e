"""What an agent waits for: fitting, a new query, and each further step of a session.

    python benchmarks/latency.py [--smoke] [--tools 50 200 1000] [--retriever NAME ...]

Every line is measured in a process of its own, on generated (synthetic) demonstrations, with the
model saved and loaded again. "New query" encodes, ranks and takes the ten best tools; "step" takes
a call, ranks again and takes the ten best.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from dtdr import load
from dtdr.evaluate.tables import Column, Table, count, duration
from dtdr.predict import create
from dtdr.rankers import NAMES
from synthetic_runs import generate, tools

NEEDS_LLM = {"less-is-more"}
QUERIES = 200
SHOWN = 10
"""Tools that an agent would show."""


def measure(retriever: str, tool_count: int, demonstrations: int) -> dict[str, Any]:
    """One line of the table, measured in this process."""
    known = tools(tool_count)
    generated = list(generate(demonstrations + QUERIES, tool_count))
    train, test = generated[:demonstrations], generated[demonstrations:]
    started = time.perf_counter()
    fitted = create(retriever).fit(train, known)
    fit_seconds = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        fitted.save(path)
        size = sum(item.stat().st_size for item in path.iterdir())
        started = time.perf_counter()
        model = load(path)
        load_seconds = time.perf_counter() - started
    new, steps = [], []
    _ = model.rank("a query to warm up with").top(SHOWN)
    for demonstration in test:
        started = time.perf_counter()
        session = model.session(demonstration.query)
        _ = session.rank().top(SHOWN)
        new.append(time.perf_counter() - started)
        for tool in demonstration.plan.tools:
            started = time.perf_counter()
            session.call(tool)
            _ = session.rank().top(SHOWN)
            steps.append(time.perf_counter() - started)
    steps.sort()
    return {
        "retriever": retriever,
        "tools": tool_count,
        "fit_seconds": fit_seconds,
        "load_ms": load_seconds * 1e3,
        "new_query_us": statistics.median(new) * 1e6,
        "step_us": statistics.median(steps) * 1e6,
        "step_p99_us": steps[int(0.99 * (len(steps) - 1))] * 1e6,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "model_kb": size / 1024,
    }


def main() -> None:
    """Measure every retriever and tool count, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--tools", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--retriever", nargs="+", default=[n for n in NAMES if n not in NEEDS_LLM])
    parser.add_argument("--demonstrations", type=int, default=3000)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--one", nargs=3, metavar=("RETRIEVER", "TOOLS", "DEMONSTRATIONS"))
    given = parser.parse_args()
    if given.one:
        name, tool_count, size = given.one
        print(json.dumps(measure(name, int(tool_count), int(size))))
        return
    if given.smoke:
        given.tools, given.demonstrations = [50], 100
    rows: list[dict[str, Any]] = []
    for tool_count in given.tools:
        for name in given.retriever:
            command = [sys.executable, __file__, "--one", name, tool_count, given.demonstrations]
            done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True)
            rows.append(json.loads(done.stdout))
            if given.json:
                print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        base = next(other for other in rows if other["tools"] == row["tools"])
        row["ratio"] = row["step_us"] / base["step_us"]
    if given.json:
        return
    columns = [
        Column("Retriever", "retriever"),
        Column("Tools", "tools", count, numeric=True),
        Column("Fit s", "fit_seconds", duration, numeric=True),
        Column("Load ms", "load_ms", count, numeric=True),
        Column("New query µs", "new_query_us", count, numeric=True),
        Column("Step µs", "step_us", count, numeric=True),
        Column("p99", "step_p99_us", count, numeric=True),
        Column("Ratio", "ratio", lambda value: f"{value:.1f}", numeric=True),
        Column("Peak MB", "peak_mb", count, numeric=True),
        Column("Model KB", "model_kb", count, numeric=True),
    ]
    title = f"Latency, fitted on {given.demonstrations:,} synthetic demonstrations"
    caption = (
        f"Medians of {QUERIES} new queries and their steps. "
        "Ratio: of step time to the first retriever's."
    )
    Console(width=100).print(Table(columns, rows, title, caption).to_rich())


if __name__ == "__main__":
    main()
