"""Tasks on an engine: processes of this machine, or a cluster of Dask or Ray."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar, cast

import joblib
from joblib.externals.loky import get_reusable_executor

from dtdr._version import VERSION
from dtdr.data.progress import track
from dtdr.errors import DtdrError, InputError, MissingExtraError

Result = TypeVar("Result")

_WAITING = 4
"""Tasks under way for each worker: enough that none waits, few enough that results of a long queue
do not fill the driver."""

_CONNECT_SECONDS = 20

_CHECK_SECONDS = 5.0
"""How often the driver looks whether the cluster still has workers while a task runs or waits."""

_NO_WORKER_SECONDS = 120.0
"""How long a task waits for a cluster without workers: long enough for one that grows with its
work to start some."""


class Engine(Protocol):
    """Where tasks run."""

    workers: int
    """How many tasks run at once."""

    def share(self, value: Any) -> Any:
        """Send a value to the workers once; tasks take the result in its place."""

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Start a task. Its future raises what the function raises, or a DtdrError."""

    def wait(self, task: Future[Any], seconds: float) -> bool:
        """Wait for a task no longer than some seconds; returns whether it has ended."""

    def has_workers(self) -> bool:
        """Whether anything could run a task now."""

    def ask_workers(self, function: Callable[[], Result]) -> list[Result]:
        """Ask each worker, as far as the engine can reach each one; returns their answers."""

    def close(self) -> None:
        """Stop what is under way, and disconnect."""


def connect(address: str) -> Engine:
    """The cluster at an address.

    Args:
        address: ``dask://HOST:8786``, ``ray://HOST:10001``, or ``ray://auto`` for the Ray cluster
            that this machine belongs to.

    Raises:
        InputError: the address is of no known engine.
        MissingExtraError: the engine is not installed.
        DtdrError: the cluster cannot be reached, or its workers have other versions.
    """
    scheme, _, host = address.partition("://")
    engines: dict[str, Callable[[str], Engine]] = {"dask": DaskEngine, "ray": RayEngine}
    if scheme not in engines or not host:
        raise InputError(
            f"unknown engine {address!r}; write dask://HOST:8786, ray://HOST:10001 or ray://auto"
        )
    engine = engines[scheme](host)
    try:
        _check_workers(engine, address)
    except BaseException:
        engine.close()
        raise
    return engine


def versions() -> tuple[str, str]:
    """Python's version and dtdr's, in this process."""
    return ".".join(platform.python_version_tuple()[:2]), VERSION


def _check_workers(engine: Engine, address: str) -> None:
    """Raise a DtdrError unless workers have this process's versions of Python and dtdr."""
    here = versions()
    try:
        for there in engine.ask_workers(versions):
            if there != here:
                raise DtdrError(
                    f"a worker of {address} has Python {there[0]} with dtdr {there[1]}, and here "
                    f"are Python {here[0]} and dtdr {here[1]}; install the same on all"
                )
    except ImportError as error:
        raise DtdrError(
            f"the workers of {address} cannot import dtdr ({error}); install dtdr {VERSION} there"
        ) from error


def run_tasks(
    function: Callable[..., Result],
    items: Sequence[Any],
    *arguments: Any,
    label: str,
    workers: int | None = None,
    engine: Engine | None = None,
) -> Iterator[Result]:
    """The function's results for the items, in order.

    Args:
        function: can be imported; called with an item and the arguments.
        items: one per task; their text names them in errors.
        arguments: the same for every task.
        label: of the progress bar.
        workers: number of processes, by default one per core; 1 runs all in this process. Not used
            with an engine.
        engine: a cluster; None: processes of this machine.

    Raises:
        DtdrError: from the function, or because a worker was killed.
    """
    if engine is None:
        yield from track(_run_here(function, items, arguments, workers), label, len(items))
    else:
        yield from track(_run_ordered(engine, function, items, arguments), label, len(items))


def _run_here(
    function: Callable[..., Result],
    items: Sequence[Any],
    arguments: Sequence[Any],
    workers: int | None,
) -> Iterator[Result]:
    count = min(workers or os.cpu_count() or 1, max(1, len(items)))
    parallel = joblib.Parallel(count, return_as="generator", batch_size=1)
    tasks = (joblib.delayed(function)(item, *arguments) for item in items)
    try:
        yield from parallel(tasks)
    except BrokenProcessPool as error:
        raise DtdrError(
            "a worker process was killed, most likely for want of memory; give fewer --workers"
        ) from error
    finally:
        if count > 1:
            get_reusable_executor().shutdown()  # its processes would keep their memory


def _run_ordered(
    engine: Engine, function: Callable[..., Result], items: Sequence[Any], arguments: Sequence[Any]
) -> Iterator[Result]:
    """Keep a window of tasks under way, and yield their results in the order of the items."""
    shared = [engine.share(argument) for argument in arguments]
    window: deque[tuple[Any, Future[Result]]] = deque()
    waiting = iter(items)
    try:
        while True:
            while len(window) < _WAITING * engine.workers:
                item = next(waiting, None)
                if item is None:
                    break
                window.append((item, engine.submit(function, item, *shared)))
            if not window:
                return
            item, task = window.popleft()
            yield _result(engine, item, task)
    finally:
        for _, task in window:
            task.cancel()


