import gzip
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from typing import Any

import anyio
import pytest
import uvicorn
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from dtdr.agents.gateway import UpstreamSpec
from tests.gateway.helpers import (
    command,
    gateway_client,
    http_server,
    journal_of,
    kill,
    piped,
    stdio,
    text,
    until,
)
from tests.ports import free_port

pytestmark = pytest.mark.anyio

AT_ONCE = 8

how_many = pytest.mark.parametrize("calls", [60, pytest.param(1_000, marks=pytest.mark.slow)])


async def test_a_dead_server_takes_only_its_own_tools_away_and_comes_back(model, tmp_path):
    pid = tmp_path / "pid"
    specs = [piped("a", prefix="a_", tools=2), piped("b", prefix="b_", tools=2, pid=str(pid))]
    async with gateway_client(model, specs) as (client, gateway):
        both = tuple(gateway.catalog)
        first = kill(pid)
        await until(lambda: tuple(gateway.catalog) != both)
        alone = tuple(gateway.catalog)
        still = await client.call_tool("a_tool_0", {"id": "1"})
        await until(lambda: tuple(gateway.catalog) != alone)
        again = tuple(gateway.catalog)
        back = await client.call_tool("b_tool_0", {"id": "2"})
        assert int(pid.read_text()) != first

    assert both == again == ("a_tool_0", "a_tool_1", "b_tool_0", "b_tool_1")
    assert alone == ("a_tool_0", "a_tool_1")
    assert not still.is_error
    assert not back.is_error


async def test_an_http_server_that_dies_unasked_takes_its_tools_away(model, monkeypatch):
    monkeypatch.setattr("dtdr.agents.gateway.upstream.PROBE_SECONDS", 0.2)
    port = free_port()
    with http_server(port, tools=2) as server:
        specs = [UpstreamSpec("a", url=f"http://127.0.0.1:{port}/mcp")]
        async with gateway_client(model, specs) as (_, gateway):
            await anyio.sleep(0.5)
            assert len(gateway.catalog) == 2
            server.kill()
            await until(lambda: not gateway.catalog)


