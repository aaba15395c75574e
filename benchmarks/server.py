"""Quality of service of ``dtdr serve``: latency under load, memory.

    python benchmarks/server.py                  # TinyAgent bank, 500 requests/s for 60 s, 5 times
    python benchmarks/server.py --order runs     # 100 runs at once, each step by step
    python benchmarks/server.py --rate 100 200 400 --p99 10    # which of these holds 10 ms
    python benchmarks/server.py --smoke          # synthetic demonstrations, 2 s, once
    python benchmarks/server.py --model FOLDER   # a model of your own
    python benchmarks/server.py --beside ../old/src   # another version of the package, in turns
    python benchmarks/server.py --waiting 500    # beside connections that are slow or idle

The server runs in a process of its own. This process is the load: it sends every request at its
own moment, whether earlier ones were answered or not, over 16 connections that stay open, and
counts latency from the moment the request was due, so that a server that falls behind shows it.
Without --order runs, all steps of all plans come in one random order, so that few requests find
their query prepared by an earlier one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

from dtdr import fit
from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.evaluate.datasets import load as load_dataset
from dtdr.evaluate.tables import Column, Table, count
from dtdr.rankers.model_folder import read_config
from synthetic_runs import generate, tools

CONNECTIONS = 16
RUNS = 100
"""Runs under way at once with ``--order runs``."""


@dataclass
class Load:
    """What was sent, and how long the answers took, in seconds."""

    latencies: list[float] = field(default_factory=list)
    errors: int = 0

    def quantile(self, share: float) -> float:
        """Milliseconds that this share of the answers took at most."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3


async def _connection(
    host: str, port: int, waiting: asyncio.Queue[tuple[float, bytes] | None], load: Load
) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while (item := await waiting.get()) is not None:
        due, request = item
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(line for line in lines if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        load.latencies.append(time.perf_counter() - due)
        load.errors += not head.startswith(b"HTTP/1.1 200")
    writer.close()


@contextlib.asynccontextmanager
async def waiting_connections(url: str, number: int) -> AsyncIterator[None]:
    """Hold connections open: half of them send nothing, the others a byte of a head each second.

    Connections that the server ends are opened again.
    """
    parts = urlsplit(url)

    async def wait(is_slow: bool) -> None:
        await asyncio.sleep(random.random())
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
                for byte in itertools.cycle(b"GET /readyz"):
                    if is_slow:
                        writer.write(bytes([byte]))
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1_000), 1)
                        break
                writer.close()

    tasks = [asyncio.create_task(wait(place % 2 == 0)) for place in range(number)]
    try:
        if tasks:
            await asyncio.sleep(1.5)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def send(
    url: str, requests: Sequence[bytes], rate: float, seconds: float, waiting: int = 0
) -> Load:
    """Send requests at a constant rate, each at its own moment, with connections that wait."""
    async with waiting_connections(url, waiting):
        return await _send(url, requests, rate, seconds)


async def _send(url: str, requests: Sequence[bytes], rate: float, seconds: float) -> Load:
    parts = urlsplit(url)
    load = Load()
    waiting: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
    connections = [
        asyncio.create_task(_connection(str(parts.hostname), int(parts.port or 80), waiting, load))
        for _ in range(CONNECTIONS)
    ]
    begin = time.perf_counter() + 0.1
    for number in range(int(rate * seconds)):
        due = begin + number / rate
        pause = due - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        waiting.put_nowait((due, requests[number % len(requests)]))
    for _ in connections:
        waiting.put_nowait(None)
    await asyncio.gather(*connections)
    return load


