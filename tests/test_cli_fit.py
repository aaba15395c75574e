import gzip
import json
import shlex
import subprocess

import pytest

from dtdr import fit as fit_retriever
from dtdr import load
from dtdr.errors import InputError
from dtdr.predict import create
from tests import small_data
from tests.command_line import is_one_sentence, start
from tests.helpers import sha256_of
from tests.trace_logs import RENDERINGS, Call, Turn, number, write_lines


@pytest.fixture
def data(tmp_path):
    return small_data.write(tmp_path)


@pytest.fixture
def fit(data, tmp_path, cli):
    """Run ``dtdr fit`` on the data with the random retriever."""

    def call(*arguments, retriever="random"):
        return cli("fit", data, "-o", tmp_path / "model", "--retriever", retriever, *arguments)

    return call


def test_fit_writes_a_model_that_loads_and_says_what_it_learned(fit, tmp_path):
    found = fit("--json", "--set", "seed=3").json()
    assert found["model"] == str(tmp_path / "model")
    assert (found["retriever"], found["encoder"]) == ("random", None)
    assert (found["demonstrations"], found["tools"], found["skipped_bad"]) == (12, 6, 0)
    assert load(found["model"]).seed == 3
    shown = fit("--force")
    assert (shown.code, shown.err) == (0, "")
    assert "12 synthetic demonstrations" not in shown.out
    assert "12 demonstrations of 6 tools" in shown.out
    model = load(tmp_path / "model")
    assert model.training_.demonstrations == 12
    tools = {tool.name: tool for tool in model.tools_}
    assert tools["weather"].description == "Tell the weather of a city"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("what's the weather?", '"what\'s the weather?"'),
        ('say "hello"', "'say \"hello\"'"),
        ("costs $5", "'costs $5'"),
    ],
)
def test_the_line_to_try_is_quoted_as_in_a_script(query, said, tmp_path, cli):
    data = tmp_path / "runs.jsonl"
    data.write_text(json.dumps({"id": "1", "query": query, "calls": ["a"]}) + "\n")
    model = tmp_path / "model"
    shown = cli("fit", data, "-o", model, "--retriever", "random", "--no-plans")
    line = shown.out.splitlines()[-1]
    assert line == f"try: dtdr rank {model} {said}"
    assert shlex.split(line)[-1] == query


def test_tools_named_by_the_user_are_used_instead(fit, tmp_path):
    path = tmp_path / "other.json"
    path.write_text('[{"name": "teleport", "description": "Be there at once"}]', encoding="utf-8")
    fit("--tools", path)
    tools = {tool.name: tool.description for tool in load(tmp_path / "model").tools_}
    assert tools["teleport"] == "Be there at once"
    assert tools["weather"] == ""


def test_split_leaves_the_held_out_side_unlearned(fit, tmp_path):
    split = tmp_path / "split.json"
    split.write_text('{"records": 12, "train": [0, 1, 2, 3], "test": [4, 5]}', encoding="utf-8")
    assert fit("--split", split, "--json").json()["demonstrations"] == 4


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_no_generator_takes_is_misuse_in_python(seed):
    with pytest.raises(InputError, match="seed is"):
        create("random", seed=seed).fit(small_data.dataset().demonstrations)


@pytest.mark.parametrize(
    ("given", "value"), [("False", False), ("false", False), ("True", True), ("true", True)]
)
def test_truth_is_read_as_python_and_as_json_write_it(fit, tmp_path, given, value):
    assert fit("--set", f"weighted={given}", retriever="dr").code == 0
    assert load(tmp_path / "model").parameters()["weighted"] is value


def test_existing_model_is_replaced_with_force_only(fit, tmp_path):
    fit()
    before = sha256_of(tmp_path / "model" / "config.json")
    shown = fit("--set", "seed=5")
    assert shown.code == 1
    assert is_one_sentence(shown.err)
    assert "model exists; pass --force (force=True) to replace it" in shown.err
    assert sha256_of(tmp_path / "model" / "config.json") == before
    assert fit("--set", "seed=5", "--force").code == 0
    assert load(tmp_path / "model").seed == 5


def test_force_never_takes_the_data_away(data, cli):
    for output in (data, data.parent):
        shown = cli("fit", data, "-o", output, "--retriever", "random", "--force")
        assert shown.code == 1
        assert is_one_sentence(shown.err)
    assert len(data.read_text().splitlines()) == 12


