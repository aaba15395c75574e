"""``dtdr import``: an agent's logs in, demonstrations out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dtdr import logs
from dtdr.cli import options
from dtdr.cli.inputs import report_bad, save_tools_next_to
from dtdr.cli.output import note, plural, print_json, print_table, quote, say
from dtdr.conversation.injected import INJECTED_TAGS
from dtdr.data.jsonl import BadRecords
from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.data.shards import as_url
from dtdr.errors import InputError
from dtdr.logs.advice import explain_dropped, explain_failures, warnings
from dtdr.logs.log_format import LogFormat
from dtdr.logs.redaction_rules import BUILT_IN
from dtdr.logs.sources import file_size, find_logs, is_folder, show

MEGABYTE = 1_000_000
SAMPLE_LENGTH = 80
SAMPLE_CALLS = 6
"""Characters of a query, and calls of a turn, that the summary shows."""


class _ImportSettings(msgspec.Struct, frozen=True):
    """Keys of ``--set`` that few imports need."""

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
    format_: Annotated[str | None, typer.Option("--format")] = None,
    redact: bool = False,
    redact_rules: Path | None = None,
    group_by: str = "",
    engine: str | None = None,
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
        files (FILES): Log files, plain or gzipped, folders of them, or - for standard input. You
            may name the format before them, such as openai-chat, claude-code or otel
            (docs/formats.md); by default dtdr detects that of each file. A URL such as
            s3://bucket/logs is a file or folder too.
        output (FILE): File to write: Parquet if its name ends in .parquet, else JSON lines. The
            tools of the logs go into tools.json next to it.
        format_ (NAME): Format of all files, or module:function of your own.
        redact: Remove secrets and personal data before writing.
        redact_rules (FILE): Redact, and add your own rules: a JSON or TOML file of names and
            regular expressions.
        group_by (KEY): Key of the logs that names the group of a run, such as user_id or
            metadata.customer; by default session_id, thread_id, conversation_id or user.
        engine (ADDRESS): Read each file in a task of a cluster: dask://HOST:8786, ray://HOST:10001
            or ray://auto. Its workers must be able to open FILES under the same names. Not for
            formats whose conversations span files; writes Parquet.
    """
    options_of_cut = msgspec.structs.asdict(options.read_settings(settings, _ImportSettings))
    window, tags = options_of_cut.pop("window"), options_of_cut.pop("leave_out").split(",")
    strip = tuple(tag.strip() for tag in tags if tag.strip())
    options_of_cut |= {"group_by": group_by, "leave_out": strip, "window_bytes": window * MEGABYTE}
    fmt, paths = _format_and_files(files, format_)
    if any(path.is_file() and output.exists() and path.samefile(output) for path in paths):
        raise InputError(f"{output} is one of the logs; write the demonstrations to another file")
    redactor = None
    if redact or redact_rules is not None:
        more = logs.read_rules(redact_rules) if redact_rules is not None else ()
        redactor = logs.Redactor((*more, *BUILT_IN))
    started = time.perf_counter()
    has_folder = any(map(is_folder, paths))
    bad = BadRecords() if skip_bad or has_folder else None
    how: dict[str, Any] = {"options": logs.CutOptions(**options_of_cut)}
    how |= {"redactor": redactor, "bad": bad}
    if engine is None:
        importer = _open_logs(fmt, paths, logs.Importer, how)
        logs.import_logs(importer, output, force=force)
    else:
        reader = partial(logs.FileImporter, run_tasks=partial(_run_tasks_on, engine))
        importer = _open_logs(fmt, paths, reader, how)
        logs.import_file_by_file(importer, output, force=force)
    tools = save_tools_next_to(output, importer.tools(), force=force)
    summary = {
        **importer.summary(),
        "output": str(output),
        "tools_output": tools,
        "bytes": sum(map(file_size, importer.paths)),
        "seconds": round(time.perf_counter() - started, 3),
    }
    report_bad(bad)
    for sentence in _sentences(summary):
        note(sentence)
    if as_json:
        print_json(summary)
    else:
        _print(summary)


def _open_logs(
    fmt: type[LogFormat] | None,
    paths: list[Path],
    importer: Callable[..., logs.Importer],
    how: dict[str, Any],
) -> logs.Importer | logs.MixedImporter:
    """An importer of the files, each read as what it is, or all as the format that is named."""
    if fmt is None and logs.needs_grouping(paths):
        files, skipped = logs.group_files(paths)
        for each, listed in files.items():
            note(f"{plural(len(listed), 'file')} read as {each.name}: {each.title}")
        return logs.MixedImporter(files, **how, skipped=skipped, importer=importer)
    if any(map(is_folder, paths)):
        named = (find_logs(path) if is_folder(path) else [path] for path in paths)
        paths = [file for part in named for file in part]
    reader = logs.LogReader(paths)
    if fmt is None:
        fmt = logs.detect_format(reader)
        note(f"{show(paths[0])} is read as {fmt.name}: {fmt.title}")
    return importer(fmt, reader, **how)