async def test_servers_that_are_late_or_cannot_be_started_keep_only_their_own_callers_waiting(
    model, served, monkeypatch
):
    monkeypatch.setattr("dtdr.agents.gateway.gateway.START_SECONDS", 1)
    late = stdio("late", prefix="late_", tools=1, late=3)
    missing = UpstreamSpec("missing", command=("/no/such/program",))
    ends = UpstreamSpec("ends", command=(sys.executable, "-c", "pass"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        refused = UpstreamSpec("refused", url=f"http://127.0.0.1:{taken.getsockname()[1]}/mcp")
        servers = [missing, ends, refused, served["known"], late]
        async with gateway_client(model, servers) as (client, gateway):
            await until(lambda: "find_user" in gateway.catalog)
            result = await client.call_tool("late_tool_0", {"id": "1"})

    assert json.loads(text(result))["id"] == "1"


async def test_a_call_to_a_server_that_stays_away_fails_with_a_clear_error(
    model, tmp_path, monkeypatch
):
    monkeypatch.setattr("dtdr.agents.gateway.upstream.WAIT_SECONDS", 0.1)
    started = tmp_path / "started"
    once = f"[ -e {started} ] && exit 1; touch {started}; exec {json.dumps(sys.executable)} "
    script = once + " ".join(
        f"'{part}'" for part in command(tools=1, pid=str(tmp_path / "pid"))[1:]
    )
    specs = [UpstreamSpec("a", command=("sh", "-c", script), env=os.environ)]
    async with gateway_client(model, specs) as (client, gateway):
        kill(tmp_path / "pid")
        await until(lambda: not gateway.upstreams["a"].is_up)
        result = await client.call_tool("tool_0", {})

    assert result.is_error
    assert text(result) == "the MCP server 'a' is not available; the call was not made"
    assert result.meta["dtdr/unavailable"] == "a"


@how_many
@pytest.mark.parametrize("mode", ["legacy", pytest.param("auto", marks=pytest.mark.slow)])
async def test_of_many_calls_over_a_kill_none_is_lost_and_none_is_made_twice(
    model, mode, calls, tmp_path, monkeypatch
):
    monkeypatch.setattr("dtdr.agents.gateway.upstream.WAIT_SECONDS", 60)
    journals = {name: tmp_path / name for name in "abc"}
    specs = [
        piped(
            name,
            prefix=f"{name}_",
            tools=2,
            journal=str(path),
            pid=f"{path}.pid",
            delay=0.005,
        )
        for name, path in journals.items()
    ]
    async with gateway_client(model, specs, mode=mode) as (client, _):
        answers = await make_calls(client, calls, "abc", lambda: kill(tmp_path / "b.pid"))

    check(answers, calls, journals)
    outcomes = Counter(outcome for outcome, _ in answers.values())
    assert outcomes["answered"] >= calls - 2 * AT_ONCE


@how_many
async def test_of_many_calls_over_a_restart_of_an_http_server_none_is_lost(
    model, calls, tmp_path, monkeypatch
):
    monkeypatch.setattr("dtdr.agents.gateway.upstream.WAIT_SECONDS", 60)
    journals = {name: tmp_path / name for name in "ab"}
    port = free_port()
    options = {"prefix": "b_", "tools": 2, "journal": str(journals["b"]), "delay": 0.005}
    specs = [
        piped("a", prefix="a_", tools=2, journal=str(journals["a"]), delay=0.005),
        UpstreamSpec("b", url=f"http://127.0.0.1:{port}/mcp"),
    ]
    with http_server(port, **options) as process, ExitStack() as stack:

        def restart():
            process.kill()
            process.wait()
            other = stack.enter_context(subprocess.Popen(command(http=port, **options)))
            stack.callback(other.kill)

        async with gateway_client(model, specs) as (client, _):
            answers = await make_calls(client, calls, "ab", restart)

    check(answers, calls, journals)
    outcomes = Counter(outcome for outcome, _ in answers.values())
    assert outcomes["answered"] >= calls - 4 * AT_ONCE


async def make_calls(client, calls, servers, break_something):
    """So many calls, eight at once, over the servers in turns; what became of each."""
    numbers = iter(range(calls))
    answers = {}

    async def worker():
        for number in numbers:
            if number == calls * 2 // 5:
                break_something()
            server = servers[number % len(servers)]
            result = await client.call_tool(f"{server}_tool_{number % 2}", {"id": str(number)})
            if not result.is_error:
                answers[number] = ("answered", json.loads(text(result))["id"])
            elif result.meta and "dtdr/unavailable" in result.meta:
                made = "not made" if "was not made" in text(result) else "not known"
                answers[number] = (made, text(result))

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(worker)
    return answers


def check(answers, calls, journals):
    """Every call has an outcome, and the servers' journals bear it out."""
    made = Counter(entry for path in journals.values() for entry in journal_of(path))
    assert sorted(answers) == list(range(calls))
    assert max(made.values()) == 1
    for number, (outcome, detail) in answers.items():
        if outcome == "answered":
            assert detail == str(number)
            assert made[detail] == 1
        if outcome == "not made":
            assert made[str(number)] == 0


async def answer_much(request):
    """Answer a client's message with much JSON, or with little that unfolds to much."""
    message = await request.json()
    if "id" not in message:
        return Response(status_code=202)
    name = message.get("params", {}).get("name")
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "serverInfo": {"name": "a", "version": "1"},
            "capabilities": {"tools": {}},
        },
        "tools/list": {
            "tools": [
                {"name": name, "inputSchema": {"type": "object"}}
                for name in ("small", "large", "packed")
            ]
        },
        "tools/call": {
            "content": [{"type": "text", "text": "x" * (10 if name == "small" else 1_000_000)}]
        },
    }
    result = results.get(message["method"], {})
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    if name != "packed":
        return Response(body, media_type="application/json")
    return Response(gzip.compress(body), 200, {"Content-Encoding": "gzip"}, "application/json")


async def test_an_answer_without_bounds_is_an_error_and_the_server_goes_on(model, monkeypatch):
    monkeypatch.setattr("dtdr.agents.gateway.streams.LARGEST_ANSWER", 500_000)
    port = free_port()
    app = Starlette(routes=[Route("/mcp", answer_much, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        await until(lambda: server.started)
        specs = [UpstreamSpec("a", url=f"http://127.0.0.1:{port}/mcp")]
        async with gateway_client(model, specs) as (client, _):
            for name, reason in (("large", "more than 500000 bytes"), ("packed", "compressed")):
                with anyio.fail_after(60), pytest.raises(MCPError, match=reason):
                    await client.call_tool(name, {})
                assert text(await client.call_tool("small", {})) == "x" * 10
        server.should_exit = True
