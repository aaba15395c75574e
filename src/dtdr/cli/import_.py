"""``dtdr import``: an agent's logs in, demonstrations out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dtdr import logs
from dtdr.cli import options
from dtdr.cli.inputs import report_bad, save_tools_next_to
from dtdr.cli.output import note, plural, print_json, print_table, quote
from dtdr.conversation.injected import INJECTED_TAGS
from dtdr.data.jsonl import BadRecords
from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.errors import InputError
from dtdr.logs.importer import explain_dropped, explain_failures
from dtdr.logs.log_format import LogFormat
from dtdr.logs.redaction_rules import BUILT_IN
from dtdr.logs.streams import file_size

MEGABYTE = 1_000_000


class _ImportSettings(msgspec.Struct, frozen=True):
    """What ``--set`` takes: choices that few imports need."""

    output_length: Annotated[int, msgspec.Meta(ge=0)] = OUTPUT_LENGTH
    leave_out: str = ",".join(INJECTED_TAGS)
    empty: bool = False
    query: str = ""
    references: bool = True
    window: Annotated[int, msgspec.Meta(ge=1)] = 64


def import_logs(
    files: list[str],
    *,
    output: Annotated[Path, typer.Option("--output", "-o")],
    redact: bool = False,
    redact_rules: Path | None = None,
    settings: Annotated[
        list[str] | None, options.further_settings(_ImportSettings, "empty=true", "logs")
    ] = None,
    skip_bad: options.SKIP_BAD = False,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Turn an agent's logs into demonstrations to learn from.

    Formats and options with examples: docs/formats.md and docs/logs.md

    Example: dtdr import openai-chat requests.jsonl -o demonstrations.jsonl

    Args:
        files (FILES): Log files, plain or gzipped, or - for standard input. You may name the
            format before them: openai-chat, openai-responses, anthropic, otel, openinference,
            langsmith, langfuse, mcp, claude-code, codex or dtdr; by default dtdr detects it.
        output (FILE): File to write: Parquet if its name ends in .parquet, else JSON lines. The
            tools of the logs go into tools.json next to it.
        redact: Remove secrets and personal data before writing.
        redact_rules (FILE): Redact, and add your own rules: a JSON or TOML file of names and
            regular expressions.
    """
    own = msgspec.structs.asdict(options.read_settings(settings, _ImportSettings))
    window, tags = own.pop("window"), own.pop("leave_out").split(",")
    strip = tuple(tag.strip() for tag in tags if tag.strip())
    own |= {"leave_out": strip, "window_bytes": window * MEGABYTE}
    choices = logs.CutOptions(**own)
    fmt, paths = _format_and_files(files)
    if any(path.exists() and output.exists() and path.samefile(output) for path in paths):
        raise InputError(f"{output} is one of the logs; write the demonstrations to another file")
    redactor = None
    if redact or redact_rules is not None:
        more = logs.read_rules(redact_rules) if redact_rules is not None else ()
        redactor = logs.Redactor((*more, *BUILT_IN))
    reader = logs.LogReader(paths)
    if fmt is None:
        fmt = logs.detect_format(reader)
        note(f"{paths[0]} is read as {fmt.name}: {fmt.title}")
    started = time.perf_counter()
    bad = BadRecords() if skip_bad else None
    importer = logs.Importer(fmt, reader, choices, redactor=redactor, bad=bad)
    logs.import_logs(importer, output, force=force)
    tools = save_tools_next_to(output, importer.tools(), force=force)
    summary = {
        **importer.summary(),
        "output": str(output),
        "tools_output": tools,
        "bytes": sum(map(file_size, paths)),
        "seconds": round(time.perf_counter() - started, 3),
    }
    report_bad(bad)
    for sentence in (
        explain_dropped(summary["dropped"], summary["runs"]),
        explain_failures(summary["failed_runs"], summary["kept"]),
    ):
        if sentence:
            note(sentence)
    if as_json:
        print_json(summary)
    else:
        _print(summary)


def _format_and_files(texts: Sequence[str]) -> tuple[type[LogFormat] | None, list[Path]]:
    """The format, if the first argument names one, and the files."""
    first, *rest = texts
    if first.strip().replace("_", "-") in logs.FORMATS and (rest or not Path(first).exists()):
        if not rest:
            raise InputError(f"name at least one log file after {first}, or - for standard input")
        return logs.find_format(first), [Path(name) for name in rest]
    if rest and not Path(first).exists() and first != "-":
        logs.find_format(first)  # says which formats there are
    return None, [Path(name) for name in texts]


def _print(summary: dict[str, Any]) -> None:
    rows = [
        ("records read", summary["records"], f"from {plural(summary['files'], 'file')}"),
        ("bad records", summary["bad_records"], "left out by --skip-bad"),
        ("superseded requests", summary["superseded_requests"], "a later request repeats them"),
        ("runs", summary["runs"], ""),
        ("  kept", summary["kept"], f"{summary['calls']:,} calls"),
        ("  nested", summary["nested"], "ran inside a call of another"),
        *(("  dropped", number, reason) for reason, number in summary["dropped"].items()),
        ("failed calls", summary["failed_calls"], "kept, with their status"),
        ("failed runs", summary["failed_runs"], "fit leaves them out"),
        ("references", summary["references"], "to earlier outputs"),
        ("outputs cut", summary["cut_outputs"], "to output_length characters"),
        ("results left out", summary["unmatched_results"], "the call is missing or has a result"),
        ("tool definitions", summary["tools"], ""),
        *(("redacted", number, rule) for rule, number in summary["redacted"].items()),
    ]
    always = ("records read", "runs", "  kept")
    shown = [row for row in rows if row[1] or row[0] in always]
    speed = summary["bytes"] / MEGABYTE / max(summary["seconds"], 1e-9)
    caption = f"{summary['format']}, {summary['seconds']:.1f} s, {speed:.0f} MB/s"
    print_table(("What", "Count", "Note"), shown, caption=caption)
    typer.echo(f"wrote {summary['output']}")
    if summary["tools_output"]:
        typer.echo(f"wrote {summary['tools_output']}")
    typer.echo(f"next: dtdr fit {quote(summary['output'])} -o model")
