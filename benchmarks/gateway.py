"""What the MCP gateway adds to a tool call: the same call made directly and through it, in turns.

    python benchmarks/gateway.py [--smoke] [--servers 20] [--tools 100] [--calls 1000] [--json]
    python benchmarks/gateway.py --start 9

Real servers (a process each), a gateway in a process of its own, the SDK's client; over pipes and
over HTTP, in the protocols of 2025-11-25 and 2026-07-28. The model (dtdr-l) is fitted on chains of
the tools and ranks after every call. ``--start`` measures how long a client waits for the first
list of tools: of one server, and of a gateway before it that has no model.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from rich.console import Console

import dtdr
from dtdr.evaluate.tables import Column, Table, count
from stalls import find_free_port

WARM_UP = 20


def build_server(tools: int, prefix: str) -> Server[Any]:
    """A server of tools that answer at once."""
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    definitions = [
        types.Tool(
            name=f"{prefix}_tool_{number}",
            description=f"Does the work number {number} of the server {prefix}.",
            input_schema=schema,
        )
        for number in range(tools)
    ]

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=definitions)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = json.dumps(params.arguments)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server(prefix, on_list_tools=list_tools, on_call_tool=call_tool)


async def serve(tools: int, prefix: str, port: int) -> None:
    """Serve over HTTP at a port, or over standard input and output at port 0."""
    server = build_server(tools, prefix)
    if port:
        app = server.streamable_http_app(host="127.0.0.1")
        await uvicorn.Server(uvicorn.Config(app, port=port, log_level="error")).serve()
        return
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def fit_model(folder: Path, servers: int, tools: int) -> None:
    """A model that knows half of the tools, from chains of three over the servers."""
    draw = random.Random(0)
    demonstrations = []
    for number in range(500):
        names = [
            f"s{draw.randrange(servers)}_tool_{draw.randrange(max(1, tools // 2))}" for _ in "abc"
        ]
        plan = dtdr.Plan(
            tuple(dtdr.ToolCall(str(place), name) for place, name in enumerate(names)),
            (("0", "1"), ("1", "2")),
        )
        demonstrations.append(dtdr.Demonstration(str(number), f"task {number}", plan))
    dtdr.fit(demonstrations, ranker="dtdr-l", epochs=3).save(folder)


@contextlib.contextmanager
def http_process(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens on a port."""
    process = subprocess.Popen(command)
    try:
        for _ in range(1_200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.asynccontextmanager
async def endpoints(
    kind: str, model: Path, servers: int, tools: int, mode: str
) -> AsyncIterator[tuple[Client, Client]]:
    """A client of one server, and a client of the gateway before all of them."""
    own = [sys.executable, __file__, "--serve"]
    gateway = [sys.executable, "-m", "dtdr", "mcp", str(model)]
    async with contextlib.AsyncExitStack() as stack:
        direct: Any
        through: Any
        if kind == "pipes":
            for number in range(servers):
                gateway += ["--", *own, str(tools), f"s{number}", "0"]
            command = [*own, str(tools), "s0", "0"]
            direct = StdioServerParameters(command=command[0], args=command[1:])
            through = StdioServerParameters(
                command=gateway[0], args=gateway[1:], env=dict(os.environ)
            )
        else:
            ports = [find_free_port() for _ in range(servers)]
            for number, port in enumerate(ports):
                command = [*own, str(tools), f"s{number}", str(port)]
                stack.enter_context(http_process(command, port))
            urls = [f"http://127.0.0.1:{port}/mcp" for port in ports]
            port = find_free_port()
            gateway += ["--http", str(port)]
            for url in urls:
                gateway += ["--", url]
            stack.enter_context(http_process(gateway, port))
            direct, through = urls[0], f"http://127.0.0.1:{port}/mcp"
        # Its own session, so that the gateway's and the client's connection differ in nothing else.
        one = await stack.enter_async_context(Client(direct, mode=mode))
        other = await stack.enter_async_context(Client(through, mode=mode))
        yield one, other


async def measure(
    kind: str, mode: str, model: Path, servers: int, tools: int, calls: int, pause: float
) -> dict[str, Any]:
    """One line of the table."""
    async with endpoints(kind, model, servers, tools, mode) as (direct, through):
        # ToolResult when every server has started.
        await through.call_tool(f"s{servers - 1}_tool_0", {"id": "first"})
        started = time.perf_counter()
        shown = len((await through.list_tools()).tools)
        list_ms = (time.perf_counter() - started) * 1e3
        await direct.list_tools()
        seconds: dict[str, list[float]] = {"direct": [], "through": []}
        for number in range(calls + WARM_UP):
            for name, client in (("direct", direct), ("through", through)):
                arguments = {"id": str(number)}
                started = time.perf_counter()
                result = await client.call_tool(f"s0_tool_{number % 5}", arguments)
                seconds[name].append(time.perf_counter() - started)
                if result.is_error:
                    raise RuntimeError(f"call {number} failed: {result.content}")
                await anyio.sleep(pause)
    kept = {name: sorted(values[WARM_UP:]) for name, values in seconds.items()}
    median = {name: statistics.median(values) * 1e3 for name, values in kept.items()}
    return {
        "transport": kind,
        "protocol": "2026" if mode == "auto" else "2025",
        "servers": servers,
        "tools": servers * tools,
        "shown": shown,
        "list_ms": list_ms,
        "direct_ms": median["direct"],
        "through_ms": median["through"],
        "added_ms": median["through"] - median["direct"],
        "ratio": median["through"] / median["direct"],
        "direct_p99_ms": kept["direct"][int(0.99 * (len(kept["direct"]) - 1))] * 1e3,
        "through_p99_ms": kept["through"][int(0.99 * (len(kept["through"]) - 1))] * 1e3,
    }


_OPENING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "start", "version": "1"},
}
_OPENED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def wait_for_list(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Seconds from a command to its first list of tools, and the processor seconds of that time."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "XDG_DATA_HOME": str(folder)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, (method, parameters) in enumerate(
            (("initialize", _OPENING), ("tools/list", {}))
        ):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            while json.loads(process.stdout.readline()).get("id") != number:
                pass
            process.stdin.write("" if number else json.dumps(_OPENED) + "\n")
        seconds = time.perf_counter() - started
        process.stdin.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used


