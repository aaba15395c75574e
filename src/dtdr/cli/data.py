"""``dtdr data``: list, count, download, convert, generate and split demonstrations."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli.inputs import load_dataset, open_data, report_bad
from dtdr.cli.output import console, print_json
from dtdr.cli.signature import CommandGroup
from dtdr.data.demonstration_files import (
    read_demonstrations,
    read_tools,
    save_demonstrations,
    save_tools,
)
from dtdr.data.jsonl import BadRecords
from dtdr.data.progress import track
from dtdr.errors import InputError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dtdr.data.demonstrations import Demonstration
    from dtdr.data.tools import Tool
    from dtdr.evaluate.datasets.statistics import Statistics

app = CommandGroup(
    no_args_is_help=True, help="Demonstrations: published sets, the bundled one, and your own."
)

JSONL = "jsonl"
PARQUET = "parquet"
"""The format of ``demonstrations.jsonl`` itself, which ``convert`` checks and copies."""

OUTPUT = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")]
TOOLS_OUT = Annotated[
    Path | None,
    typer.Option("--tools-out", metavar="FILE", help="Also write the tools, such as tools.json."),
]
DATA = Annotated[
    Path | None, typer.Option("--data", metavar="FILE", help="A demonstrations.jsonl file.")
]


class Kind(StrEnum):
    """How a split is drawn."""

    PAPER = "paper"
    GROUP = "group"


@app.command("list")
def list_sets(
    *,
    as_json: options.JSON = False,
) -> None:
    """List the named sets and whether they are on this machine."""
    from dtdr.cli.data_tables import print_sets, set_rows

    rows = set_rows()
    if as_json:
        for row in rows:
            row["available"] = row.pop("here").startswith("yes")
        print_json({"sets": rows})
        return
    print_sets(rows)


@app.command()
def stats(
    names: list[str] | None = None,
    *,
    data: DATA = None,
    tools: options.TOOLS = None,
    skip_bad: options.SKIP_BAD = False,
    only_known_tools: options.ONLY_KNOWN_TOOLS = False,
    as_json: options.JSON = False,
) -> None:
    """Count plans, tools, calls and dependencies, with the published figures.

    Args:
        names (NAME): Sets; default: all.
    """
    bad = BadRecords() if skip_bad else None
    measured, missing = _summarize(names, data, tools, bad, only_known_tools)
    report_bad(bad)
    if as_json:
        print_json(
            {
                "sets": [statistics.to_dict() for statistics in measured],
                "missing": missing,
                "skipped": bad.count if bad else 0,
            }
        )
        return
    from dtdr.cli.data_tables import print_statistics

    print_statistics(measured, missing)


def _summarize(
    names: list[str] | None,
    data: Path | None,
    tools: Path | None,
    bad: BadRecords | None,
    only_known_tools: bool,
) -> tuple[list[Statistics], list[str]]:
    from dtdr.evaluate import datasets
    from dtdr.evaluate.datasets.source import find_file
    from dtdr.evaluate.datasets.statistics import measure

    measured: list[Statistics] = []
    missing: list[str] = []
    if data is not None:
        stream = track(open_data([data], bad=bad), f"Counting {data.name}")
        listed = read_tools(tools) if tools else ()
        measured.append(measure(stream, listed, name=data.stem, title=data.name))
        names = names or []
    for name in datasets.NAMES if names is None or (not names and data is None) else names:
        if not names and name != datasets.BUNDLED:
            try:
                find_file(datasets.find_source(name))
            except InputError:
                missing.append(name)
                continue
        dataset = datasets.load(name, bad=bad)
        if only_known_tools:
            dataset = datasets.keep_known_tools(dataset)
        published = None if dataset.synthetic else datasets.find_source(name).published
        measured.append(
            measure(
                track(dataset.demonstrations, f"Counting {dataset.title}", len(dataset)),
                dataset.tools,
                name=dataset.name,
                title=dataset.title,
                note=dataset.note,
                published=published,
                remarks=dataset.remarks,
            )
        )
    return measured, missing


@app.command()
def download(
    name: str,
    *,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Download a set from huggingface.co into the cache.

    Args:
        name (NAME): A set that is on the hub.
    """
    from dtdr.evaluate import datasets
    from dtdr.evaluate.datasets.download import download as fetch_set

    if name == datasets.BUNDLED:
        raise InputError("the bundled set is generated on this machine; nothing to download")
    files = fetch_set(datasets.find_source(name), force=force)
    if as_json:
        print_json({"name": datasets.find_source(name).name, "files": list(map(str, files))})
    else:
        console().print(f"{name} is in {files[0].parent}")


