"""Folders with logs of several formats, formats of one's own, and what a summary says."""

import importlib.metadata
import json
import re
import sys
from typing import Any

import pytest
from examples.hotel.log_formats import write_lines

from dtdr.data.demonstration_files import read_demonstrations
from dtdr.errors import InputError
from dtdr.logs import CutOptions, Importer, find_format, formats, open_demonstrations
from tests.conftest import PROJECT
from tests.logs.public_forms import ERROR, FIND, FORMS, QUERY, call

TREE = ("inspect", "openhands_new", "codex_exec", "otel_events", "weave", "cline", "toolbench")


def write_tree(folder):
    for name in TREE:
        path = folder / name / "log.json"
        path.parent.mkdir(parents=True)
        path.write_text(FORMS[name][0](), encoding="utf-8")
    (folder / "package.json").write_text(json.dumps({"name": "x", "version": "1"}))
    (folder / "empty.jsonl").write_text("")
    (folder / "notes.txt").write_text("not a log\n")
    (folder / "image.png").write_bytes(b"\x89PNG")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "log.jsonl").write_text("{}")


def test_a_folder_with_many_formats_is_imported_and_says_what_it_skipped(tmp_path, cli):
    write_tree(tmp_path / "logs")
    output = tmp_path / "runs.jsonl"
    shown = cli("import", tmp_path / "logs", "-o", output, "--json")
    assert shown.code == 0
    summary = json.loads(shown.out)
    assert len(list(read_demonstrations(output))) == summary["kept"] == len(TREE)
    assert {about["format"] for about in summary["formats"]} == {FORMS[n][1] for n in TREE}
    assert summary["calls"] == 2 * len(TREE)
    assert summary["failed_calls"] == len(TREE)
    skipped = {
        reason: [p.rpartition("/")[2] for p in ps] for reason, ps in summary["skipped"].items()
    }
    assert skipped == {
        "its first record has the keys name, version": ["package.json"],
        "it is empty": ["empty.jsonl"],
        "it has no line of JSON": ["notes.txt"],
    }
    assert "skipped 1 file" in shown.err
    assert "package.json" in shown.err
    assert len(list(open_demonstrations([tmp_path / "logs"]))) == len(TREE)


def test_a_bad_line_in_a_folder_is_counted_and_does_not_end_the_import(tmp_path, cli):
    write_tree(tmp_path / "logs")
    with (tmp_path / "logs" / "openhands_new" / "log.json").open("a") as stream:
        stream.write('{"kind": "MessageEvent", "sou')
    shown = cli("import", tmp_path / "logs", "-o", tmp_path / "runs.jsonl", "--json")
    assert shown.code == 0
    assert json.loads(shown.out)["bad_records"] == 1


def test_several_files_are_each_read_as_what_they_are(tmp_path, cli):
    paths = []
    for name in ("inspect", "weave"):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(FORMS[name][0]())
    shown = cli("import", *paths, "-o", tmp_path / "runs.jsonl")
    assert shown.code == 0
    assert "1 file read as inspect" in shown.err
    assert "1 file read as weave" in shown.err
    (tmp_path / "x.json").write_text('{"a": 1}')
    shown = cli("import", *paths, tmp_path / "x.json", "-o", tmp_path / "other.jsonl")
    assert shown.code == 2
    assert "x.json: its first record has the keys a" in " ".join(shown.err.split())


def test_a_folder_without_a_log_is_an_error(tmp_path, cli):
    (tmp_path / "a.json").write_text('{"a": 1}')
    shown = cli("import", tmp_path, "-o", tmp_path / "runs.jsonl")
    assert shown.code == 2
    assert "is a log of a known format" in " ".join(shown.err.split())


def test_the_summary_shows_what_was_seen_and_three_turns(tmp_path, cli):
    (tmp_path / "log.json").write_text(FORMS["copilot_cli"][0]())
    shown = cli("import", tmp_path / "log.json", "-o", tmp_path / "runs.jsonl")
    text = " ".join(shown.out.split())
    assert "messages 2 of the user and the agent" in text
    assert "ignored 1 event 'assistant.turn_start'" in text
    assert f"'{QUERY}': search_rooms (ok) > book_room (error) (success)" in text


def chat_log(tmp_path, count, **message):
    reply = {
        "role": "assistant",
        "content": "",
        "tool_calls": [call("c", "look", json.dumps(FIND))],
    }
    records = [
        {
            "messages": [
                {"role": "user", "content": f"{QUERY} {n}"},
                reply,
                {"role": "tool", "tool_call_id": "c", "content": "done"},
                *([message] if message else []),
            ]
        }
        for n in range(count)
    ]
    return write_lines(tmp_path / "log.jsonl", records)


@pytest.mark.parametrize(
    ("count", "message", "said"),
    [
        (2, {"role": "user", "content": [{"type": "hologram"}]}, "part of the type 'hologram': 2"),
        (2, {"role": "critic", "content": "no"}, "message with the role 'critic': 2"),
        (1000, {}, "none of 1,000 calls failed"),
    ],
)
def test_what_looks_wrong_is_said_with_a_remedy(count, message, said, tmp_path, cli):
    shown = cli("import", chat_log(tmp_path, count, **message), "-o", tmp_path / "runs.jsonl")
    assert shown.code == 0
    assert said in " ".join(shown.err.split())


