import contextlib
import os
import signal
import subprocess

import pytest

import dtdr as package
from dtdr.cli import run
from tests import small_data
from tests.command_line import PROGRAM, dtdr, is_one_sentence, start
from tests.helpers import sha256_of

COMMANDS = ("demo", "fit", "rank", "evaluate", "compare", "inspect", "data")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    path = small_data.write(folder)
    assert run(["fit", str(path), "-o", str(folder / "model"), "--retriever", "random"]) == 0
    return folder / "model"


def test_without_a_command_the_commands_are_shown_each_in_a_whole_sentence(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)
    assert all(line.endswith(".") for line in shown.partition("Commands:\n")[2].splitlines())
    assert "..." not in shown.partition("Commands:\n")[2]


def test_group_without_a_command_shows_its_commands(capsys):
    assert run(["data"]) == 0
    assert "convert" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_within_100_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert run([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: dtdr" in shown
    assert max(map(len, shown.splitlines())) <= 100
    arguments = shown.partition("Arguments:\n")[2].partition("\n\n")[0]
    assert not any(kind in arguments for kind in ("<list", "<path>", "<str>", "<int>"))


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "data"])
def test_every_command_can_print_json(command, capsys):
    run([command, "--help"])
    assert "--json" in capsys.readouterr().out


def test_version_is_that_of_the_package(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr() == (f"dtdr {package.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fti"], "no such command 'fti'"),
        (["fit", "--nonsense"], "no such option"),
        (["fit"], "missing option"),
        (["rank"], "missing argument 'MODEL'"),
        (["compare", "only-one.jsonl"], "missing argument 'RUN2'"),
        (["fit", "x", "-o", "y", "--seed", "abc"], "--seed"),
        (["evaluate", "--by", "other"], "other"),
    ],
)
def test_misuse_is_one_sentence_and_exit_code_2(arguments, said, capsys):
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert said in error
    assert "--help" in error


def test_misuse_in_a_process_of_its_own_shows_no_traceback():
    code, out, err = dtdr("fit", "no-such-file.jsonl", "-o", "unused")
    assert (code, out) == (2, "")
    assert is_one_sentence(err)
    assert "cannot read no-such-file.jsonl: no such file or directory" in err


def test_broken_model_is_exit_code_1(tmp_path, capsys):
    assert run(["rank", str(tmp_path / "none"), "mail Ann"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert is_one_sentence(shown.err)


def test_ctrl_c_during_a_fit_leaves_the_old_model_intact(model, tmp_path):
    before = {item.name: sha256_of(item) for item in model.iterdir()}
    pipe = tmp_path / "demonstrations.jsonl"
    os.mkfifo(pipe)
    process = start(["fit", pipe, "-o", model, "--retriever", "random", "--force"])
    with pipe.open("wb") as stream:  # opens when the program has begun to read
        stream.write(b'{"id": "1", "query": "q", "calls": []}\n')
        stream.flush()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert out == b""
    assert err == b"dtdr: interrupted\n"
    assert {item.name: sha256_of(item) for item in model.iterdir()} == before
    assert [item.name for item in model.parent.iterdir() if "partial" in item.name] == []


def test_reader_that_goes_away_is_no_error_message(model):
    process = start(["rank", model, "--top", "0"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"query": "mail Ann"}\n')
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):  # it may have noticed and ended by now
        process.stdin.write(b'{"query": "mail Ann"}\n' * 100)
        process.stdin.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_full_disk_under_the_output_is_one_sentence(model):
    with open("/dev/full", "wb") as full:
        process = start(["inspect", model], stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err == b"dtdr: cannot write the output: the disk is full\n"


def test_bug_shows_its_traceback(model, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("dtdr.rankers.model_folder.read", broken)
    with pytest.raises(ZeroDivisionError):
        run(["rank", str(model), "mail Ann"])


def test_terminal_without_unicode_gets_escapes_and_no_traceback(tmp_path):
    path = small_data.write(tmp_path)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*PROGRAM, "evaluate", path, "--retriever", "random"],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"random" in done.stdout