def _result(engine: Engine, item: Any, task: Future[Result]) -> Result:
    try:
        _wait(engine, item, task)
        return task.result()
    except (DtdrError, MemoryError):
        raise
    except Exception as error:
        raise DtdrError(
            f"no worker could read {item}: {_first_line(error)}; look at the log of the cluster"
        ) from error


def _wait(engine: Engine, item: Any, task: Future[Any]) -> None:
    """Wait for a task as long as the cluster has workers.

    A worker may be lost for good, such as one of Dask that dies while it starts; tasks of a
    cluster without any would wait for ever.
    """
    last_seen = time.monotonic()
    while not engine.wait(task, _CHECK_SECONDS):
        now = time.monotonic()
        if engine.has_workers():
            last_seen = now
        elif now - last_seen >= _NO_WORKER_SECONDS:
            raise DtdrError(
                f"no worker could read {item}: the cluster has had none for "
                f"{_NO_WORKER_SECONDS:.0f} s; start workers, and look at its log"
            )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__} {lines[0]}".strip()[:200]


class DaskEngine:
    """A cluster of Dask, which tries a task again if its worker is killed."""

    def __init__(self, host: str) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise MissingExtraError("engine 'dask'", "dask", "distributed") from error
        address = host if "://" in host else f"tcp://{host}"
        try:
            self._client: Any = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise DtdrError(
                f"the scheduler of Dask at {host} cannot be reached ({_first_line(error)}); "
                "start it, or correct --engine"
            ) from error
        self._executor: Any = self._client.get_executor(pure=False)
        self.workers = max(1, sum(self._client.nthreads().values()))

    def share(self, value: Any) -> Any:
        """Leave it to each task: scattered values are lost with the worker that has them."""
        return value

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """See ``Engine.submit``."""
        task: Future[Result] = self._executor.submit(function, *arguments)
        return task

    def wait(self, task: Future[Any], seconds: float) -> bool:
        """See ``Engine.wait``."""
        return bool(wait([task], seconds).done)

    def has_workers(self) -> bool:
        """See ``Engine.has_workers``."""
        return bool(self._client.nthreads())

    def ask_workers(self, function: Callable[[], Result]) -> list[Result]:
        """See ``Engine.ask_workers``."""
        answers: dict[str, Result] = self._client.run(function)
        return list(answers.values())

    def close(self) -> None:
        """See ``Engine.close``."""
        self._executor.shutdown(wait=False)
        self._client.close(timeout=_CONNECT_SECONDS)


class RayEngine:
    """A cluster of Ray, which tries a task again if its worker is killed."""

    def __init__(self, host: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("engine 'ray'", "ray", "ray") from error
        self._ray: Any = ray
        self._functions: dict[Callable[..., Any], Any] = {}
        address = "auto" if host == "auto" else f"ray://{host}"
        self._is_own = not ray.is_initialized()
        try:
            if self._is_own:
                ray.init(address, log_to_driver=False, configure_logging=False)
        except (OSError, RuntimeError, ValueError, ConnectionError) as error:
            raise DtdrError(
                f"the cluster of Ray at {host} cannot be reached ({_first_line(error)}); start "
                "it, correct --engine, or set RAY_AUTH_TOKEN if it asks for a token"
            ) from error
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def share(self, value: Any) -> Any:
        """See ``Engine.share``."""
        return self._ray.put(value)

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """See ``Engine.submit``."""
        if function not in self._functions:
            self._functions[function] = self._ray.remote(function).options(
                scheduling_strategy="SPREAD"
            )
        reference = self._functions[function].remote(*arguments)
        return _RayTask(self._ray, reference)

    def wait(self, task: Future[Any], seconds: float) -> bool:
        """See ``Engine.wait``."""
        ended, _ = self._ray.wait([cast(_RayTask, task).reference], timeout=seconds)
        return bool(ended)

    def has_workers(self) -> bool:
        """See ``Engine.has_workers``."""
        return bool(self._ray.cluster_resources().get("CPU", 0))

    def ask_workers(self, function: Callable[[], Result]) -> list[Result]:
        """See ``Engine.ask_workers``: a task for each CPU, which Ray spreads over the nodes."""
        tasks = [self.submit(function) for _ in range(self.workers)]
        for task in tasks:
            _wait(self, "the version of dtdr", task)
        return [task.result() for task in tasks]

    def close(self) -> None:
        """See ``Engine.close``."""
        if self._is_own:
            with contextlib.suppress(Exception):
                self._ray.shutdown()


class _RayTask(Future[Any]):
    """A future of Ray, which raises what the function raised instead of Ray's wrapper."""

    def __init__(self, ray: Any, reference: Any) -> None:
        super().__init__()
        self._ray, self.reference = ray, reference

    def result(self, timeout: float | None = None) -> Any:
        try:
            return self._ray.get(self.reference, timeout=timeout)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            raise cause if isinstance(cause, Exception) else error from error

    def cancel(self) -> bool:
        with contextlib.suppress(Exception):
            self._ray.cancel(self.reference, force=False)
        return True
