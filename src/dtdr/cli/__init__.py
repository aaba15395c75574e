"""The command line: one module a command."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from dtdr._version import VERSION
from dtdr.cli.output import WIDTH, PrintableFormatter, note
from dtdr.cli.signature import CommandGroup
from dtdr.errors import DtdrError
from dtdr.net.threads import is_daemon_working

_COMMANDS = {
    "demo": ("demo", "demo"),
    "fit": ("fit", "fit"),
    "rank": ("rank", "rank"),
    "predict": ("predict", "predict"),
    "evaluate": ("evaluate", "evaluate"),
    "compare": ("compare", "compare"),
    "compare-runs": ("compare_runs", "compare_runs"),
    "inspect": ("inspect", "inspect"),
    "import": ("import_", "import_logs"),
    "erase": ("erase", "erase"),
    "advise": ("advise", "advise"),
    "plan": ("plan", "plan"),
    "mcp": ("mcp", "mcp"),
    "serve": ("serve", "serve"),
    "learn": ("learn", "learn"),
    "studio": ("studio", "studio"),
    "data": ("data", "app"),
    "lab": ("lab", "app"),
    "keys": ("serve", "keys"),
}
"""Module and function of each command, or its group of further commands."""


@cache
def _command(name: str) -> Any:
    module, attribute = _COMMANDS[name]
    command = getattr(import_module(f"{__name__}.{module}"), attribute)
    alone = CommandGroup(rich_markup_mode=None)
    if isinstance(command, typer.Typer):
        alone.add_typer(command, name=name)
    else:
        alone.command(name)(command)
    built = typer.main.get_group(alone).commands[name]
    for item in (built, *getattr(built, "commands", {}).values()):
        for parameter in item.params:
            # Newer versions of typer print Python's types next to arguments, such as list[Path].
            if isinstance(parameter, typer.core.TyperArgument):
                vars(parameter)["display_type_rich"] = lambda ctx: None
    return built


class _Program(typer.core.TyperGroup):
    """The group of all commands; each is imported on first use, since a run needs only one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: Any = dict.fromkeys(_COMMANDS)
        self.commands = names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, or None."""
        return _command(cmd_name) if cmd_name in _COMMANDS else None


app = typer.Typer(
    name="dtdr",
    cls=_Program,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)

_UsageError: type[BaseException] = typer.BadParameter.__base__ or typer.BadParameter
"""The exception of typer for misuse; its module differs between versions of typer."""


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Log progress and timings to standard error."),
    ] = False,
) -> None:
    """Learn from demonstrations, and rank the tools that an LLM agent needs next.

    A demonstration is a query and the calls that answered it. A ranker is a ranking method.

    Start with: dtdr demo

    With your agent's logs: dtdr fit requests.jsonl -o model
    """
    if version:
        typer.echo(f"dtdr {VERSION}")
        raise typer.Exit
    _log_to_standard_error(logging.INFO if verbose else logging.WARNING)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def _log_to_standard_error(level: int) -> None:
    """Standard output has only results, or the protocol of ``dtdr mcp``."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("dtdr: %(message)s"))
    logger = logging.getLogger("dtdr")
    logger.handlers[:] = [handler]
    logger.setLevel(level)


def main() -> None:
    """The ``dtdr`` program: user errors are one sentence on standard error, never a traceback."""
    # As after Ctrl-C, stop worker processes and remove unfinished files.
    signal.signal(signal.SIGTERM, _terminate)
    _end(run(sys.argv[1:]))


def _end(code: int) -> NoReturn:
    """End the process, without Python's finalization where a thread still learns or answers."""
    if is_daemon_working():
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


class _Terminated(KeyboardInterrupt):
    """The process was asked to end."""


def _terminate(*_: object) -> NoReturn:
    raise _Terminated


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit code: 0, 1, 2 for misuse, 130 for Ctrl-C, 143 for a request to end.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            # A terminal that cannot show a character gets its escape, not a traceback.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except _Terminated:
        note("terminated")
        return 143
    except (KeyboardInterrupt, typer.Abort):
        note("interrupted")
        return 130
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(str(error))
            return 0
        note(_usage(error))
        return 2
    except DtdrError as error:
        note(str(error))
        return error.exit_code
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # Drop the buffer, which Python would try to write again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.ENOSPC:
            note("cannot write the output: the disk is full")
        return 1
    return code


def _invoke(arguments: Sequence[str]) -> int:
    command = typer.main.get_command(app)
    if "_DTDR_COMPLETE" in os.environ:  # asked by a shell for completions
        command.main(list(arguments), prog_name="dtdr", standalone_mode=False)
        return 0
    try:
        with command.make_context("dtdr", _keep_separator(arguments)) as context:
            command.invoke(context)
    except typer.Exit as error:
        return int(error.exit_code)
    return 0


def _keep_separator(arguments: Sequence[str]) -> list[str]:
    """The command line with the first ``--`` of ``dtdr mcp`` twice.

    The parser takes the first one away, and a server would be read as the model.
    """
    words = list(arguments)
    command = next((word for word in words if not word.startswith("-")), None)
    if command == "mcp" and "--" in words:
        words.insert(words.index("--"), "--")
    return words


def _usage(error: BaseException) -> str:
    message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "dtdr")
    message = message.replace("Value error, ", "").replace(". Did you mean", "; did you mean")
    sentence = " ".join(message.split()).rstrip(".")
    see = f" See: {path} --help" if sentence.endswith("?") else f"; see: {path} --help"
    return sentence[:1].lower() + sentence[1:] + see
