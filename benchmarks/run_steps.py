"""What a step of a run costs a server, which gets the whole run with each request.

    python benchmarks/run_steps.py           # 5, 30 and 100 calls
    python benchmarks/run_steps.py --smoke   # two runs

Each call has an output of 2,000 characters. *next step* is asked of the server that ranked the step
before; *new run* of one that never saw the run, as after the loss of another server. Processor time
is that of the server. The client asks over one connection; kinds are measured in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from dtdr import fit
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.tables import Column
from printing import print_rows
from server import cpu_seconds, start
from synthetic_runs import generate, tools

OUTPUT_LENGTH = 2_000
IN_TURN = 20
"""Requests of a kind before those of the next."""
KINDS = ("next step", "new run")


def output(rng: random.Random) -> dict[str, Any]:
    """An answer of a tool that has 2,000 characters as JSON."""
    items: list[dict[str, Any]] = []
    answer = {"count": rng.randint(0, 50), "items": items, "text": ""}
    while len(json.dumps(answer)) < OUTPUT_LENGTH - 200:
        name = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=8))
        items.append({"id": rng.randint(1_000, 10**6), "name": name, "ok": rng.random() < 0.5})
    answer["text"] = "x" * (OUTPUT_LENGTH - len(json.dumps(answer)))
    return answer


def with_outputs(item: Demonstration, rng: random.Random) -> Demonstration:
    """A demonstration whose calls returned something."""
    calls = (replace(call, output=output(rng), status="ok") for call in item.plan.calls)
    return replace(item, plan=replace(item.plan, calls=tuple(calls)))


class Measured:
    """The requests of one kind and length."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.bytes = 0
        self.cpu = 0.0

    def row(self) -> dict[str, Any]:
        """The figures."""
        ordered, count = sorted(self.seconds), len(self.seconds)
        return {
            "requests": count,
            "kilobytes": self.bytes / count / 1e3,
            "p50": ordered[count // 2] * 1e3,
            "p99": ordered[int(0.99 * (count - 1))] * 1e3,
            "cpu": self.cpu / count * 1e3,
        }


def measure(model: Path, lengths: list[int], runs: int) -> Iterator[dict[str, Any]]:
    """A row for each length and kind."""
    names = [tool.name for tool in tools()]
    rng = random.Random(0)
    process, address = start(model)
    try:
        with httpx2.Client(base_url=address, timeout=60) as client:
            results: defaultdict[tuple[int, str], Measured] = defaultdict(Measured)
            queries = iter(generate(len(lengths) * 2 * (runs + 2 * IN_TURN), seed=5))

            def send(step: dict[str, Any]) -> int:
                content = json.dumps({**step, "top_k": 5}).encode()
                headers = {"content-type": "application/json"}
                client.post("/v1/rank", content=content, headers=headers).raise_for_status()
                return len(content)

            for length in lengths:
                for begin in range(-IN_TURN, runs, IN_TURN):  # the first turn only warms up
                    for kind in KINDS:
                        steps = []
                        for _ in range(min(IN_TURN, runs - max(begin, 0))):
                            calls = [
                                {"tool": rng.choice(names), "id": str(at), "output": output(rng)}
                                for at in range(length)
                            ]
                            steps.append({"query": next(queries).query, "history": calls})
                            if kind == "next step":
                                send({**steps[-1], "history": calls[:-1]})
                        result = results[length, kind] if begin >= 0 else Measured()
                        used = cpu_seconds(process.pid)
                        for step in steps:
                            begun = time.perf_counter()
                            result.bytes += send(step)
                            result.seconds.append(time.perf_counter() - begun)
                        result.cpu += cpu_seconds(process.pid) - used
                for kind in KINDS:
                    yield {"calls": length, "kind": kind, **results[length, kind].row()}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def main() -> None:
    """Measure each kind at each length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, nargs="+", default=[5, 30, 100])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    rng = random.Random(1)
    learned = [with_outputs(item, rng) for item in generate(60 if given.smoke else 200, seed=0)]

    def rows() -> Iterator[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            fit(learned, tools(), arguments=False, plans=False).save(model)
            yield from measure(model, given.calls, 2 if given.smoke else given.runs)

    columns = [
        Column("Calls", "calls", str, numeric=True),
        Column("Step", "kind"),
        Column("Requests", "requests", str, numeric=True),
        Column("kB sent", "kilobytes", _one, numeric=True),
        Column("p50 ms", "p50", _one, numeric=True),
        Column("p99 ms", "p99", _one, numeric=True),
        Column("Server CPU ms", "cpu", _two, numeric=True),
    ]
    print_rows(
        rows(),
        columns,
        as_json=given.json,
        title="A step of a run, dtdr-f",
        caption=f"load of the machine {os.getloadavg()[0]:.1f}",
    )


def _one(value: float) -> str:
    return f"{value:.1f}"


def _two(value: float) -> str:
    return f"{value:.2f}"


if __name__ == "__main__":
    main()
