import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import dtdr
from dtdr.cli import app
from dtdr.errors import InputError
from tests.command_line import PROGRAM, invoke, is_one_sentence, start
from tests.command_line import dtdr as run
from tests.gateway.helpers import (
    NAMES,
    command,
    free_port,
    journal_of,
    names,
    text,
    until,
    wait_for_port,
)

pytestmark = pytest.mark.anyio

INTENT: Any = {"dtdr/intent": "Shorten it"}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    model.save(path)
    return path


def gateway(folder, *arguments):
    """The command line of a gateway, as a client starts it."""
    program, *rest = PROGRAM
    words = [*rest, "mcp", str(folder), *map(str, arguments)]
    return StdioServerParameters(command=program, args=words)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_starts_the_gateway_and_calls_through_it(folder, tmp_path, mode):
    pid = tmp_path / "pid"
    server = command(tools=30, names=NAMES, pid=str(pid))
    async with Client(gateway(folder, "--top", 2, "--", *server), mode=mode) as client:
        shown = await names(client)
        result = await client.call_tool("tool_5", {"id": "7"})
        after = await names(client)
    assert len(shown) == 2
    assert json.loads(text(result)) == {"tool": "tool_5", "id": "7"}
    assert "tool_5" in after
    await until(lambda: not is_running(int(pid.read_text())))


def is_running(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


async def test_servers_are_named_in_every_way_at_once(folder, tmp_path):
    config = tmp_path / "servers.json"
    program, *arguments = command(prefix="c_", tools=1)
    config.write_text(json.dumps({"mcpServers": {"c": {"command": program, "args": arguments}}}))
    words = ["--config", config, "--", *command(prefix="a_", tools=1)]
    async with Client(gateway(folder, *words, "--", *command(prefix="d_", tools=1))) as client:
        assert await names(client) == ["c_tool_0", "a_tool_0", "d_tool_0"]


async def test_what_is_learned_is_in_the_file_when_the_client_is_gone(folder, served, tmp_path):
    path = tmp_path / "learned" / "demonstrations.jsonl"
    words = ["--learn", path, "--", served["known"].url]
    async with Client(gateway(folder, *words)) as client:
        await client.call_tool("open_file", {"id": "7"}, meta=INTENT)
    await until(lambda: path.exists() and path.read_text())

    (found,) = dtdr.read_demonstrations(path)
    assert (found.query, found.plan.tools) == ("Shorten it", ("open_file",))


async def test_several_clients_are_served_over_http_each_with_its_own_list(folder, served):
    port = free_port()
    process = start(["mcp", folder, "--http", str(port), "--top", "1", "--", served["full"].url])
    try:
        wait_for_port(port)
        url = f"http://127.0.0.1:{port}/mcp"
        for mode in ("legacy", "auto"):
            async with Client(url, mode=mode) as one, Client(url, mode=mode) as other:
                meta: list[Any] = [
                    {"dtdr/session": name} if mode == "auto" else {} for name in ("one", "other")
                ]
                await one.call_tool("tool_3", {"id": "1"}, meta=meta[0])
                first = [tool.name for tool in (await one.list_tools(meta=meta[0])).tools]
                second = [tool.name for tool in (await other.list_tools(meta=meta[1])).tools]
            assert "tool_3" in first, mode
            assert "tool_3" not in second, mode
        process.send_signal(signal.SIGINT)
        await anyio.to_thread.run_sync(process.wait, 20)
    finally:
        process.kill()
        _, error = process.communicate()

    assert process.returncode == 130
    assert "Traceback" not in error.decode()


async def test_over_http_the_key_is_asked_for(folder, served):
    port = free_port()
    environment = {**os.environ, "DTDR_MCP_KEY": "open sesame"}
    process = subprocess.Popen(
        [*PROGRAM, "mcp", str(folder), "--http", str(port), "--", served["two_tools"].url],
        env=environment,
    )
    try:
        wait_for_port(port)
        url = f"http://127.0.0.1:{port}/mcp"
        async with httpx2.AsyncClient() as http:
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                assert (await http.post(url, json={}, headers=headers)).status_code == 401
        headers = {"Authorization": "Bearer open sesame"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport) as client:
                assert await names(client) == ["tool_0", "tool_1"]
    finally:
        process.kill()
        process.wait()


def test_lines_that_are_no_messages_do_not_end_the_gateway(folder, served):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    lines = "\n".join(['{"jsonrpc": "2.0"', "\x00", "[]", json.dumps(hello), ""])
    code, out, _ = run("mcp", folder, "--", served["two_tools"].url, stdin=lines)

    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [answer["id"] for answer in answers if "result" in answer] == [1]


async def test_a_message_of_a_megabyte_passes_through(folder, tmp_path):
    journal = tmp_path / "journal"
    long = "ü" * 1_000_000
    async with Client(gateway(folder, "--", *command(tools=1, journal=str(journal)))) as client:
        result = await client.call_tool("tool_0", {"id": "1", "text": long})

    assert json.loads(text(result))["text"] == long
    assert journal_of(journal) == ["1"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name at least one upstream"),
        (["--http", "none", "--", "x"], "--http"),
        (["--http", "0.0.0.0:8000", "--", "x"], "DTDR_MCP_KEY"),
        (["--sticky", "very", "--", "x"], "sticky"),
        (["--coverage", "0.9", "--", "x"], "no calibrated coverage"),
        (["--config", "/no/such/file.json"], "cannot read"),
    ],
)
def test_misuse_says_what_is_wrong(folder, arguments, says):
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        invoke(app, "mcp", folder, *arguments)

    assert caught.value.exit_code == 2


def test_a_missing_model_is_one_sentence(tmp_path):
    code, out, error = run("mcp", tmp_path / "none", "--", "x")

    assert (code, out) == (1, "")
    assert is_one_sentence(error)
    assert "dtdr fit" in error


def test_without_the_sdk_the_extra_is_named(folder):
    hide = "import sys; sys.modules['mcp'] = None; import dtdr.cli; sys.argv[0] = 'dtdr'; "
    done = subprocess.run(
        [sys.executable, "-c", hide + "dtdr.cli.main()", "mcp", str(folder), "--", "x"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert is_one_sentence(done.stderr)
    assert "pip install 'dtdr[mcp]'" in done.stderr


@pytest.mark.parametrize("over", ["pipes", "http"])
async def test_what_was_learned_is_kept_when_the_gateway_is_terminated(
    folder, served, tmp_path, over
):
    path = tmp_path / "demonstrations.jsonl"
    port = free_port()
    words = ["--http", str(port)] if over == "http" else []
    process: Any = start(
        ["mcp", folder, *words, "--learn", path, "--", served["known"].url],
        stdin=subprocess.PIPE,
    )
    try:
        if over == "http":
            wait_for_port(port)
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                await client.call_tool("open_file", {"id": "1"})
        else:
            call = {"name": "open_file", "arguments": {"id": "1"}}
            messages = [
                ("initialize", 1, HELLO),
                ("notifications/initialized", None, {}),
                ("tools/call", 2, call),
            ]
            for method, identifier, params in messages:
                record: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
                if identifier is not None:
                    record["id"] = identifier
                process.stdin.write(json.dumps(record).encode() + b"\n")
            process.stdin.flush()
            for _ in range(2):
                await anyio.to_thread.run_sync(process.stdout.readline)
        assert path.read_text() == ""
        process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(process.wait, 20)
    finally:
        process.kill()
        _, error = process.communicate()

    assert (process.returncode, error) == (0, b"")
    (found,) = dtdr.read_demonstrations(path)
    assert found.plan.tools == ("open_file",)
