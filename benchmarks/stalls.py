"""How long one client that misbehaves keeps another waiting, on ``dtdr serve`` and ``dtdr mcp``.

    python benchmarks/stalls.py                       # 400 connections, 8 s of each attack
    python benchmarks/stalls.py --connections 100 --attack bodies
    python benchmarks/stalls.py --connections 8 --attack plans --attack batch
    python benchmarks/stalls.py --smoke

A process of its own attacks from 127.0.0.1; this one asks as another client, from 127.0.0.2, for a
small answer every 10 ms on one connection that stays open, and measures how long each takes. The
rows "none" and "ordinary" (as many connections that ask now and then, and read the answers) say
what the machine and ordinary use add. On Linux, "stall" is the longest time less what the server
and this process waited for a processor meanwhile, which is the work of other processes. "MB" is
the most memory that the server has had until then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import dtdr
from dtdr.evaluate.tables import Column, Table, count
from synthetic_runs import generate, tools

Address = tuple[str, int, str]
"""Host, port and path."""

RANK = {"query": "Mail Ann the report", "history": ["a"]}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}


def request(address: Address, content: bytes, *headers: str) -> bytes:
    """A POST of JSON."""
    lines = [f"POST {address[2]} HTTP/1.1", f"Host: 127.0.0.1:{address[1]}",
             "Content-Type: application/json", "Accept: application/json, text/event-stream",
             f"Content-Length: {len(content)}", *headers]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode() + content


def bodies(address: Address) -> list[bytes]:
    """Bodies of up to a megabyte that are slow to read for one reason or another."""
    is_mcp = address[2] == "/mcp"
    texts = [
        b"[" * 900_000,
        b'"' * 900_000,
        b'"' + b"\\" * 900_000,
        b"[" + b"{}," * 300_000 + b"{}]",
        b"[" + b"1," * 400_000 + b"1]",
        b'{"a":' * 150_000,
        b'{"query": "' + b"a.a@" * 220_000 + b'"}',
        json.dumps({"query": "x" * 32_000, "history": ["a"] * 1_000}).encode(),
        json.dumps({"query": "x", "history": [{"tool": "a", "output": "1," * 900}] * 400}).encode(),
        json.dumps({"request": {"messages": [{"role": "user", "content": "x y " * 200}] * 900,
                                "tools": []}}).encode(),
    ]  # fmt: skip
    arguments: list[Any] = [{}] * 90_000
    values = [arguments, "a.a@" * 200_000, {f"k{n}": n for n in range(50_000)}]
    for value in values:
        params = {"name": "s0_tool_1", "arguments": {"a": value}}
        texts.append(json.dumps({**CALL, "params": params} if is_mcp else params).encode())
    return [request(address, text) for text in texts]


async def send_bodies(address: Address) -> None:
    """Large bodies, one after the other."""
    for content in bodies(address):
        reader, writer = await asyncio.open_connection(*address[:2])
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            writer.write(content)
            await asyncio.wait_for(reader.read(1_000), 10)
        writer.close()


HARD = '\ufdfa "it\'s" 3.14159 '
"""Slow to read: a letter that is short for eighteen others, quotes, and decimals."""


def long_text(size: int) -> str:
    """A text that is slow to read, another one each time; its size is in bytes of UTF-8."""
    text = f"{random.random()} {HARD * (size // len(HARD.encode()) + 1)}"
    return text.encode()[:size].decode(errors="ignore")


def history(calls: int, size: int) -> list[Any]:
    """Calls whose arguments and outputs take ``size`` bytes together."""
    each = size // calls
    return [
        {"tool": "a", "arguments": {"to": long_text(each // 2)}, "output": long_text(each // 2)}
        for _ in range(calls)
    ]


def model_requests(address: Address, kind: str) -> list[bytes]:
    """Requests that a model needs long to answer."""
    one = {"query": "Mail Ann the report"}
    bodies: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "plans": [
            ("/v1/plans", one),
            ("/v1/plans", {**one, "history": history(16, 32_000)}),
            ("/v1/plans", {**one, "history": history(420, 837_000)}),
        ],
        "calls": [
            ("/v1/calls", {**one, "history": ["a"] * 420}),
            ("/v1/calls", {**one, "history": history(420, 420_000)}),
        ],
        "batch": [("/v1/rank/batch", {"steps": [
            {"query": long_text(32_000)} for _ in range(8)]})],
        "texts": [
            ("/v1/rank", {"query": long_text(32_000)}),
            ("/v1/explain", {"query": long_text(32_000)}),
            ("/v1/search", {"text": long_text(32_000), "query": long_text(32_000)}),
            ("/v1/mask/openai", {"request": {"messages": [
                {"role": "user", "content": long_text(32_000)}] * 20, "tools": []}}),
        ],
    }  # fmt: skip
    return [
        request((*address[:2], path), json.dumps(body, ensure_ascii=False).encode())
        for path, body in bodies[kind]
    ]


def ask_model(kind: str) -> Callable[[Address], Awaitable[None]]:
    """Sends the requests of one kind to a model, one after the other."""

    async def send(address: Address) -> None:
        for content in model_requests(address, kind):
            reader, writer = await asyncio.open_connection(*address[:2])
            with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                writer.write(content)
                await asyncio.wait_for(read_answer(reader), 15)
            writer.close()

    return send


async def ask_long_run(address: Address) -> None:
    """Plans, ranking and calls after a long history."""
    reader, writer = await asyncio.open_connection(*address[:2])
    with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        body = json.dumps({"query": long_text(32_000), "history": history(100, 200_000)}).encode()
        for what in ("plans", "rank", "calls"):
            writer.write(request((*address[:2], f"/v1/{what}"), body))
            await asyncio.wait_for(read_answer(reader), 15)
    writer.close()


async def send_heads(address: Address) -> None:
    """A head that grows."""
    reader, writer = await asyncio.open_connection(*address[:2])
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        writer.write(b"POST / HTTP/1.1\r\nX-Long: ")
        for _ in range(100):
            writer.write(b"x" * 10_000)
            await writer.drain()
        await asyncio.wait_for(reader.read(1_000), 1)
    writer.close()


async def send_trailers(address: Address) -> None:
    """A chunked body, and behind it trailers, or a chunk's extension, without end."""
    head = f"POST {address[2]} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    for endless in (b"0\r\n" + b"a:\r\n" * 250_000, b"1;a=" + b"a" * 1_000_000):
        reader, writer = await asyncio.open_connection(*address[:2])
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            writer.write(head.encode() + b"1\r\nx\r\n" + endless)
            for _ in range(10):
                await writer.drain()
                writer.write(endless)
            await asyncio.wait_for(reader.read(1_000), 1)
        writer.close()


