"""Commands are plain functions whose docstrings explain their options."""

from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from dtdr.cli.signature import CommandGroup


def make(function):
    app = CommandGroup(rich_markup_mode=None)
    app.command("walk")(function)
    app.command("other")(lambda: None)
    return app


def walk(
    start: Path,
    goal: str | None = None,
    *,
    pace: Annotated[int, typer.Option(min=1)] = 3,
    rest: bool = True,
    quick_way: bool = False,
    known: bool | None = None,
) -> None:
    """Walk from one place to another.

    Args:
        start (PLACE): Where the walk
            begins.
        goal (PLACE): Where it ends.
        pace (N): Steps a second.
        rest: Sit down half-way.
        quick_way: Take the short path.
    """
    typer.echo(f"{start} {goal} {pace} {rest} {quick_way} {known}")


def test_arguments_come_before_the_star_and_options_after_it():
    runner = CliRunner()
    done = runner.invoke(make(walk), ["walk", "a", "b", "--no-rest", "--quick-way", "--no-known"])
    assert done.stdout == "a b 3 False True False\n"
    assert runner.invoke(make(walk), ["walk", "a"]).stdout == "a None 3 True False None\n"
    assert runner.invoke(make(walk), ["walk", "a", "--pace", "0"]).exit_code == 2
    assert runner.invoke(make(walk), ["walk", "a", "--no-quick-way"]).exit_code == 2


def test_the_docstring_gives_metavars_and_help():
    shown = " ".join(CliRunner().invoke(make(walk), ["walk", "--help"]).stdout.split())
    assert "Walk from one place to another." in shown
    assert "Args:" not in shown
    assert "Where the walk begins. [required]" in shown
    assert "--pace N Steps a second." in shown
    assert "--quick-way Take the short path." in shown
