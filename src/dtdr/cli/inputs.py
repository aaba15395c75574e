"""What commands read: demonstrations, their tools, and a split of them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtdr.cli.output import note
from dtdr.demonstration_files import DemonstrationFile, read_tools
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.jsonl import BadRecords
from dtdr.plan import Plan
from dtdr.run import Run
from dtdr.tools import Tool

if TYPE_CHECKING:
    from dtdr.counting import KeptCounts, Sample
    from dtdr.datasets import Dataset
    from dtdr.datasets.splits import Split
    from dtdr.engines import Engine

logger = logging.getLogger("dtdr")


def load_dataset(
    *,
    data: Path | Sequence[Path] | None,
    dataset: str | None,
    tools: Path | None,
    data_dir: Path | None,
    bad: BadRecords | None,
    only_known_tools: bool = False,
    log_format: str | None = None,
) -> Dataset:
    """The demonstrations that a user named, by files of any known format or by name.

    Raises:
        InputError: both or neither are named, or the data cannot be read.
    """
    from dataclasses import replace

    from dtdr.datasets import keep_known_tools, load
    from dtdr.progress import track

    paths = [data] if isinstance(data, Path) else list(data or ())
    if dataset is not None and not paths:
        read = load(dataset, data_dir=data_dir, bad=bad)
        read = read if tools is None else replace(read, tools=read_tools(tools))
        return keep_known_tools(read) if only_known_tools else read
    if not paths or dataset is not None:
        raise InputError(
            "name the demonstrations once: a demonstrations.jsonl file or logs, or --dataset NAME"
        )
    stream = open_data(paths, log_format, bad=bad)
    demonstrations = list(track(stream, f"Reading {paths[0].name}"))
    logger.info("read %d demonstrations from %s", len(demonstrations), ", ".join(map(str, paths)))
    own = dataset_of(paths, demonstrations, stream.tools, tools)
    return keep_known_tools(own) if only_known_tools else own


def dataset_of(
    paths: Sequence[Path],
    demonstrations: list[Demonstration],
    beside: Sequence[Tool],
    tools: Path | None,
) -> Dataset:
    """Demonstrations of files as a data set, with the tools of a file or those found beside them.

    Raises:
        InputError: the file of tools cannot be read.
    """
    from dtdr.datasets import Dataset

    return Dataset(
        name=paths[0].stem,
        title=paths[0].name,
        demonstrations=demonstrations,
        tools=read_tools(tools) if tools else tuple(beside),
        synthetic=all("synthetic" in item.source.lower() for item in demonstrations),
        source=str(paths[0]),
        licence="",
    )


def open_data(
    paths: Sequence[Path], log_format: str | None = None, *, bad: BadRecords | None
) -> DemonstrationFile:
    """A stream of demonstrations from files; says which format it found, where they are logs.

    Raises:
        InputError: an unknown format, or files that cannot be read.
    """
    from dtdr import traces

    stream = traces.open_demonstrations(paths, log_format, bad=bad)
    if log_format is None and stream.format != traces.CANONICAL:
        title = traces.FORMATS[stream.format].title
        note(f"{paths[0]} is read as {stream.format}: {title}")
    return stream


def draw_from_large(
    paths: Sequence[Path],
    log_format: str | None,
    size: int,
    *,
    seed: int,
    failures: bool,
    bad: BadRecords | None,
    engine: Engine,
    most_ids: int,
    kept: KeptCounts | None = None,
) -> Sample | None:
    """A sample of demonstrations, where files hold more than are to be learned from.

    Returns:
        None where all of them are, and for logs of agents, whose demonstrations have to be cut
        first, and pipes, which cannot be read twice.

    Raises:
        InputError: the data cannot be read or used.
    """
    from dtdr import traces
    from dtdr.counting import draw_sample, rows_of
    from dtdr.shards import find_shards, is_sharded

    if log_format not in (None, traces.CANONICAL) or not size:
        return None
    if not any(map(is_sharded, paths)):
        if not all(path.is_file() and path.open("rb").read(2) != b"\x1f\x8b" for path in paths):
            return None
        if traces.open_demonstrations(paths, log_format).format != traces.CANONICAL:
            return None
    try:
        rows = sum(rows_of(shard) for path in paths for shard in find_shards(path))
    except InputError:
        rows = size + 1  # whoever reads it says why, or counts it as bad
    if rows <= size:
        return None
    counted = None if bad is None else BadRecords()
    sample = draw_sample(
        paths,
        size,
        seed=seed,
        failures=failures,
        bad=counted,
        engine=engine,
        most_ids=most_ids,
        kept=kept,
    )
    if sample.counts.total <= size:
        return None
    if bad is not None and counted is not None:
        bad.update(counted)
    return sample


def choose_split(
    dataset: Dataset, choice: str | None, *, data_dir: Path | None, seed: int
) -> Split:
    """The split that a user named.

    Args:
        dataset: what is split.
        choice: a split file; ``default`` or None for the set's own; ``paper``; ``group``; or the
            variant of a fixed split, such as ``by-sequence``.
        data_dir: where fixed splits lie.
        seed: of the splits that are drawn.

    Raises:
        InputError: there is no such split, or it is about other data.
    """
    from dtdr.datasets import splits

    records = len(dataset.demonstrations)
    if choice is None or choice == "default":
        return splits.default_split(dataset, data_dir, seed)
    if choice == "paper":
        return splits.paper_split(dataset.demonstrations, seed)
    if choice == "group":
        return splits.group_split(dataset.demonstrations, seed)
    if Path(choice).suffix or Path(choice).exists():
        return splits.read_split(choice, records=records)
    try:
        return splits.fixed_split(dataset.name, data_dir, choice, records=records)
    except InputError as error:
        raise InputError(
            f"--split {choice!r} is not a split file and not default, paper, group or a fixed "
            f"split's variant ({error})"
        ) from error


def report_bad(bad: BadRecords | None) -> None:
    """Say how many records were left out, and why the first of them were."""
    if bad is None or not bad.count:
        return
    for reason in bad.first:
        note(f"left out {reason}")
    note(f"left out {bad.count} bad record{'s' if bad.count > 1 else ''} in all")


def read_run(source: str) -> Run:
    """A run from a JSON file; ``-`` is standard input.

    Raises:
        InputError: it cannot be read, is not a run, refers to a call or to a part of an output that
            is not there, or has a step number that goes back.
    """
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot read {source}: {reason}") from error
    name = "standard input" if source == "-" else source
    try:
        run = Run.from_dict(json.loads(content))
        Plan(tuple(run.calls), earlier=run.earlier)  # raises as a demonstration with these calls
        return run
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f'{name} is not a run; write one JSON object {{"query": "…", "calls": […]}}'
        ) from error