async def send_slowly(address: Address) -> None:
    """A request a few bytes at a time."""
    _, writer = await asyncio.open_connection(*address[:2])
    with contextlib.suppress(OSError):
        for place in range(0, 200, 5):
            writer.write(request(address, b"{}")[place : place + 5])
            await writer.drain()
            await asyncio.sleep(0.05)
    writer.close()


async def connect_only(address: Address) -> None:
    """A connection that is opened and left."""
    _, writer = await asyncio.open_connection(*address[:2])
    await asyncio.sleep(0.5)
    writer.close()


async def ask_now_and_then(address: Address) -> None:
    """What ordinary clients do: a small request, its answer, and a pause."""
    content = small_request(address)
    reader, writer = await asyncio.open_connection(*address[:2])
    with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        for _ in range(5):
            writer.write(content)
            await asyncio.wait_for(read_answer(reader), 10)
            await asyncio.sleep(random.uniform(1, 5))
    writer.close()


async def never_read(address: Address) -> None:
    """Many requests at once, the answers to which are not read."""
    with socket.create_connection(address[:2]) as one:
        one.setblocking(False)
        content = request(address, json.dumps(RANK).encode()) * 200
        with contextlib.suppress(OSError):
            one.send(content)
        await asyncio.sleep(1)


ATTACKS: dict[str, Callable[[Address], Awaitable[None]]] = {
    "ordinary": ask_now_and_then,
    "bodies": send_bodies,
    "heads": send_heads,
    "trailers": send_trailers,
    "slow": send_slowly,
    "connections": connect_only,
    "unread answers": never_read,
    **{kind: ask_model(kind) for kind in ("plans", "calls", "batch", "texts")},
    "runs": ask_long_run,
}
FOR_MODELS = ("plans", "calls", "batch", "texts", "runs")
"""Attacks that only a server has something to answer to."""


def attack(name: str, address: Address, connections: int, seconds: float) -> None:
    """Attack until the time is over; a process of its own runs this."""

    async def repeat(end: float) -> None:
        while time.monotonic() < end:
            try:
                await ATTACKS[name](address)
            except OSError:
                await asyncio.sleep(0.05)

    async def run() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(repeat(end) for _ in range(connections)))

    os.nice(5)  # an attacker has processors of its own
    asyncio.run(run())


def small_request(address: Address) -> bytes:
    """A request that costs little."""
    if address[2] != "/mcp":
        return request((*address[:2], "/v1/rank"), json.dumps(RANK).encode())
    ping = json.dumps({**CALL, "method": "ping"}).encode()
    return request(address, ping, "Mcp-Protocol-Version: 2025-06-18")


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The body of one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    return await reader.readexactly(int(length or 0))


