"""The tools that a run could call: read from logs, kept in files."""

import json
from dataclasses import replace

import pytest

from dtdr import Tool, fit, load
from dtdr.data.calls import ToolCall
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.logs import open_demonstrations
from tests.helpers import RANKER_ONLY


def chat(query, tools):
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": query},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "text"},
    ]
    return {"messages": messages, "tools": [{"function": {"name": name}} for name in tools]}


def rpc(identifier, **message):
    return {"jsonrpc": "2.0", "id": identifier, **message}


LISTED_NAMES = ["read", "write"]
LISTED = [{"name": "read"}, {"name": "write"}]
LOGS = {
    "openai-chat": [chat("Read a", ["read", "write"])],
    "mcp": [
        rpc(1, result={"tools": LISTED}),
        rpc(2, method="tools/call", params={"name": "read", "arguments": {}}),
        rpc(2, result={"content": [{"type": "text", "text": "text"}]}),
    ],
    "openai-responses": [
        {
            "input": [
                {"role": "user", "content": "Read a"},
                {"type": "function_call", "call_id": "1", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "text"},
            ],
            "tools": LISTED,
        },
    ],
    "langsmith": [
        {
            "id": "1", "trace_id": "t", "run_type": "llm", "name": "model",
            "start_time": "2026-01-01T00:00:00", "end_time": "2026-01-01T00:00:01",
            "inputs": {"messages": chat("Read a", [])["messages"][:1], "tools": LISTED},
            "outputs": {"choices": [{"message": chat("Read a", [])["messages"][1]}]},
        },
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_a_log_says_which_tools_could_be_called(tmp_path, name):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in LOGS[name]))
    found = open_demonstrations([path], name)
    (item,) = found
    assert sorted(item.offered or ()) == LISTED_NAMES


def test_a_tool_that_was_called_was_offered_and_sets_are_kept_once(tmp_path):
    path = tmp_path / "log.jsonl"
    records = [chat("Read a", ["write"]), chat("Read b", ["write"]), chat("Read c", [])]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    items = list(open_demonstrations([path], "openai-chat"))
    assert [item.offered and sorted(item.offered) for item in items] == [LISTED_NAMES] * 2 + [None]
    for name in ("some.jsonl", "some.parquet"):
        if name.endswith("parquet"):
            pytest.importorskip("pyarrow", reason="Parquet needs the extra 'parquet'")
        save_demonstrations(tmp_path / name, items)
        again = list(read_demonstrations(tmp_path / name))
        assert again == items
        assert again[0].offered is again[1].offered


TOOLS = [Tool(name, f"Tool to {name}") for name in ("read", "mail_fast", "mail_slow", "mail_free")]


def mail(number, best, others):
    """Of the ways to mail that a run may use, each run takes the best."""
    what, who = ("report", "letter")[number // 4 % 2], ("Ann", "Bo", "Cy")[number // 8 % 3]
    plan = Plan((ToolCall("1", best),))
    offered = frozenset({"read", best, *others})
    return Demonstration(f"d{number}", f"Mail the {what} to {who}", plan, offered=offered)


def test_dtdr_f_learns_among_what_each_run_was_offered(tmp_path):
    demonstrations = [
        mail(number, *(("mail_fast", ["mail_slow"]), ("mail_slow", ["mail_free"]))[number % 2])
        for number in range(60)
    ]
    told = fit(demonstrations, TOOLS, **RANKER_ONLY)
    untold = fit([replace(item, offered=None) for item in demonstrations], TOOLS, **RANKER_ONLY)

    def fast(model):
        ranking = model.rank("Mail the list to Bo").restrict(["read", "mail_fast", "mail_slow"])
        return ranking.probability("mail_fast")

    assert fast(untold) < 0.7 < 0.75 < fast(told)
    told.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    for model in (told, loaded):
        model.add_tools([Tool("translate", "Translate a text")])
        model.update([mail(60, "mail_fast", ["mail_slow"])])
    assert fast(told) == fast(loaded) > 0.75