def measure_start(times: int, tools: int) -> None:
    """Print a line each for a server alone and for a gateway before it."""
    server = [sys.executable, __file__, "--serve", str(tools), "s0", "0"]
    gateway = [sys.executable, "-m", "dtdr", "mcp", "--name", "start", "--", *server]
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            (wait_for_list(server, Path(folder)), wait_for_list(gateway, Path(folder)))
            for _ in range(times)
        ]
    for name, measured in zip(
        ("server", "gateway and server"), zip(*rows, strict=True), strict=True
    ):
        seconds, used = (statistics.median(values) for values in zip(*measured, strict=True))
        print(f"{name:18} {seconds:.2f} s, {used:.2f} s of processors (medians of {times})")


def main() -> None:
    """Measure every transport and protocol."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--tools", type=int, default=100, help="of each server")
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between calls")
    parser.add_argument("--transport", nargs="+", default=["pipes", "http"])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--start", type=int, metavar="TIMES", help="wait for the first list")
    parser.add_argument("--serve", nargs=3, metavar=("TOOLS", "PREFIX", "PORT"))
    given = parser.parse_args()
    if given.serve:
        tools, prefix, port = given.serve
        anyio.run(serve, int(tools), prefix, int(port))
        return
    if given.start:
        measure_start(given.start, given.tools)
        return
    if given.smoke:
        given.servers, given.tools, given.calls = 2, 20, 50
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        fit_model(model, given.servers, given.tools)
        for kind in given.transport:
            for mode in ("legacy", "auto"):
                rows.append(
                    anyio.run(
                        measure, kind, mode, model, given.servers, given.tools, given.calls,
                        given.pause,
                    )
                )  # fmt: skip
                if given.json:
                    print(json.dumps(rows[-1]), flush=True)
    if given.json:
        return
    columns = [
        Column("Transport", "transport"),
        Column("Protocol", "protocol"),
        Column("Tools", "tools", count, numeric=True),
        Column("Shown", "shown", count, numeric=True),
        Column("Direct ms", "direct_ms", _ms, numeric=True),
        Column("Through ms", "through_ms", _ms, numeric=True),
        Column("Added ms", "added_ms", _ms, numeric=True),
        Column("Ratio", "ratio", _ms, numeric=True),
        Column("p99 direct", "direct_p99_ms", _ms, numeric=True),
        Column("p99 through", "through_p99_ms", _ms, numeric=True),
    ]
    title = f"A tool call, directly and through the gateway to {given.servers} servers"
    caption = f"Medians of {given.calls:,} calls in turns, {given.pause * 1e3:g} ms between them."
    Console(width=100).print(Table(columns, rows, title, caption).to_rich())


def _ms(value: float) -> str:
    return f"{value:.2f}"


if __name__ == "__main__":
    main()
