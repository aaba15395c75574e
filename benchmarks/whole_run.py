"""What dtdr-f gains when it is told the whole run: outputs, earlier turns, words and order.

    python benchmarks/whole_run.py airline  [--data-dir DATA] [--retriever dtdr-f]
    python benchmarks/whole_run.py traject  [--data-dir DATA]
    python benchmarks/whole_run.py speed
    python benchmarks/whole_run.py --smoke

``airline`` ranks every step of tau-bench's runs in five folds by task; ``log_mrr`` and ``log_top1``
are about the very call that the log made next, the end of plan included. ``traject`` learns
TRAJECT-Bench by sequence with and without what calls returned. Each row is compared with the first
by a permutation test paired by group. Without the published sets, a generated log stands in.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.splits import fixed_split
from dtdr.evaluate.statistics import PERMUTATIONS, permutation_p_value
from dtdr.evaluate.tables import Column, Table, count, share
from dtdr.predict import create
from dtdr.rankers.dtdr_f.observations import RunReader

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Telling:
    """How much of a run is told."""

    outputs: bool = True
    earlier: bool = True
    words: bool = True
    order: bool = True

    def of(self, item: Demonstration) -> Demonstration:
        """The demonstration with no more than that."""
        before = tuple(
            self._part(part) if isinstance(part, ToolCall) else part
            for part in item.before
            if (self.earlier if isinstance(part, ToolCall) else self.words)
        )
        calls = tuple(self._part(call) for call in item.plan.calls)
        return replace(item, before=before, plan=Plan(calls, item.plan.links, item.plan.earlier))

    def _part(self, call: ToolCall) -> ToolCall:
        # What a call depends on stays, whether or not the output that it uses is told.
        references = {str(at): {"$ref": name} for at, name in enumerate(call.references())}
        call = replace(call, arguments=references if not self.outputs else call.arguments)
        if not self.outputs:
            call = replace(call, output=None, status="unknown", output_length=None)
        return call if self.order else replace(call, step=None)


NAMES_ONLY = Telling(outputs=False, earlier=False, words=False, order=False)
TELLINGS = {
    "names only": NAMES_ONLY,
    "with the order": replace(NAMES_ONLY, order=True),
    "everything": Telling(),
    "without outputs": Telling(outputs=False),
    "without earlier turns' calls": Telling(earlier=False),
    "without what was said": Telling(words=False),
    "without the order": Telling(order=False),
}


@dataclass(frozen=True, slots=True)
class RankedStep:
    """One step: the group of its plan, the best rank of what is right, and what came before."""

    group: str
    rank: int
    is_first: bool
    after_failure: bool


def rank_steps(
    name: str,
    options: dict[str, Any],
    tools: Sequence[Tool],
    sides: Sequence[tuple[Sequence[Demonstration], Sequence[Demonstration]]],
    telling: Telling,
    *,
    by_log: bool,
) -> list[RankedStep]:
    """The steps of the test sides, ranked by a retriever that is told so much in both."""
    steps = []
    for train, test in sides:
        retriever = create(name, **options).fit(map(telling.of, train), tools or None)
        for whole in test:
            told, plan = telling.of(whole), whole.plan
            histories = [told.plan.calls[:done] for done in range(len(plan) + 1)]
            rankings = retriever.rank_batch(
                [told.query] * len(histories), histories, [told.before] * len(histories)
            )
            for done, ranking in enumerate(rankings):
                right = {(*plan.tools, END)[done]} if by_log else plan.acceptable_next(range(done))
                places = (at for at, tool in enumerate(ranking.tools, 1) if tool in right)
                failed = done > 0 and plan.calls[done - 1].status == "error"
                rank = next(places, len(ranking) + 1)
                steps.append(RankedStep(whole.group, rank, not done, failed))
    return steps


def row(told: str, steps: Sequence[RankedStep], first: Sequence[RankedStep]) -> dict[str, Any]:
    """Means over steps, and the test of the difference of group means from the first row's."""
    scores = np.array([1 / step.rank for step in steps])
    by_group: dict[str, list[float]] = defaultdict(list)
    for one, two in zip(first, steps, strict=True):
        by_group[two.group].append(1 / two.rank - 1 / one.rank)
    differences = np.array([statistics.fmean(values) for values in by_group.values()])
    failed = [1 / step.rank for step in steps if step.after_failure]
    return {
        "told": told,
        "mrr": float(scores.mean()),
        "top1": statistics.fmean(step.rank == 1 for step in steps),
        "first": statistics.fmean(1 / step.rank for step in steps if step.is_first),
        "failed": statistics.fmean(failed) if failed else None,
        "steps": len(steps),
        "p": None
        if steps is first
        else permutation_p_value(differences, np.random.default_rng(0), PERMUTATIONS),
    }


