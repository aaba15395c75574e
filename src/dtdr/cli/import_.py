"""``dtdr import``: an agent's logs in, demonstrations out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr import engines
from dtdr.cli import options
from dtdr.cli.output import console, note, print_json
from dtdr.errors import InputError, OutputError
from dtdr.jsonl import BadRecords
from dtdr.outputs import OUTPUT_LENGTH
from dtdr.traces.cut_options import Failed, Order, Outputs, Turns
from dtdr.traces.injected import INJECTED_TAGS
from dtdr.traces.streams import file_size

if TYPE_CHECKING:
    from dtdr.traces.base import TraceFormat

MEGABYTE = 1_000_000


def import_traces(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="Log files, plain or gzipped, or - for standard input. The format may be named "
            "before them: openai-chat, openai-responses, anthropic, otel, openinference, "
            "langsmith, langfuse, mcp, atif, agentdojo, claude-code, pairs or dtdr; else it is "
            "found.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The demonstrations to write, as JSON lines or (.parquet) as Parquet; with "
            "--workers or --engine ray a folder, with a Parquet file a log.",
        ),
    ],
    tools_out: Annotated[
        Path | None,
        typer.Option(
            "--tools-out", metavar="FILE", help="Write the tool definitions in the logs, too."
        ),
    ] = None,
    turns: Annotated[
        Turns,
        typer.Option(
            "--turns",
            help="One demonstration a user message, with what came before beside it (split, whole) "
            "or the earlier messages in its query too (context); or one a conversation.",
        ),
    ] = Turns.SPLIT,
    failed: Annotated[
        Failed,
        typer.Option(
            "--failed",
            help="Drop failed calls that later succeeded and mark runs with one that did not; "
            "only mark; drop all failed calls; or keep them as any other.",
        ),
    ] = Failed.DROP_RETRIED,
    order: Annotated[
        Order,
        typer.Option(
            "--order",
            help="Keep the order in which the agent's messages made the calls, or only what "
            "references between them tell.",
        ),
    ] = Order.MESSAGES,
    outputs: Annotated[
        Outputs,
        typer.Option(
            "--outputs",
            help="Write what calls returned, only its keys, types and sizes, or neither.",
        ),
    ] = Outputs.TEXT,
    output_length: Annotated[
        int,
        typer.Option(
            "--output-length",
            metavar="N",
            min=0,
            help="Characters written of an output, cut at a whole value.",
        ),
    ] = OUTPUT_LENGTH,
    leave_out: Annotated[
        str,
        typer.Option(
            "--leave-out",
            metavar="TAGS",
            help="Take blocks <tag>…</tag> of these tags out of users' messages, since a program "
            "put them there; separated by commas, '' leaves all in.",
            show_default=False,
        ),
    ] = ",".join(INJECTED_TAGS),
    nested: Annotated[
        bool,
        typer.Option(
            "--nested/--no-nested",
            help="Whether what ran inside a call, such as a sub-agent, becomes a demonstration of "
            "its own, with its parent.",
        ),
    ] = True,
    empty: Annotated[
        bool, typer.Option("--empty", help="Keep turns that called no tool, as empty plans.")
    ] = False,
    query: Annotated[
        str,
        typer.Option("--query", metavar="TEXT", help="Query of runs whose log holds none."),
    ] = "",
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Scrub secrets and personal data before writing."),
    ] = False,
    redact_rules: Annotated[
        Path | None,
        typer.Option(
            "--redact-rules",
            metavar="FILE",
            help="More rules: a JSON or TOML object, name to regular expression; implies --redact.",
        ),
    ] = None,
    references: Annotated[
        bool,
        typer.Option(
            "--references/--no-references",
            help="Whether arguments that match earlier outputs become references to them.",
        ),
    ] = True,
    reference_length: Annotated[
        int,
        typer.Option(
            "--reference-length",
            metavar="N",
            min=1,
            help="Characters that a text needs to count as a reference.",
        ),
    ] = 4,
    gap: Annotated[
        float,
        typer.Option(
            "--gap", metavar="SECONDS", min=0, help="Pause that ends a run in logs without users."
        ),
    ] = 300.0,
    window: Annotated[
        int,
        typer.Option(
            "--window", metavar="MB", min=1, help="Log held of conversations that may go on."
        ),
    ] = 64,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an import that was interrupted.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Processes that read logs side by side, where no conversation stands in two.",
            show_default=False,
        ),
    ] = None,
    engine: options.ENGINE = engines.PROCESSES,
    address: options.ADDRESS = None,
    skip_bad: options.SKIP_BAD = False,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Turn an agent's logs into demonstrations to learn from.

    Formats, choices and a small example of each: docs/traces.md

    Example: dtdr import openai-chat requests.jsonl -o demonstrations.jsonl
    """
    from dtdr import traces
    from dtdr.demonstration_files import read_demonstrations, save_demonstrations, save_tools
    from dtdr.parquet import SUFFIX
    from dtdr.progress import track
    from dtdr.traces.many_logs import ImportTask, import_logs
    from dtdr.traces.redaction_rules import BUILT_IN

    options.check_two_files(tools_out, output)
    fmt, files = _format_and_files(logs)
    if any(_same_file(path, output) for path in files):
        raise OutputError(f"{output} is one of the logs; write the demonstrations to another file")
    redactor = None
    if redact or redact_rules is not None:
        own = traces.read_rules(redact_rules) if redact_rules is not None else ()
        redactor = traces.Redactor((*own, *BUILT_IN))
    rules = traces.ReferenceRules(
        find=references,
        min_length=reference_length,
        min_embedded=max(reference_length, traces.ReferenceRules().min_embedded),
    )
    reader = traces.open_logs(files)
    if fmt is None:
        fmt = traces.detect_format(reader)
        note(f"{files[0]} is read as {fmt.name}: {fmt.title}")
    settings = traces.ImportOptions(
        cut=traces.CutOptions(
            turns,
            failed,
            empty,
            query,
            rules,
            order,
            outputs,
            output_length,
            tuple(tag.strip() for tag in leave_out.split(",") if tag.strip()),
            nested,
        ),
        window_bytes=window * MEGABYTE,
        idle_gap=gap,
    )
    started = time.perf_counter()
    if workers is not None or address is not None or engine != engines.PROCESSES:
        if resume:
            raise InputError("--resume goes on with one file; leave --workers and --engine out")
        task = ImportTask(fmt, settings, None if redactor is None else redactor.rules, skip_bad)
        with engines.open_engine(engine, workers=workers, address=address) as opened:
            report, tools, left_out = import_logs(files, output, task, opened, force=force)
        if tools_out is not None:
            save_tools(tools_out, tools, force=force)
        _report(report, left_out, files, output, tools_out, started, as_json)
        return
    bad = BadRecords() if skip_bad else None
    importer = traces.Importer(fmt, reader, settings, redactor=redactor, bad=bad)
    size = sum(map(file_size, files))
    lines = output
    if output.suffix == SUFFIX:
        # Lines can be resumed after an interruption; a Parquet file has to be written at once.
        lines = output.with_name(f"{output.name}.jsonl")
        if output.exists() and not force:
            raise OutputError(f"{output} exists; pass --force to replace it")
    steps = traces.import_traces(
        importer, lines, tools_output=tools_out, force=force, resume=resume
    )
    try:
        for _ in track(steps, "Importing", total=size // MEGABYTE + 1 if size else None):
            pass
    except KeyboardInterrupt:
        if lines.with_name(lines.name + ".checkpoint").exists():
            note("what was imported so far is kept; go on with the same command and --resume")
        raise
    if lines != output:
        save_demonstrations(output, read_demonstrations(lines), force=force)
        lines.unlink()
    _report(importer.summary(), bad, files, output, tools_out, started, as_json)


def _report(
    report: dict[str, Any],
    bad: BadRecords | None,
    files: list[Path],
    output: Path,
    tools_out: Path | None,
    started: float,
    as_json: bool,
) -> None:
    summary = {
        **report,
        "output": str(output),
        "tools_output": None if tools_out is None else str(tools_out),
        "bytes": sum(map(file_size, files)),
        "seconds": round(time.perf_counter() - started, 3),
    }
    for reason in bad.first if bad is not None else ():
        note(f"left out {reason}")
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary)


