"""How long runs take: from what earlier runs took, or else from rough rules; and a bar of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from dtdr.errors import OutputError
from dtdr.files import replace_file
from dtdr.lab.cells import Cell
from dtdr.lab.fitting import fit_signature
from dtdr.lab.kinds import MEASURES_TIME
from dtdr.lab.store import Store

RULES = {
    "dtdr-f": (30.0, 0.2),
    "dtdr-l": (3.0, 0.6),
    "dtdr-c": (1.8, 0.0),
    "lr": (0.7, 0.83),
}
"""Seconds for 1,000 plans of a set with 16 tools, and the power of the number of tools that they
grow with: from CPU times on TinyAgent (16 tools), T-Eval (50), UltraTool (260) and TRAJECT-Bench
(381). Only the estimate shown at the start and the order of the runs depend on these."""

OTHERS = (0.4, 0.0)
"""What any other retriever takes."""

FEW_TOOLS = 16

SHARED = 0.06
"""What a cell takes of the time of an equal one whose retriever is fitted already, roughly."""

START = 2.0
"""Seconds until a new process has imported what it needs."""


class Estimates:
    """Seconds a cell is expected to take; measured ones are kept in the cache folder."""

    def __init__(self, store: Store, sizes: Mapping[str, tuple[int, int]]) -> None:
        self._path = store.folder / "seconds.json"
        self._sizes = sizes
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
            self._known = {str(name): float(value) for name, value in known.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            self._known = {}
        self._new: dict[str, float] = {}

    def seconds(self, cell: Cell) -> float:
        """What one cell is expected to take."""
        known = self._known.get(_name(cell))
        if known is not None:
            return known
        plans, tools = self._sizes.get(str(cell.spec["dataset"]), (1000, 20))
        plans = min(plans, int(cell.spec.get("plans", plans)))
        share: float = min(1.0, cell.spec.get("demonstrations", plans) / max(1, 0.7 * plans))
        each, power = RULES.get(str(cell.spec.get("retriever")), OTHERS)
        expected: float = each * plans / 1000 * share * max(1.0, tools / FEW_TOOLS) ** power
        return expected + (2 * START if cell.kind in MEASURES_TIME else 0.2)

    def total(self, cells: Iterable[Cell], workers: int) -> float:
        """Wall-clock seconds of many cells."""
        side_by_side = alone = 0.0
        fitted: set[str] = set()
        for cell in cells:
            if cell.kind in MEASURES_TIME or "llm" in cell.spec:
                alone += self.seconds(cell)
                continue
            signature = fit_signature(cell.spec) if "retriever" in cell.spec else cell.key
            known = signature in fitted
            fitted.add(signature)
            side_by_side += self.seconds(cell) * (SHARED if known else 1.0)
        return side_by_side / workers + alone

    def add(self, cell: Cell, seconds: float) -> None:
        """Record what a cell took."""
        if seconds > 0:
            # The longest of a name: the others found the retriever fitted.
            name = _name(cell)
            now = max(seconds, self._new.get(name, 0.0))
            self._new[name] = round(now, 2)

    def save(self) -> None:
        """Keep what was measured; a cache that cannot be written costs the estimate only."""
        try:
            with replace_file(self._path) as stream:
                json.dump(dict(sorted({**self._known, **self._new}.items())), stream, indent=0)
        except OutputError:
            return


class Progress:
    """A bar with the time left; the estimate is scaled by how long the runs so far took."""

    def __init__(self, cells: int, expected_seconds: float) -> None:
        self._cells = cells
        self._expected = expected_seconds
        self._bar: Any = None
        self._task: Any = None
        self._started = time.monotonic()
        self._total: float | None = None

    def __enter__(self) -> Self:
        if self._cells and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("runs"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}", markup=False),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(
                "", total=self._cells, left=f"about {format_duration(self._expected)} left"
            )
        return self

    def advance(self, running: Sequence[str], expected_left: float) -> None:
        """One cell is finished; ``expected_left`` seconds of work are, for one worker."""
        self._total = max(self._total or 0.0, expected_left)
        if self._bar is None:
            return
        done = self._total - expected_left
        elapsed = time.monotonic() - self._started
        left = elapsed / done * expected_left if done > 0 else self._expected
        now = f"; {running[0]}" if running else ""
        self._bar.update(
            self._task, advance=1, left=f"about {format_duration(left)} left{now}"[:46]
        )

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def format_duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def _name(cell: Cell) -> str:
    """A cell but for its seed and what changes its time little."""
    spec = cell.spec
    keys = ("kind", "retriever", "dataset", "encoder", "demonstrations", "plans", "icl", "llm")
    return "|".join(str(spec.get(key, "")) for key in keys)
