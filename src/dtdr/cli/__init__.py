"""The command line: one module a command."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, NoReturn

import typer

import dtdr
from dtdr.cli import (
    advise,
    compare,
    compare_runs,
    data,
    demo,
    erase,
    evaluate,
    fit,
    import_,
    inspect,
    lab,
    learn,
    mcp,
    plan,
    predict,
    prompt,
    rank,
    serve,
    studio,
    tune,
)
from dtdr.cli.output import WIDTH, note
from dtdr.cli.project_file import read_defaults
from dtdr.errors import DtdrError


class LogFormat(StrEnum):
    """How lines of the log look."""

    TEXT = "text"
    JSON = "json"


app = typer.Typer(
    name="dtdr",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)
app.command("demo")(demo.demo)
app.command("fit")(fit.fit)
app.command("rank")(rank.rank)
app.command("predict")(predict.predict)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("compare-runs")(compare_runs.compare_runs)
app.command("inspect")(inspect.inspect)
app.command("import")(import_.import_traces)
app.command("erase")(erase.erase)
app.command("advise")(advise.advise)
app.command("prompt")(prompt.prompt)
app.command("plan")(plan.plan)
app.command("tune")(tune.tune)
app.command("mcp")(mcp.mcp)
app.add_typer(data.app, name="data")
app.add_typer(lab.app, name="lab")
app.command("serve")(serve.serve)
app.command("learn")(learn.learn)
app.add_typer(serve.keys, name="keys")
app.command("studio")(studio.studio)

_UsageError: type[BaseException] = typer.BadParameter.__base__ or typer.BadParameter
"""What typer raises for misuse; its place differs between versions of typer."""


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Say on standard error what is done and how long it took."
        ),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How --verbose says it.")
    ] = LogFormat.TEXT,
) -> None:
    """Rank which tools an LLM agent needs next, learned from demonstrations.

    Start with: dtdr demo
    """
    if version:
        typer.echo(f"dtdr {dtdr.__version__}")
        raise typer.Exit
    if verbose:
        _log_to_standard_error(log_format)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def _log_to_standard_error(log_format: LogFormat) -> None:
    handler = logging.StreamHandler()
    if log_format is LogFormat.JSON:
        from dtdr.server.logs import JsonFormatter

        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("dtdr: %(message)s"))
    logger = logging.getLogger("dtdr")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)


def main() -> None:
    """The ``dtdr`` program: user errors are one sentence on standard error, never a traceback."""
    # As for Ctrl-C, what was begun is ended in order: worker processes, files half written.
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(sys.argv[1:]))


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
        # What is left in the buffer can go nowhere; Python would try again on its way out.
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
        with command.make_context(
            "dtdr", list(arguments), default_map=read_defaults(command)
        ) as context:
            command.invoke(context)
    except typer.Exit as error:
        return int(error.exit_code)
    return 0


def _usage(error: BaseException) -> str:
    message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "dtdr")
    sentence = " ".join(message.split()).replace(". Did you mean", "; did you mean").rstrip(".")
    see = f" See: {path} --help" if sentence.endswith("?") else f"; see: {path} --help"
    return sentence[:1].lower() + sentence[1:] + see
