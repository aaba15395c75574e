import json

import pytest

from dtdr.cli import run
from tests import small_data
from tests.command_line import is_one_sentence
from tests.helpers import change_config


@pytest.fixture
def model(tmp_path):
    path = small_data.write(tmp_path)
    assert run(["fit", str(path), "-o", str(tmp_path / "model"), "--retriever", "random"]) == 0
    return tmp_path / "model"


def test_what_is_in_a_model_is_shown_within_100_columns(model, capsys):
    capsys.readouterr()
    assert run(["inspect", str(model)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "random" in out
    assert "12 demonstrations" in out
    assert "send_mail" in out
    assert max(map(len, out.splitlines())) <= 100


def test_json_holds_the_whole_configuration(model, capsys):
    capsys.readouterr()
    assert run(["inspect", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["retriever"] == "random"
    assert found["training_data"]["demonstrations"] == 12
    assert [tool["name"] for tool in found["tools"]][-1] == "end"
    assert found["bytes"] == sum(item.stat().st_size for item in model.iterdir())


@pytest.mark.parametrize("command", ["inspect", "rank"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda model: (model / "config.json").write_text("{", encoding="utf-8"), "damaged"),
        (lambda model: (model / "config.json").unlink(), "no readable config.json"),
        (lambda model: (model / "model.safetensors").unlink(), "missing or cannot be read"),
        (
            lambda model: (model / "model.safetensors").write_bytes(b"\x08"),
            "is not a safetensors file",
        ),
        (lambda model: change_config(model, format_version=99), "format version 99"),
        (lambda model: change_config(model, retriever="dtdr-x"), "unknown retriever 'dtdr-x'"),
    ],
    ids=["broken config", "no config", "no weights", "other weights", "version", "retriever"],
)
def test_damaged_model_is_one_sentence_that_names_what_is_wrong(
    model, command, damage, said, capsys
):
    damage(model)
    capsys.readouterr()
    assert run([command, str(model), *(["mail Ann"] if command == "rank" else [])]) in (1, 2)
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert said in error


def test_folder_that_is_no_model_is_one_sentence(tmp_path, capsys):
    assert run(["inspect", str(tmp_path)]) == 1
    assert is_one_sentence(capsys.readouterr().err)


def test_a_tool_name_cannot_control_the_terminal(model, capsys):
    change_config(
        model, tools=[{"name": "\x1b[2Jclear\x9b"}, {"name": "a\u202eb"}, {"name": "end"}]
    )
    for command in (["inspect", str(model)], ["rank", str(model), "q", "--history", "\x1b[1m"]):
        capsys.readouterr()
        assert run(command) == 0
        shown = capsys.readouterr()
        assert "\\x1b[2Jclear\\x9b" in shown.out
        assert not {"\x1b", "\x9b", "\u202e"} & {*shown.out, *shown.err}
