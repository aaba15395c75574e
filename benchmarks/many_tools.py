"""Which of 527 tools of 70 MCP servers comes next, and which of a server that was just connected?

    python benchmarks/many_tools.py
    python benchmarks/many_tools.py --smoke

The set is **synthetic** (``mcp_catalogue.py``). ``known``: held-out combinations of errands, over
every step, the end of plan included. ``new``: of one server in seven every demonstration is taken
away, so that its tools are known by their descriptions alone; ranked are the steps of the
held-out plans where one of them comes next. Milliseconds are a step in a session and a whole
``rank`` of a new query, medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.datasets.splits import group_split
from dtdr.evaluate.harness import rank_after_calls, rank_microseconds_median
from dtdr.evaluate.tables import Column, Table, count, share
from dtdr.predict import create
from dtdr.predict.model import Model
from mcp_catalogue import catalogue, servers

RETRIEVERS = ("dtdr-f", "bm25", "qts", "dtdr-c", "dtdr-l")
NEW_SERVERS = 10
DEPTH = 5


def score(
    model: Model, held: Sequence[Demonstration], only: frozenset[str] | None
) -> dict[str, Any]:
    """MRR and recall@5 over the steps; with ``only``, of these tools where one comes next."""
    steps = []
    for item in held:
        for done in range(len(item.plan) + 1):
            wanted = item.plan.acceptable_next(range(done))
            if wanted := wanted if only is None else wanted & only:
                steps.append((item, done, wanted))
    rankings = rank_after_calls(model, [(item, done) for item, done, _ in steps])
    ranks, recalls = [], []
    for (_, _, wanted), ranking in zip(steps, rankings, strict=True):
        places = [place for place, tool in enumerate(ranking.tools, start=1) if tool in wanted]
        ranks.append(1 / places[0] if places else 0.0)
        recalls.append(sum(place <= DEPTH for place in places) / len(wanted))
    return {
        "steps": len(steps),
        "mrr": statistics.fmean(ranks),
        "recall": statistics.fmean(recalls),
    }


def whole_ms(model: Model, held: Sequence[Demonstration]) -> float:
    """Median milliseconds to rank the first step of a query that was not seen before."""
    seconds = []
    for item in held[:100]:
        started = time.perf_counter()
        _ = model.rank(f"{item.query} ").order
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A line for each ranker and kind of tool."""
    dataset = catalogue(given.demonstrations, given.seed)
    split = group_split(dataset.demonstrations, seed=given.seed)
    known = split.training(dataset.demonstrations)
    held = split.testing(dataset.demonstrations)[: given.held]
    chosen = random.Random(given.seed).sample(servers(), NEW_SERVERS)
    new = frozenset(tool.name for server in chosen for tool in server.tools.values())
    left = [item for item in known if not new & {*item.plan.tools}]
    sides = {"known": (known, None), "new": (left, new)}
    for name in given.retrievers:
        for kind, (train, only) in sides.items():
            has_seed = "seed" in create(name).get_params()
            model = create(name, **({"seed": given.seed} if has_seed else {}))
            started = time.perf_counter()
            model.fit(train, dataset.tools, arguments=False, plans=False)
            fit = time.perf_counter() - started
            step = rank_microseconds_median(model, held)
            yield {
                "ranker": name,
                "tools": kind,
                "train": len(train),
                **score(model, held, only),
                "fit": fit,
                "step_ms": step / 1000,
                "rank_ms": whole_ms(model, held),
            }


def main() -> None:
    """Print one table, or one JSON object a line with ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--retrievers", nargs="+", default=list(RETRIEVERS))
    parser.add_argument("--demonstrations", type=int, default=2000)
    parser.add_argument("--held", type=int, default=500, help="at most so many held-out plans")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--smoke", action="store_true", help="few demonstrations; seconds")
    given = parser.parse_args()
    if given.smoke:
        given.demonstrations, given.held, given.retrievers = 300, 40, ["bm25", "dtdr-c"]
    rows = []
    for row in measure(given):
        rows.append(row)
        if given.json:
            print(json.dumps(row), flush=True)
    if given.json:
        return

    def milliseconds(value: float) -> str:
        return f"{value:.2f}"

    columns = [
        Column("Ranker", "ranker"),
        Column("Tools", "tools"),
        Column("Learned", "train", count, True),
        Column("Steps", "steps", count, True),
        Column("MRR", "mrr", share, True),
        Column(f"Recall@{DEPTH}", "recall", share, True),
        Column("Fit s", "fit", lambda value: f"{value:.1f}", True),
        Column("Step ms", "step_ms", milliseconds, True),
        Column("Rank ms", "rank_ms", milliseconds, True),
    ]
    title = "527 tools of 70 MCP servers (synthetic)"
    caption = f"seed {given.seed}; new: {NEW_SERVERS} servers known by descriptions alone"
    Console(width=100).print(Table(columns, rows, title=title, caption=caption).to_rich())


if __name__ == "__main__":
    main()
