"""Progress of long work: a bar on a terminal, a line at each tenth anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items, with a progress bar on standard error when that is a terminal."""
    with progress_bar(label, total) as advance:
        for item in items:
            yield item
            advance()


_LONG_SECONDS = 10.0
"""Work that takes less is silent where there is no terminal."""


def _report_tenths(label: str, total: int | None) -> Callable[..., None]:
    """A function that counts, and writes a line at each tenth of what takes long."""
    started, done, tenth = time.monotonic(), 0, 0

    def advance(count: int = 1) -> None:
        nonlocal done, tenth
        done += count
        if not total or done * 10 // total <= tenth:
            return
        tenth = done * 10 // total
        if tenth < 10 and time.monotonic() - started >= _LONG_SECONDS:
            sys.stderr.write(f"dtdr: {label}: {done:,} of {total:,}\n")
            sys.stderr.flush()

    return advance


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A function that moves the bar on, by 1 or a number, from any thread.

    Without a terminal, work that takes long writes a line at each tenth.
    """
    if not sys.stderr.isatty():
        yield _report_tenths(label, total)
        return
    from rich.console import Console  # slow to import, and needed on a terminal only
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count=1: progress.advance(task, count)