@app.command()
def convert(
    form: str,
    source: Path,
    *,
    output: OUTPUT = Path("demonstrations.jsonl"),
    tools_out: TOOLS_OUT = None,
    skip_bad: options.SKIP_BAD = False,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Convert a published file to demonstrations, or check and copy demonstrations.

    An output that ends in .parquet is written as Parquet.

    Args:
        form (FORMAT): jsonl, parquet, or the name of the set that the file comes from.
        source (INPUT): A file, folder, pattern or URL.
    """
    bad = BadRecords() if skip_bad else None
    demonstrations, described = _open(form, source, bad)
    count, called = _write(demonstrations, "Converting", output, tools_out, force)
    tools = _complete(described() if tools_out else (), called)
    if tools_out:
        save_tools(tools_out, tools, force=True)
    report_bad(bad)
    skipped = bad.count if bad else 0
    _report(
        {
            "format": form,
            "input": str(source),
            "output": str(output),
            "demonstrations": count,
            "skipped": skipped,
            "tools": len(tools),
            "tools_output": None if tools_out is None else str(tools_out),
        },
        f"{count:,} demonstrations with {len(tools):,} tools written to {output}",
        as_json,
    )


@app.command()
def generate(
    *,
    demonstrations: int = 3200,
    tools: int = 47,
    seed: options.SEED = 0,
    output: OUTPUT = Path("demonstrations.jsonl"),
    tools_out: TOOLS_OUT = None,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Generate synthetic demonstrations of a desk-and-travel assistant.

    Args:
        demonstrations (N): Number of demonstrations.
        tools (M): Number of tools; 47 are written by hand.
    """
    from dtdr.evaluate.datasets import synthetic

    stream = synthetic.generate(demonstrations, tools, seed)
    count, _ = _write(stream, "Generating", output, tools_out, force, demonstrations)
    if tools_out:
        save_tools(tools_out, synthetic.tools(tools, seed), force=True)
    _report(
        {
            "synthetic": True,
            "output": str(output),
            "demonstrations": count,
            "tools": tools,
            "seed": seed,
            "tools_output": None if tools_out is None else str(tools_out),
        },
        f"{count:,} synthetic demonstrations over {tools:,} tools written to {output}",
        as_json,
    )


@app.command()
def split(
    *,
    dataset: options.DATASET = None,
    data: DATA = None,
    kind: Kind = Kind.PAPER,
    test: float = 0.3,
    seed: options.SEED = 0,
    output: OUTPUT = Path("split.json"),
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Write a split file: which demonstrations train and which test, by position.

    Args:
        kind: The paper's, or by group.
        test (SHARE): Share to test on.
    """
    from dtdr.evaluate.datasets import splits

    chosen = load_dataset(data=data, dataset=dataset, tools=None, bad=None)
    draw = splits.paper_split if kind is Kind.PAPER else splits.group_split
    division = draw(chosen.demonstrations, seed, test)
    splits.save_split(output, division, records=len(chosen), dataset=chosen.name, force=force)
    _report(
        {
            "dataset": chosen.name,
            "kind": kind.value,
            "seed": seed,
            "train": len(division.train),
            "test": len(division.test),
            "output": str(output),
        },
        f"{len(division.train):,} to learn from and {len(division.test):,} to test on, in {output}",
        as_json,
    )


def _open(form: str, path: Path, bad: BadRecords | None) -> tuple[Iterator[Demonstration], Any]:
    from dtdr.errors import unknown_choice
    from dtdr.evaluate import datasets
    from dtdr.evaluate.datasets.source import canonical_name

    if form in (JSONL, PARQUET):
        stream = read_demonstrations(path, bad=bad)
        return stream, lambda: stream.tools
    source = datasets.SOURCES.get(canonical_name(form))
    if source is None:
        raise unknown_choice("format", form, (JSONL, PARQUET, *datasets.SOURCES))
    return source.read(path, bad), lambda: source.tools(path)


def _write(
    demonstrations: Iterable[Demonstration],
    label: str,
    output: Path,
    tools_out: Path | None,
    force: bool,
    total: int | None = None,
) -> tuple[int, set[str]]:
    options.check_two_files(tools_out, output)
    if tools_out is not None and tools_out.exists() and not force:
        # Known before the long work, not after it.
        raise OutputError(f"{tools_out} exists; pass --force to replace it")
    called: set[str] = set()

    def note_each() -> Iterator[Demonstration]:
        for demonstration in track(demonstrations, label, total):
            called.update(demonstration.plan.tools)
            yield demonstration

    return save_demonstrations(output, note_each(), force=force), called


def _complete(described: Iterable[Tool], called: set[str]) -> list[Tool]:
    from dtdr.data.tools import Tool, unique_tools

    known = unique_tools(described)
    return [*known.values(), *(Tool(name) for name in sorted(called - known.keys()))]


def _report(record: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        console().print(sentence)
