"""What sessions in Redis cost a step, beside those in the server's own memory.

    python benchmarks/sessions.py           # 300 sessions, with a redis-server of its own
    python benchmarks/sessions.py --redis redis://HOST:PORT/0
    python benchmarks/sessions.py --smoke   # 10 sessions

One client takes sessions from the first step to the last, one after the other, with ``call`` and
the next ranking in one request. With two servers, each step goes to the other one. Where there is
no Redis, memory alone is measured.
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

import httpx2
from rich.console import Console

from dtdr import fit
from dtdr.datasets.synthetic import generate, tools
from dtdr.demonstrations import Demonstration
from dtdr.evaluation.tables import Column, Table
from server import start


@contextlib.contextmanager
def redis_server() -> Iterator[str | None]:
    """The address of a new server; None where there is no such program."""
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
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait(30)


def measure(
    model: Path, items: Sequence[Demonstration], url: str | None, servers: int
) -> list[float]:
    """Seconds of each step."""
    os.environ.pop("DTDR_SESSIONS", None)
    if url is not None:
        os.environ["DTDR_SESSIONS"] = url
    started = [start(model) for _ in range(servers)]
    seconds: list[float] = []
    try:
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(httpx2.Client(base_url=address)) for _, address in started
            ]
            for item in items:
                opened = clients[0].post("/v1/sessions", json={"query": item.query}).json()
                path = f"/v1/sessions/{opened['session']}/call"
                for number, tool in enumerate(item.plan.tools):
                    body = {"tools": [tool], "rank": {"top_k": 5}}
                    begun = time.perf_counter()
                    clients[number % servers].post(path, json=body).raise_for_status()
                    seconds.append(time.perf_counter() - begun)
    finally:
        for process, _ in started:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    return sorted(seconds)


def main() -> None:
    """Measure each store in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--redis", help="address of a running server")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    number = 10 if given.smoke else given.sessions
    items = list(generate(number, seed=1))
    rows = []
    with tempfile.TemporaryDirectory() as folder, redis_server() as own:
        model = Path(folder) / "model"
        fit(list(generate(200, seed=0)), tools(), retriever="dtdr-l").save(model)
        for name, url, servers in (
            ("memory", None, 1),
            ("Redis, one server", given.redis or own, 1),
            ("Redis, two servers", given.redis or own, 2),
        ):
            if name != "memory" and url is None:
                continue
            seconds = measure(model, items, url, servers)
            p50, p99 = (f"{seconds[int(q * (len(seconds) - 1))] * 1e3:.2f}" for q in (0.5, 0.99))
            rows.append({"store": name, "steps": len(seconds), "p50": p50, "p99": p99})
    columns = [
        Column("Sessions in", "store"),
        Column("Steps", "steps", str, numeric=True),
        Column("p50 ms", "p50", str, numeric=True),
        Column("p99 ms", "p99", str, numeric=True),
    ]
    Console(width=100).print(Table(columns, rows, "A step of a session, dtdr-l").to_rich())


if __name__ == "__main__":
    main()
