import gzip
import json
import shlex
import subprocess

import pytest

from dtdr import fit as fit_retriever
from dtdr import load
from dtdr.cli import run
from dtdr.errors import InputError
from dtdr.predict import create
from dtdr.rankers.random import RandomRetriever
from tests import small_data
from tests.command_line import is_one_sentence, start
from tests.helpers import sha256_of
from tests.trace_logs import RENDERINGS, Call, Turn, number, write_lines


@pytest.fixture
def data(tmp_path):
    return small_data.write(tmp_path)


@pytest.fixture
def fit(data, tmp_path, capsys):
    """Run ``dtdr fit`` on the data with the random retriever; gives the code and what it said."""

    def call(*arguments, retriever="random"):
        command = ["fit", str(data), "-o", str(tmp_path / "model"), "--retriever", retriever]
        code = run([*command, *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_fit_writes_a_model_that_loads(fit, tmp_path):
    folder = tmp_path / "model"
    code, out, err = fit()
    assert (code, err) == (0, "")
    assert "12 synthetic demonstrations" not in out
    assert "12 demonstrations of 6 tools" in out
    assert load(folder).training_.demonstrations == 12


def test_json_summary_says_what_was_fitted(fit, tmp_path):
    code, out, _ = fit("--json", "--seed", 3)
    assert code == 0
    found = json.loads(out)
    assert found["model"] == str(tmp_path / "model")
    assert (found["retriever"], found["encoder"]) == ("random", None)
    assert (found["demonstrations"], found["tools"], found["skipped_bad"]) == (12, 6, 0)
    assert load(found["model"]).seed == 3


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("what's the weather?", '"what\'s the weather?"'),
        ('say "hello"', "'say \"hello\"'"),
        ("costs $5", "'costs $5'"),
    ],
)
def test_the_line_to_try_is_quoted_as_in_a_script(query, said, tmp_path, capsys):
    data = tmp_path / "runs.jsonl"
    data.write_text(json.dumps({"id": "1", "query": query, "calls": ["a"]}) + "\n")
    model = tmp_path / "model"
    assert run(["fit", str(data), "-o", str(model), "--retriever", "random", "--no-plans"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == f"try: dtdr rank {model} {said}"
    assert shlex.split(line)[-1] == query


def test_default_retriever_learns_and_ranks(data, tmp_path, capsys):
    assert run(["fit", str(data), "-o", str(tmp_path / "model")]) == 0
    assert run(["rank", str(tmp_path / "model"), "Text Ann the weather", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["tools"]) == 5


def test_tools_beside_the_data_are_used(fit, tmp_path):
    fit()
    tools = {tool.name: tool for tool in load(tmp_path / "model").tools_}
    assert tools["weather"].description == "Tell the weather of a city"


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
    code, out, _ = fit("--split", split, "--json")
    assert code == 0
    assert json.loads(out)["demonstrations"] == 4


def test_split_of_other_data_is_refused(fit, tmp_path):
    split = tmp_path / "split.json"
    split.write_text('{"records": 99, "train": [0, 1], "test": [4]}', encoding="utf-8")
    code, _, err = fit("--split", split)
    assert code == 2
    assert "it splits 99 records, but there are 12" in err


def test_parameters_reach_the_retriever(fit, tmp_path):
    code, _, _ = fit("--set", "seed=7")
    assert code == 0
    assert load(tmp_path / "model").seed == 7


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "depth=2"], "no retriever here has the parameter 'depth'; it takes seed"),
        (["--set", "seed"], "--set 'seed' is not KEY=VALUE"),
        (["--set", "seed=1", "--set", "seed=2"], "--set gives 'seed' twice"),
        (["--set", "dr.order=2"], "'dr', which is not"),
        (["--encoder", "lexical"], "retriever 'random' uses no encoder"),
        (["--retriever", "dtdr-x"], "unknown retriever 'dtdr-x'; choose one of bm25, dr"),
        (["--retriever", "less-is-more"], "'less-is-more' needs an LLM; fit it in Python"),
        (["--dataset", "tinyagent"], "name the demonstrations once"),
        (["--split", "by-moon"], "--split 'by-moon' is not a split file"),
        (["--tools", "none.json"], "cannot read none.json"),
    ],
)
def test_misuse_names_the_value_and_the_remedy(fit, tmp_path, arguments, said):
    code, _, err = fit(*arguments)
    assert code == 2
    assert is_one_sentence(err)
    assert said in err
    assert not (tmp_path / "model").exists()


