"""Runs suites: what is in the cache is used, the rest is computed in parallel."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import joblib

from dtdr.data.progress import progress_bar
from dtdr.errors import DtdrError, InputError
from dtdr.evaluate.lab import data
from dtdr.evaluate.lab.data import LabContext, short_name, split_of
from dtdr.evaluate.lab.estimates import expected_seconds
from dtdr.evaluate.lab.experiments import Experiment, unique
from dtdr.evaluate.lab.fitting import fit_signature
from dtdr.evaluate.lab.kinds import KINDS
from dtdr.evaluate.lab.resolve import DataLibrary, Options, ResolvedSuite, resolve_suites
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.run_log import RunLog

WORKERS = 2
START = 4.0
"""Seconds until the workers have imported what they need and read the data."""

DIED = "its process ended before it was done; was memory short?"


@dataclass
class Summary:
    """Counts and times of a lab.

    Attributes:
        lab: its name.
        suites: names of the suites.
        experiments: number of experiments in all.
        cached: experiments that were in the cache.
        computed: experiments that were computed now.
        failed: label and reason of each experiment that failed.
        left_out: what the suites name but could not be run, with the reason.
        seconds: wall-clock time.
        expected_seconds: of the experiments that were not in the cache.
    """

    lab: str
    suites: list[str]
    experiments: int = 0
    cached: int = 0
    computed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0
    expected_seconds: float = 0.0


class Done(NamedTuple):
    """Experiments that shared a fitted ranker, and why each failed (empty if it did not)."""

    experiments: Sequence[Experiment]
    reasons: Sequence[str]


def run_lab(
    names: Sequence[str],
    options: Options,
    *,
    lab: str,
    store: Store,
    command: str,
    workers: int | None = None,
    dry: bool = False,
    note: Callable[[str], None] = lambda sentence: None,
) -> Summary:
    """Run suites, and keep which experiments they consist of. An interrupted lab continues.

    Args:
        names: of suites, files, or ``all``.
        options: see ``Options``.
        lab: the name under which the report finds them.
        store: the cache.
        command: the command line, for the report.
        workers: processes, two by default; one computes in this process.
        dry: only count.
        note: is called with what is left out or damaged.

    Raises:
        InputError: a name is unknown, or the data cannot be used.
    """
    started = time.monotonic()
    library = DataLibrary(options)
    resolved = resolve_suites(names, options, library)
    context = LabContext(library.locations, store.folder, {short_name(n): n for n in options.llms})
    summary = Summary(lab, [item.suite.name for item in resolved])
    summary.left_out = list(dict.fromkeys(r for item in resolved for r in item.left_out))
    for reason in summary.left_out:
        note(f"left out {reason}")
    experiments = unique(experiment for item in resolved for experiment in item.experiments)
    _check_splits(experiments, context)
    missing = [experiment for experiment in experiments if not _is_kept(experiment, store, note)]
    summary.experiments, summary.cached = len(experiments), len(experiments) - len(missing)
    workers = workers or WORKERS
    estimate = partial(expected_seconds, context=context)
    # Longest first: the last of them should be a short one.
    groups = _group(experiment for experiment in missing if "llm" not in experiment.spec)
    groups.sort(key=estimate, reverse=True)
    asking = _group(experiment for experiment in missing if "llm" in experiment.spec)
    parallel = sum(map(estimate, groups)) / min(workers, os.cpu_count() or 1)
    summary.expected_seconds = START + parallel + sum(map(estimate, asking))
    if dry:
        return summary
    for item in resolved:
        _keep_manifest(item, options, lab, store, command, library)
    for experiment in missing:
        store.write_failure(experiment.key, None)
    with progress_bar("experiments", len(missing)) as advance:
        # First in parallel; then, one at a time, those that ask an LLM and keep it in memory.
        alone = (
            compute_experiments([experiment], context, os.getpid())
            for same in asking
            for experiment in same
        )
        for done in itertools.chain(_compute_in_parallel(groups, workers, context), alone):
            for experiment, reason in zip(done.experiments, done.reasons, strict=True):
                advance()
                if reason:
                    summary.failed.append((experiment.label, reason))
                    note(f"failed: {experiment.label}: {reason}")
                else:
                    summary.computed += 1
    summary.seconds = time.monotonic() - started
    return summary


def compute_experiments(
    experiments: Sequence[Experiment], context: LabContext, parent: int
) -> Done:
    """Compute experiments one by one in this process, and store each result or its failure."""
    if os.getpid() != parent:
        # Ctrl-C reaches every process of the group; the parent ends its workers in order.
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Done(
        experiments, [_compute_experiment(experiment, context) for experiment in experiments]
    )


def _compute_experiment(experiment: Experiment, context: LabContext) -> str:
    store = Store(context.folder)
    reason = ""
    with contextlib.suppress(InputError):
        store.read(experiment.key)  # another lab was faster
        return reason
    # Remains if the process dies.
    store.write_failure(experiment.key, DIED)
    try:
        # Progress bars of an experiment would write over the lab's own.
        with contextlib.redirect_stderr(io.StringIO()):
            result = KINDS[experiment.kind](experiment.spec, context)
        spec = dict(experiment.spec)
        if isinstance(result, RunLog):
            details = {"spec": spec, **result.header.details}
            result = replace(result, header=replace(result.header, details=details))
        else:
            result = {"spec": spec, **result}
        store.write(experiment.key, result)
    except DtdrError as error:
        reason = str(error)
    except MemoryError:
        reason = "there was not enough memory"
    except Exception as error:  # noqa: BLE001  # one experiment's bug must not end the others
        at = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"
    except BaseException:
        store.write_failure(experiment.key, None)
        raise
    if reason:
        store.write_failure(experiment.key, reason)
    return reason


def _group(experiments: Iterable[Experiment]) -> list[list[Experiment]]:
    """Experiments that use the same fitted ranker are computed together."""
    groups: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        groups.setdefault(fit_signature(experiment.spec), []).append(experiment)
    return list(groups.values())


def _compute_in_parallel(
    groups: Sequence[Sequence[Experiment]], workers: int, context: LabContext
) -> Iterator[Done]:
    """One group per process at a time; if a process dies, only its current experiment fails."""
    store = Store(context.folder)
    left = {experiment.key: experiment for group in groups for experiment in group}
    try:
        for done in _parallel(groups, workers, context):
            for experiment in done.experiments:
                del left[experiment.key]
            yield done
        return
    except BrokenProcessPool as error:
        codes = re.search(r"\{(.*?)\}", str(error))
        reason = f"its process ended with {codes[1]}; was memory short?" if codes else DIED
    if len(left) == 1:
        (experiment,) = left.values()
        store.write_failure(experiment.key, reason)
        yield Done([experiment], [reason])
        return
    # The pool ended the other processes too. Alone, each of those that were under way shows
    # whether it was the one.
    suspects = [
        experiment for experiment in left.values() if store.failure(experiment.key) == DIED
    ] or [*left.values()]
    for experiment in suspects:
        del left[experiment.key]
        yield from _compute_in_parallel([[experiment]], workers, context)
    yield from _compute_in_parallel(_group(left.values()), workers, context)


def _parallel(
    groups: Sequence[Sequence[Experiment]], workers: int, context: LabContext
) -> Iterator[Done]:
    # A worker that an encoder has made large is replaced, which changes nothing.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
        # No group waits in a worker's queue: loky's thread fails over those when it is stopped.
        parallel = joblib.Parallel(
            return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
        )
        yield from parallel(
            joblib.delayed(compute_experiments)(group, context, os.getpid()) for group in groups
        )


def _is_kept(experiment: Experiment, store: Store, note: Callable[[str], None]) -> bool:
    try:
        store.read(experiment.key)
    except InputError as error:
        if path := store.path(experiment.key):
            note(f"{error} (it is computed again now)")
            path.unlink(missing_ok=True)
        return False
    return True


def _check_splits(experiments: Iterable[Experiment], context: LabContext) -> None:
    """Tell the user of a set that cannot be split before anything is computed."""
    checked = set()
    for experiment in experiments:
        split = (
            experiment.spec["dataset"],
            experiment.spec.get("split"),
            experiment.spec.get("plans"),
        )
        if split not in checked:
            checked.add(split)
            split_of(context.dataset(experiment.spec), experiment.spec)


def _keep_manifest(
    item: ResolvedSuite,
    options: Options,
    lab: str,
    store: Store,
    command: str,
    library: DataLibrary,
) -> None:
    suite = item.suite
    names = dict.fromkeys(str(experiment.spec["dataset"]) for experiment in item.experiments)
    manifest: dict[str, Any] = {
        "suite": suite.name,
        **{key: getattr(suite, key) for key in ("title", "section", "about", "differs")},
        "command": command,
        "quick": options.quick,
        "own_data": options.file is not None,
        "left_out": item.left_out,
        "datasets": {
            name: data.describe(data.load(library.locations[name]), library.sha256(name))
            for name in names
        },
        "experiments": [
            {"key": experiment.key, "spec": dict(experiment.spec)}
            for experiment in item.experiments
        ],
    }
    store.write_manifest(lab, suite.name, manifest)