def test_names_that_no_agent_offers_are_said(tmp_path, cli):
    text = chat_log(tmp_path, 1).read_text().replace('"look"', '"running look: now"')
    (tmp_path / "odd.jsonl").write_text(text)
    shown = cli("import", tmp_path / "odd.jsonl", "-o", tmp_path / "runs.jsonl")
    assert "names of tools have a space or a colon (running look: now: 1)" in " ".join(
        shown.err.split()
    )


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"messages": [{"speaker": "Ann", "said": "hi"}]}, "list 'messages', but no message in it"),
        ({"uuid": "1", "sessionId": "s", "type": "user", "message": {"x": []}}, "the keys message"),
        (
            {"traceId": "t", "spanId": "s", "name": "GET /", "attributes": {"http.route": "/"}},
            "spans (GET /) with attributes http.*",
        ),
        ({"text": "hi"}, "its first record has the keys text"),
    ],
)
def test_a_log_of_another_form_is_refused_with_what_it_lacks(record, said, tmp_path):
    with pytest.raises(InputError, match=re.escape(said)):
        list(open_demonstrations([write_lines(tmp_path / "log.jsonl", [record])]))


def test_nothing_is_kept_of_messages_that_are_not_read(tmp_path):
    messages = [{"role": "user", "content": "hi"}, {"role": "oracle", "content": "x"}]
    log = write_lines(tmp_path / "log.jsonl", [{"messages": messages}])
    importer = Importer(find_format("openai-chat"), [log], CutOptions())
    assert list(importer.demonstrations()) == []
    assert importer.summary()["unknown"] == {"message with the role 'oracle'": 1}


def own_format():
    page = (PROJECT / "docs" / "formats.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- test: own-format -->\n```python\n(.*?)```", page, re.DOTALL)
    assert block is not None
    return block[1]


TABLE = f"""ticket,speaker,text,tool,arguments
7,user,{QUERY},,
7,,RM-40417,search_rooms,"{{""city"": ""Oslo""}}"
7,,Error: {ERROR},book_room,"{{""room"": ""RM-40417""}}"
"""


def test_a_format_of_ones_own_is_a_function_or_an_entry_point(tmp_path, cli, monkeypatch):
    (tmp_path / "tickets.py").write_text(own_format())
    assert len(own_format().splitlines()) <= 25
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tickets", raising=False)
    (tmp_path / "tickets.csv").write_text(TABLE)
    output = tmp_path / "runs.jsonl"
    shown = cli(
        "import", "--format", "tickets:read_tickets", tmp_path / "tickets.csv", "-o", output
    )
    assert shown.code == 0
    (item,) = read_demonstrations(output)
    assert (item.query, item.plan.tools) == (QUERY, ("search_rooms", "book_room"))
    assert item.plan.calls[1].arguments == {"room": {"$ref": "1"}}
    point = importlib.metadata.EntryPoint("tickets", "tickets:read_tickets", "dtdr.logs")
    monkeypatch.setattr(formats, "entry_points", lambda group: [point])
    formats.installed.cache_clear()
    (item,) = open_demonstrations([tmp_path / "tickets.csv"], "tickets")
    assert item.query == QUERY
    formats.installed.cache_clear()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:read", "cannot import the format nowhere:read"),
        ("json:nothing", "cannot import the format json:nothing"),
        ("tickets", "unknown format 'tickets'"),
    ],
)
def test_a_format_that_cannot_be_imported_is_named(name, said):
    with pytest.raises(InputError, match=said):
        find_format(name)


def test_an_error_of_a_format_of_ones_own_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "broken_format.py").write_text("def read(path):\n    yield 1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "x.csv").write_text("x")
    with pytest.raises(InputError, match=r"broken_format:read cannot read .*x\.csv: division"):
        list(open_demonstrations([tmp_path / "x.csv"], "broken_format:read"))


def test_other_runs_of_the_same_id_are_kept_and_the_same_ones_are_not(tmp_path):
    def write(name, session, query):
        said = [{"id": "1", "type": "user", "content": query}]
        used = {"id": "c", "name": "look", "args": {}, "status": "success"}
        said.append({"id": "2", "type": "gemini", "content": "", "toolCalls": [used]})
        record = {"sessionId": session, "projectHash": "p", "messages": said}
        (tmp_path / name).write_text(json.dumps(record), encoding="utf-8")

    write("a.json", "s", "go")
    write("b.json", "s", "stop")
    (tmp_path / "c.json").write_bytes((tmp_path / "a.json").read_bytes())
    line: dict[str, Any] = {"timestamp": "2026-03-01T12:00:00Z", "type": "session_meta"}
    line["payload"] = {"id": "s"}
    call_item = {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c"}
    payloads = [{"type": "message", "role": "user", "content": "wait"}, call_item]
    items = [{**line, "type": "response_item", "payload": payload} for payload in payloads]
    write_lines(tmp_path / "rollout.jsonl", [line, *items])
    found = [(item.query, item.id) for item in open_demonstrations([tmp_path])]
    assert sorted(query for query, _ in found) == ["go", "stop", "wait"]
    assert len({identifier for _, identifier in found}) == 3