def airline(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line a telling: agreement with the log in folds by task, failed runs learned from too."""
    try:
        dataset = datasets.load("tau_airline", data_dir=given.data_dir)
        log, tools = dataset.demonstrations, dataset.tools
    except InputError:
        log, tools = hotel_log(60), ()
    groups = sorted({item.group for item in log})
    random.Random(given.seed).shuffle(groups)
    fold = {group: number % FOLDS for number, group in enumerate(groups)}
    sides = [
        (
            [item for item in log if fold[item.group] != number],
            [item for item in log if fold[item.group] == number],
        )
        for number in range(given.folds)
    ]
    options: dict[str, Any] = {}
    if given.retriever == "dtdr-f":
        options = {"failure_weight": 1.0}
    else:  # which leave failed runs out
        sides = [([replace(item, outcome="success") for item in a], b) for a, b in sides]
    first: list[RankedStep] = []
    for told, telling in TELLINGS.items():
        steps = rank_steps(given.retriever, options, tools, sides, telling, by_log=True)
        first = first or steps
        yield row(told, steps, first)


def traject(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Two lines: TRAJECT-Bench by sequence without and with what calls returned."""
    try:
        dataset = datasets.load("traject_bench", data_dir=given.data_dir)
        split = fixed_split("traject_bench", given.data_dir, "by_sequence")
        sides = [(split.training(dataset.demonstrations), split.testing(dataset.demonstrations))]
        tools = dataset.tools
    except InputError:
        log = hotel_log(60)
        sides, tools = [(log[:80], log[80:])], ()
    first: list[RankedStep] = []
    for told in ("names only", "everything"):
        telling = replace(TELLINGS[told], order=False)
        steps = rank_steps("dtdr-f", {}, tools, sides, telling, by_log=False)
        first = first or steps
        yield row(told, steps, first)


def speed(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Medians of a step with outputs of 2,000 characters, and of one that is told a name."""
    retriever = create("dtdr-f").fit(hotel_log(60))
    rooms = [{"room": f"{number}B", "view": "sea and garden"} for number in range(60)]
    output = {"rooms": rooms[:44]}
    call = ToolCall("1", "search", {}, output)
    times: dict[str, list[float]] = defaultdict(list)
    for number in range(given.repeats):
        for what in ("read", "told", "named"):
            session = retriever.session(f"A hotel in Rome for {number} please")
            _ = session.rank().order
            started = time.perf_counter()
            if what == "read":
                RunReader().read(call)
            else:
                session.call("search", output=output if what == "told" else None)
                _ = session.rank().order
            times[what].append(time.perf_counter() - started)
    yield {
        "characters": len(json.dumps(output, separators=(",", ":"))),
        **{what: statistics.median(values) * 1e6 for what, values in times.items()},
    }


def hotel_log(runs: int) -> list[Demonstration]:
    """A search, then a booking and a mail, or other dates where no room is left; then a yes."""
    log = []
    for number in range(runs):
        rooms = [{"room": f"{number}B"}] if number % 2 else []
        calls = [ToolCall("1", "search", {}, {"rooms": rooms}, step=1)]
        if rooms:
            calls.append(ToolCall("2", "book", {"room": f"{number}B"}, {"ok": True}, step=2))
            calls.append(ToolCall("3", "mail", {}, "sent", step=3))
        else:
            calls.append(ToolCall("2", "try_next_dates", {}, "full", "error", step=2))
        query = f"A hotel in {('Rome', 'Oslo', 'Lima')[number % 3]} please"
        group = str(number)
        log.append(Demonstration(f"{number}-1", query, Plan(tuple(calls)), group=group))
        tool = ("charge", "cancel")[number % 3 // 2]
        before: tuple[Message | ToolCall, ...] = (
            Message("user", query),
            *calls,
            Message("assistant", f"Shall I {tool} it?"),
        )
        yes = Plan((ToolCall("9", tool, {}, "done", step=5),))
        log.append(Demonstration(f"{number}-2", "Yes", yes, group=group, before=before))
    return log


MEASURES = {"airline": airline, "traject": traject, "speed": speed}


def _p(value: Any) -> str:
    return "" if value is None else f"{value:.4f}"


def _microseconds(value: Any) -> str:
    return f"{value:.0f}"


RANKS = [
    Column("Told", "told"),
    Column("MRR", "mrr", share, True),
    Column("Top-1", "top1", share, True),
    Column("First step", "first", share, True),
    Column("After a failed call", "failed", share, True),
    Column("Steps", "steps", count, True),
    Column("p", "p", _p, True),
]
COLUMNS = {
    "airline": RANKS,
    "traject": RANKS,
    "speed": [
        Column("Characters", "characters", count, True),
        Column("Reading, µs", "read", _microseconds, True),
        Column("Step with output, µs", "told", _microseconds, True),
        Column("Step with a name, µs", "named", _microseconds, True),
    ],
}
P_VALUES = "MRR; p: two-sided permutation test of the MRR, paired by group, against the first row."
TITLES = {
    "airline": ("tau-bench airline, agreement with the log", P_VALUES),
    "traject": ("TRAJECT-Bench by sequence, acceptable tools", P_VALUES),
    "speed": ("A step of a session", "Medians; reading is part of the step."),
}


def main() -> None:
    """Measure one claim, or a little of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("claim", nargs="?", choices=list(MEASURES))
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("DTDR_DATA_DIR"))
    parser.add_argument("--retriever", default="dtdr-f", help="which to measure on airline")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    if given.claim is None and not given.smoke:
        parser.error("name a claim, or give --smoke")
    given.folds, given.repeats = FOLDS, 300
    if given.smoke:
        given.data_dir, given.folds, given.repeats = Path("no-data"), 1, 20
        for told in list(TELLINGS)[3:]:
            del TELLINGS[told]
    for claim in [given.claim] if given.claim else MEASURES:
        rows = []
        for result in MEASURES[claim](given):
            rows.append(result)
            if given.json:
                print(json.dumps(result), flush=True)
        if not given.json:
            Console(width=100).print(Table(COLUMNS[claim], rows, *TITLES[claim]).to_rich())


if __name__ == "__main__":
    main()
