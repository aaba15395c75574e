import json
from typing import Any

import pytest
from hypothesis import given

import dtdr
from dtdr import Demonstration, Plan, Tool, ToolCall, read_demonstrations
from dtdr.data import json_codec
from dtdr.data.demonstration_files import (
    read_tools,
    save_demonstrations,
    save_tools,
)
from dtdr.data.demonstrations import Message, as_demonstrations
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError, OutputError
from tests.strategies import demonstrations, runs

GOOD = {
    "id": "42",
    "query": "Mail Ann the summary of q3.pdf",
    "calls": [
        {"id": "1", "tool": "open_file", "arguments": {"name": "q3.pdf"}},
        {"id": "2", "tool": "summarize_pdf", "arguments": {"path": {"$ref": "1"}}},
    ],
}


def with_changes(**changes):
    return {key: value for key, value in (GOOD | changes).items() if value is not None}


def write_lines(path, *records):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@given(demonstrations() | runs())
def test_a_demonstration_survives_its_json(demonstration):
    text = json_codec.dumps(demonstration.to_dict())
    assert Demonstration.from_dict(json.loads(text)) == demonstration


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{broken", "not a line of JSON"),
        ([1, 2], "must be a JSON object, not list"),
        (with_changes(id=None), "has no 'id'"),
        (with_changes(query=None), "has no 'query'"),
        (with_changes(query="  "), "has no 'query', or an empty one"),
        (with_changes(calls=None), "has no list of 'calls'"),
        (with_changes(calls=[{"id": "1"}]), "call '1' has no 'tool'"),
        (with_changes(calls=[7]), "a call must be a JSON object"),
        (with_changes(calls=[{"id": "1", "tool": "x", "arguments": []}]), "must be a JSON object"),
        (with_changes(links=[["1"]]), "list of \\[earlier id, later id\\] pairs"),
        (with_changes(links=[["2", "1"]]), "cycle"),
        (with_changes(outcome="maybe"), "unknown outcome 'maybe'"),
        (
            with_changes(calls=[{"id": "1", "tool": "x", "arguments": {"a": {"$ref": "8"}}}]),
            "refers to '8'",
        ),
        ("[" * 100_000, "not a line of JSON"),
    ],
)
def test_a_bad_record_is_named_with_file_and_line_and_can_be_skipped(tmp_path, record, message):
    path = write_lines(tmp_path / "d.jsonl", GOOD, record, with_changes(id="43"))
    with pytest.raises(InputError, match=f"d.jsonl:2: .*{message}"):
        list(read_demonstrations(path))
    bad = BadRecords()
    assert [item.id for item in read_demonstrations(path, bad=bad)] == ["42", "43"]
    assert bad.count == 1
    assert "d.jsonl:2" in bad.first[0]


def test_calls_may_be_names_and_need_no_ids(tmp_path):
    calls = ["find", {"tool": "read"}, {"id": "1", "tool": "mail"}, "find"]
    path = write_lines(tmp_path / "d.jsonl", with_changes(calls=calls, before=[]))
    (demonstration,) = read_demonstrations(path)
    assert [(call.id, call.tool) for call in demonstration.plan.calls] == [
        ("2", "find"),
        ("3", "read"),
        ("1", "mail"),
        ("4", "find"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": "\xff"}\n', r"d\.jsonl:1: .*invalid UTF-8"),
        (json.dumps(GOOD).encode() * 2, r"d\.jsonl:1: not a line of JSON"),
        ((json.dumps(GOOD) + "\n").encode() * 2, r"d\.jsonl:2: the id '42' was used before"),
        (b"", "has no demonstration"),
        (b"\n\n", "has no demonstration"),
        (None, "no such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content, message):
    path = tmp_path / "d.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_demonstrations(path))


def test_a_file_is_replaced_as_a_whole_and_with_force_only(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text("mine")

    def broken():
        yield Demonstration.from_dict(GOOD)
        raise KeyboardInterrupt

    with pytest.raises(OutputError, match="--force"):
        save_demonstrations(path, [Demonstration.from_dict(GOOD)])
    with pytest.raises(KeyboardInterrupt):
        save_demonstrations(path, broken(), force=True)
    assert path.read_text() == "mine"
    assert [item.name for item in tmp_path.iterdir()] == ["d.jsonl"]
    save_demonstrations(path, [Demonstration.from_dict(GOOD)], force=True)
    assert len(list(read_demonstrations(path))) == 1


def test_tools_are_read_in_every_common_shape(tmp_path):
    schema = {
        "type": "object",
        "properties": {"to": {"type": "string", "description": "who"}, "cc": {"type": "string"}},
        "required": ["to"],
    }
    path = tmp_path / "tools.json"
    shapes = [
        {"name": "plain"},
        {"name": "listed", "parameters": [{"name": "to", "type": "str"}]},
        {"type": "function", "function": {"name": "openai", "parameters": schema}},
        {"name": "anthropic", "input_schema": schema},
        {"name": "mcp", "description": "d", "inputSchema": schema},
    ]
    path.write_text(json.dumps(shapes))
    tools = {tool.name: tool for tool in read_tools(path)}
    assert tools["plain"].parameters == ()
    assert tools["listed"].parameters[0].required
    for name in ("openai", "anthropic", "mcp"):
        to, cc = tools[name].parameters
        assert (to.name, to.type, to.description, to.required) == ("to", "string", "who", True)
        assert not cc.required


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"name": "a"}, {"name": "a"}]', "two tools are named 'a'"),
        ("{", "is not JSON"),
        ('"x"', "must contain a JSON list"),
        ('[{"description": "x"}]', "has no 'name'"),
        ('["x"]', "must be a JSON object"),
        ('[{"name": "a", "parameters": 3}]', "parameters of tool 'a'"),
    ],
)
def test_bad_tools_are_refused(tmp_path, content, message):
    path = tmp_path / "tools.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_tools(path)


