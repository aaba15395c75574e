"""Runs a function over many items: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import re
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from dtdr.data.progress import progress_bar
from dtdr.errors import DtdrError, InputError, MissingExtraError, unknown_choice

PROCESSES, RAY = "processes", "ray"
NAMES = (PROCESSES, RAY)

Result = TypeVar("Result")

_RETRIES = 20
"""How often Ray repeats a task if its worker or node dies."""
_PATIENCE = 10.0
"""Seconds until a cluster counts as unreachable."""
_OBJECTS = 512 * 1024 * 1024
"""Bytes of a local Ray's shared memory: tasks return a few megabytes each."""


class Engine(ABC):
    """Runs functions that can be imported, on items and results that can be pickled.

    A task runs again if its worker dies, so running it twice must have the same effect as once.
    """

    def map(
        self, function: Callable[..., Result], items: Iterable[Any], *arguments: Any, label: str
    ) -> Iterator[Result]:
        """The function's results for the items, in order; only few of them wait at a time.

        Args:
            function: called with an item and the arguments.
            items: one per task.
            arguments: the same for every task.
            label: of the progress bar.

        Raises:
            DtdrError: from the function, or because a task was lost with its worker.
        """
        items = list(items)
        with (
            progress_bar(label, len(items)) as advance,
            self.tasks(function, arguments, len(items)) as start,
        ):
            running: deque[Callable[[], Result]] = deque()
            for item in items:
                running.append(start(item))
                while len(running) >= self._most_tasks():
                    yield running.popleft()()
                    advance()
            while running:
                yield running.popleft()()
                advance()

    @abstractmethod
    def _most_tasks(self) -> int:
        """Maximum of tasks that wait, run, or have a result that is not taken yet."""

    @abstractmethod
    def tasks(
        self, function: Callable[..., Result], arguments: tuple[Any, ...], count: int
    ) -> AbstractContextManager[Callable[[Any], Callable[[], Result]]]:
        """A context with a function that starts a task of an item and returns how to wait for it.

        It takes the function and arguments of ``map``, and the number of items.
        """


class ProcessEngine(Engine):
    """Processes of this machine, by default one per core; one worker runs in this process."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1

    def _most_tasks(self) -> int:
        return 1 if self.workers == 1 else 2 * self.workers

    @contextmanager
    def tasks(
        self, function: Callable[..., Result], arguments: tuple[Any, ...], count: int
    ) -> Iterator[Callable[[Any], Callable[[], Result]]]:
        """Tasks in a pool of processes."""
        if self.workers == 1 or count <= 1:
            yield lambda item: lambda: function(item, *arguments)
            return
        # Threads of linear algebra and of storage drivers do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self.workers, count), context) as pool:
            try:
                yield lambda item: pool.submit(function, item, *arguments).result
            except BrokenProcessPool as error:
                raise DtdrError(
                    "a worker process was killed, most likely for want of memory; give fewer "
                    "--workers"
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


class RayEngine(Engine):
    """Tasks of Ray, which repeats those whose worker or node died.

    Joins the Ray that this process is connected to, else the cluster at ``address`` (or
    ``$RAY_ADDRESS``), else starts one on this machine. ``close`` leaves what it joined or started.

    Args:
        address: such as ``auto`` or ``ray://host:10001``.
        workers: cores of a Ray on this machine; None for all.

    Raises:
        MissingExtraError: Ray is not installed.
        InputError: the cluster cannot be reached.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        # Ray reports nothing to its makers unless the user wants it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray = importlib.import_module("ray")
        except ImportError as error:
            raise MissingExtraError("--engine ray", "ray", "ray") from error
        self._ray: Any = ray
        self._is_mine = not ray.is_initialized()
        if not self._is_mine:
            return
        options: dict[str, Any] = {}
        place = address or os.environ.get("RAY_ADDRESS")
        _check_reachable(place or "")
        if place is None:
            # With Ray's default of 15, its workers wait for everything else on this machine.
            os.environ.setdefault("RAY_worker_niceness", "0")
            options = {
                "num_cpus": workers,
                "object_store_memory": _OBJECTS,
                "include_dashboard": False,
            }
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (OSError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"cannot start or join Ray ({place or 'here'}): {reason}") from error

    def close(self) -> None:
        """End the connection, and a Ray that was started for it."""
        if self._is_mine:
            self._ray.shutdown()

    def _most_tasks(self) -> int:
        # More than the cores, so that a cluster that can grow does.
        return max(16, 4 * int(self._ray.cluster_resources().get("CPU", 1)))

    @contextmanager
    def tasks(
        self, function: Callable[..., Result], arguments: tuple[Any, ...], count: int
    ) -> Iterator[Callable[[Any], Callable[[], Result]]]:
        """Tasks of Ray with shared arguments."""
        task = self._ray.remote(function).options(num_cpus=1, max_retries=_RETRIES)
        shared = [self._ray.put(argument) for argument in arguments]

        def start(item: Any) -> Callable[[], Result]:
            reference = task.remote(item, *shared)
            return lambda: self._get(reference)

        yield start

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[:200]
            raise DtdrError(f"Ray has lost a task too often: {reason}") from error


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


@contextmanager
def open_engine(name: str = PROCESSES, *, workers: int | None = None) -> Iterator[Engine]:
    """A context with an engine.

    Args:
        name: one of ``NAMES``; or ``ray:ADDRESS``, such as ``ray:auto`` or ``ray://HOST:10001``.
        workers: processes, or cores of a local Ray; None for one per core.

    Raises:
        InputError: there is no such engine, or the cluster cannot be reached.
        MissingExtraError: Ray is not installed.
    """
    kind, _, address = name.partition(":")
    if kind not in NAMES or (address and kind == PROCESSES):
        raise unknown_choice("engine", name, NAMES)
    if kind == PROCESSES:
        yield ProcessEngine(workers)
        return
    engine = RayEngine(name if address.startswith("//") else address or None, workers)
    try:
        yield engine
    finally:
        engine.close()
