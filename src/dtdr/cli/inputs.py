"""What commands read: demonstrations, their tools, and a split of them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtdr.cli.output import note
from dtdr.data.demonstration_files import DemonstrationFile, read_tools
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import InputError

if TYPE_CHECKING:
    from dtdr.data.engines import Engine
    from dtdr.evaluate.datasets import Dataset
    from dtdr.evaluate.datasets.splits import Split
    from dtdr.predict.counting import KeptCounts, Sample
    from dtdr.predict.model import Model

logger = logging.getLogger("dtdr")


def load_dataset(
    *,
    data: Path | Sequence[Path] | None,
    dataset: str | None,
    tools: Path | None = None,
    bad: BadRecords | None,
    log_format: str | None = None,
) -> Dataset:
    """The demonstrations that a user named, by files of any known format or by name.

    Raises:
        InputError: both or neither are named, or the data cannot be read.
    """
    from dataclasses import replace

    from dtdr.data.progress import track
    from dtdr.evaluate.datasets import load

    paths = [data] if isinstance(data, Path) else list(data or ())
    if dataset is not None and not paths:
        read = load(dataset, bad=bad)
        return read if tools is None else replace(read, tools=read_tools(tools))
    if not paths or dataset is not None:
        raise InputError(
            "name the demonstrations once: a demonstrations.jsonl file or logs, or --dataset NAME"
        )
    stream = open_data(paths, log_format, bad=bad)
    demonstrations = list(track(stream, f"Reading {paths[0].name}"))
    logger.info("read %d demonstrations from %s", len(demonstrations), ", ".join(map(str, paths)))
    return dataset_of(paths, demonstrations, stream.tools, tools)


def dataset_of(
    paths: Sequence[Path],
    demonstrations: list[Demonstration],
    logged: Sequence[Tool],
    tools: Path | None,
) -> Dataset:
    """Demonstrations of files as a data set, with the tools of a file or those of the logs.

    Raises:
        InputError: the file of tools cannot be read.
    """
    from dtdr.evaluate.datasets import Dataset

    return Dataset(
        name=paths[0].stem,
        title=paths[0].name,
        demonstrations=demonstrations,
        tools=read_tools(tools) if tools else tuple(logged),
        synthetic=all("synthetic" in item.source.lower() for item in demonstrations),
        source=str(paths[0]),
        licence="",
    )


def open_data(
    paths: Sequence[Path], log_format: str | None = None, *, bad: BadRecords | None
) -> DemonstrationFile:
    """A stream of demonstrations from files; a note names the format of logs.

    Raises:
        InputError: an unknown format, or files that cannot be read.
    """
    from dtdr import logs

    stream = logs.open_demonstrations(paths, log_format, bad=bad)
    if log_format is None and stream.format != logs.CANONICAL:
        title = logs.FORMATS[stream.format].title
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
    kept: KeptCounts | None = None,
) -> Sample | None:
    """A sample of demonstrations, if files have more than a fit learns from.

    Returns:
        None if the files have no more than that, and for logs and pipes, which cannot be sampled.

    Raises:
        InputError: the data cannot be read or used.
    """
    from dtdr import logs
    from dtdr.data.shards import find_shards, is_sharded
    from dtdr.predict.counting import draw_sample, rows_of

    if log_format not in (None, logs.CANONICAL) or not size:
        return None
    if not any(map(is_sharded, paths)):
        if not all(path.is_file() and path.open("rb").read(2) != b"\x1f\x8b" for path in paths):
            return None
        if logs.open_demonstrations(paths, log_format).format != logs.CANONICAL:
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
        kept=kept,
    )
    if sample.counts.total <= size:
        return None
    if bad is not None and counted is not None:
        bad.update(counted)
    return sample


def choose_split(dataset: Dataset, choice: str | None, *, seed: int) -> Split:
    """The split that a user named.

    Args:
        dataset: what is split.
        choice: a split file; ``default`` or None for the set's own; ``paper``; ``group``; or the
            variant of a fixed split, such as ``by-sequence``.
        seed: of the splits that are drawn.

    Raises:
        InputError: there is no such split, or it is about other data.
    """
    from dtdr.evaluate.datasets import splits

    records = len(dataset.demonstrations)
    if choice is None or choice == "default":
        return splits.default_split(dataset, seed=seed)
    if choice == "paper":
        return splits.paper_split(dataset.demonstrations, seed)
    if choice == "group":
        return splits.group_split(dataset.demonstrations, seed)
    if Path(choice).suffix or Path(choice).exists():
        return splits.read_split(choice, records=records)
    try:
        return splits.fixed_split(dataset.name, None, choice, records=records)
    except InputError as error:
        raise InputError(
            f"--split {choice!r} is not a split file and not default, paper, group or a fixed "
            f"split's variant ({error})"
        ) from error


def is_fitted_to(retriever: Model, runs: Sequence[Demonstration]) -> bool:
    """Whether a model was fitted to just these runs."""
    from dtdr.predict import create

    if all(run.outcome == "failure" for run in runs):
        return False
    # The cheapest retriever there is; it hashes its training data as any other does.
    return create("random").fit(runs).training_.sha256 == retriever.training_.sha256


def report_bad(bad: BadRecords | None) -> None:
    """Say how many records were left out, and why the first of them were."""
    if bad is None or not bad.count:
        return
    for reason in bad.first:
        note(f"left out {reason}")
    note(f"left out {bad.count} bad record{'s' if bad.count > 1 else ''} in all")


def check_query(query: str | None) -> None:
    """Refuse a blank query.

    Raises:
        InputError: it is blank.
    """
    if query is not None and not query.strip():
        raise InputError("the query is empty; write what the user asked for")


def split_history(texts: Sequence[str] | None, retriever: Model) -> list[str]:
    """Names of tools from ``--history A,B --history C``; the name of a known tool stays whole."""
    return [
        name.strip()
        for text in texts or ()
        for name in ([text] if retriever.index(text) >= 0 else text.split(","))
        if name.strip()
    ]


def find_unknown(run: Run, retriever: Model) -> list[str]:
    """Tools of a run's calls that the model does not know, each once."""
    return list(dict.fromkeys(name for name in run.history if retriever.index(name) < 0))


def read_run_alone(source: str, query: str | None, history: Sequence[str] | None) -> Run:
    """The run of ``--run``, which goes without a query and ``--history``.

    Raises:
        InputError: one of them is there too, or as ``read_run``.
    """
    if query is not None or history:
        raise InputError("a run has its query and its calls; give --run alone, or a query")
    return read_run(source)


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