def _run_tasks_on(address: str, function: Any, items: Any, *arguments: Any) -> Iterator[Any]:
    """The function's results for the items, from the workers of a cluster."""
    from dtdr.predict.counting.engine import connect, run_tasks  # joblib is slow to import

    cluster = connect(address)
    try:
        yield from run_tasks(function, items, *arguments, label="Importing", engine=cluster)
    finally:
        cluster.close()


def _sentences(summary: dict[str, Any]) -> Iterator[str]:
    """Sentences about an import, in addition to its numbers."""
    yield from filter(
        None,
        (
            explain_dropped(summary["dropped"], summary["runs"]),
            explain_failures(summary["failed_runs"], summary["kept"]),
        ),
    )
    for about in summary.get("formats", [summary]):
        yield from warnings(about)
    for reason, paths in summary.get("skipped", {}).items():
        names = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
        yield f"skipped {plural(len(paths), 'file')} ({names}): {reason}"


def _format_and_files(
    texts: Sequence[str], name: str | None
) -> tuple[type[LogFormat] | None, list[Path]]:
    """The format, if the option or the first argument names one, and the files."""
    if name is not None:
        return logs.find_format(name), [Path(text) for text in texts]
    first, *rest = texts
    is_name = first.strip().replace("_", "-") in logs.known_names()
    if is_name and (rest or not Path(first).exists()):
        if not rest:
            raise InputError(f"name at least one log file after {first}, or - for standard input")
        return logs.find_format(first), [Path(name) for name in rest]
    if rest and not Path(first).exists() and first != "-" and as_url(first) is None:
        logs.find_format(first)  # says which formats there are
    return None, [Path(name) for name in texts]


def _print(summary: dict[str, Any]) -> None:
    formats = summary.get("formats", [summary])
    for about in formats:
        caption = f"{about['format']}, {plural(about['files'], 'file')}"
        if len(formats) == 1:
            speed = summary["bytes"] / MEGABYTE / max(summary["seconds"], 1e-9)
            caption = f"{about['format']}, {summary['seconds']:.1f} s, {speed:.0f} MB/s"
        print_table(("What", "Count", "Note"), _rows(about), caption=caption)
        _print_samples(about["samples"])
    if skipped := sum(map(len, summary.get("skipped", {}).values())):
        typer.echo(f"skipped {plural(skipped, 'file')}, named above")
    typer.echo(f"wrote {summary['output']}")
    if summary["tools_output"]:
        typer.echo(f"wrote {summary['tools_output']}")
    typer.echo(f"next: dtdr fit {quote(summary['output'])} -o model")


def _rows(about: dict[str, Any]) -> list[tuple[str, int, str]]:
    rows = [
        ("records read", about["records"], f"from {plural(about['files'], 'file')}"),
        ("bad records", about["bad_records"], "left out"),
        *(("ignored", count, kind) for kind, count in about["ignored"].items()),
        *(("not read", count, kind) for kind, count in about["unknown"].items()),
        ("superseded requests", about["superseded_requests"], "a later request repeats them"),
        ("replayed turns", about["replayed_turns"], "another session has them, too"),
        ("messages", about["messages"], "of the user and the agent"),
        ("runs", about["runs"], ""),
        ("  kept", about["kept"], f"{about['calls']:,} calls"),
        ("  nested", about["nested"], "ran inside a call of another"),
        *(("  dropped", count, reason) for reason, count in about["dropped"].items()),
        ("failed calls", about["failed_calls"], "kept, with their status"),
        ("failed runs", about["failed_runs"], "kept, with their outcome"),
        ("references", about["references"], "to earlier outputs"),
        ("outputs cut", about["cut_outputs"], "to output_length characters"),
        ("results left out", about["unmatched_results"], "the call is missing or has a result"),
        ("tool definitions", about["tools"], ""),
        *(("redacted", count, rule) for rule, count in about["redacted"].items()),
    ]
    always = ("records read", "runs", "  kept")
    return [row for row in rows if row[1] or row[0] in always]


def _print_samples(samples: list[dict[str, Any]]) -> None:
    """Some turns to check by eye, each in a line."""
    for sample in samples:
        calls = " > ".join(sample["calls"][:SAMPLE_CALLS]) or "no call"
        more = len(sample["calls"]) - SAMPLE_CALLS
        query = " ".join(sample["query"].split())[:SAMPLE_LENGTH]
        rest = f" … {more} more" if more > 0 else ""
        say(f"  {query!r}: {calls}{rest} ({sample['outcome']})")
