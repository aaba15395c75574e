"""What all commands promise: help, misuse in one sentence, exit codes, no traceback."""

import os
import shlex
import signal
import subprocess
import sys
from typing import Any

import pytest
import typer

import dtdr as package
from dtdr.cli import app, run
from tests import small_data
from tests.command_line import PROGRAM, is_one_sentence, start
from tests.helpers import change_config, sha256_of


def leaves():
    """Every command that can be run, with its words."""
    root: Any = typer.main.get_command(app)
    for name in root.commands:
        command = root.get_command(None, name)
        for inner, found in getattr(command, "commands", {"": command}).items():
            yield f"{name} {inner}".strip(), found


LEAVES = dict(leaves())
WITHOUT_JSON = {
    "demo",
    *("mcp", "serve", "studio", "lab report", "keys create", "keys revoke"),
}
"""They print no result, or a report, a log or a key alone."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with ``demonstrations.jsonl``, a model, and what is none."""
    folder = tmp_path_factory.mktemp("cli")
    path = small_data.write(folder)
    names_only = ["--retriever", "dr", "--no-arguments", "--no-plans"]
    assert run(["fit", str(path), "-o", str(folder / "model"), *names_only]) == 0
    (folder / "odd.jsonl").write_text('{"what": "else"}\n')
    (folder / "other.json").write_text('{"records": 99, "train": [0, 1], "test": [4]}')
    (folder / "damaged.npz").write_bytes(b"rubbish")
    (folder / "log.jsonl").write_text('{"messages": []}\n')
    return folder


