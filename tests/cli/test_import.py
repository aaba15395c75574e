import gzip
import json

import pytest
from examples.hotel.log_formats import Call, Turn, number, openai_chat, write_lines
from typer.testing import CliRunner

from dtdr.cli import import_
from dtdr.cli.signature import CommandGroup
from dtdr.errors import DtdrError, InputError

app = CommandGroup()
app.command("import")(import_.import_logs)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def log(tmp_path):
    find = Call("find_report", {"about": "sales"}, {"id": "rep-99120"})
    send = Call("send_mail", {"to": "ann@corp.example", "file": "rep-99120"}, "sent")
    turns = [Turn("Mail ann@corp.example the report", [[find], [send]]), Turn("Thanks")]
    return write_lines(tmp_path / "log.jsonl", openai_chat(number(turns)))


def test_the_summary_says_what_was_kept_and_dropped_and_why(log, tmp_path):
    done = call("openai-chat", log, "-o", tmp_path / "d.jsonl")

    assert done.exit_code == 0, done.output
    for words in ("records read", "superseded requests", "no tool was called", "references"):
        assert words in done.stdout
    table = done.stdout.partition("wrote")[0].splitlines()
    assert all(len(line) <= 100 for line in table)
    record = json.loads((tmp_path / "d.jsonl").read_text(encoding="utf-8"))
    assert record["calls"][1]["arguments"]["file"] == {"$ref": "1", "path": "/id"}


def test_the_tools_of_the_log_go_where_fit_looks_for_them(log, tmp_path):
    turns = [Turn("Mail Ann", [[Call("send_mail", {"to": "ann"}, "sent")]])]
    schema = {"type": "object", "properties": {"to": {"type": ["string", "null"]}}}
    tool = {"name": "send_mail", "description": "Send a mail", "parameters": schema}
    record = openai_chat(number(turns))[0]
    record["request"]["tools"] = [{"type": "function", "function": tool}]
    with_tools = write_lines(tmp_path / "tools.log", [record])
    folder = tmp_path / "out"
    folder.mkdir()
    done = call("openai-chat", with_tools, "-o", folder / "d.jsonl")
    assert f"wrote {folder / 'tools.json'}" in done.stdout.replace("\n", " ")
    (written,) = json.loads((folder / "tools.json").read_text(encoding="utf-8"))
    assert (written["name"], written["parameters"][0]["type"]) == ("send_mail", "string")
    (folder / "tools.json").write_text("[]", encoding="utf-8")
    done = call("openai-chat", with_tools, "-o", folder / "other.jsonl")
    assert done.exit_code == 0
    assert "tools.json exists and was not replaced" in done.stderr
    assert (folder / "tools.json").read_text(encoding="utf-8") == "[]"
    assert not (tmp_path / "tools.json").exists()


def test_json_gives_one_object(log, tmp_path):
    done = call("openai-chat", log, "-o", tmp_path / "d.jsonl", "--json", "--redact")

    summary = json.loads(done.stdout)
    assert (summary["runs"], summary["kept"], summary["calls"]) == (2, 1, 2)
    assert summary["dropped"] == {"no tool was called": 1}
    assert summary["redacted"] == {"email": 2}
    assert "ann@corp.example" not in (tmp_path / "d.jsonl").read_text(encoding="utf-8")


def test_options_reach_the_import(log, tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text('{"topic": "sales"}', encoding="utf-8")
    done = call(
        "openai-chat", log, "-o", tmp_path / "d.jsonl", "--json", "--set", "references=false",
        "--redact-rules", rules, "--set", "output_length=0",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "d.jsonl").read_text(encoding="utf-8"))
    assert record["query"] == "Mail [email] the report"
    assert record["calls"][0]["arguments"] == {"about": "[topic]"}
    assert record["calls"][1]["arguments"]["file"] == "rep-99120"
    assert "output" not in record["calls"][0]


def test_bad_lines_are_counted_and_named(log, tmp_path):
    with log.open("a", encoding="utf-8") as stream:
        stream.write("{oops\n")
    refused = call("openai-chat", log, "-o", tmp_path / "d.jsonl")
    assert isinstance(refused.exception, DtdrError)
    assert f"{log}:5" in str(refused.exception)

    words = (log, "-o", tmp_path / "d.jsonl", "--skip-bad", "--json", "--set", "empty=true")
    done = call(*words)
    found = json.loads(done.stdout)
    assert (found["format"], found["bad_records"], found["kept"]) == ("openai-chat", 1, 2)
    assert "log.jsonl is read as openai-chat" in done.stderr
    assert f"{log}:5" in done.stderr


def test_a_log_is_never_replaced(log):
    before = log.read_bytes()
    refused = call("openai-chat", log, "-o", log, "--force")
    assert isinstance(refused.exception, InputError)
    assert "is one of the logs" in str(refused.exception)
    assert log.read_bytes() == before


@pytest.mark.parametrize("named", [[], ["openai-chat"]])
@pytest.mark.parametrize("form", ["lines", "gzip", "document"])
def test_standard_input_is_read(log, tmp_path, form, named):
    text = log.read_bytes()
    if form == "gzip":
        text = gzip.compress(text)
    elif form == "document":
        text = json.dumps([json.loads(line) for line in text.splitlines()]).encode()
    done = CliRunner().invoke(
        app, [*named, "-", "-o", str(tmp_path / "d.jsonl"), "--json"], input=text
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["kept"] == 1


def test_commands_that_take_demonstrations_take_a_log_too(log, tmp_path, cli):
    ranker = "tests.updating_ranker:WordCounts"
    assert cli("fit", log, "-o", tmp_path / "model", "--retriever", ranker).code == 0
    feedback = tmp_path / "feedback.jsonl"
    feedback.write_text("")
    model, written = tmp_path / "model", tmp_path / "d.jsonl"
    for arguments in (
        ("advise", model, log),
        ("data", "stats", log),
        ("data", "convert", log, "-o", written),
        ("evaluate", log, "--model", model),
        ("learn", model, feedback, "--once", "--held-out", log),
        ("plan", model, "Mail ann the report", "--examples", log),
    ):
        shown = cli(*arguments)
        assert shown.code == 0, shown.err
        assert "is read as openai-chat" in shown.err, arguments
    assert json.loads(written.read_text(encoding="utf-8"))["calls"][0]["tool"] == "find_report"
