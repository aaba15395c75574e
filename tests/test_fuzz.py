"""Valid inputs of each parser with something else put in one or more places.

Only an error of dtdr's own, or a status below 500, may come out. ``DTDR_TEST_FUZZ`` says how many
examples there are of each; model folders have tests of their own (``test_model_folder.py``).
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtdr
from dtdr.data.demonstration_files import read_demonstrations, read_tools
from dtdr.errors import DtdrError
from tests import small_data
from tests.crafted import change

pytestmark = pytest.mark.slow
fuzz = settings(max_examples=int(os.environ.get("DTDR_TEST_FUZZ", "100")))


def text_of(value: Any) -> bytes:
    return json.dumps(value).encode()


# -- files -----------------------------------------------------------------------------------------


@fuzz
@given(data=st.data())
def test_demonstrations_and_tools_are_read_or_refused(data):
    dataset = small_data.dataset(3)
    records = [change(item.to_dict(), data.draw) for item in dataset.demonstrations]
    tools = change([tool.to_dict() for tool in dataset.tools], data.draw)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "demonstrations.jsonl"
        path.write_bytes(b"\n".join(map(text_of, records)))
        (Path(folder) / "tools.json").write_bytes(text_of(tools))
        with contextlib.suppress(DtdrError):
            read_tools(Path(folder) / "tools.json")
        with contextlib.suppress(DtdrError):
            dtdr.fit(read_demonstrations(path), ranker="dr").rank("x", ["read_file"])


# -- requests --------------------------------------------------------------------------------------

CALL = {"tool": "read_file", "arguments": {"path": "a"}, "output": {"text": "b"}, "status": "ok",
        "step": 1, "id": "1"}  # fmt: skip
STEP = {
    "query": "Mail Ann",
    "history": ["read_file", CALL],
    "before": [{"role": "user", "text": "x"}],
}
TOOL = {"type": "function", "function": {"name": "read_file", "description": "reads",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}  # fmt: skip
MESSAGES = [
    {"role": "user", "content": "Mail Ann"},
    {"role": "assistant", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "text"},
]  # fmt: skip
BODIES = {
    "/v1/rank": {**STEP, "top_k": 3},
    "/v1/rank/batch": {"steps": [STEP, STEP], "top_k": 2},
    "/v1/calls": {**STEP, "top_k": 2},
    "/v1/plans": {**STEP},
    "/v1/explain": {**STEP, "tool": "read_file"},
    "/v1/mask/openai": {"request": {"messages": MESSAGES, "tools": [TOOL]}, "form": "filter"},
    "/v1/mask/anthropic": {
        "request": {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Mail Ann"}]}],
            "tools": [{"name": "read_file", "description": "", "input_schema": {"type": "object"}}],
        }
    },
    "/v1/feedback": {
        "demonstrations": [{"query": "x", "calls": [CALL], "links": [], "before": []}]
    },
    "/v1/models/mail/tools": {"add": [{"name": "scan", "description": ""}], "remove": ["weather"]},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pytest.importorskip("msgspec", reason="the HTTP server needs the extra 'server'")
    from tests.server import serving

    folder = tmp_path_factory.mktemp("models") / "mail"
    serving.fit(folder, ranker="dtdr-f", arguments=True)
    with serving.serve(serving.settings(folder)) as served:
        yield served


@pytest.mark.parametrize("path", BODIES)
@fuzz
@given(data=st.data())
def test_a_request_is_answered_or_refused(server, path, data):
    content = text_of(change(BODIES[path], data.draw))
    answer = server.http.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, (content, answer.text)


# -- messages --------------------------------------------------------------------------------------

ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {"roots": {}},
         "clientInfo": {"name": "x", "version": "1"}}  # fmt: skip
MESSAGE = {"jsonrpc": "2.0", "id": 1}
METHODS = [
    {**MESSAGE, "method": "initialize", "params": ABOUT},
    {**MESSAGE, "method": "tools/list", "params": {
        "_meta": {"dtdr/intent": "mail", "dtdr/session": "a"}}},
    {**MESSAGE, "method": "tools/call", "params": {
        "name": "tool_1", "arguments": {"id": "1", "more": [1, {"a": None}]},
        "_meta": {"progressToken": 1, "dtdr/intent": "mail"}}},
    {**MESSAGE, "method": "tools/call", "params": {
        "name": "search_tools", "arguments": {"query": "work"}}},
    {**MESSAGE, "method": "resources/read", "params": {"uri": "memo://note"}},
    {**MESSAGE, "method": "prompts/get", "params": {"name": "x", "arguments": {"a": "b"}}},
    {**MESSAGE, "method": "completion/complete", "params": {
        "ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}}},
    {**MESSAGE, "method": "logging/setLevel", "params": {"level": "info"}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "id": 1, "result": {"content": []}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x", "data": {}}},
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """A client that posts messages to a gateway in a process of its own."""
    pytest.importorskip("mcp", reason="the gateway needs the extra dtdr[mcp]")
    import httpx2

    from tests.gateway.helpers import command, wait_for_port
    from tests.ports import free_port

    folder = tmp_path_factory.mktemp("gateway")
    dataset = small_data.dataset(12)
    dtdr.fit(dataset.demonstrations, dataset.tools, ranker="dtdr-f").save(folder / "model")
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "dtdr", "mcp", folder / "model", "--http", str(port),
         "--learn", folder / "learned.jsonl", "--", *command(tools=5)],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for_port(port, 60)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            yield http
    finally:
        process.terminate()
        process.wait(30)
    list(read_demonstrations(folder / "learned.jsonl"))


def post(http: Any, message: Any, **headers: str) -> Any:
    accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    return http.post("/mcp", content=text_of(message), headers={**accepted, **headers})


@fuzz
@given(data=st.data())
def test_a_message_is_answered_or_refused(gateway, data):
    opened = post(gateway, METHODS[0])
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"],
               "Mcp-Protocol-Version": "2025-06-18"}  # fmt: skip
    post(gateway, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
    for _ in range(3):
        message = change(data.draw(st.sampled_from(METHODS)), data.draw)
        assert post(gateway, message, **session).status_code < 500
    call = post(gateway, METHODS[2], **session)
    assert call.status_code == 200
    assert '"isError":true' not in call.text
    gateway.delete("/mcp", headers=session)
