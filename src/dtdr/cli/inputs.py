"""Inputs of commands: demonstrations, their tools, a split of them, and runs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from dtdr import logs
from dtdr.api import load
from dtdr.cli.output import note
from dtdr.data.demonstration_files import DemonstrationFile, read_tools, save_tools
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.plan import Plan
from dtdr.data.progress import track
from dtdr.data.run import Run, as_run
from dtdr.data.tools import Tool
from dtdr.errors import InputError, cannot_read
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets import Dataset, splits
from dtdr.evaluate.datasets.splits import Split
from dtdr.predict import create
from dtdr.predict.model import Model

logger = logging.getLogger("dtdr")


def load_dataset(
    data: Path | Sequence[Path] | None,
    dataset: str | None,
    *,
    tools: Path | None = None,
    bad: BadRecords | None = None,
) -> Dataset:
    """The demonstrations that a user named, by files of any known format or by name.

    Raises:
        InputError: both or neither are named, or the data cannot be read.
    """
    paths = [data] if isinstance(data, Path) else list(data or ())
    if dataset is not None and not paths:
        named = datasets.load(dataset, bad=bad)
        report_bad(bad)
        return named if tools is None else replace(named, tools=read_tools(tools))
    if not paths or dataset is not None:
        raise InputError("give the data once: files of demonstrations or logs, or --dataset NAME")
    stream = open_data(paths, bad=bad)
    demonstrations = list(track(stream, f"Reading {paths[0].name}"))
    report_bad(bad)
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
    return Dataset(
        name=paths[0].stem,
        title=paths[0].name,
        demonstrations=demonstrations,
        tools=read_tools(tools) if tools else tuple(logged),
        synthetic=bool(demonstrations)
        and all("synthetic" in item.source.lower() for item in demonstrations),
        source=str(paths[0]),
        licence="",
    )


def open_data(paths: Sequence[Path], *, bad: BadRecords | None) -> DemonstrationFile:
    """A stream of demonstrations from files; a note names the format of logs.

    Raises:
        InputError: the files have no known format, or cannot be read.
    """
    stream = logs.open_demonstrations(paths, bad=bad)
    if stream.format != logs.CANONICAL:
        note(f"{paths[0]} is read as {stream.format}: {logs.FORMATS[stream.format].title}")
    return stream


def save_tools_next_to(output: Path, tools: Iterable[Tool], *, force: bool) -> str | None:
    """Write tools into the ``tools.json`` that a fit reads; None if none were written."""
    described = list(tools)
    path = output.parent / "tools.json"
    if not described:
        return None
    if path.exists() and not force:
        note(f"{path} exists and was not replaced; --force replaces it")
        return None
    save_tools(path, described, force=force)
    return str(path)


def choose_split(dataset: Dataset, choice: str | None, *, seed: int = 0) -> Split:
    """The split that a user named.

    Args:
        dataset: what is split.
        choice: a split file; ``default`` or None for the set's own; ``paper``; ``group``; or the
            variant of a fixed split, such as ``by-sequence``.
        seed: of the splits that are drawn.

    Raises:
        InputError: there is no such split, or it is about other data.
    """
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
        raise InputError(f"unknown split {choice!r}: {error}") from error


def is_fitted_to(model: Model, runs: Sequence[Demonstration]) -> bool:
    """Whether a model was fitted to just these runs."""
    failures = model.training_.failures is not None
    if not failures and all(run.outcome == "failure" for run in runs):
        return False  # a fit without failed runs would have nothing to learn from
    # The cheapest ranker there is; it hashes its training data as any other does.
    fitted = create("random").fit(runs, failures=failures, arguments=False, plans=False)
    return fitted.training_.sha256 == model.training_.sha256


def report_bad(bad: BadRecords | None) -> None:
    """Say how many records were left out, and why the first of them were."""
    if bad is None or not bad.count:
        return
    for reason in bad.first:
        note(f"left out {reason}")
    note(f"left out {bad.count} bad record{'s' if bad.count > 1 else ''} in all")


def load_with_run(
    folder: Path, query: str | None, history: Sequence[str] | None, run_file: str | None
) -> tuple[Model, Run]:
    """A model, and the run that it is asked about: a query with ``--history``, or ``--run``.

    Raises:
        InputError: both or neither are there, or as ``read_run``.
        ModelError: the folder has no usable model.
    """
    if query is not None and not query.strip():
        raise InputError("the query is empty; write what the user asked for")
    if run_file is not None:
        if query is not None or history:
            raise InputError("--run includes a query and its calls; give --run alone, or a query")
        run = read_run(run_file)
        return load(folder), run
    if query is None:
        raise InputError("there is no query; give a query, or --run FILE")
    model = load(folder)
    # A comma separates names, except in the name of a tool that the model knows.
    parts = ([text] if model.index(text) >= 0 else text.split(",") for text in history or ())
    names = (name.strip() for part in parts for name in part)
    return model, as_run(query, [name for name in names if name])


def find_unknown(run: Run, model: Model) -> list[str]:
    """Tools of a run's calls that the model does not know, each once; a note names them."""
    unknown = list(dict.fromkeys(name for name in run.history if model.index(name) < 0))
    if unknown:
        note(f"the model never saw {name_some(unknown)}, so its answer may be worse")
    return unknown


def name_some(names: Sequence[str]) -> str:
    """The first names of a list that may be long."""
    return ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")


def read_run(source: str) -> Run:
    """A run from a JSON file; ``-`` is standard input.

    Raises:
        InputError: it cannot be read, is not a run, refers to a call or to a part of an output that
            is not there, or has a step number that goes back.
    """
    name = "standard input" if source == "-" else source
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise cannot_read(source, error) from error
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