def _format_and_files(logs: list[str]) -> tuple[type[TraceFormat] | None, list[Path]]:
    """The format, where the first argument names one, and the files."""
    from dtdr import traces

    first, *rest = logs
    if first.strip().replace("_", "-") in traces.FORMATS and (rest or not Path(first).exists()):
        if not rest:
            raise InputError(f"name at least one log file after {first}, or - for standard input")
        return traces.find_format(first), [Path(name) for name in rest]
    if rest and not Path(first).exists() and first != "-":
        traces.find_format(first)  # says which formats there are
    return None, [Path(name) for name in logs]


def _print_summary(summary: dict[str, Any]) -> None:
    from dtdr.evaluation.tables import Column, Table, count

    rows = [
        {"what": "records read", "n": summary["records"], "about": _files(summary["files"])},
        {"what": "bad records", "n": summary["bad_records"], "about": "left out by --skip-bad"},
        {
            "what": "superseded requests",
            "n": summary["superseded_requests"],
            "about": "a later request repeats them and goes on",
        },
        {"what": "runs", "n": summary["runs"], "about": ""},
        {"what": "  kept", "n": summary["kept"], "about": f"{summary['calls']:,} calls"},
        {"what": "  nested", "n": summary["nested"], "about": "ran inside a call of another"},
        *(
            {"what": "  dropped", "n": number, "about": reason}
            for reason, number in summary["dropped"].items()
        ),
        {
            "what": "failed calls",
            "n": summary["failed_calls"],
            "about": f"{summary['dropped_calls']:,} dropped",
        },
        {"what": "references", "n": summary["references"], "about": "to earlier outputs"},
        {"what": "outputs cut", "n": summary["cut_outputs"], "about": "to --output-length"},
        {
            "what": "results left out",
            "n": summary["unmatched_results"],
            "about": "of no call, or of one that had a result already",
        },
        {
            "what": "truncated streams",
            "n": summary["truncated_streams"],
            "about": "kept as far as they go",
        },
        {"what": "tool definitions", "n": summary["tools"], "about": ""},
        *(
            {"what": "redacted", "n": number, "about": rule}
            for rule, number in summary["redacted"].items()
        ),
    ]
    always = ("records read", "runs", "  kept")
    shown = [row for row in rows if row["n"] or row["what"] in always]
    columns = [Column("What", "what"), Column("Count", "n", count, numeric=True)]
    speed = summary["bytes"] / MEGABYTE / max(summary["seconds"], 1e-9)
    caption = f"{summary['format']}, {summary['seconds']:.1f} s, {speed:.0f} MB/s"
    console().print(Table([*columns, Column("Note", "about")], shown, caption=caption).to_rich())
    typer.echo(f"wrote {summary['output']}")
    if summary["tools_output"]:
        typer.echo(f"wrote {summary['tools_output']}")
    beside = f" --tools {summary['tools_output']}" if summary["tools_output"] else ""
    typer.echo(f"next: dtdr fit {summary['output']}{beside} -o MODEL")


def _files(number: int) -> str:
    return f"from {number:,} file{'' if number == 1 else 's'}"


def _same_file(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and path.samefile(other)
