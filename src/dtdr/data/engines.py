"""Runs a function over many items in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from dtdr.data.progress import track
from dtdr.errors import DtdrError

Result = TypeVar("Result")


class ProcessEngine:
    """Processes of this machine, by default one per core; one worker runs in this process."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1

    def map(
        self, function: Callable[..., Result], items: Iterable[Any], *arguments: Any, label: str
    ) -> Iterator[Result]:
        """The function's results for the items, in order; only few of them wait at a time.

        Args:
            function: can be imported; called with an item and the arguments.
            items: one per task.
            arguments: the same for every task.
            label: of the progress bar.

        Raises:
            DtdrError: from the function, or because a worker was killed.
        """
        items = list(items)
        yield from track(self._results(function, items, arguments), label, len(items))

    def _results(
        self, function: Callable[..., Result], items: list[Any], arguments: tuple[Any, ...]
    ) -> Iterator[Result]:
        if self.workers == 1 or len(items) <= 1:
            yield from (function(item, *arguments) for item in items)
            return
        # Threads of linear algebra and of storage drivers do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self.workers, len(items)), context) as pool:
            try:
                running: deque[Any] = deque()
                for item in items:
                    running.append(pool.submit(function, item, *arguments))
                    if len(running) >= 2 * self.workers:
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            except BrokenProcessPool as error:
                raise DtdrError(
                    "a worker process was killed, most likely for want of memory; give fewer "
                    "--workers"
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