BAD_LINES = {
    "not JSON": "{",
    "no object": "[]",
    "no query": '{"id": "x", "calls": []}',
    "empty query": '{"id": "x", "query": " ", "calls": []}',
    "no calls": '{"id": "x", "query": "q"}',
    "used id": '{"id": "d0", "query": "q", "calls": []}',
    "later call": '{"id": "x", "query": "q", "calls": [{"id": "1", "tool": "a", "arguments": '
    '{"b": {"$ref": "2"}}}, {"id": "2", "tool": "a"}]}',
    "unknown call": '{"id": "x", "query": "q", "calls": [{"id": "1", "tool": "a", "arguments": '
    '{"b": {"$ref": "9"}}}]}',
    "cycle": '{"id": "x", "query": "q", "calls": [{"id": "1", "tool": "a"}, {"id": "2", "tool": '
    '"b"}], "links": [["1", "2"], ["2", "1"]]}',
}


def test_bad_records_are_named_by_file_and_line_or_counted(fit, data, tmp_path):
    good = data.read_text(encoding="utf-8")
    for line in BAD_LINES.values():
        data.write_text(f"{good}{line}\n", encoding="utf-8")
        shown = fit()
        assert (shown.code, shown.out, is_one_sentence(shown.err)) == (2, "", True)
        assert f"{data}:13: " in shown.err
        assert not (tmp_path / "model").exists()
    data.write_text(good + "\n".join(BAD_LINES.values()) + "\n", encoding="utf-8")
    shown = fit("--skip-bad", "--json")
    found = shown.json()
    assert (found["demonstrations"], found["skipped_bad"]) == (12, len(BAD_LINES))
    assert f"left out {len(BAD_LINES)} bad records in all" in shown.err
    assert f"{data}:13: not a line of JSON" in shown.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("demonstrations.jsonl", "", "has no demonstration"),
        ("tools.json", '[{"name": "a"}, {"name": "a"}]', "two tools are named 'a'"),
    ],
)
def test_files_that_cannot_be_used_are_an_error(fit, tmp_path, name, content, said):
    (tmp_path / name).write_text(content, encoding="utf-8")
    shown = fit()
    assert shown.code == 2
    assert said in shown.err


# -- logs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rendering", ["openai-chat", "anthropic", "otel", "mcp"])
def test_the_format_of_logs_is_found_and_told(rendering, tmp_path, cli):
    call = Call("find_user", {"name": "Ann"}, {"mail": "ann@corp.example"})
    turns = number([Turn("Find Ann and mail her", [[call], [Call("send_mail", {"to": "Ann"})]])])
    log = write_lines(tmp_path / "log.jsonl", RENDERINGS[rendering](turns))
    shown = cli("fit", log, "-o", tmp_path / "model", "--retriever", "dr")
    assert "fitted dr on 1 demonstrations of 2 tools" in shown.out
    assert f"log.jsonl is read as {rendering}: " in shown.err
    fitted = load(tmp_path / "model")
    assert fitted.rank("Mail Ann", ["find_user"]).best == "send_mail"
    assert fit_retriever(log, retriever="dr").tools_ == fitted.tools_


CHAT = {
    "messages": [
        {"role": "user", "content": "Mail Ann the summary"},
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "send_mail", "arguments": '{"to": "Ann"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "sent"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "send_mail", "description": "Send a mail"}},
        {"type": "function", "function": {"name": "open_file", "description": "Open a file"}},
    ],
}


def test_several_logs_are_learned_from_with_the_tools_that_they_describe(tmp_path, cli):
    logs = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for place, path in enumerate(logs):
        asked = json.dumps({**CHAT, "id": f"chat {place}"}).replace("summary", f"note {place}")
        path.write_text(asked + "\n", encoding="utf-8")
    model = tmp_path / "model"
    found = cli("fit", *logs, "-o", model, "--retriever", "dr", "--json").json()
    assert found["demonstrations"] == 2
    assert load(model).vocabulary == ("open_file", "send_mail", "end")


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_demonstrations_and_packed_logs_are_read_from_standard_input(source, data, tmp_path):
    logged = gzip.compress((json.dumps(CHAT) + "\n").encode())
    for content, learned in ((data.read_bytes(), 12), (logged, 1)):
        process = start(
            [
                *("fit", source, "-o", tmp_path / "model", "--retriever", "dr", "--json"),
                *("--force", "--no-plans", "--no-arguments"),
            ],
            stdin=subprocess.PIPE,
        )
        out, err = process.communicate(content)
        assert process.returncode == 0, err
        assert json.loads(out)["demonstrations"] == learned


def test_several_files_of_demonstrations_are_one_set(data, tmp_path, cli):
    other = tmp_path / "names.jsonl"
    other.write_text('{"id": "n", "query": "Text Bob", "calls": ["find", "text"]}\n')
    command = ["-o", tmp_path / "model", "--retriever", "dr", "--json"]
    assert cli("fit", data, other, *command).json()["demonstrations"] == 13
    shown = cli("fit", data, other, data, *command, "--force")
    assert shown.code == 2
    assert "was used before" in shown.err
