"""Real servers, a gateway and the SDK's real client, for the tests."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.memory import create_client_server_memory_streams

from dtdr.agents.gateway import Gateway, GatewayServer, UpstreamSpec
from dtdr.agents.policy import ToolPolicy
from tests.gateway.server import serve

SERVER = Path(__file__).with_name("server.py")
HERE = "in this process"
KNOWN = ("find_user", "write_mail", "send_mail", "open_file", "summarize_file")
NAMES = {
    "find_user": "Finds a person by name.",
    "write_mail": "Writes a letter.",
    "send_mail": "Sends what was written.",
    "open_file": "Opens a document.",
    "summarize_file": "Makes a text short.",
    "find_place": "Finds a city.",
    "get_weather": "Says whether it rains.",
}


def command(**options: Any) -> list[str]:
    """The command line of a test server."""
    return [sys.executable, str(SERVER), json.dumps(options)]


def piped(name: str, **options: Any) -> UpstreamSpec:
    """A test server in a process of its own, over pipes."""
    return UpstreamSpec(name, tuple(command(**options)), env=os.environ)


def stdio(name: str, *, prefetch: tuple[str, ...] = (), **options: Any) -> UpstreamSpec:
    """A test server in this process, which ``open_stdio`` starts: importing the SDK takes 1 s."""
    return UpstreamSpec(name, (HERE, json.dumps(options)), prefetch=prefetch)


@asynccontextmanager
async def open_stdio(parameters: StdioServerParameters, errors: Any) -> AsyncIterator[Any]:
    """Stands in for the SDK's ``stdio_client``: starts servers of ``stdio`` in this process."""
    if parameters.command != HERE:
        async with stdio_client(parameters, errors) as streams:
            yield streams
        return
    async with (
        create_client_server_memory_streams() as (of_client, of_server),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(serve, json.loads(parameters.args[0]), of_server)
        yield of_client
        tasks.cancel_scope.cancel()


def few(top_k: int = 2, **policy: Any) -> ToolPolicy:
    """A policy that shows few tools."""
    return ToolPolicy(top_k=top_k, fallback=False, **policy)


@asynccontextmanager
async def in_memory(gateway: Gateway) -> AsyncIterator[Any]:
    """A client's transport to a gateway in this process."""
    server = GatewayServer(gateway)
    async with (
        create_client_server_memory_streams() as (of_client, of_server),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.run, *of_server, server.create_initialization_options())
        yield of_client
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def client_of(gateway: Gateway, *, mode: str = "legacy", **client: Any) -> AsyncIterator[Any]:
    """A client of a gateway that is running in this process."""
    async with Client(in_memory(gateway), mode=mode, cache=None, **client) as connected:
        yield connected


@asynccontextmanager
async def gateway_client(
    model: Any,
    specs: list[UpstreamSpec],
    *,
    mode: str = "legacy",
    policy: ToolPolicy | None = None,
    options: dict[str, Any] | None = None,
    **client: Any,
) -> AsyncIterator[tuple[Any, Any]]:
    """A gateway in this process before servers in theirs, and a client of it."""
    gateway = Gateway(model, specs, policy or few(), **(options or {}))
    async with gateway.run(), client_of(gateway, mode=mode, **client) as connected:
        yield connected, gateway


async def names(client: Any) -> list[str]:
    """The tools that the client is shown, the search tool left out."""
    listed = (await client.list_tools()).tools
    return [tool.name for tool in listed if tool.name != "search_tools"]


def text(result: Any) -> str:
    """The text of a call's result."""
    return result.content[0].text


async def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait until something is so; fails after a generous time."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.02)


@contextmanager
def http_server(port: int, **options: Any):
    """A test server over HTTP, killed at the end of the block."""
    process = subprocess.Popen(command(http=port, **options))
    try:
        wait_for_port(port)
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_port(port: int, seconds: float = 60) -> None:
    """Wait until somebody listens on a port."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port} after {seconds} s")


def journal_of(path: Path) -> list[str]:
    """What a server wrote to its journal."""
    return path.read_text().split() if path.exists() else []


def kill(pid_file: Path) -> int:
    """Kill the server that wrote its number to a file; gives back the number."""
    number = int(pid_file.read_text())
    os.kill(number, 9)
    return number
