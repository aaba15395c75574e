"""``dtdr lab``: suites of experiments, kept by content, and one report."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli import options
from dtdr.cli.output import WIDTH, console, note, plural, print_json, print_table, say
from dtdr.cli.signature import CommandGroup
from dtdr.errors import InputError

if TYPE_CHECKING:
    from dtdr.evaluate.lab.compute import Summary
    from dtdr.evaluate.lab.report.page import Page
    from dtdr.evaluate.lab.report.results import Results

app = CommandGroup(
    name="lab",
    help="Run suites of experiments and write a report.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)

CACHE = Annotated[
    Path | None,
    typer.Option(
        "--cache", metavar="FOLDER", help="Folder of finished experiments; default: ~/.cache/dtdr."
    ),
]
OUTPUT = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FOLDER", help="Folder for report.html and report.md."),
]


@app.command("list")
def list_suites(
    *,
    as_json: options.JSON = False,
) -> None:
    """Show the suites that come with the package."""
    from dtdr.evaluate.lab.suite import names, read_suite

    suites = [read_suite(name) for name in names()]
    rows = [{"suite": suite.name, "title": suite.title, "needs": suite.needs} for suite in suites]
    if as_json:
        print_json({"suites": rows})
    else:
        print_table(("Suite", "What it shows", "Needs"), [list(row.values()) for row in rows])


@app.command("run")
def run(
    suites: list[str] | None = None,
    *,
    quick: bool = False,
    data: Path | None = None,
    dataset: list[str] | None = None,
    retriever: list[str] | None = None,
    encoder: list[str] | None = None,
    llm: list[str] | None = None,
    seeds: Annotated[int | None, typer.Option(min=1)] = None,
    full: bool = False,
    skip_bad: options.SKIP_BAD = False,
    only_known_tools: options.ONLY_KNOWN_TOOLS = False,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    dry: Annotated[bool, typer.Option("--dry-run")] = False,
    output: OUTPUT = Path("lab-report"),
    cache: CACHE = None,
    as_json: options.JSON = False,
) -> None:
    """Run suites and write a report.

    It takes finished experiments from the cache.

    Example: dtdr lab run retrieval --data my_demonstrations.jsonl

    Args:
        suites (SUITE): Names that 'dtdr lab list' shows, or TOML files. all: every suite that
            needs no LLM. paper: the paper's tables with its settings.
        quick: Run a small version of each suite: those of the paper on the sets that are here, or
            else on synthetic data, as all others.
        data (FILE): Use your own demonstrations.jsonl, a log or a folder of logs.
        dataset (NAME): Use only this set; repeatable.
        retriever (NAME): Run only this ranker, or your own as module:Class; repeatable.
        encoder (NAME): Use this encoder in rankers that have one; repeatable.
        llm (NAME): Ask this LLM: gguf:PATH, openai:NAME@URL or hf:NAME; repeatable.
        seeds (N): Number of seeds, each with its own split.
        full: Ask the LLM at every held-out step and plan.
        workers (N): Number of processes.  [default: 2]
        dry: Only print the number of experiments and their expected time.
    """
    from dtdr.evaluate.charts import check_installed
    from dtdr.evaluate.lab.compute import run_lab
    from dtdr.evaluate.lab.report import build_report, write_report
    from dtdr.evaluate.lab.resolve import Options, own_name
    from dtdr.evaluate.lab.store import Store

    if data is not None and dataset:
        raise InputError("name the data once: --data FILE or --dataset NAME")
    if data is not None and not suites:
        suites = ["retrieval"]
    if not suites:
        raise InputError("name a suite, or all; 'dtdr lab list' shows them")
    if quick and full:
        raise InputError("--quick runs less than usual and --full more; leave one out")
    # Runs of the paper's settings and of this project's are reported apart.
    name = "paper" if "paper" in suites else "published"
    lab = own_name(data.absolute()) if data else f"{name}-quick" if quick else name
    lab_options = Options(
        quick=quick and data is None,
        file=data,
        datasets=dataset,
        seeds=seeds,
        rankers=retriever,
        encoders=encoder,
        llms=llm or (),
        full=full,
        skip_bad=skip_bad,
        only_known_tools=only_known_tools,
    )
    if not dry:
        check_installed()
    store = Store(cache)
    summary = run_lab(
        suites,
        lab_options,
        lab=lab,
        store=store,
        command=_command(),
        workers=workers,
        dry=dry,
        note=note,
    )
    if dry:
        _print_expected(summary, as_json=as_json)
        return
    page, results = build_report(store, lab, summary.suites)
    paths = write_report(page, output)
    if as_json:
        _print_results(summary, results, paths)
    else:
        _print(page, summary, paths)
    if summary.failed:
        raise typer.Exit(1)


@app.command("report")
def report(
    output: OUTPUT = Path("lab-report"),
    cache: CACHE = None,
) -> None:
    """Write the last report again, from the cache."""
    from dtdr.evaluate.lab.report import build_report, write_report
    from dtdr.evaluate.lab.store import Store

    page, results = build_report(Store(cache))
    paths = write_report(page, output)
    say(f"{' and '.join(map(str, paths))}: {len(page.sections)} sections")
    if failures := results.failures():
        note(f"{plural(len(failures), 'experiment')} without a result; the report says why")


def _command() -> str:
    """The command line as typed, without what is different on another machine."""
    words: list[str] = []
    local_options = ("--cache", "--output", "-o", "--workers")
    # Left out as ``--cache=FOLDER``, and as ``--cache FOLDER``: the word after the option, too.
    for before, word in zip(["", *sys.argv[1:]], sys.argv[1:], strict=False):
        if word.partition("=")[0] not in local_options and before not in local_options:
            words.append(quote(word))
    return " ".join(["dtdr", *words])


def _print_expected(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        expected = round(summary.expected_seconds)
        counts = {"experiments": summary.experiments, "cached": summary.cached}
        print_json({**counts, "expected_seconds": expected})
        return
    minutes = max(1, round(summary.expected_seconds / 60))
    missing = summary.experiments - summary.cached
    say(
        f"{plural(summary.experiments, 'experiment')}, {summary.cached:,} in the cache; "
        f"the other {missing:,} take about {plural(minutes, 'minute')}"
    )


def _print_results(summary: Summary, results: Results, paths: tuple[Path, Path]) -> None:
    from dtdr.evaluate.lab.report.downstream import llm_means
    from dtdr.evaluate.lab.report.results import method_means

    means = [
        row
        for suite in summary.suites
        for row in (*method_means(results, suite), *llm_means(results, suite))
    ]
    failed = [{"experiment": label, "reason": reason} for label, reason in summary.failed]
    report = list(map(str, paths))
    print_json({**vars(summary), "failed": failed, "report": report, "results": means})


def _print(page: Page, summary: Summary, paths: tuple[Path, Path]) -> None:
    from dtdr.evaluate.lab.report.page import Text, tables_of

    for section in page.sections:
        if section.id not in ("summary", "advice", "runs"):
            continue
        for block in section.blocks:
            if isinstance(block, Text):
                say(f"\n{block.text}" if block.strong else block.text, "bold" * block.strong)
            else:
                for table in tables_of(block):
                    console().print("", table.to_rich(cut=True))
    say(
        f"{plural(summary.experiments, 'experiment')}: {summary.cached:,} from the cache, "
        f"{summary.computed:,} computed, {len(summary.failed):,} failed; {summary.seconds:.0f} s"
    )
    say(f"Report: {paths[0]} and {paths[1]}")