def test_without_a_command_the_commands_are_shown_each_in_a_whole_sentence(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = cli().table().partition("Commands:\n")[2]
    assert all(line.endswith(".") for line in shown.splitlines())
    assert "..." not in shown  # a sentence that is too long for its line
    assert {line.split()[0] for line in shown.splitlines()} == {
        name.partition(" ")[0] for name in LEAVES
    }
    assert "convert" in cli("data").out


@pytest.mark.parametrize("command", LEAVES)
def test_every_command_explains_itself_within_100_columns(command, cli):
    shown = cli(*command.split(), "--help").table()
    assert "Usage: dtdr" in shown
    assert ("--json" in shown) == (command not in WITHOUT_JSON)
    arguments = shown.partition("Arguments:\n")[2].partition("\n\n")[0]
    assert not any(kind in arguments for kind in ("<list", "<path>", "<str>", "<int>"))
    for parameter in LEAVES[command].params:
        assert parameter.help.endswith((".", "]")), (command, parameter.name)


def test_version_is_that_of_the_package(cli):
    assert cli("--version") == (0, f"dtdr {package.__version__}\n", "")


MISUSE = {
    "": {"fti": "no such command 'fti'"},
    "fit": {
        "": "missing option",
        "--nonsense": "no such option",
        "-o m": "give the data once",
        "a.jsonl b.jsonl -o m": "cannot read a.jsonl: no such file or directory",
        "DATA -o m --dataset tinyagent": "give the data once",
        "DATA -o m --retriever dtdr-x": "unknown ranker 'dtdr-x'; choose one of bm25, dr",
        "DATA -o m --retriever less-is-more": "'less-is-more' needs an LLM; fit it in Python",
        "DATA -o m --split by-moon": "unknown split 'by-moon'",
        "DATA -o m --split other.json --retriever dr": "it splits 99 records, but there are 12",
        "DATA -o m --tools none.json": "cannot read none.json",
        "DATA -o m --retriever dr --set depth=2": "unknown parameter 'depth'; choose one of",
        "DATA -o m --set seed": "--set 'seed' is not KEY=VALUE",
        "DATA -o m --set seed=1 --set seed=2": "--set gives 'seed' twice",
        "DATA -o m --set seed=-1": "--set seed=-1: expected a whole number from 0 to 4294967295",
        "DATA -o m --set dr.order=2": "--set 'dr.order': before the dot, write dtdr-f",
        "DATA -o m --retriever random --set encoder=lexical": "parameter 'encoder'; choose one of",
        "DATA -o m --retriever lr --set encoder=w2v": "unknown encoder 'w2v'; choose one of",
        "DATA -o m --retriever dtdr-c --set order=2.5": "order=2.5: expected a whole number",
        "DATA -o m --retriever dtdr-c --set strength=x": "--set strength=x: expected a number",
        "DATA -o m --set value_runs=x": "value_runs=x: expected a whole number of at least 0",
        "odd.jsonl -o m": "odd.jsonl: its first record has the keys what. Name one of",
    },
    "rank": {
        "": "missing argument 'MODEL'",
        "model '  '": "the query is empty",
        "model q --top-k -1": "--top-k is -1; it must be at least 1, or 0 for all",
        "model q --run run.json": "give --run alone",
        "model --run run.json --history a": "give --run alone",
        "model --run none.json": "cannot read none.json",
        "model --why": "give a query, or --run FILE",
    },
    "predict": {
        "model": "give a query, or --run FILE",
        "model ' '": "the query is empty",
        "model q": "fit it again with dtdr fit",
        "model q --plans": "plans=True",
        "model --run none.json": "cannot read none.json",
    },
    "evaluate": {
        "DATA --show other": "invalid value for '--show': 'other' is not one of",
        "DATA --metric ndcg": "unknown metric 'ndcg'; choose one of",
        "DATA --dataset tinyagent": "give the data once",
        "--dataset moon": "unknown dataset 'moon'; choose one of bundled",
        "DATA --retriever dr --split nowhere.json": "cannot read nowhere.json",
        "DATA --folds 3 --split paper": "leave out --split",
        "DATA --retriever dr --folds 1": "at least 2",
        "DATA --retriever dr --folds 1000": "need as many groups",
        "DATA --model model --retriever dr": "leave out --retriever",
    },
    "compare": {
        "damaged.npz": "missing argument 'RUN2'",
        "damaged.npz damaged.npz": "not a dtdr run log",
    },
    "compare-runs": {
        "DATA DATA --limit calls": "is not MEASURE=X",
        "DATA DATA --limit calls=-1": "is not MEASURE=X",
        "DATA DATA --limit steps=1": "unknown measure 'steps'; choose one of",
        "DATA DATA --alpha 0": "--alpha is 0.0",
        "DATA none.jsonl": "cannot read none.jsonl",
    },
    "import": {
        "nonsense DATA -o d": "unknown format 'nonsense'",
        "openai-chat -o d": "name at least one log file after openai-chat",
        "openai-chat none.log -o d": "no such file",
        "- - -o d": "standard input can be read once only",
        "dtdr DATA -o d.jsonl.gz": "d.jsonl.gz would not be packed; leave out .gz",
        "log.jsonl -o d --set widow=3": "widow",
        "log.jsonl -o d --set window=0": "--set window=0: expected a whole number of at least 1",
        "log.jsonl -o d --set references=2": "--set references=2: expected true or false",
    },
    "erase": {"DATA --group ''": "the group is empty"},
    "advise": {
        "model DATA --top-k 0": "--top-k",
        "model DATA --set tool_tokens=-1": "tool_tokens is -1; it must be at least 0",
        "model DATA --set tokens=1": "unknown key of --set 'tokens'; choose one of",
        "model none.jsonl": "cannot read none.jsonl",
    },
    "plan": {
        "model q --select greedy": "select 'greedy' asks an LLM; give one, or select retriever",
        "model q --fill both": "fill 'both' asks an LLM; give one, or fill learned or none",
        "model q --fill learned": "fit it again with dtdr fit",
        "model ' '": "query is empty",
        "model q --llm qwen": "unknown LLM",
        "model q --coverage 2": "coverage is 2.0",
        "model q --select retriever --examples nowhere.jsonl": "cannot read nowhere.jsonl",
    },
    "learn": {"model": "name the feedback log"},
    "serve": {
        "'a b=model'": "cannot name a model",
        "m=model m=model": "two models are named 'm'",
        "m=": "has no folder",
        "model --watch nan": "watch_seconds is nan; it must be at least 0",
        "model --limit ranking_seconds=NaN": "must be more than 0",
        "model --port 70000": "between 0 and 65535",
        "model --host no.such.host.invalid --keys x": "cannot read x",
        "model --limit body_bytes=0": "body_bytes is 0",
        "model --limit body=9": "unknown key of --limit 'body'",
        "model --limit tools=many": "expected a whole number",
    },
    "lab": {
        "run": "name a suite, or all",
        "run retreival": "unknown suite 'retreival'; choose one of FILE.toml, ablations",
        "run retrieval --dataset tinyagents": "unknown dataset 'tinyagents'",
        "run retrieval --retriever dtdr-x": "unknown ranker 'dtdr-x'",
        "run retrieval --encoder bert": "unknown encoder 'bert'",
        "run downstream": "asks an LLM",
        "run retrieval --data nowhere.jsonl": "cannot read nowhere.jsonl",
        "run mine.toml": "cannot read mine.toml",
        "report --cache none": "run one with: dtdr lab run SUITE",
    },
    "data": {
        "stats moon": "moon is neither a file nor a set; 'dtdr data list' shows the sets",
        "convert moon -o x": "moon is neither a file nor a set",
        "download bundled": "use it without a download",
        "download ultratool": "on no hub; get it from https://github.com",
        "download moon": "unknown dataset 'moon'",
    },
}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{verb} {words}".strip(), said)
        for verb, all in MISUSE.items()
        for words, said in all.items()
    ],
)
def test_misuse_is_one_sentence_that_names_the_remedy(command, said, folder, cli, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    shown = cli(*shlex.split(command.replace("DATA", "demonstrations.jsonl")))
    assert (shown.code, shown.out) == (2, "")
    assert is_one_sentence(shown.err)
    assert said in shown.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "command",
    ["rank none q", "predict none q", "inspect none", "inspect .", "advise none x", "serve none"],
)
def test_no_model_is_exit_code_1(command, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = cli(*command.split())
    assert (shown.code, shown.out) == (1, "")
    assert is_one_sentence(shown.err)


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("data download taskbench_multimedia", "huggingface_hub", "hub"),
        ("lab run retrieval --quick", "jinja2", "lab"),
        ("serve model", "starlette", "server"),
        ("serve model", "uvicorn", "server"),
        ("serve model", "prometheus_client", "server"),
        ("data convert demonstrations.jsonl -o x.parquet", "pyarrow", "parquet"),
    ],
)
def test_a_missing_extra_is_named(command, module, extra, folder, cli, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, module, None)
    shown = cli(*command.split())
    assert shown.code == 1
    assert is_one_sentence(shown.err)
    assert f"pip install 'dtdr[{extra}]'" in shown.err


