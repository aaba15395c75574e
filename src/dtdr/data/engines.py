"""Runs a function over many items in processes of this machine, or connects to a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

import joblib
from joblib.externals.loky import get_reusable_executor

from dtdr.data.progress import track
from dtdr.errors import DtdrError, InputError, MissingExtraError, unknown_choice

PROCESSES, RAY = "processes", "ray"
NAMES = (PROCESSES, RAY)

Result = TypeVar("Result")

_PATIENCE = 10.0
"""Seconds until a cluster counts as unreachable."""
_OBJECTS = 512 * 1024 * 1024
"""Bytes of a local Ray's shared memory: tasks return a few megabytes each."""


def run_parallel(
    function: Callable[..., Result],
    items: Sequence[Any],
    *arguments: Any,
    workers: int | None = None,
    label: str,
) -> Iterator[Result]:
    """The function's results for the items, in order, from processes of this machine.

    Args:
        function: can be imported; called with an item and the arguments.
        items: one per task.
        arguments: the same for every task.
        workers: number of processes, by default one per core; 1 runs all in this process.
        label: of the progress bar.

    Raises:
        DtdrError: from the function, or because a worker was killed.
    """
    count = min(workers or os.cpu_count() or 1, max(1, len(items)))
    parallel = joblib.Parallel(count, return_as="generator", batch_size=1)
    tasks = (joblib.delayed(function)(item, *arguments) for item in items)
    try:
        yield from track(parallel(tasks), label, len(items))
    except BrokenProcessPool as error:
        raise DtdrError(
            "a worker process was killed, most likely for want of memory; give fewer --workers"
        ) from error
    finally:
        if count > 1:
            get_reusable_executor().shutdown()  # its processes would keep their memory


@contextmanager
def open_engine(name: str = PROCESSES, *, workers: int | None = None) -> Iterator[None]:
    """A connection to Ray, if that is the engine, for as long as the context lasts.

    Joins the Ray that this process is connected to, else the cluster at the address (or
    ``$RAY_ADDRESS``), else starts one on this machine. At the end it leaves what it joined or
    started.

    Args:
        name: one of ``NAMES``; or ``ray:ADDRESS``, such as ``ray:auto`` or ``ray://HOST:10001``.
        workers: cores of a local Ray; None for all.

    Raises:
        InputError: there is no such engine, or the cluster cannot be reached.
        MissingExtraError: Ray is not installed.
    """
    kind, _, address = name.partition(":")
    if kind not in NAMES or (address and kind == PROCESSES):
        raise unknown_choice("engine", name, NAMES)
    if kind == PROCESSES:
        yield
        return
    # Ray reports nothing to its makers unless the user wants it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtraError("--engine ray", "ray", "ray") from error
    if ray.is_initialized():
        yield
        return
    _connect(ray, name if address.startswith("//") else address or None, workers)
    try:
        yield
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    options: dict[str, Any] = {}
    place = address or os.environ.get("RAY_ADDRESS")
    _check_reachable(place or "")
    if place is None:
        # With Ray's default of 15, its workers wait for everything else on this machine.
        os.environ.setdefault("RAY_worker_niceness", "0")
        options = {"num_cpus": workers, "object_store_memory": _OBJECTS, "include_dashboard": False}
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"cannot start or join Ray ({place or 'here'}): {reason}") from error


def _check_reachable(address: str) -> None:
    """Fail at once, where Ray would retry for minutes."""
    parts = re.fullmatch(r"(?:ray://)?([^:/]+):([0-9]{1,5})", address)
    if parts is None:
        return
    try:
        socket.create_connection((parts[1], int(parts[2])), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(
            f"cannot reach Ray at {address}: {reason}; start it there with ray start --head"
        ) from error
