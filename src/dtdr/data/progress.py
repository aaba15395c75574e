"""Progress of long work on a terminal; silent anywhere else."""

from __future__ import annotations

import sys
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


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A function that moves the bar on, by 1 or a number, from any thread."""
    if not sys.stderr.isatty():
        yield lambda _=1: None
        return
    from rich.console import Console  # slow to import, and needed on a terminal only
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count=1: progress.advance(task, count)
