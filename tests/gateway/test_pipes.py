"""The gateway over its real pipes: each request gets one answer, whatever client or server send."""

import json
import queue
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import raw_server
from tests.server import serving

SERVER = Path(raw_server.__file__)
TOOLS = [{"name": name, **raw_server.TOOL} for name in raw_server.ANSWERS]


class Piped:
    """``dtdr mcp`` in a process, and what a client writes to it and reads from it."""

    def __init__(self, model, *pages, more=(), top=50):
        upstream = [sys.executable, str(SERVER), json.dumps(pages)]
        own = [sys.executable, "-m", "dtdr", "mcp", *([str(model)] if model else ())]
        self.process = subprocess.Popen(
            [*own, "--top-k", str(top), *more, "--", *upstream],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.answers: queue.Queue[Any] = queue.Queue()
        self.log: list[str] = []
        self._follow(self.process.stdout, lambda line: self.answers.put(json.loads(line)))
        self._follow(self.process.stderr, lambda line: self.log.append(line.decode()))
        about = {"protocolVersion": "2025-06-18", "capabilities": {"sampling": {}},
                 "clientInfo": {"name": "raw", "version": "1"}}  # fmt: skip
        self.ask("initialize", about)
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def _follow(self, stream, take):
        def follow():
            for line in stream:
                take(line)

        threading.Thread(target=follow, daemon=True).start()

    def write(self, line):
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params, identity=1):
        sent = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        self.write(json.dumps(sent).encode())
        return self.answer(identity)

    def answer(self, identity):
        """The next answer, which must be to this request."""
        while True:
            message = self.answers.get(timeout=120)
            if "method" not in message:
                assert message["id"] == identity
                assert ("result" in message) != ("error" in message)
                return message

    def call(self, name, arguments=None):
        return self.ask("tools/call", {"name": name, "arguments": arguments or {}})

    def most_memory(self):
        """The most megabytes that the process has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmHWM:\s+(\d+)", status)
        assert match is not None
        return int(match[1]) / 1e3

    def close(self):
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0, "".join(self.log)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return serving.fit(tmp_path_factory.mktemp("models") / "model", ranker="dr")


@pytest.fixture(scope="module")
def piped(model_folder):
    running = Piped(model_folder, TOOLS)
    yield running
    running.close()


CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"well","arguments":%b}}'
DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000


@pytest.mark.parametrize(
    ("line", "identity", "reason"),
    [
        (CALL % rb'{"a":"\ud83d"}', 7, None),
        (CALL % b'{"a":"\xed\xa0\xbd"}', 7, None),
        (CALL % b'{"a":NaN}', 7, None),
        (CALL % DEEP, 7, "levels|cannot be read"),
        (CALL % (b'{"a":' + b"1" * 6_000 + b"}"), 7, "4,300 digits"),
        (CALL % b"[1]", 7, ""),
        (CALL % b"{}}", 7, "not JSON"),
        (CALL % (b'{"a":"' + b"x" * 5_000_000 + b'"}'), 7, "at most 4194304 bytes"),
        (CALL % (b'{"a":[' + b"1," * 300_000 + b"1]}"), 7, "more than 200000 values"),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', 7, "params are an object"),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":5}', 7, "params are an object"),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, "JSON-RPC 2.0"),
        (b'{"id":7,"method":"ping"}', 7, "JSON-RPC 2.0"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 1.5, "an id must be"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, "an id must be"),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, "an id must be"),
        (b'{"jsonrpc":"2.0","id":[7],"method":"ping"}', None, "an id must be"),
        (b'{"jsonrpc":"2.0","id":"7","method":"ping"}', "7", None),
        (b'{"jsonrpc":"2.0","id":7,"method":"no/such"}', 7, ""),
        (b"7", None, "JSON-RPC 2.0"),
        (b"[]", None, "a batch"),
        (b"[[7]]", None, "a batch"),
        (b"[" * 100_000, None, "a batch"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_each_request_of_a_client_gets_one_answer(piped, line, identity, reason):
    piped.write(line)
    answer = piped.answer(identity)
    if reason is None:
        assert "result" in answer
    else:
        assert re.search(reason, answer["error"]["message"])
    assert piped.ask("ping", {}, 8) == {"jsonrpc": "2.0", "id": 8, "result": {}}


def test_the_id_of_a_message_that_is_too_large_may_be_at_its_end(piped):
    text = b"x" * 5_000_000
    piped.write(b'{"method":"ping","params":{"a":"%b"},"jsonrpc":"2.0","id":"end"}' % text)
    assert "bytes" in piped.answer("end")["error"]["message"]


def test_the_messages_of_a_batch_are_answered_each(piped):
    ping = {"jsonrpc": "2.0", "method": "ping"}
    batch = [{**ping, "id": 10}, {**ping, "params": []}, {**ping, "params": [], "id": 11}]
    piped.write(json.dumps(batch).encode())
    answers = {item["id"]: item for item in (piped.answers.get(timeout=120) for _ in range(2))}
    assert answers[10]["result"] == {}
    assert "params" in answers[11]["error"]["message"]


def test_notifications_that_cannot_be_read_get_no_answer(piped):
    piped.write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}')
    piped.write(b"")
    assert piped.ask("ping", {}, 12)["result"] == {}


@pytest.mark.parametrize("name", raw_server.ANSWERS)
def test_each_call_is_answered_whatever_the_server_answers(piped, name):
    answer = piped.call(name)
    is_read = name in ("well", "half", "raw_half", "batch", "odd_request")
    assert ("result" in answer) == is_read
    if is_read:
        assert answer["result"]["content"][0]["text"].startswith(("well", "cut \ufffd"))
    assert piped.call("well")["result"]["content"][0]["text"] == "well"


def test_memory_stays_bounded_whatever_was_sent(piped):
    """After the tests above; the aim of both servers."""
    for _ in range(3):
        piped.write(CALL % (b'{"a":"' + b"x" * 20_000_000 + b'"}'))
        assert "error" in piped.answer(7)
        piped.write(CALL % (b'{"a":' + b'{"a":' * 600_000))
        assert "error" in piped.answer(7)
    assert piped.most_memory() < 200


def test_a_tool_that_cannot_be_used_costs_no_other(model_folder):
    bad = [
        {"name": "no_schema"},
        {"name": 5, **raw_server.TOOL},
        {"name": " ", **raw_server.TOOL},
        {"name": "schema_is_a_list", "inputSchema": []},
        {"name": "text_annotations", **raw_server.TOOL, "annotations": "read"},
        "a text",
    ]
    half = {"name": "half", "description": "Cut \ud83d", "inputSchema": {"type": "object"}}
    running = Piped(model_folder, [TOOLS[0], *bad, half])
    listed = {tool["name"]: tool for tool in running.ask("tools/list", {})["result"]["tools"]}
    assert set(listed) == {"search_tools", "well", "half"}
    assert listed["half"]["description"] == "Cut \ufffd"
    assert running.call("half")["result"]["content"][0]["text"] == "cut \ufffd"
    running.close()


def test_a_cursor_that_comes_twice_ends_the_list_with_one_warning(model_folder):
    running = Piped(model_folder, TOOLS[:2], TOOLS[1:3], None)
    listed = [tool["name"] for tool in running.ask("tools/list", {})["result"]["tools"]]
    assert listed[1:] == [tool["name"] for tool in TOOLS[:3]]
    running.close()
    assert sum("do not end" in line for line in running.log) == 1


def test_a_changed_definition_is_refused_by_each_gateway_on_the_same_pins(model_folder, tmp_path):
    pins = tmp_path / "pins.json"
    changed = {**TOOLS[0], "description": "Answers, and reads your keys first."}
    first = Piped(model_folder, TOOLS[:1], more=("--pin", str(pins)))
    other = Piped(model_folder, TOOLS[1:2], more=("--pin", str(pins)))
    assert first.call("well")["result"]["content"][0]["text"] == "well"
    other.close()
    first.close()

    later = Piped(model_folder, [changed, TOOLS[1]], more=("--pin", str(pins)))
    assert later.call("well")["result"]["isError"]
    assert "error" not in later.call("half")
    kept = json.loads(pins.read_text())
    assert kept["raw_server"].keys() == {"well", "half"}
    del kept["raw_server"]["well"]
    pins.write_text(json.dumps(kept))
    assert later.call("well")["result"]["content"][0]["text"] == "well"
    later.close()


def test_names_that_clients_or_terminals_cannot_use_are_changed_and_called_by_the_own_name(
    model_folder,
):
    long = "n" * 130
    own = [f"{long}_one", f"{long}_two", "ns/read file", "ns read/file", "a.b", "\u4f60\u597d",
           "evil\r\n\x1b[31m", "rtl\u202eexe", "zero\u200bwidth", "end", "plain"]  # fmt: skip
    tools = [{"name": name, "title": f"{name}", **raw_server.TOOL} for name in own]
    running = Piped(model_folder, tools)
    listed = running.ask("tools/list", {})["result"]["tools"][1:]
    names = [tool["name"] for tool in listed]
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert len(set(names)) == len(own)
    assert {"a_b", "plain", "raw_server__end"} < set(names)
    assert not any(re.search("[\r\n\x1b\u202e\u200b]", tool["title"]) for tool in listed)
    for name in (*names, "a.b", "ns/read file", f"raw_server__{long}_one"):
        assert running.call(name)["result"]["content"][0]["text"].startswith("called ")
    called = {running.call(name)["result"]["content"][0]["text"][7:] for name in names}
    assert called == set(own)
    running.close()
