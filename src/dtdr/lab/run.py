"""Runs suites: what is in the cache is used, the rest is computed by worker processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtdr.engines import Engine
from dtdr.errors import InputError
from dtdr.lab import data
from dtdr.lab.cells import Cell, unique
from dtdr.lab.engine_pool import EnginePool
from dtdr.lab.kinds import MEASURES_TIME, NEEDS_LLM, Context, short_name
from dtdr.lab.pool import Done, Pool
from dtdr.lab.progress import Estimates, Progress
from dtdr.lab.resolve import DataLibrary, Options, ResolvedSuite, resolve_suites
from dtdr.lab.store import Store
from dtdr.lab.train_test import split_of


@dataclass
class Summary:
    """What a lab did.

    Attributes:
        lab: its name.
        suites: names of the suites.
        cells: runs in all.
        cached: runs that were in the cache.
        computed: runs that were computed now.
        failed: label and reason of each run that failed.
        damaged: what was wrong with cache entries that were computed again.
        left_out: what the suites name but could not be run, with the reason.
        seconds: wall-clock time.
        expected_seconds: estimate of what was left to compute at the start.
    """

    lab: str
    suites: list[str]
    cells: int = 0
    cached: int = 0
    computed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0
    expected_seconds: float = 0.0


def run_lab(
    asked: Sequence[str],
    options: Options,
    *,
    lab: str,
    store: Store,
    command: str,
    workers: int | None = None,
    engine: Engine | None = None,
    dry: bool = False,
    note: Callable[[str], None] = lambda sentence: None,
) -> Summary:
    """Run suites and keep which runs they consist of; an interrupted lab goes on where it was.

    Args:
        asked: names of suites, files, or ``all``.
        options: see ``Options``.
        lab: the name under which the report finds them.
        store: the cache.
        command: the command line, for the report.
        workers: processes; default: one for each core, two at most.
        engine: computes what can run side by side, with the data and the cache where all of its
            machines see them; default: the processes.
        dry: only count and estimate.
        note: told what is left out or damaged as it is found.

    Raises:
        InputError: a name is unknown, or the data cannot be used.
    """
    started = time.monotonic()
    library = DataLibrary(options)
    chosen = resolve_suites(asked, options, library)
    summary = Summary(lab, [item.suite.name for item in chosen])
    summary.left_out = list(dict.fromkeys(r for item in chosen for r in item.left_out))
    for reason in summary.left_out:
        note(f"left out {reason}")
    cells = unique(cell for item in chosen for cell in item.cells)
    _check_splits(cells, library)
    missing = []
    for cell in cells:
        if _is_kept(cell, store, summary, note):
            summary.cached += 1
        else:
            missing.append(cell)
    summary.cells = len(cells)
    count = workers or max(1, min(2, os.cpu_count() or 1))
    sizes = {name: data.load(location) for name, location in library.locations.items()}
    estimates = Estimates(store, {n: (len(d), len(d.tools)) for n, d in sizes.items()})
    summary.expected_seconds = estimates.total(missing, count)
    if dry:
        return summary
    for item in chosen:
        _keep_manifest(item, options, lab, store, command, library)
    context = Context(library.locations, store.folder, {short_name(n): n for n in options.llms})
    with Progress(len(missing), summary.expected_seconds) as progress:
        for done in _run_phases(missing, count, context, store, estimates, progress, engine):
            if done.state == "failed":
                summary.failed.append((done.cell.label, done.reason))
                note(f"failed: {done.cell.label}: {done.reason}")
            else:
                summary.computed += 1
                estimates.add(done.cell, done.seconds)
    estimates.save()
    summary.seconds = time.monotonic() - started
    return summary


def _run_phases(
    missing: Sequence[Cell],
    workers: int,
    context: Context,
    store: Store,
    estimates: Estimates,
    progress: Progress,
    engine: Engine | None,
) -> Iterable[Done]:
    """What can run side by side, then what holds an LLM in memory, then what measures time."""
    phases: list[tuple[int, list[Cell]]] = [(workers, []), (1, []), (1, [])]
    for cell in missing:
        holds_llm = cell.kind in NEEDS_LLM or "llm" in cell.spec
        phases[2 if cell.kind in MEASURES_TIME else int(holds_llm)][1].append(cell)
    # Longest first: the last cell of a phase should be a short one.
    phases[0][1].sort(key=lambda cell: -estimates.seconds(cell))
    left = estimates.total(missing, 1)
    for phase, (count, cells) in enumerate(phases):
        pool: Pool | EnginePool = Pool(count, context, store)
        if engine is not None and phase == 0:
            pool = EnginePool(engine, context, store)
        for done in pool.run(cells):
            left -= estimates.seconds(done.cell)
            progress.advance([cell.label for cell in pool.current], max(0.0, left))
            yield done


def _is_kept(cell: Cell, store: Store, summary: Summary, note: Callable[[str], None]) -> bool:
    path = store.path(cell.key)
    if path is None:
        return False
    try:
        store.read(cell.key)
    except InputError as error:
        summary.damaged.append(str(error))
        note(f"{error} (it is computed again now)")
        path.unlink(missing_ok=True)
        return False
    return True


def _check_splits(cells: Iterable[Cell], library: DataLibrary) -> None:
    """A set that cannot be split is the user's to know before anything is computed."""
    seen = set()
    for cell in cells:
        spec = cell.spec
        place = (spec["dataset"], spec.get("split"), spec.get("plans"))
        if "split" in spec and place not in seen:
            seen.add(place)
            dataset = data.load(library.locations[spec["dataset"]])
            split_of(data.first_plans(dataset, spec.get("plans")), spec)


def _keep_manifest(
    item: ResolvedSuite,
    options: Options,
    lab: str,
    store: Store,
    command: str,
    library: DataLibrary,
) -> None:
    described = {}
    for name in dict.fromkeys(
        str(cell.spec[key]) for cell in item.cells for key in ("dataset", "queries")
        if key in cell.spec
    ):  # fmt: skip
        dataset, sha256 = data.load(library.locations[name]), library.sha256(name)
        described[name] = data.describe(dataset, sha256)
        if not store.has_dataset_summary(sha256):
            store.write_dataset_summary(sha256, data.dataset_summary(dataset))
    manifest: dict[str, Any] = {
        "suite": item.suite.name,
        "title": item.suite.title,
        "section": item.suite.section,
        "about": item.suite.about,
        "differs": item.suite.differs,
        "command": command,
        "quick": options.quick,
        "own_data": options.file is not None,
        "left_out": item.left_out,
        "datasets": described,
        "cells": [{"key": cell.key, "spec": dict(cell.spec)} for cell in item.cells],
    }
    store.write_manifest(lab, item.suite.name, manifest)
