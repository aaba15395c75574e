"""Run the command line as a user does, in this process or in another."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner, Result

from dtdr.cli import run

PROGRAM = [sys.executable, "-m", "dtdr"]


class Shown(NamedTuple):
    """What a command printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The JSON object on standard output, of a command that succeeded."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    def table(self) -> str:
        """Standard output of a command that succeeded, which fits 100 columns."""
        assert self.code == 0, self.err
        assert max(map(len, self.out.splitlines())) <= 100
        return self.out


def shown_by(capsys: pytest.CaptureFixture[str], *arguments: object) -> Shown:
    """Run ``dtdr`` in this process."""
    capsys.readouterr()
    return Shown(run([*map(str, arguments)]), *capsys.readouterr())


def start(
    arguments: Sequence[str | Path], program: Sequence[str] = PROGRAM, **options
) -> subprocess.Popen[bytes]:
    """``dtdr`` in another process, with pipes.

    Ctrl-C reaches it even where these tests run in the background of a shell, which ignores it.
    """
    environment = {**os.environ, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("COLUMNS", None)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    handled = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen([*program, *map(str, arguments)], env=environment, **options)
    finally:
        signal.signal(signal.SIGINT, handled)


def dtdr(*arguments: str | Path, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``dtdr`` in another process."""
    process = start(arguments, stdin=subprocess.PIPE)
    out, err = process.communicate(stdin.encode())
    return process.returncode, out.decode(), err.decode()


def invoke(app: typer.Typer, *arguments: object) -> Result:
    """Run commands in this process; an error that is no exit is raised."""
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


def is_one_sentence(error: str) -> bool:
    """Whether standard error is one line that names the program, without a traceback."""
    return error.startswith("dtdr: ") and error.count("\n") == 1 and "Traceback" not in error