def test_unknown_encoder_is_an_error_that_lists_them(fit):
    code, _, err = fit("--encoder", "word2vec", retriever="dtdr-c")
    assert code == 2
    assert "unknown encoder 'word2vec'; choose one of" in err


def test_neither_data_nor_dataset_is_an_error(tmp_path, capsys):
    assert run(["fit", "-o", str(tmp_path / "model")]) == 2
    assert "name the demonstrations once" in capsys.readouterr().err


def test_existing_model_is_replaced_with_force_only(fit, tmp_path):
    fit()
    before = sha256_of(tmp_path / "model" / "config.json")
    code, _, err = fit("--seed", 5)
    assert code == 1
    assert is_one_sentence(err)
    assert "model exists; pass --force (force=True) to replace it" in err
    assert sha256_of(tmp_path / "model" / "config.json") == before
    assert fit("--seed", 5, "--force")[0] == 0
    assert load(tmp_path / "model").seed == 5


def test_force_never_takes_the_data_away(data, tmp_path, capsys):
    for output in (data, data.parent):
        arguments = ["fit", str(data), "-o", str(output), "--retriever", "random", "--force"]
        assert run(arguments) == 1
        assert is_one_sentence(capsys.readouterr().err)
    assert len(data.read_text().splitlines()) == 12


@pytest.mark.parametrize(
    ("given", "value"), [("False", False), ("false", False), ("True", True), ("true", True)]
)
def test_truth_is_read_as_python_and_as_json_write_it(fit, tmp_path, given, value):
    assert fit("--set", f"weighted={given}", retriever="dr")[0] == 0
    assert load(tmp_path / "model").parameters()["weighted"] is value


@pytest.mark.parametrize(
    ("retriever", "setting", "wanted"),
    [
        ("dr", "weighted=no", "weighted must be true or false"),
        ("dtdr-c", "order=abc", "order must be a whole number"),
        ("dtdr-c", "order=2.5", "order must be a whole number"),
        ("bm25", "k1=x", "k1 must be a number"),
        ("dtdr-c", "order=true", "order must be a whole number"),
    ],
)
def test_a_setting_of_another_type_says_what_is_wanted(fit, retriever, setting, wanted):
    code, _, err = fit("--set", setting, retriever=retriever)
    assert code == 2
    assert is_one_sentence(err)
    assert wanted in err


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_no_generator_takes_is_misuse(fit, seed):
    code, _, err = fit("--seed", seed)
    assert code == 2
    assert is_one_sentence(err)
    with pytest.raises(InputError, match="seed is"):
        create("random", seed=seed).fit(small_data.dataset().demonstrations)


