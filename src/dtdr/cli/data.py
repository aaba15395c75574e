"""``dtdr data``: list, count, download and convert demonstrations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli.inputs import open_data, report_bad, save_tools_next_to
from dtdr.cli.output import plural, print_json, print_table, say
from dtdr.cli.signature import CommandGroup
from dtdr.data.demonstration_files import (
    DemonstrationFile,
    save_demonstrations,
)
from dtdr.data.jsonl import BadRecords
from dtdr.data.progress import track
from dtdr.data.tools import Tool, unique_tools
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.download import download as fetch_set
from dtdr.evaluate.datasets.source import Published, Source, canonical_name, find_file
from dtdr.evaluate.datasets.statistics import Statistics, measure
from dtdr.evaluate.datasets.synthetic import SOURCE

app = CommandGroup(
    no_args_is_help=True, help="List, count, download and convert sets of demonstrations."
)


@app.command("list")
def list_sets(
    *,
    as_json: options.JSON = False,
) -> None:
    """List the named sets, and say which are on this machine."""
    rows: list[dict[str, Any]] = [
        {
            "name": datasets.BUNDLED,
            "title": "desk-and-travel assistant (synthetic)",
            "licence": "Apache-2.0",
            "origin": SOURCE,
            "path": None,
            "here": "yes",
        }
    ]
    for source in datasets.SOURCES.values():
        path = _find(source)
        missing = "get it by hand" if source.hub is None else "dtdr data download"
        rows.append(
            {
                "name": source.name,
                "title": source.title if path is None else source.describe(path)[0],
                "licence": source.licence,
                "origin": source.origin,
                "path": None if path is None else str(path),
                "here": missing if path is None else "yes",
            }
        )
    if as_json:
        print_json({"sets": rows})
        return
    columns = ("name", "title", "licence", "here")
    print_table(
        ("Name", "Set", "Licence", "Here"), [[row[name] for name in columns] for row in rows]
    )


def _find(source: Source) -> Path | None:
    """Where a published set is on this machine."""
    try:
        return find_file(source)[1]
    except InputError:
        return None


@app.command()
def stats(
    sources: list[str] | None = None,
    *,
    skip_bad: options.SKIP_BAD = False,
    only_known_tools: options.ONLY_KNOWN_TOOLS = False,
    as_json: options.JSON = False,
) -> None:
    """Count plans, tools, calls, and dependencies between calls.

    For published sets, it also shows the published figures.

    Args:
        sources (SET|FILE): Names of sets, or files of demonstrations or logs; default: all sets.
    """
    bad = BadRecords() if skip_bad else None
    published = {} if sources else datasets.SOURCES
    missing = [name for name, source in published.items() if _find(source) is None]
    named = sources or [name for name in datasets.NAMES if name not in missing]
    measured = [_measure(source, bad, only_known_tools) for source in named]
    report_bad(bad)
    if as_json:
        sets = [statistics.to_dict() for statistics in measured]
        print_json({"sets": sets, "missing": missing, "skipped": bad.count if bad else 0})
        return
    rows: list[tuple[str | None, ...]] = []
    for item in measured:
        rows.append(_row(item.title, item))
        if item.published:
            rows.append(_row("  full set, as published", item.published))
    for name in missing:
        source = datasets.find_source(name)
        rows.append((f"{source.title} (not here)", None, None, None, None))
        if source.published:
            rows.append(_row("  full set, as published", source.published))
    print_table(
        ("Set", "Plans", "Tools", "Calls per plan", "Dependencies per plan"),
        rows,
        caption="Mean ± standard deviation; tools count the end of plan, calls do not.",
    )
    for item in measured:
        for sentence in filter(None, (item.note, *item.remarks)):
            say(f"{item.title}: {sentence}.")


def _measure(source: str, bad: BadRecords | None, only_known_tools: bool) -> Statistics:
    path = Path(source)
    if _is_file(source):
        stream = open_data([path], bad=bad)
        counted = track(stream, f"Counting {path.name}")
        listed = _tools_of(stream)  # known when all is read
        return measure(counted, listed, name=path.stem, title=path.name)
    dataset = datasets.load(source, bad=bad)
    if only_known_tools:
        dataset = datasets.keep_known_tools(dataset)
    return measure(
        track(dataset.demonstrations, f"Counting {dataset.title}", len(dataset)),
        dataset.tools,
        name=dataset.name,
        title=dataset.title,
        note=dataset.note,
        published=None if dataset.synthetic else datasets.find_source(source).published,
        remarks=dataset.remarks,
    )


def _tools_of(stream: DemonstrationFile) -> Iterator[Tool]:
    """The tools that the file or the tools.json beside it describes."""
    yield from stream.tools


def _is_file(source: str) -> bool:
    """Whether a file, folder, pattern or URL is meant, and not a set or its ``module:function``.

    Raises:
        InputError: a name is neither.
    """
    if Path(source).exists() or not re.fullmatch(r"[\w-]+|[\w.]+:\w+", source):
        return True
    if canonical_name(source) not in datasets.NAMES and datasets.find_own(source) is None:
        raise InputError(f"{source} is neither a file nor a set; 'dtdr data list' shows the sets")
    return False


def _row(title: str, of: Statistics | Published) -> tuple[str, ...]:
    means = (f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in (of.calls, of.dependencies))
    return title, f"{of.plans:,}", f"{of.tools:,}", *means


@app.command()
def download(
    name: str,
    *,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Download a set from huggingface.co into the cache.

    Args:
        name (NAME): A set that 'dtdr data list' offers for download.
    """
    if name == datasets.BUNDLED:
        raise InputError("the bundled set comes with dtdr; use it without a download")
    files = fetch_set(datasets.find_source(name), force=force)
    if as_json:
        print_json({"name": datasets.find_source(name).name, "files": list(map(str, files))})
    else:
        say(f"{name} is in {files[0].parent}")


@app.command()
def convert(
    source: str,
    *,
    output: Annotated[Path, typer.Option("--output", "-o")] = Path("demonstrations.jsonl"),
    skip_bad: options.SKIP_BAD = False,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Check demonstrations and write them to one file.

    Example: dtdr data convert demonstrations.jsonl -o demonstrations.parquet

    Args:
        source (SET|FILE): Name of a set; or a file, folder, pattern or URL of demonstrations
            or logs.
        output (FILE): File to write: Parquet if its name ends in .parquet, else JSON lines. The
            tools go into tools.json next to it.
    """
    bad = BadRecords() if skip_bad else None
    read = (
        open_data([Path(source)], bad=bad) if _is_file(source) else datasets.load(source, bad=bad)
    )
    demonstrations = read if isinstance(read, DemonstrationFile) else read.demonstrations
    count = save_demonstrations(output, track(demonstrations, "Converting"), force=force)
    tools = unique_tools(read.tools)
    path = save_tools_next_to(output, tools.values(), force=force)
    report_bad(bad)
    if as_json:
        print_json(
            {
                "input": source,
                "output": str(output),
                "demonstrations": count,
                "skipped": bad.count if bad else 0,
                "tools": len(tools),
                "tools_output": path,
            }
        )
    else:
        say(f"wrote {plural(count, 'demonstration')} to {output}")
