"""What sessions in Redis cost a step, beside those in the server's own memory.

    python benchmarks/sessions.py           # 300 sessions, with a redis-server of its own
    python benchmarks/sessions.py --redis redis://HOST:PORT/0
    python benchmarks/sessions.py --smoke   # 10 sessions

One client takes sessions from the first step to the last, one after the other, with ``call`` and
the next ranking in one request; then it asks each for its ranking again. With two servers, each
request goes to the other one. Processor time is that of the servers, and of Redis where it is
its own. Where there is no Redis, memory alone is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2

from dtdr import fit
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.tables import Column
from printing import print_rows
from server import cpu_seconds, start
from synthetic_runs import generate, tools


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


def measure(
    model: Path, items: Sequence[Demonstration], url: str | None, servers: int, redis: int | None
) -> Iterator[dict[str, Any]]:
    """One row for steps, and one for rankings.

    Args:
        model: that is served.
        items: whose calls the sessions are told.
        url: of Redis; None: the server's memory.
        servers: that are asked in turns.
        redis: the process of Redis, where it was started here.
    """
    os.environ.pop("DTDR_SESSIONS", None)
    if url is not None:
        os.environ["DTDR_SESSIONS"] = url
    started = [start(model) for _ in range(servers)]
    try:
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(httpx2.Client(base_url=address)) for _, address in started
            ]
            paths = []
            for item in items:
                opened = clients[0].post("/v1/sessions", json={"query": item.query}).json()
                paths.append(f"/v1/sessions/{opened['session']}")
            requests: dict[str, list[tuple[str, dict[str, Any]]]] = {
                "call and rank": [],
                "rank": [],
            }
            for path, item in zip(paths, items, strict=True):
                for tool in item.plan.tools:
                    body = {"tools": [tool], "rank": {"top_k": 5}}
                    requests["call and rank"].append((f"{path}/call", body))
                    requests["rank"].append((f"{path}/rank", {"top_k": 5}))
            for kind, asked in requests.items():
                processes = [process.pid for process, _ in started]
                used = [cpu_seconds(pid) for pid in processes]
                redis_used = cpu_seconds(redis) if redis else 0.0
                seconds = []
                for number, (path, body) in enumerate(asked):
                    begun = time.perf_counter()
                    clients[number % servers].post(path, json=body).raise_for_status()
                    seconds.append(time.perf_counter() - begun)
                seconds.sort()
                yield {
                    "request": kind,
                    "requests": len(asked),
                    "p50": seconds[len(seconds) // 2] * 1e3,
                    "p99": seconds[int(0.99 * (len(seconds) - 1))] * 1e3,
                    "cpu": (sum(map(cpu_seconds, processes)) - sum(used)) / len(asked) * 1e3,
                    "redis": (cpu_seconds(redis) - redis_used) / len(asked) * 1e3
                    if redis
                    else None,
                }
    finally:
        for process, _ in started:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def main() -> None:
    """Measure each store in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--redis", help="address of a running server")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    items = list(generate(10 if given.smoke else given.sessions, seed=1))

    def rows() -> Iterator[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder, redis_server() as own:
            model = Path(folder) / "model"
            fit(list(generate(200, seed=0)), tools(), ranker="dtdr-l").save(model)
            url, process = (given.redis, None) if given.redis or own is None else own
            for row in measure(model, items, None, 1, None):
                yield {"store": "memory", "servers": 1, **row}
            for servers in (1, 2) if url else ():
                for row in measure(model, items, url, servers, process):
                    yield {"store": "Redis", "servers": servers, **row}

    columns = [
        Column("Sessions in", "store"),
        Column("Servers", "servers", str, numeric=True),
        Column("Request", "request"),
        Column("Requests", "requests", str, numeric=True),
        Column("p50 ms", "p50", _two, numeric=True),
        Column("p99 ms", "p99", _two, numeric=True),
        Column("CPU ms", "cpu", _two, numeric=True),
        Column("Redis CPU ms", "redis", _two, numeric=True),
    ]
    print_rows(
        rows(),
        columns,
        as_json=given.json,
        title="A request of a session, dtdr-l",
        caption=f"load of the machine {os.getloadavg()[0]:.1f}",
    )


def _two(value: float) -> str:
    return f"{value:.2f}"


if __name__ == "__main__":
    main()
