import gzip
import json
import shlex
import subprocess

import pytest
from examples.hotel.log_formats import Call, Turn, number, openai_chat, write_lines

from dtdr import fit as fit_model
from dtdr import load
from dtdr.cli.options import parse_settings
from dtdr.cli.output import quote
from tests import small_data
from tests.command_line import is_one_sentence, start


@pytest.fixture
def data(tmp_path):
    return small_data.write(tmp_path)


@pytest.fixture
def fit(data, tmp_path, cli):
    """Run ``dtdr fit`` on the data with the random ranker."""

    def call(*arguments, ranker="random"):
        return cli("fit", data, "-o", tmp_path / "model", "--retriever", ranker, *arguments)

    return call


def test_fit_writes_a_model_that_loads_and_says_what_it_learned(fit, tmp_path):
    found = fit("--json", "--set", "seed=3").json()
    assert found["model"] == str(tmp_path / "model")
    assert (found["ranker"], found["encoder"]) == ("random", None)
    assert (found["demonstrations"], found["tools"], found["skipped_bad"]) == (12, 6, 0)
    assert load(found["model"]).seed == 3
    shown = fit("--force")
    assert (shown.code, shown.err) == (0, "")
    assert "12 synthetic demonstrations" not in shown.out
    assert "12 demonstrations of 6 tools" in shown.out
    lines = shown.out.splitlines()
    words = next(line for line in lines if line.startswith("try: dtdr rank ")).split(maxsplit=4)[4]
    assert words.strip(chr(34)).replace(" ", "_") in load(tmp_path / "model").vocabulary
    assert "Ann" not in shown.out  # a query may be a customer's
    assert "For 6 tools: with a prompt cache, " in shown.out
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
def test_the_line_to_try_is_quoted_as_in_a_script(query, said):
    assert quote(query) == said
    assert shlex.split(said) == [query]


def test_tools_split_and_settings_reach_the_fit(fit, tmp_path):
    tools, split = tmp_path / "other.json", tmp_path / "split.json"
    tools.write_text('[{"name": "teleport", "description": "Be there at once"}]', encoding="utf-8")
    split.write_text('{"records": 12, "train": [0, 1, 2, 3], "test": [4, 5]}', encoding="utf-8")
    more = ("--tools", tools, "--split", split, "--set", "threshold=0.25")
    assert fit(*more, "--json", ranker="dr").json()["demonstrations"] == 4
    model = load(tmp_path / "model")
    described = {tool.name: tool.description for tool in model.tools_}
    assert (described["teleport"], described["weather"]) == ("Be there at once", "")
    assert model.parameters()["threshold"] == 0.25


def test_settings_are_read_as_python_and_as_json_write_them():
    texts = ["a=True", "b=true", "c=None", "d=null", "e=2.5", "f=text"]
    values = {"a": True, "b": True, "c": None, "d": None, "e": 2.5, "f": "text"}
    assert parse_settings(texts) == values


def test_force_never_takes_the_data_away(data, cli):
    for output in (data, data.parent):
        shown = cli("fit", data, "-o", output, "--retriever", "random", "--force")
        assert shown.code == 1
        assert is_one_sentence(shown.err)
    assert len(data.read_text().splitlines()) == 12


def test_bad_records_are_named_by_file_and_line_or_counted(fit, data, tmp_path):
    good = data.read_text(encoding="utf-8")
    data.write_text(good + "{\n[]\n", encoding="utf-8")
    shown = fit()
    assert (shown.code, shown.out, is_one_sentence(shown.err)) == (2, "", True)
    assert f"{data}:13: " in shown.err
    assert not (tmp_path / "model").exists()
    shown = fit("--skip-bad", "--json")
    found = shown.json()
    assert (found["demonstrations"], found["skipped_bad"]) == (12, 2)
    assert "left out 2 bad records in all" in shown.err
    assert f"{data}:13: not a line of JSON" in shown.err


# -- logs --------------------------------------------------------------------------------------


def write_log(path, about="her"):
    call = Call("find_user", {"name": "Ann"}, {"mail": "ann@corp.example"})
    steps = [[call], [Call("send_mail", {"to": "Ann"})]]
    return write_lines(path, openai_chat(number([Turn(f"Find Ann and mail {about}", steps)])))


def test_the_format_and_the_tools_of_logs_are_found(tmp_path, cli):
    logs = [write_log(tmp_path / f"{name}.jsonl", name) for name in ("one", "two")]
    shown = cli("fit", *logs, "-o", tmp_path / "model", "--retriever", "dr")
    assert "fitted dr on 2 demonstrations of 2 tools" in shown.out
    assert "one.jsonl is read as openai-chat: " in shown.err
    fitted = load(tmp_path / "model")
    assert fitted.rank("Mail Ann", ["find_user"]).best == "send_mail"
    assert fit_model(logs[0], ranker="dr").tools_ == fitted.tools_


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_demonstrations_and_packed_logs_are_read_from_standard_input(source, data, tmp_path):
    logged = gzip.compress(write_log(tmp_path / "log.jsonl").read_bytes())
    contents = [(logged, 1), (data.read_bytes(), 12)]
    for content, learned in contents if source == "-" else contents[:1]:
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