def rank_bodies(demonstrations: Sequence[Demonstration], order: str) -> list[dict[str, Any]]:
    """One request for every step of every demonstration, in an order drawn once."""
    rng = random.Random(0)
    runs = [
        [
            {"query": item.query, "history": item.plan.tools[:step], "top_k": 5}
            for step in range(len(item.plan) + 1)
        ]
        for item in demonstrations
    ]
    if order == "shuffled":
        bodies = [body for run in runs for body in run]
        rng.shuffle(bodies)
        return bodies
    rng.shuffle(runs)
    waiting = [list(reversed(run)) for run in runs]
    under_way = [waiting.pop() for _ in range(min(RUNS, len(waiting)))]
    bodies = []
    while under_way:
        place = rng.randrange(len(under_way))
        bodies.append(under_way[place].pop())
        if not under_way[place]:
            ended = under_way.pop(place)
            under_way.append(waiting.pop() if waiting else ended)
            under_way = [run for run in under_way if run]
    return bodies


def _request(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        "POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def start(model: Path, source: Path | None = None) -> tuple[subprocess.Popen[str], str]:
    """A server with one model, and its address; of another version where its source is given."""
    command = [sys.executable, "-m", "dtdr", "serve", f"model={model}", "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if source is not None:
        environment["PYTHONPATH"] = str(source.resolve())
    # Every request is logged, as it is by default; it is not read here.
    log = Path(tempfile.mkdtemp(prefix="dtdr-server-")) / "server.log"
    with log.open("w") as stream:
        # A session of its own, as a server has one: schedulers share out time by session first.
        process = subprocess.Popen(
            command, stderr=stream, text=True, env=environment, start_new_session=True
        )
    while "listening on " not in (text := log.read_text()):
        if process.poll() is not None:
            raise SystemExit(text)
        time.sleep(0.05)
    url = text.split("listening on ")[1].split()[0]
    return process, url


def resident(pid: int, name: str = "VmRSS") -> float:
    """MB of memory that a process holds (``VmRSS``) or held at most (``VmHWM``)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    return float("nan")


def cpu_seconds(pid: int) -> float:
    """Seconds of processor time that a process used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    model: Path, demonstrations: Sequence[Demonstration], given: argparse.Namespace
) -> list[dict[str, Any]]:
    """Start the servers, and load them in turns as often as asked."""
    requests = [_request(body) for body in rank_bodies(demonstrations, given.order)]
    servers = {
        name: start(model if source is None else given.beside_model or model, source)
        for name, source in versions(given).items()
    }
    rows = []
    try:
        empty = {name: resident(process.pid) for name, (process, _) in servers.items()}
        for _, url in servers.values():
            asyncio.run(send(url, requests, min(given.rate), min(2.0, given.seconds)))
        turns = [(rate, run) for rate in given.rate for run in range(given.runs)]
        for rate, run in turns:
            for name, (process, url) in servers.items():
                used, began = cpu_seconds(process.pid), os.getloadavg()[0]
                load = asyncio.run(send(url, requests, rate, given.seconds, given.waiting))
                rows.append(
                    {
                        "server": name,
                        "rate": rate,
                        "run": str(run + 1),
                        "requests": len(load.latencies),
                        "errors": load.errors,
                        "p50": load.quantile(0.5),
                        "p99": load.quantile(0.99),
                        "max": load.quantile(1.0),
                        "cpu": (cpu_seconds(process.pid) - used) / len(load.latencies) * 1e3,
                        "empty_mb": empty[name],
                        "mb": resident(process.pid, "VmHWM"),
                        "others": began,
                    }
                )
        return rows
    finally:
        for process, _ in servers.values():
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def versions(given: argparse.Namespace) -> dict[str, Path | None]:
    """Source folders by the name that the table shows; None is the package as it is installed."""
    here: dict[str, Path | None] = {"": None}
    return here | ({"beside": given.beside} if given.beside else {})


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """What says which models are measured, and how it is told."""
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--model", type=Path, help="a model folder; else they are fitted")
    parser.add_argument("--retriever", nargs="+", default=["dtdr-l", "dtdr-f"])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def read_demonstrations(given: argparse.Namespace) -> tuple[list[Demonstration], tuple[Tool, ...]]:
    """The TinyAgent bank and its tools; made up for ``--smoke``."""
    if given.smoke:
        return list(generate(200)), tuple(tools())
    dataset = load_dataset("tinyagent", data_dir=given.data_dir)
    return list(dataset.demonstrations), tuple(dataset.tools)


def models(
    given: argparse.Namespace,
    demonstrations: Sequence[Demonstration],
    known: tuple[Tool, ...],
    folder: str,
) -> Iterator[Path]:
    """The model that was named, or one of each ranker, fitted when it is its turn."""
    if given.model:
        yield given.model
        return
    for name in given.retriever:
        path = Path(folder) / name / "model"
        fit(demonstrations, known, ranker=name).save(path)
        yield path


def main() -> None:
    """Fit or take models, and measure a server of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_model_arguments(parser)
    parser.add_argument(
        "--rate", type=float, nargs="+", default=[500.0], help="requests a second; several in turn"
    )
    parser.add_argument("--p99", type=float, default=10.0, help="milliseconds that are held")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--order", choices=["shuffled", "runs"], default="shuffled")
    parser.add_argument("--beside", type=Path, help="source folder of another version")
    parser.add_argument("--beside-model", type=Path, help="a model folder that version can read")
    parser.add_argument("--waiting", type=int, default=0, help="connections that are slow or idle")
    given = parser.parse_args()
    if given.smoke:
        given.seconds, given.runs, given.rate = 2.0, 1, [100.0]
        given.waiting = 20
        given.retriever = ["dtdr-l"]
    demonstrations, known = read_demonstrations(given)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models(given, demonstrations, known, folder):
            ranker = read_config(model)["ranker"]
            rows += [
                {**row, "server": f"{ranker} {row['server']}".strip()}
                for row in measure(model, demonstrations, given)
            ]
    if given.runs > 1:
        rows += medians(rows)
    if given.json:
        for row in rows:
            print(json.dumps(row))
        return
    columns = [
        Column("Server", "server"),
        Column("Rate", "rate", count, numeric=True),
        Column("Run", "run"),
        Column("Requests", "requests", count, numeric=True),
        Column("Errors", "errors", count, numeric=True),
        Column("p50 ms", "p50", _two, numeric=True),
        Column("p99 ms", "p99", _two, numeric=True),
        Column("Max ms", "max", _two, numeric=True),
        Column("CPU ms", "cpu", _two, numeric=True),
        Column("MB", "mb", count, numeric=True),
        Column("Load", "others", _two, numeric=True),
    ]
    title = f"POST /v1/rank, N requests/s for {given.seconds:g} s, one worker, {given.order}"
    caption = (
        "CPU: of the server, a request. MB: most memory that it held. Load: of the machine when "
        "the run began, without this one."
    )
    out = Console(width=100)
    out.print(Table(columns, rows, title, caption).to_rich())
    for name, rate in highest_rates(rows, given.p99).items():
        most = "none of these rates" if rate is None else f"{rate:g} requests/s"
        out.print(f"{name}: p99 of {given.p99:g} ms or less, without an error, at {most}")


def highest_rates(rows: Sequence[dict[str, Any]], p99: float) -> dict[str, float | None]:
    """For each server the highest rate up to which its last row holds; None where none does."""
    held: dict[str, float | None] = {}
    for name in dict.fromkeys(row["server"] for row in rows):
        held[name] = None
        last = {row["rate"]: row for row in rows if row["server"] == name}  # medians come last
        for rate in sorted(last):
            if last[rate]["errors"] or last[rate]["p99"] > p99:
                break
            held[name] = rate
    return held


def medians(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row of medians for each server."""
    result = []
    for name, rate in dict.fromkeys((row["server"], row["rate"]) for row in rows):
        mine = [row for row in rows if (row["server"], row["rate"]) == (name, rate)]
        numbers = {
            key: statistics.median(row[key] for row in mine)
            for key, value in mine[0].items()
            if not isinstance(value, str)
        }
        result.append({**numbers, "server": name, "run": "median"})
    return result


def _two(value: float) -> str:
    return f"{value:.2f}"


if __name__ == "__main__":
    main()
