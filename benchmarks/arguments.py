"""What whole calls and whole plans cost: to learn, and to predict.

    python benchmarks/arguments.py [--smoke] [--dataset tinyagent] [--readings 5] [--data-dir DIR]
    python benchmarks/arguments.py --calls-only

"New query" fills the first call of a query that was not read before, "next call" a call of a run
whose state is kept, the right tool given; "branch" copies a state, adds a call, and fills the next.
"Long query" is a new query of 40 words and more. Of each call the shortest of several readings
counts, and of all calls the median; the same of plans, whose arguments are filled when they are
looked at: "with arguments" includes finding the plans. Memory is what Linux tells of the process:
VmRSS before the fit, VmHWM after it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from pathlib import Path

from rich.console import Console

from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.evaluate.datasets import load
from dtdr.evaluate.datasets.splits import default_split
from dtdr.evaluate.tables import Column, Table
from dtdr.predict import create
from dtdr.predict.arguments.model import ArgumentModel
from dtdr.predict.arguments.state import RunState
from dtdr.predict.arguments.texts import combine_texts, tokenize
from server import resident
from synthetic_runs import generate, tools

PLANS = 60
"""Held-out plans that calls are taken from."""
LONG_QUERY = 40
"""Words."""


def read_data(
    dataset: str, data_dir: str | None
) -> tuple[list[Demonstration], list[Demonstration], tuple[Tool, ...]]:
    """What to learn from, what to fill, and the tools."""
    data = load(dataset, data_dir=data_dir)
    split = default_split(data, data_dir)
    known = data.demonstrations
    return split.training(known), split.testing(known)[:PLANS], tuple(data.tools)


def forget_texts() -> None:
    """Forget the texts that were read last, so that the next one is read again."""
    tokenize.cache_clear()
    combine_texts.cache_clear()


def time_calls(
    model: ArgumentModel, plans: Sequence[Demonstration], readings: int
) -> dict[str, float]:
    """Seconds of each kind of call, the median of all calls."""
    shortest: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)

    def read(kind: str, place: tuple[int, int], started: float) -> None:
        taken = time.perf_counter() - started
        shortest[kind][place] = min(taken, shortest[kind].get(place, taken))

    for _ in range(readings):
        for number, item in enumerate(plans):
            forget_texts()
            started = time.perf_counter()
            state = RunState(item.query, item.before)
            for place, call in enumerate(item.plan.calls):
                if place:
                    started = time.perf_counter()
                model.fill(call.tool, state)
                read("next call" if place else "new query", (number, place), started)
                if not place and len(item.query.split()) >= LONG_QUERY:
                    read("long query", (number, place), started)
                before = state.copy()
                state.add(call)
                if place + 1 < len(item.plan.calls):
                    started = time.perf_counter()
                    branch = before.copy()
                    branch.add(call)
                    model.fill(item.plan.calls[place + 1].tool, branch)
                    read("branch", (number, place), started)
    return {kind: statistics.median(times.values()) for kind, times in shortest.items()}


def time_plans(
    train: Sequence[Demonstration],
    known: Sequence[Tool],
    arguments: ArgumentModel,
    queries: Sequence[Demonstration],
    readings: int,
) -> tuple[float, dict[str, float]]:
    """Seconds of processor time that plans add to a fit of dtdr-f, and of each kind of reading."""
    started = time.process_time()
    create("dtdr-f").fit(train, known)
    without = time.process_time() - started
    started = time.process_time()
    by_names = create("dtdr-f").fit(train, known, plans=True)
    added = time.process_time() - started - without
    whole = copy(by_names)
    whole.arguments_ = arguments
    shortest: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)

    def read(kind: str, place: tuple[int, int], started: float) -> None:
        taken = time.perf_counter() - started
        shortest[kind][place] = min(taken, shortest[kind].get(place, taken))

    for _ in range(readings):
        for number, item in enumerate(queries):
            forget_texts()
            started = time.perf_counter()
            plans = whole.plans(item.query, before=item.before)
            read("five plans by names", (number, 0), started)
            for kind, some in (("one", plans[:1]), ("five", plans)):
                for plan in some:  # whose arguments are filled when they are looked at
                    assert len(plan.calls) == len(plan.tools)
                read(f"{kind} of five plans with arguments", (number, 0), started)
    return added, {kind: statistics.median(times.values()) for kind, times in shortest.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small generated set")
    parser.add_argument("--dataset", default="tinyagent")
    parser.add_argument("--data-dir")
    parser.add_argument("--readings", type=int, default=5)
    parser.add_argument("--calls-only", action="store_true", help="time no whole plans")
    options = parser.parse_args()
    if options.smoke:
        made = list(generate(60, 50))
        train, test, known = made[:50], made[50:], tuple(tools(50))
    else:
        train, test, known = read_data(options.dataset, options.data_dir)
    import_module("scipy.sparse")  # which the fit of a retriever loads
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest memory so far
    before = resident(os.getpid())
    started = time.process_time()
    model = ArgumentModel.fit(train, known)
    seconds = time.process_time() - started
    added = resident(os.getpid(), "VmHWM") - before
    readings = 1 if options.smoke else options.readings
    times = time_calls(model, test, readings)
    rows = [
        {"what": f"fit of {len(train):,} plans, processor time", "ms": f"{1000 * seconds:,.0f}"}
    ]
    if not options.calls_only:
        learned, planned = time_plans(train, known, model, test, readings)
        rows.append({"what": "whole plans add to a fit of dtdr-f", "ms": f"{1000 * learned:,.0f}"})
        times |= planned
    rows += [{"what": kind, "ms": f"{1000 * taken:,.2f}"} for kind, taken in times.items()]
    columns = [Column("What", "what"), Column("Milliseconds", "ms", numeric=True)]
    name = "generated (synthetic)" if options.smoke else options.dataset
    caption = f"{name}; the fit of arguments added {added:.0f} MB at most."
    Console(width=100).print(Table(columns, rows, caption=caption).to_rich())


if __name__ == "__main__":
    main()