def test_names_of_others_cannot_control_the_terminal(tmp_path, cli):
    data = small_data.write(tmp_path)
    cli("fit", data, "-o", tmp_path / "model", "--retriever", "random", "--no-plans")
    tools = [{"name": "\x1b[2Jclear\x9b"}, {"name": "a\u202eb"}, {"name": "end"}]
    change_config(tmp_path / "model", tools=tools)
    for words in (["inspect"], ["rank", "q", "--history", "\x1b[1m"]):
        shown = cli(words[0], tmp_path / "model", *words[1:])
        assert "\\x1b[2Jclear\\x9b" in shown.table()
        assert not {"\x1b", "\x9b", "\u202e"} & {*shown.out, *shown.err}


# -- processes -----------------------------------------------------------------------------------


def test_ctrl_c_during_a_fit_leaves_the_old_model_intact(folder, tmp_path):
    model = folder / "model"
    before = {item.name: sha256_of(item) for item in model.iterdir()}
    pipe = tmp_path / "demonstrations.jsonl"
    os.mkfifo(pipe)
    process = start(["fit", pipe, "-o", model, "--retriever", "random", "--force"])
    with pipe.open("wb") as stream:  # opens when the program has begun to read
        stream.write(b'{"id": "1", "query": "q", "calls": []}\n')
        stream.flush()
        process.send_signal(signal.SIGINT)
    out, err = process.communicate()  # a read that began before the signal ends with the pipe
    assert process.returncode == 130
    assert out == b""
    assert err == b"dtdr: interrupted\n"
    assert {item.name: sha256_of(item) for item in model.iterdir()} == before
    assert [item.name for item in model.parent.iterdir() if "partial" in item.name] == []


def test_reader_that_goes_away_is_no_error_message(folder):
    process = start(["inspect", folder / "model", "--json"])
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_full_disk_under_the_output_is_one_sentence(folder):
    with open("/dev/full", "wb") as full:
        process = start(["inspect", folder / "model"], stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err == b"dtdr: cannot write the output: the disk is full\n"


def test_bug_shows_its_traceback(folder, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("dtdr.rankers.model_folder.read", broken)
    with pytest.raises(ZeroDivisionError):
        run(["rank", str(folder / "model"), "mail Ann"])


def test_terminal_without_unicode_gets_escapes_and_no_traceback(folder):
    done = subprocess.run(
        [*PROGRAM, "evaluate", folder / "demonstrations.jsonl", "--retriever", "random"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"random" in done.stdout