def test_interrupted_fit_leaves_the_old_model(fit, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    fit()
    before = {item.name: sha256_of(item) for item in (tmp_path / "model").iterdir()}
    monkeypatch.setattr(RandomRetriever, "_fit", interrupted)
    code, out, err = fit("--force")
    assert (code, out, err) == (130, "", "dtdr: interrupted\n")
    assert {item.name: sha256_of(item) for item in (tmp_path / "model").iterdir()} == before


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


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_bad_record_is_named_by_file_and_line(fit, data, tmp_path, line):
    with data.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
    code, out, err = fit()
    assert (code, out) == (2, "")
    assert is_one_sentence(err)
    assert f"{data}:13: " in err
    assert not (tmp_path / "model").exists()


def test_skip_bad_leaves_bad_records_out_and_counts_them(fit, data):
    with data.open("a", encoding="utf-8") as stream:
        stream.write("\n".join(BAD_LINES.values()) + "\n")
    code, out, err = fit("--skip-bad", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["demonstrations"], found["skipped_bad"]) == (12, len(BAD_LINES))
    assert f"left out {len(BAD_LINES)} bad records in all" in err
    assert f"{data}:13: not a line of JSON" in err


def test_empty_file_is_an_error(fit, data):
    data.write_text("", encoding="utf-8")
    code, _, err = fit()
    assert code == 2
    assert "has no demonstration" in err


def test_duplicate_tool_names_are_an_error(fit, tmp_path):
    (tmp_path / "tools.json").write_text('[{"name": "a"}, {"name": "a"}]', encoding="utf-8")
    code, _, err = fit()
    assert code == 2
    assert "two tools are named 'a'" in err


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


def test_logs_are_learned_from_directly_with_the_tools_that_they_describe(tmp_path, capsys):
    logs = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for place, path in enumerate(logs):
        asked = json.dumps({**CHAT, "id": f"chat {place}"}).replace("summary", f"note {place}")
        path.write_text(asked + "\n", encoding="utf-8")
    model = tmp_path / "model"
    command = ["fit", *map(str, logs), "--format", "openai-chat", "-o", str(model)]
    assert run([*command, "--retriever", "dr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["demonstrations"] == 2
    fitted = load(model)
    assert fitted.vocabulary == ("open_file", "send_mail", "end")
    assert fitted.rank("Mail Bob").best == "send_mail"


@pytest.mark.parametrize("rendering", ["openai-chat", "anthropic", "otel", "mcp"])
def test_the_format_of_logs_is_found_and_told(rendering, tmp_path, capsys):
    call = Call("find_user", {"name": "Ann"}, {"mail": "ann@corp.example"})
    turns = number([Turn("Find Ann and mail her", [[call], [Call("send_mail", {"to": "Ann"})]])])
    log = write_lines(tmp_path / "log.jsonl", RENDERINGS[rendering](turns))
    assert run(["fit", str(log), "-o", str(tmp_path / "model"), "--retriever", "dr"]) == 0
    shown = capsys.readouterr()
    assert "fitted dr on 1 demonstrations of 2 tools" in shown.out
    assert f"log.jsonl is read as {rendering}: " in shown.err
    fitted = load(tmp_path / "model")
    assert fitted.rank("Mail Ann", ["find_user"]).best == "send_mail"
    assert fit_retriever(log, retriever="dr").tools_ == fitted.tools_


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


def test_several_files_of_demonstrations_are_one_set(data, tmp_path, capsys):
    other = tmp_path / "names.jsonl"
    other.write_text('{"id": "n", "query": "Text Bob", "calls": ["find", "text"]}\n')
    command = ["fit", str(data), str(other), "-o", str(tmp_path / "model"), "--retriever", "dr"]
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["demonstrations"] == 13
    assert run([*command[:2], *command[1:], "--force"]) == 2
    assert "was used before" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"what": "else"}, "looks like no format that is known; name the one it has: anthropic,"),
        ({"id": "1", "calls": []}, "the demonstration has no 'query'"),
    ],
)
def test_a_file_of_no_known_format_is_told(record, said, tmp_path, capsys):
    path = tmp_path / "odd.jsonl"
    path.write_text(json.dumps(record) + "\n")
    assert run(["fit", str(path), "-o", str(tmp_path / "model")]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert said in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "openai-chat"],
        ["a.jsonl", "b.jsonl"],
        ["a.jsonl", "--format", "smoke-signals"],
        ["a.jsonl", "--format", "openai-chat", "--dataset", "tinyagent"],
    ],
)
def test_logs_named_in_another_way_are_misuse(arguments, tmp_path, capsys):
    assert run(["fit", *arguments, "-o", str(tmp_path / "model")]) == 2
    assert is_one_sentence(capsys.readouterr().err)
