"""Worker processes: each computes one cell at a time and keeps its log."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Literal

from dtdr.errors import DtdrError, InputError
from dtdr.lab.cells import Cell
from dtdr.lab.fitting import fit_signature
from dtdr.lab.kinds import KINDS, Context
from dtdr.lab.store import Store

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PAUSE = 0.5
"""Seconds until a cell that another lab is computing is asked for again."""


@dataclass(frozen=True)
class Done:
    """What became of a cell: kept, failed with a reason, or held by another lab."""

    cell: Cell
    state: Literal["done", "failed", "busy"]
    seconds: float
    reason: str = ""
    trace: str = ""


def compute(cell: Cell, context: Context, store: Store) -> Done:
    """Compute one cell in this process and keep its log, or why there is none."""
    started = time.perf_counter()
    with store.claim(cell.key) as mine:
        if not mine:
            return Done(cell, "busy", 0.0)
        with contextlib.suppress(InputError):
            store.read(cell.key)  # another lab was faster
            return Done(cell, "done", 0.0)
        reason = trace = ""
        try:
            module, _, name = KINDS[cell.kind].partition(":")
            measure = getattr(importlib.import_module(module), name)
            store.write(cell.key, cell.describe(measure(cell.spec, context)))
        except DtdrError as error:
            reason = str(error)
        except MemoryError:
            reason = "there was not enough memory"
        except Exception as error:  # noqa: BLE001  # one cell's bug must not end the others
            reason = f"{type(error).__name__}: {error}"
            trace = traceback.format_exc()
    return Done(cell, "failed" if reason else "done", time.perf_counter() - started, reason, trace)


class Pool:
    """Runs cells in processes of their own; a process that dies costs its cell only."""

    def __init__(self, workers: int, context: Context, store: Store) -> None:
        self._workers = max(1, workers)
        self._context, self._store = context, store
        self._spawn = multiprocessing.get_context("spawn")
        self._running: dict[Connection, tuple[SpawnProcess, Cell | None]] = {}
        self._fitted: dict[Connection, str] = {}
        self.current: list[Cell] = []
        """What is being computed now."""

    def run(self, cells: Sequence[Cell]) -> Iterator[Done]:
        """Yield each cell as it is finished."""
        waiting = deque(cells)
        left = len(waiting)
        try:
            while left:
                while waiting and self._idle(len(waiting)):
                    connection = self._idle(len(waiting))[0]
                    self._send(connection, self._next(connection, waiting))
                ready = wait(list(self._running))
                for connection in [one for one in self._running if one in ready]:
                    done = self._receive(connection)
                    if done is None:
                        continue
                    if done.state == "busy":
                        waiting.append(done.cell)
                        time.sleep(PAUSE)
                        continue
                    if done.state == "failed":
                        self._store.write_failure(
                            done.cell.key, {"reason": done.reason, "trace": done.trace}
                        )
                    left -= 1
                    yield done
        finally:
            self.close()

    def close(self) -> None:
        """End the processes: idle ones see the end of their pipe, busy ones are stopped."""
        for connection, (process, cell) in self._running.items():
            connection.close()
            if cell is not None:
                process.terminate()
        for process, _ in self._running.values():
            process.join(5)
            if process.is_alive():
                process.kill()
        self._running.clear()
        self._fitted.clear()
        self.current = []

    def _next(self, connection: Connection, waiting: deque[Cell]) -> Cell:
        """A cell whose retriever the worker just fitted, or else one that no other worker has.

        Cells that differ only in what is asked of a retriever are cheap for who fitted it.
        """
        mine = self._fitted.get(connection)
        others = {name for worker, name in self._fitted.items() if worker is not connection}
        chosen = next(
            (cell for cell in waiting if mine and _fit(cell) == mine),
            next((cell for cell in waiting if _fit(cell) not in others), waiting[0]),
        )
        waiting.remove(chosen)
        self._fitted[connection] = _fit(chosen)
        return chosen

    def _idle(self, wanted: int) -> list[Connection]:
        busy = sum(cell is not None for _, cell in self._running.values())
        if len(self._running) < min(self._workers, busy + wanted):
            self._start()
        return [connection for connection, (_, cell) in self._running.items() if cell is None]

    def _start(self) -> None:
        here, there = self._spawn.Pipe()
        process = self._spawn.Process(
            target=_work, args=(there, self._context, self._store.folder), daemon=True
        )
        with _one_thread():
            process.start()
        there.close()
        self._running[here] = (process, None)

    def _send(self, connection: Connection, cell: Cell) -> None:
        connection.send(cell)
        self._running[connection] = (self._running[connection][0], cell)
        self._note()

    def _receive(self, connection: Connection) -> Done | None:
        process, cell = self._running[connection]
        try:
            done: Done = connection.recv()
        except (EOFError, OSError):
            process.join(5)
            connection.close()
            del self._running[connection]
            self._fitted.pop(connection, None)
            self._note()
            if cell is None:
                return None
            code = process.exitcode
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            return Done(cell, "failed", 0.0, f"its process ended with {how}; was memory short?")
        self._running[connection] = (process, None)
        self._note()
        return done

    def _note(self) -> None:
        self.current = [cell for _, cell in self._running.values() if cell is not None]


@cache
def _fit(cell: Cell) -> str:
    """What the cell's worker must have fitted; a text of its own where it fits nothing."""
    return fit_signature(cell.spec) if "retriever" in cell.spec else cell.key


def _work(connection: Connection, context: Context, folder: Any) -> None:
    # Ctrl-C goes to the whole group; the parent ends its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not a terminal, so that no progress bar of a cell writes over the lab's own.
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for the process's life
    store = Store(folder)
    while True:
        try:
            cell: Cell = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(compute(cell, context, store))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Linear algebra of two workers fights over two cores unless each has one thread."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
