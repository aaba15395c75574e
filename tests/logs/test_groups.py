"""The group of a run is the conversation or user that the log names, in every format."""

import json

import pytest
from examples.hotel.log_formats import Call, Turn, number, write_lines

from dtdr.cli import run
from dtdr.conversation.groups import find_group
from dtdr.data.demonstration_files import read_demonstrations
from dtdr.logs import CutOptions, Importer, find_format
from tests.logs.log_samples import RENDERINGS, format_of


def chat(text="Where is order 7?", **extra):
    """One chat request with a call and its result."""
    function = {"name": "find_order", "arguments": '{"id": 7}'}
    call = {"id": "c1", "type": "function", "function": function}
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "on its way"},
    ]
    return {"messages": messages, **extra}


@pytest.mark.parametrize(
    "extra",
    [
        {"session_id": "conv-1-0"},
        {"thread_id": "conv-1-0", "user": "ann"},
        {"conversation_id": "conv-1-0"},
        {"user": "conv-1-0"},
        {"metadata": {"session_id": "conv-1-0"}},
        {"metadata": {"user_id": "ann", "extra": {"conversationId": "conv-1-0"}}},
        {"response": {"conversation": {"id": "conv-1-0"}}},
        {"metadata": '{"thread_id": "conv-1-0"}'},
    ],
    ids=str,
)
def test_an_erasure_finds_the_conversation_of_a_chat_log(extra, tmp_path, capsys):
    log = write_lines(tmp_path / "log.jsonl", [chat(**extra), chat(session_id="conv-2-0")])
    data = tmp_path / "data.jsonl"
    assert run(["import", "openai-chat", str(log), "-o", str(data)]) == 0
    assert run(["erase", str(data), "--group", "conv-1-0", "--json"]) == 0
    assert (
        json.loads(capsys.readouterr().out[-300:].partition("{")[2].join(["{", ""]))["erased"] == 1
    )
    assert [item.group for item in read_demonstrations(data)] == ["conv-2-0"]


def test_another_key_names_the_group(tmp_path):
    records = [
        chat(session_id=f"s{index}", metadata={"customer": {"id": "ann"}}) for index in range(2)
    ]
    log = write_lines(tmp_path / "log.jsonl", records)
    data = tmp_path / "data.jsonl"
    for key in ("metadata.customer.id", "customer"):
        command = ["import", "openai-chat", str(log), "-o", str(data), "--force"]
        assert run([*command, "--group-by", key]) == 0
        assert {item.group for item in read_demonstrations(data)} == {"ann"}


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_each_format_takes_the_group_from_a_key(rendering, tmp_path):
    turns = number([Turn("Where is it?", [[Call("find", {"n": "x"}, "y")]])])
    records = [{**record, "customer_no": "case-9"} for record in RENDERINGS[rendering](turns)]
    log = write_lines(tmp_path / "log.jsonl", records)
    options = CutOptions(group_by="customer_no", query="x")
    importer = Importer(find_format(format_of(rendering)), [log], options)
    assert {item.group for item in importer.demonstrations()} == {"case-9"}


def test_a_file_of_demonstrations_gets_other_groups_and_a_span_those_of_its_attributes(tmp_path):
    record = {"id": "1", "query": "x", "calls": [], "group": "a", "metadata": {"user_id": "ann"}}
    importer = Importer(
        find_format("dtdr"),
        [write_lines(tmp_path / "a.jsonl", [record])],
        CutOptions(group_by="user_id"),
    )
    assert [item.group for item in importer.demonstrations()] == ["ann"]
    turns = number([Turn("Where is it?", [[Call("find", {"n": "x"}, "y")]])])
    records = RENDERINGS["otel"](turns)
    text = json.dumps(records).replace('"attributes": [', '"attributes": [%s, ')
    attribute = {"key": "enduser.id", "value": {"stringValue": "ann"}}
    log = write_lines(tmp_path / "b.jsonl", json.loads(text.replace("%s", json.dumps(attribute))))
    importer = Importer(find_format("otel"), [log], CutOptions(group_by="enduser.id"))
    assert {item.group for item in importer.demonstrations()} == {"ann"}


def test_a_record_without_a_name_has_no_group():
    assert find_group(chat(user={"role": "x"}, session=True, metadata=[1])) == ""
    assert find_group(
        {"attributes": [{"key": "user.id", "value": {"stringValue": "ann"}}]}, "user.id"
    )
    inner = chat()["messages"][1]["tool_calls"][0] | {"user_id": "of an argument"}
    assert find_group({"messages": [inner]}) == ""
