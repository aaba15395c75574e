"""Runs a function over many items in processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import joblib
from joblib.externals.loky import get_reusable_executor

from dtdr.data.progress import track
from dtdr.errors import DtdrError

Result = TypeVar("Result")


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
