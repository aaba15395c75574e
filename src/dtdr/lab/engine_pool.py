"""Runs cells on an engine, such as a Ray cluster, instead of in processes of the lab's own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dtdr.engines import Engine
from dtdr.errors import DtdrError
from dtdr.lab.cells import Cell
from dtdr.lab.kinds import Context
from dtdr.lab.pool import PAUSE, Done, compute
from dtdr.lab.store import Store


def compute_cell(cell: Cell, context: Context, folder: Path) -> Done:
    """Compute one cell wherever this runs, and keep its log in the cache that all share."""
    return compute(cell, context, Store(folder))


class EnginePool:
    """What ``Pool`` does, on an engine: a cell that ends its worker costs itself only."""

    def __init__(self, engine: Engine, context: Context, store: Store) -> None:
        self._engine, self._context, self._store = engine, context, store
        self.current: list[Cell] = []
        """The cell whose result comes next."""

    def run(self, cells: Sequence[Cell]) -> Iterator[Done]:
        """Yield each cell, in their order."""
        waiting = list(cells)
        arguments = (self._context, self._store.folder)
        while waiting:
            busy: list[Cell] = []
            with self._engine.tasks(compute_cell, arguments, len(waiting)) as start:
                for cell, wait in [(cell, start(cell)) for cell in waiting]:
                    self.current = [cell]
                    try:
                        done = wait()
                    except DtdrError as error:
                        done = Done(cell, "failed", 0.0, str(error))
                    if done.state == "busy":
                        busy.append(cell)
                        continue
                    if done.state == "failed":
                        reason = {"reason": done.reason, "trace": done.trace}
                        self._store.write_failure(cell.key, reason)
                    yield done
            waiting = busy
            if busy:
                time.sleep(PAUSE)
