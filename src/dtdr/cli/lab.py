"""``dtdr lab``: suites of runs, kept by content, and one report of them all."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr import engines
from dtdr.cli import options
from dtdr.cli.output import WIDTH, console, note, print_json
from dtdr.errors import InputError

if TYPE_CHECKING:
    from dtdr.lab.report.page import Page
    from dtdr.lab.report.results import Results
    from dtdr.lab.run import Summary

app = typer.Typer(
    name="lab",
    help="Re-run the paper, or the same tables on your own data, into one report.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)

CACHE = Annotated[
    Path | None,
    typer.Option("--cache", metavar="FOLDER", help="Where runs are kept; default: ~/.cache/dtdr."),
]
NAME = Annotated[
    str | None,
    typer.Option("--name", metavar="LAB", help="Name of this lab, for the report."),
]
OUTPUT = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FOLDER", help="Where report.html and report.md go."),
]
TIMES = Annotated[
    bool,
    typer.Option(
        "--times/--no-times", help="Show seconds and megabytes, which no second run repeats."
    ),
]


@app.command("list")
def list_suites(as_json: options.JSON = False) -> None:
    """Show the suites that come with the package."""
    from dtdr.evaluation.tables import Column, Table
    from dtdr.lab.suite import names, read_suite

    suites = [read_suite(name) for name in names()]
    rows = [
        {
            "suite": suite.name,
            "title": suite.title,
            "needs": "an LLM"
            if suite.needs_llm
            else "an LLM in part"
            if suite.asks_llm
            else "the registry"
            if suite.is_optional
            else "",
        }
        for suite in suites
    ]
    if as_json:
        print_json({"suites": rows})
        return
    columns = [Column("Suite", "suite"), Column("What it shows", "title"), Column("Needs", "needs")]
    console().print(Table(columns, rows).to_rich())


@app.command("run")
def run(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE",
            help="Names that 'dtdr lab list' shows, TOML files, all (needs no LLM), or paper: its "
            "tables and figures with its own settings.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small form of every suite, on synthetic data.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FILE", help="Your demonstrations.jsonl instead."),
    ] = None,
    tools: options.TOOLS = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", metavar="NAME", help="Only these sets; repeatable."),
    ] = None,
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            "--retriever",
            metavar="NAME",
            help="Only these, or your own as module:Class; repeatable.",
        ),
    ] = None,
    encoder: Annotated[
        list[str] | None,
        typer.Option(
            "--encoder", metavar="NAME", help="Of the retrievers that use one; repeatable."
        ),
    ] = None,
    llm: Annotated[
        list[str] | None,
        typer.Option("--llm", metavar="NAME", help="gguf:PATH or openai:NAME@URL; repeatable."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", help="How many splits.", min=1)
    ] = None,
    plans: Annotated[
        int | None,
        typer.Option("--plans", metavar="N", help="Only the first N plans of a set.", min=2),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Every held-out step and plan with an LLM; sets that are not here are downloaded.",
        ),
    ] = False,
    skip_bad: options.SKIP_BAD = False,
    only_known_tools: options.ONLY_KNOWN_TOOLS = False,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Processes (default: 2).", min=1)
    ] = None,
    engine: options.ENGINE = engines.PROCESSES,
    address: options.ADDRESS = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-under",
            metavar="METRIC=VALUE",
            help="Exit with 1 where the best retriever is below, such as recall@5=0.9.",
        ),
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many runs there are and how long.")
    ] = False,
    output: OUTPUT = Path("lab-report"),
    times: TIMES = True,
    name: NAME = None,
    cache: CACHE = None,
    data_dir: options.DATA_DIR = None,
    as_json: options.JSON = False,
) -> None:
    """Run suites and write the report; what is kept already is not computed again.

    Example: dtdr lab run retrieval --data my_demonstrations.jsonl --fail-under recall@5=0.9
    """
    from dtdr.lab.progress import format_duration
    from dtdr.lab.quality_gate import parse_thresholds
    from dtdr.lab.report import build_report, write_report
    from dtdr.lab.resolve import Options, own_name
    from dtdr.lab.run import run_lab
    from dtdr.lab.store import Store

    if data is not None and dataset:
        raise InputError("name the data once: --data FILE or --dataset NAME")
    if data is not None and not suites:
        suites = ["retrieval"]
    if not suites:
        raise InputError("name a suite, or all; 'dtdr lab list' shows them")
    thresholds = parse_thresholds(fail_under or ())
    if quick and full:
        raise InputError("--quick is a small form and --full the whole one; leave one out")
    lab = name or (own_name(data) if data else _lab_name(suites, quick))
    if "/" in lab or lab.startswith("."):
        raise InputError(f"--name {lab!r} must not hold a slash or start with a dot")
    chosen = Options(
        quick=quick and data is None,
        file=data,
        tools=tools,
        data_dir=data_dir,
        datasets=dataset,
        seeds=seeds,
        retrievers=retriever,
        encoders=encoder,
        llms=llm or (),
        plans=plans,
        full=full and not dry,
        skip_bad=skip_bad,
        only_known_tools=only_known_tools,
    )
    store = Store(cache)
    with engines.open_engine(engine, workers=workers, address=address) as opened:
        summary = run_lab(
            suites,
            chosen,
            lab=lab,
            store=store,
            command=_command(),
            workers=workers,
            engine=None if engine == engines.PROCESSES else opened,
            dry=dry,
            note=note,
        )
    if dry:
        left = summary.cells - summary.cached
        if as_json:
            print_json(
                {
                    "runs": summary.cells,
                    "cached": summary.cached,
                    "expected_seconds": round(summary.expected_seconds),
                }
            )
        else:
            console().print(
                f"{summary.cells:,} runs, {summary.cached:,} kept already; the other {left:,} "
                f"take about {format_duration(summary.expected_seconds)}"
            )
        return
    page, results = build_report(store, lab, times=times)
    paths = write_report(page, output)
    below = _below(results, summary.suites, thresholds)
    if as_json:
        print_json(_as_json(summary, results, paths, below))
    else:
        _print(page, summary, paths)
    for sentence in below:
        note(sentence)
    if summary.failed or below:
        raise typer.Exit(1)


@app.command("report")
def report(
    name: NAME = None,
    output: OUTPUT = Path("lab-report"),
    times: TIMES = True,
    cache: CACHE = None,
) -> None:
    """Write the report again from what is kept; no data and no retriever is needed."""
    from dtdr.lab.report import build_report, write_report
    from dtdr.lab.store import Store

    page, results = build_report(Store(cache), name, times=times)
    paths = write_report(page, output)
    console().print(f"{' and '.join(map(str, paths))}: {len(page.sections)} sections")
    if failures := results.failures():
        note(f"{len(failures)} runs have no result; the report says why")


def _lab_name(suites: list[str], quick: bool) -> str:
    """Runs of the paper's settings and of this project's are reported apart."""
    name = "paper" if "paper" in suites else "published"
    return f"{name}-quick" if quick else name


def _command() -> str:
    """The command line as typed, without what is different on another machine."""
    words = []
    skip = False
    for word in sys.argv[1:]:
        if skip:
            skip = False
        elif word in ("--cache", "--data-dir", "--output", "-o", "--workers"):
            skip = True
        elif not word.startswith(("--cache=", "--data-dir=", "--output=", "--workers=")):
            words.append(quote(word))
    return " ".join(["dtdr", *words])


def _below(results: Results, suites: list[str], thresholds: dict[str, float]) -> list[str]:
    from dtdr.lab.quality_gate import failures

    return [sentence for suite in suites for sentence in failures(results, suite, thresholds)]


def _print(page: Page, summary: Summary, paths: tuple[Path, Path]) -> None:
    from dtdr.evaluation.tables import Table
    from dtdr.lab.report.page import Text

    out = console()
    for section in page.sections:
        if section.id not in ("summary", "advice"):
            continue
        for block in section.blocks:
            if isinstance(block, Text) and block.strong:
                out.print(f"\n{block.text}", style="bold", markup=False)
            elif isinstance(block, Text):
                out.print(block.text, markup=False)
            elif isinstance(block, Table):
                out.print()
                out.print(block.to_rich(cut=True))
    out.print(
        f"{summary.cells:,} runs: {summary.cached:,} kept already, {summary.computed:,} computed, "
        f"{len(summary.failed):,} failed; {summary.seconds:.0f} s"
    )
    out.print(f"Report: {paths[0]} and {paths[1]}", markup=False)


def _as_json(
    summary: Summary, results: Results, paths: tuple[Path, Path], below: list[str]
) -> dict[str, Any]:
    from dtdr.lab.quality_gate import method_means

    return {
        "lab": summary.lab,
        "suites": summary.suites,
        "runs": summary.cells,
        "cached": summary.cached,
        "computed": summary.computed,
        "failed": [{"run": label, "reason": reason} for label, reason in summary.failed],
        "damaged": summary.damaged,
        "left_out": summary.left_out,
        "seconds": round(summary.seconds, 1),
        "report": [str(path) for path in paths],
        "results": [row for suite in summary.suites for row in method_means(results, suite)],
        "below": below,
    }
