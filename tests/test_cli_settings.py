"""``dtdr.toml``, ``--verbose``, completion, and help pages on narrow terminals."""

import json
import logging
import os
import re
import subprocess
import sys

import pytest
import typer

from dtdr import load
from dtdr.cli import app, project_file, run
from tests import small_data
from tests.command_line import is_one_sentence
from tests.conftest import PROJECT


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DTDR_CONFIG", raising=False)
    small_data.write(tmp_path)
    return tmp_path


def commands(command, path=()):
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield path, command
        return
    for name, inner in subcommands.items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))


def test_options_of_the_project_file_hold_until_the_command_line_says_otherwise(project, capsys):
    (project / "dtdr.toml").write_text(
        'seed = 7\n[fit]\nretriever = "dtdr-l"\nset = ["epochs=2", "batch_size=8"]\n'
        "[lab.run]\nquick = true\n"
    )
    fit = ["fit", "demonstrations.jsonl", "-o", "model"]
    assert run(fit) == 0, capsys.readouterr().err
    model = load("model")
    assert (model.name, model.seed) == ("dtdr-l", 7)
    assert model.get_params()["epochs"] == 2
    assert run([*fit, "--force", "--retriever", "random", "--seed", "1"]) == 2  # epochs is no
    assert "epochs" in capsys.readouterr().err  # parameter of random
    assert run([*fit, "--force", "--seed", "1", "--set", "epochs=3"]) == 0
    assert (load("model").seed, load("model").get_params()["epochs"]) == (1, 3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("sed = 7", "no command has the option 'sed'"),
        ("[fti]\nseed = 1", "[fti] is not a command; choose one of"),
        ("[fit]\ncolour = 1", "dtdr fit has no option 'colour'"),
        ("[lab]\nquick = true", "'quick' stands in [lab], which has commands of its own"),
        ("seed = ", "dtdr.toml is not TOML"),
        ("[fit]\nseed = 'many'", "should be a valid integer"),
    ],
)
def test_a_mistake_in_the_project_file_is_one_sentence(content, said, project, capsys):
    (project / "dtdr.toml").write_text(content)
    assert run(["fit", "demonstrations.jsonl", "-o", "model"]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert said in error


STRANGERS = [
    'allow-endpoint = "evil.example"',
    '[fit]\nretriever = "less-is-more"\nllm-command = "touch owned"',
    "[fit]\nllm-command = true",
    '[fit]\nretriever = "stranger:Class"',
    '[fit]\nencoder = "endpoint:m@http://evil.example/v1"',
    '[fit]\nencoder = "sentence-transformers:./model"',
    '[fit]\nset = ["encoder=endpoint:m@http://evil.example/v1"]',
    '[plan]\nllm = "openai:m@http://evil.example/v1"',
    "[mcp]\nupstream = [\"x=sh -c 'touch owned'\"]",
    '[mcp]\nconfig = "servers.json"',
    '[mcp]\nhttp = "0.0.0.0:8000"',
    "[mcp]\nhttp = 8000",
    "[mcp]\nprefetch = true",
    "[mcp]\nredact = false",
    '[mcp]\nlearn = "learned.jsonl"',
    '[serve]\nhost = "0.0.0.0"',
    '[serve]\nkeys = "keys.json"',
    '[serve]\nsessions = "redis://evil.example"',
    "[serve]\nlog-queries = true",
    '[keys.create]\nrole = "admin"',
    "force = true",
    '[import]\nredact-rules = "rules.toml"',
    '[fit]\noutput = "../model"',
    '[fit]\noutput = "/tmp/model"',
    '[fit]\noutput = "link/model"',
    '[evaluate]\ndata = "s3://evil.example/runs"',
    '[evaluate]\nruns = ["runs", "../runs"]',
]


@pytest.mark.parametrize("content", STRANGERS)
def test_a_project_file_that_was_not_named_runs_nothing_and_sends_nothing(
    content, project, monkeypatch, capsys
):
    (project / "link").symlink_to(project.parent)
    (project / "dtdr.toml").write_text(content)
    assert run(["fit", "demonstrations.jsonl", "-o", "model"]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert "somebody else's must not" in error
    assert "DTDR_CONFIG=dtdr.toml" in error
    assert not (project / "model").exists()
    monkeypatch.setenv("DTDR_CONFIG", "dtdr.toml")  # as the sentence says
    assert run(["data", "list"]) == 0, capsys.readouterr().err


def test_options_that_nobody_judged_need_a_named_project_file(project):
    allowed = project_file._PLAIN | project_file._NAMES | project_file._FILES
    options = {
        name.removeprefix("--")
        for command in ALL.values()
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("--")
    }
    assert allowed <= options | {"verbose"}  # no name that is gone
    # An option that is in neither is refused, so that a new one is until somebody judged it.
    dangerous = {
        *("allow-endpoint", "config", "host", "http", "keys", "llm", "sessions", "upstream"),
        *("llm-command", "force", "role", "log-queries", "prefetch", "redact", "redact-rules"),
        *("feedback-log", "learn", "pin", "record", "value-runs", "values"),
        *("held-out", "keep", "metrics", "roll-back", "share", "tolerance"),
    }
    assert dangerous <= options
    assert not dangerous & allowed


def test_another_project_file_may_be_named_or_none(project, monkeypatch, capsys):
    (project / "dtdr.toml").write_text("[fit]\ncolour = 1")
    (project / "other.toml").write_text('[fit]\nretriever = "random"')
    monkeypatch.setenv("DTDR_CONFIG", "other.toml")
    assert run(["fit", "demonstrations.jsonl", "-o", "model"]) == 0
    assert load("model").name == "random"
    monkeypatch.setenv("DTDR_CONFIG", "none.toml")
    assert run(["data", "list"]) == 2
    assert "cannot read none.toml: no such file" in capsys.readouterr().err
    monkeypatch.setenv("DTDR_CONFIG", "")
    assert run(["data", "list"]) == 0


def test_the_project_file_of_the_documentation_is_one(project, monkeypatch):
    page = (PROJECT / "docs" / "settings.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- test: dtdr.toml -->\n```toml\n(.*?)```", page, re.DOTALL)
    assert block
    (project / "dtdr.toml").write_text(block[1])
    assert run(["data", "list"]) == 0
    assert run(["fit", "demonstrations.jsonl", "-o", "model"]) == 0
    assert load("model").get_params()["epochs"] == 50


def test_verbose_says_what_was_done_as_text_or_json(project, capsys):
    fit = ["fit", "demonstrations.jsonl", "-o", "model", "--retriever", "random", "--force"]
    handlers = logging.getLogger("dtdr").handlers[:]
    try:
        assert run(["-v", *fit]) == 0
        assert "dtdr: fitted random on 12 demonstrations of 6 tools" in capsys.readouterr().err
        assert run(["--verbose", "--log-format", "json", *fit]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert lines[0]["event"] == "read 12 demonstrations from demonstrations.jsonl"
        assert {line["level"] for line in lines} == {"info"}
    finally:
        logging.getLogger("dtdr").handlers[:] = handlers
        logging.getLogger("dtdr").setLevel(logging.NOTSET)
    assert run(fit) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "expected"), [("dtdr ev", "evaluate"), ("dtdr fit --ret", "--retriever")]
)
def test_a_shell_is_told_how_a_line_goes_on(line, expected):
    environment = {
        **os.environ,
        "_DTDR_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    # Completion belongs to the program's name, which a shell knows, not to python -m.
    code = "import sys; sys.argv = ['dtdr']; from dtdr.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert expected in done.stdout.split(), done.stderr


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_no_option_is_cut_at_80_columns(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for parameter in ALL[path].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("-"):
                assert re.search(rf"{re.escape(option)}(?![\w-])", shown), option
