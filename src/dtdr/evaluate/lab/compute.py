"""Runs suites: what is in the cache is used, the rest is computed in parallel."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import joblib

from dtdr.data import engines
from dtdr.data.progress import progress_bar
from dtdr.errors import DtdrError, InputError
from dtdr.evaluate.lab import data
from dtdr.evaluate.lab.cells import Cell, unique
from dtdr.evaluate.lab.estimates import Estimates
from dtdr.evaluate.lab.fitting import fit_signature
from dtdr.evaluate.lab.kinds import KINDS, Context, short_name
from dtdr.evaluate.lab.resolve import DataLibrary, Options, ResolvedSuite, resolve_suites
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.lab.train_test import split_of
from dtdr.evaluate.run_log import RunLog

WORKERS = 2
DIED = "its process ended before it was done; was memory short?"


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


@dataclass(frozen=True)
class Done:
    """What became of a cell.

    Attributes:
        cell: the cell.
        seconds: wall-clock time.
        reason: why it failed; empty where its result was kept.
        shared: whether its retriever had been fitted for the cell before.
    """

    cell: Cell
    seconds: float
    reason: str = ""
    shared: bool = False


def run_lab(
    names: Sequence[str],
    options: Options,
    *,
    lab: str,
    store: Store,
    command: str,
    workers: int | None = None,
    engine: str = engines.PROCESSES,
    dry: bool = False,
    note: Callable[[str], None] = lambda sentence: None,
) -> Summary:
    """Run suites and keep which runs they consist of; an interrupted lab continues where it was.

    Args:
        names: of suites, files, or ``all``.
        options: see ``Options``.
        lab: the name under which the report finds them.
        store: the cache.
        command: the command line, for the report.
        workers: processes, two by default; one computes in this process.
        engine: ``ray`` computes on the Ray that this process is connected to, with the data and
            the cache where all of its machines see them.
        dry: only count and estimate.
        note: is called with what is left out or damaged.

    Raises:
        InputError: a name is unknown, or the data cannot be used.
    """
    started = time.monotonic()
    library = DataLibrary(options)
    chosen = resolve_suites(names, options, library)
    summary = Summary(lab, [item.suite.name for item in chosen])
    summary.left_out = list(dict.fromkeys(r for item in chosen for r in item.left_out))
    for reason in summary.left_out:
        note(f"left out {reason}")
    cells = unique(cell for item in chosen for cell in item.cells)
    _check_splits(cells, library)
    missing = [cell for cell in cells if not _is_kept(cell, store, summary, note)]
    summary.cells, summary.cached = len(cells), len(cells) - len(missing)
    workers = workers or WORKERS
    groups = _group(missing)
    estimates = Estimates(store, library.sizes())
    summary.expected_seconds = estimates.total(groups, min(workers, os.cpu_count() or 1))
    if dry:
        return summary
    for item in chosen:
        _keep_manifest(item, options, lab, store, command, library)
    for cell in missing:
        store.write_failure(cell.key, None)
    context = Context(library.locations, store.folder, {short_name(n): n for n in options.llms})
    # Longest first: the last of them should be a short one.
    groups.sort(key=lambda group: -estimates.total([group], 1))
    try:
        with progress_bar("runs", len(missing)) as advance:
            for done in _compute(groups, workers, engine, context):
                advance()
                if done.reason:
                    summary.failed.append((done.cell.label, done.reason))
                    note(f"failed: {done.cell.label}: {done.reason}")
                else:
                    summary.computed += 1
                    estimates.add(done.cell, done.seconds, shared=done.shared)
    finally:
        estimates.save()
    summary.seconds = time.monotonic() - started
    return summary


def compute_cells(cells: Sequence[Cell], context: Context, parent: int) -> list[Done]:
    """Compute cells one after another in this process; keep each result, or why there is none."""
    if os.getpid() != parent:
        # Ctrl-C reaches every process of the group; the parent ends its workers in order.
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return [
        replace(_compute_cell(cell, context), shared=index > 0) for index, cell in enumerate(cells)
    ]


def _compute_cell(cell: Cell, context: Context) -> Done:
    store = Store(context.folder)
    started = time.perf_counter()
    reason = ""
    with store.claim(cell.key):
        with contextlib.suppress(InputError):
            store.read(cell.key)  # another lab was faster
            return Done(cell, 0.0)
        # Stays where the process dies.
        store.write_failure(cell.key, DIED)
        try:
            module, _, name = KINDS[cell.kind].partition(":")
            measure = getattr(importlib.import_module(module), name)
            # Progress bars of a run would write over the lab's own.
            with contextlib.redirect_stderr(io.StringIO()):
                result = measure(cell.spec, context)
            store.write(cell.key, _describe(result, cell))
        except DtdrError as error:
            reason = str(error)
        except MemoryError:
            reason = "there was not enough memory"
        except Exception as error:  # noqa: BLE001  # one cell's bug must not end the others
            at = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"
        except BaseException:
            store.write_failure(cell.key, None)
            raise
        if reason:
            store.write_failure(cell.key, reason)
    return Done(cell, time.perf_counter() - started, reason)


def _describe(result: Any, cell: Cell) -> Any:
    """What the run measured, with the description of the run."""
    spec = dict(cell.spec)
    if isinstance(result, RunLog):
        details = {"spec": spec, **result.header.details}
        return replace(result, header=replace(result.header, details=details))
    return {"spec": spec, **result}


def _group(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells that differ only in what is asked of one fitted retriever are computed together."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(fit_signature(cell.spec), []).append(cell)
    return list(groups.values())


def _compute(
    groups: Sequence[Sequence[Cell]], workers: int, engine: str, context: Context
) -> Iterator[Done]:
    """In parallel what can be, then what holds an LLM in memory."""
    alone = [[cell for cell in group if "llm" in cell.spec] for group in groups]
    parallel = [[cell for cell in group if "llm" not in cell.spec] for group in groups]
    yield from _compute_in_parallel(
        [group for group in parallel if group], workers, engine, context
    )
    for group in alone:
        for cell in group:
            yield from compute_cells([cell], context, os.getpid())


def _compute_in_parallel(
    groups: list[list[Cell]], workers: int, engine: str, context: Context
) -> Iterator[Done]:
    """A group at a time in each process; a cell whose process dies costs only itself."""
    store = Store(context.folder)
    while groups:
        try:
            for done in _parallel(groups, workers, engine, context):
                yield from done
                groups = [group for group in groups if group[0].key != done[0].cell.key]
        except BrokenProcessPool:
            # The processes beside the one that died were ended too. Whose fault it was is seen
            # when each of the cells that were being computed is computed alone.
            left = [cell for group in groups for cell in group]
            for cell in [cell for cell in left if store.failure(cell.key) == DIED]:
                try:
                    yield from next(iter(_parallel([[cell]], WORKERS, engine, context)))
                except BrokenProcessPool as error:
                    codes = re.search(r"\{(.*?)\}", str(error))
                    reason = (
                        f"its process ended with {codes[1]}; was memory short?" if codes else DIED
                    )
                    store.write_failure(cell.key, reason)
                    yield Done(cell, 0.0, reason)
                left.remove(cell)
            for cell in left:
                if store.path(cell.key) or store.failure(cell.key):
                    yield Done(cell, 0.0, store.failure(cell.key) or "")
            groups = _group(
                cell for cell in left if not (store.path(cell.key) or store.failure(cell.key))
            )


def _parallel(
    groups: Sequence[Sequence[Cell]], workers: int, engine: str, context: Context
) -> Iterator[list[Done]]:
    backend: dict[str, Any] = {"backend": "loky", "inner_max_num_threads": 1}
    order = "generator_unordered"
    if engine == engines.RAY:
        importlib.import_module("ray.util.joblib").register_ray()
        backend, order = {"backend": "ray"}, "list"  # Ray's backend gives all results at the end
    with joblib.parallel_config(n_jobs=workers, **backend):
        # No group waits in a worker's queue: loky's thread fails over those when it is stopped.
        parallel = joblib.Parallel(return_as=order, pre_dispatch="n_jobs", batch_size=1)
        yield from parallel(
            joblib.delayed(compute_cells)(group, context, os.getpid()) for group in groups
        )


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
    """Tell the user of a set that cannot be split before anything is computed."""
    checked = set()
    for cell in cells:
        spec = cell.spec
        split = (spec["dataset"], spec.get("split"), spec.get("plans"))
        if split not in checked:
            checked.add(split)
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
    for name in dict.fromkeys(str(cell.spec["dataset"]) for cell in item.cells):
        described[name] = data.describe(data.load(library.locations[name]), library.sha256(name))
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