def waited(*processes: int) -> float:
    """Milliseconds that these have waited for a processor; 0 where the system does not say."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{process}/task/{process}/schedstat")
            total += int(path.read_text().split()[1])
    return total / 1e6


def most_memory(process: int) -> float:
    """The most megabytes that a process has had so far; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1e3
    return 0.0


async def ask(address: Address, process: int, seconds: float) -> list[tuple[float, float]]:
    """Milliseconds of each small request on one connection; a lost connection is opened again.

    The second number is less what the server and this process waited for a processor.
    """
    content = small_request(address)
    found: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection(*address[:2], local_addr=("127.0.0.2", 0))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while time.monotonic() < end:
                before, started = waited(process, os.getpid()), time.perf_counter()
                writer.write(content)
                await read_answer(reader)
                took = (time.perf_counter() - started) * 1e3
                found.append((took, max(0, took - waited(process, os.getpid()) + before)))
                await asyncio.sleep(0.01)
        writer.close()
    return found


@contextlib.contextmanager
def running(folder: Path, wanted: Sequence[str]) -> Iterator[dict[str, tuple[Address, int]]]:
    """The server, the gateway, or both: their addresses and processes."""
    demonstrations = list(generate(200))
    fitted = dtdr.fit(demonstrations, list(tools()), ranker="dtdr-f", arguments=True, plans=True)
    fitted.save(folder / "model")
    paths = {"dtdr serve": "/v1/rank", "dtdr mcp": "/mcp"}
    ports = {name: find_free_port() for name in paths}
    upstream = [sys.executable, str(Path(__file__).with_name("gateway.py")), "--serve", "50", "s0",
                "0"]  # fmt: skip
    own = [sys.executable, "-m", "dtdr"]
    commands = {
        "dtdr serve": ["serve", str(folder / "model"), "--port", str(ports["dtdr serve"]),
                       "--quiet"],
        "dtdr mcp": ["mcp", str(folder / "model"), "--http", str(ports["dtdr mcp"]), "--",
                     *upstream],
    }  # fmt: skip
    processes = {
        name: subprocess.Popen([*own, *commands[name]], stderr=subprocess.DEVNULL)
        for name in wanted
    }
    try:
        for name in wanted:
            while socket.socket().connect_ex(("127.0.0.1", ports[name])):
                time.sleep(0.1)
        yield {
            name: (("127.0.0.1", ports[name], paths[name]), process.pid)
            for name, process in processes.items()
        }
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def find_free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Attack in every way, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--connections", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--server", choices=("dtdr serve", "dtdr mcp"), action="append")
    parser.add_argument("--attack", choices=ATTACKS, action="append")
    parser.add_argument("--smoke", action="store_true", help="few and short")
    given = parser.parse_args()
    if given.smoke:
        given.connections, given.seconds = 20, 1.0
    rows = []
    spawn = multiprocessing.get_context("spawn")
    wanted = given.server or ["dtdr serve", "dtdr mcp"]
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), wanted) as addresses:
        for server, (address, process) in addresses.items():
            asyncio.run(ask(address, process, 1))
            for name in ("none", *(given.attack or ATTACKS)):
                if server == "dtdr mcp" and name in FOR_MODELS:
                    continue
                attacker = None
                if name != "none":
                    arguments = (name, address, given.connections, given.seconds + 3)
                    attacker = spawn.Process(target=attack, args=arguments)
                    attacker.start()
                    time.sleep(2)
                found = asyncio.run(ask(address, process, given.seconds))
                took = sorted(item for item, _ in found)
                if attacker is not None:
                    attacker.join()
                rows.append(
                    {"server": server, "attack": name, "asked": len(took),
                     "p50": took[len(took) // 2], "p99": took[int(0.99 * (len(took) - 1))],
                     "worst": took[-1], "stall": max(own for _, own in found),
                     "MB": most_memory(process)}
                )  # fmt: skip
                print(rows[-1], file=sys.stderr, flush=True)
    columns = [
        Column("Server", "server"),
        Column("Attack", "attack"),
        Column("Asked", "asked", count, numeric=True),
        *(Column(name, name, lambda ms: f"{ms:.1f}", numeric=True) for name in ("p50", "p99")),
        *(
            Column(name, name, lambda ms: f"{ms:.0f}", numeric=True)
            for name in ("worst", "stall", "MB")
        ),
    ]
    title = f"Milliseconds of a small request beside {given.connections} connections of another"
    Console(width=100).print(Table(columns, rows, title).to_rich())


if __name__ == "__main__":
    main()