def test_objects_and_pairs_are_converted():
    whole = Demonstration("7", "x", Plan((ToolCall("1", "a"), ToolCall("2", "b"))))
    record = {"query": "x", "calls": [{"id": "1", "tool": "a"}, {"id": "2", "tool": "b"}]}
    pairs: list[Any] = [("x", ["a", "b"]), ["x", ("a", "b")]]
    found = list(as_demonstrations([whole, record, *pairs]))
    assert found[0] is whole
    assert [item.id for item in found[1:]] == ["1", "2", "3"]
    assert all(item.query == "x" and item.plan.tools == ("a", "b") for item in found)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "it must be a Demonstration, its JSON object, or a pair"),
        ("query", "tool names, not str"),
        (("x",), "tool names, not tuple"),
        ((5, ["a"]), "its query must be text that is not empty"),
        (("x", "a"), "its tools must be a list of names, not 'a'"),
        (("x", ["a", 5]), "its tools must be a list of names"),
        (("x", ["end"]), "reserved for the end of the plan"),
        ({"query": "x"}, "no list of 'calls'"),
    ],
)
def test_what_is_not_a_demonstration_is_named_by_its_position(value, message):
    with pytest.raises(InputError, match=r"^demonstration 1: ") as caught:
        dtdr.fit([("x", ["a"]), value], ranker="dr")
    assert message in str(caught.value)


def test_a_file_brings_the_tools_beside_it(tmp_path):
    path = tmp_path / "demonstrations.jsonl"
    save_demonstrations(path, [Demonstration("1", "x", Plan((ToolCall("1", "a"),)))])
    assert read_demonstrations(path).tools == ()
    save_tools(tmp_path / "tools.json", [Tool("a", "Does a"), Tool("b", "Does b")])
    for source in (path, str(path), read_demonstrations(path)):
        assert dtdr.fit(source, ranker="dr").tools_[:2] == (
            Tool("a", "Does a"),
            Tool("b", "Does b"),
        )
    assert dtdr.fit(path, [Tool("c")], ranker="dr").vocabulary == ("a", "c", "end")
    (tmp_path / "tools.json").write_text("5")
    with pytest.raises(InputError, match=r"tools\.json must contain a JSON list"):
        dtdr.fit(path, ranker="dr")


FIRST = {"$ref": "a1", "path": "/reservations/0"}
RUN = {
    "id": "42",
    "query": "Cancel my trip to Rome",
    "before": [
        {"role": "user", "content": "Hi, I am ann_1"},
        {"role": "call", "id": "a1", "tool": "get_user", "arguments": {"user_id": "ann_1"},
         "output": {"reservations": ["R7", "R9"]}, "status": "ok"},
        {"role": "assistant", "content": "Hello Ann, what can I do?"},
    ],
    "calls": [
        {"id": "1", "tool": "get_reservation", "arguments": {"id": FIRST}, "step": 1,
         "output": {"to": "Rome"}, "status": "ok"},
        {"id": "2", "tool": "cancel", "arguments": {"id": FIRST}, "step": 2},
    ],
    "group": "conversation-9",
}  # fmt: skip


def test_a_run_with_outputs_steps_and_earlier_turns_is_read_and_written_as_it_stands():
    run = Demonstration.from_dict(RUN)
    assert run.before[0] == Message("user", "Hi, I am ann_1")
    assert run.plan.earlier == (run.before[1],)
    assert run.plan.calls[0].output == {"to": "Rome"}
    assert [call.step for call in run.plan.calls] == [1, 2]
    assert run.to_dict() == RUN


def edited(path, value):
    record = json.loads(json.dumps(RUN))
    place: Any = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return record


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["before"], {}, "'before' must be a list, not dict"),
        (["before", 0], 7, "needs the role user, assistant or call, not None"),
        (["before", 0, "role"], "system", "not 'system'"),
        (["before", 0, "content"], None, "has no 'content': null"),
        (["before", 1, "id"], "1", "two calls share the id '1'"),
        (["before", 1, "arguments"], {"x": {"$ref": "9"}}, "'9', which is not a call before it"),
        (["calls", 0, "status"], "fine", "unknown status 'fine'; choose one of ok, error"),
        (["calls", 0, "step"], -1, "the 'step' of call '1' must be a whole number"),
        (["calls", 0, "step"], 3, "call '2' has step 2, after a call of step 3"),
        (["calls", 0, "output_length"], True, "the 'output_length' of call '1' must be"),
        (["calls", 1, "arguments", "id", "path"], "/reservations/2", "does not name a part"),
        (["calls", 1, "tool"], "can\ud800cel", "half of a surrogate pair, which is not text"),
        (["id"], "\ud800", "the id '.ud800' has half of a surrogate pair"),
    ],
)
def test_a_bad_run_says_what_is_wrong(path, value, message):
    with pytest.raises(InputError, match=message):
        Demonstration.from_dict(edited(path, value))


def test_texts_with_half_a_surrogate_pair_in_outputs_are_written_and_read(tmp_path):
    run = Demonstration.from_dict(edited(["calls", 0, "output"], {"to": "Ro\ud800me"}))
    save_demonstrations(tmp_path / "d.jsonl", [run])
    assert list(read_demonstrations(tmp_path / "d.jsonl")) == [run]
