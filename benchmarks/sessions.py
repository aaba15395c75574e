"""What a step of a run costs a server: the whole run in each request, against sessions.

    python benchmarks/sessions.py           # 5, 30 and 100 calls, with a redis-server of its own
    python benchmarks/sessions.py --smoke   # two runs

Each call has an output of 2,000 characters. *run sent* is ``POST /v1/rank`` with the query and all
calls; *memory* and *Redis* are ``POST /v1/sessions/ID/call`` with the last call, ranking too. Each
run is asked for once, so no answer is repeated. Processor time is that of the server, and of Redis.
The client takes the runs one after the other over one connection; kinds are measured in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
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


@contextlib.contextmanager
def redis_server() -> Iterator[tuple[str, int] | None]:
    """The address and process of a new server; None where there is no such program."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        process = subprocess.Popen(
            [program, *options, "--appendonly", "yes"], stdout=subprocess.DEVNULL
        )
        try:
            time.sleep(0.5)
            yield f"redis://127.0.0.1:{port}/0", process.pid
        finally:
            process.terminate()
            process.wait(30)


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
        self.cpu = self.redis = 0.0

    def row(self) -> dict[str, Any]:
        """The figures."""
        ordered, count = sorted(self.seconds), len(self.seconds)
        return {
            "requests": count,
            "kilobytes": self.bytes / count / 1e3,
            "p50": ordered[count // 2] * 1e3,
            "p99": ordered[int(0.99 * (count - 1))] * 1e3,
            "cpu": self.cpu / count * 1e3,
            "redis": self.redis / count * 1e3 if self.redis else None,
        }


def measure(
    model: Path, lengths: list[int], runs: int, redis: tuple[str, int] | None
) -> Iterator[dict[str, Any]]:
    """A row for each length and kind."""
    names = [tool.name for tool in tools()]
    rng = random.Random(0)
    with contextlib.ExitStack() as stack:
        servers = {}
        for kind, url in (("memory", None), ("Redis", redis and redis[0])):
            os.environ.pop("DTDR_SESSIONS", None)
            if url is not None:
                os.environ["DTDR_SESSIONS"] = url
            process, address = start(model)
            stack.callback(process.wait, 30)
            stack.callback(process.send_signal, signal.SIGTERM)
            client = stack.enter_context(httpx2.Client(base_url=address, timeout=60))
            servers[kind] = (client, process.pid)
        servers["run sent"] = servers["memory"]
        kinds = ["run sent", "memory", *(["Redis"] if redis else [])]
        results: defaultdict[tuple[int, str], Measured] = defaultdict(Measured)
        queries = iter(generate(len(lengths) * len(kinds) * (runs + 2 * IN_TURN), seed=5))
        for length in lengths:
            for begin in range(-IN_TURN, runs, IN_TURN):  # the first turn only warms up
                for kind in kinds:
                    client, pid = servers[kind]
                    requests = []
                    for _ in range(min(IN_TURN, runs - max(begin, 0))):
                        calls = [
                            {"tool": rng.choice(names), "id": str(at), "output": output(rng)}
                            for at in range(length)
                        ]
                        step = {"query": next(queries).query, "history": calls}
                        path, body = "/v1/rank", {**step, "top_k": 5}
                        if kind != "run sent":
                            step["history"] = calls[:-1]
                            opened = client.post("/v1/sessions", json=step).raise_for_status()
                            path = f"/v1/sessions/{opened.json()['session']}/call"
                            body = {"tools": calls[-1:], "rank": {"top_k": 5}}
                        requests.append((path, json.dumps(body).encode()))
                    result = results[length, kind] if begin >= 0 else Measured()
                    used = cpu_seconds(pid)
                    redis_used = cpu_seconds(redis[1]) if redis and kind == "Redis" else 0.0
                    for path, content in requests:
                        begun = time.perf_counter()
                        headers = {"content-type": "application/json"}
                        client.post(path, content=content, headers=headers).raise_for_status()
                        result.seconds.append(time.perf_counter() - begun)
                        result.bytes += len(content)
                    result.cpu += cpu_seconds(pid) - used
                    if redis and kind == "Redis":
                        result.redis += cpu_seconds(redis[1]) - redis_used
            for kind in kinds:
                yield {"calls": length, "kind": kind, **results[length, kind].row()}


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
        with tempfile.TemporaryDirectory() as folder, redis_server() as redis:
            model = Path(folder) / "model"
            fit(learned, tools(), arguments=False, plans=False).save(model)
            yield from measure(model, given.calls, 2 if given.smoke else given.runs, redis)

    columns = [
        Column("Calls", "calls", str, numeric=True),
        Column("Run", "kind"),
        Column("Requests", "requests", str, numeric=True),
        Column("kB sent", "kilobytes", _one, numeric=True),
        Column("p50 ms", "p50", _one, numeric=True),
        Column("p99 ms", "p99", _one, numeric=True),
        Column("Server CPU ms", "cpu", _two, numeric=True),
        Column("Redis CPU ms", "redis", _two, numeric=True),
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
