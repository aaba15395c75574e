"""How long runs take: from what like runs took here, else from rules that were measured once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from dtdr.data.files import read_regular_file, replace_file
from dtdr.errors import OutputError
from dtdr.evaluate.lab.cells import Cell
from dtdr.evaluate.lab.store import Store

RETRIEVERS = {"dtdr-f": (16.0, 0.2), "dtdr-l": (2.2, 0.5), "dtdr-c": (1.2, 0.0), "lr": (0.35, 0.85)}
"""Processor seconds to fit and rank 1,000 plans of a set with 16 tools, and the power of the number
of tools that they grow with: measured on TinyAgent (16 tools), T-Eval (50) and UltraTool (260)."""

OTHERS = (0.15, 0.0)
"""The same of any other retriever."""

PLANNING = {"whole-plans": 62.0, "arguments": 65.0}
"""Seconds that planning adds for 1,000 plans, whatever the retriever: measured on T-Eval and
TinyAgent."""

FEW_TOOLS = 16
START = 3.0
"""Seconds until a new process has imported what it needs."""

SHARED = 0.3
"""What a cell takes of the time of an equal one where its retriever is fitted already."""

LLM_STEP = 2.0
"""Seconds of a small LLM on a processor to select a tool; a plan is about four of them."""

_LARGEST_FILE = 16 << 20


class Estimates:
    """Seconds that cells are expected to take; measured ones are kept in the cache folder.

    Args:
        store: the cache.
        sizes: plans and tools of each data set.
    """

    def __init__(self, store: Store, sizes: Mapping[str, tuple[int, int]]) -> None:
        self._path = store.folder / "seconds.json"
        self._sizes = sizes
        self._seconds: dict[str, tuple[float, float]] = {}
        try:
            kept = json.loads(read_regular_file(self._path, _LARGEST_FILE))
            self._seconds = {
                str(name): (float(took), float(rule)) for name, (took, rule) in kept.items()
            }
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            pass
        # By how much runs took longer than the rules say, of the nearest that are known.
        ratios: dict[str, list[float]] = defaultdict(list)
        for name, (took, rule) in self._seconds.items():
            for like in _likes(name):
                ratios[like].append(took / max(rule, 1e-3))
        self._ratios = {like: median(values) for like, values in ratios.items()}

    def seconds(self, cell: Cell, *, shared: bool = False) -> float:
        """What one cell is expected to take."""
        name = _name(cell, shared)
        if name in self._seconds:
            return self._seconds[name][0]
        ratio = next((self._ratios[like] for like in _likes(name) if like in self._ratios), 1.0)
        return ratio * self._rule(cell, shared)

    def total(self, groups: Iterable[Sequence[Cell]], workers: int) -> float:
        """Wall-clock seconds of groups of cells that share a fitted retriever."""
        parallel, alone = 0.0, 0.0
        for group in groups:
            for index, cell in enumerate(group):
                seconds = self.seconds(cell, shared=index > 0)
                if "llm" in cell.spec:
                    alone += seconds
                else:
                    parallel += seconds
        start = START if parallel and workers > 1 else 0.0
        return start + parallel / workers + alone

    def add(self, cell: Cell, seconds: float, *, shared: bool) -> None:
        """Record what a cell took."""
        if seconds > 0:
            self._seconds[_name(cell, shared)] = (round(seconds, 2), self._rule(cell, shared))

    def save(self) -> None:
        """Keep what was measured; a cache that cannot be written costs the estimate only."""
        try:
            with replace_file(self._path) as stream:
                json.dump(dict(sorted(self._seconds.items())), stream, indent=0)
        except OutputError:
            return

    def _rule(self, cell: Cell, shared: bool) -> float:
        spec = cell.spec
        plans, tools = self._sizes.get(str(spec["dataset"]), (1000, FEW_TOOLS))
        plans = min(plans, int(spec.get("plans", plans)))
        share = min(1.0, spec.get("demonstrations", plans) / max(1, 0.7 * plans))
        share *= spec.get("share", 1.0)
        rate, power = RETRIEVERS.get(str(spec.get("retriever")), OTHERS)
        expected: float = rate * plans / 1000 * share * max(1.0, tools / FEW_TOOLS) ** power
        expected *= SHARED if shared else 1.0
        expected += PLANNING.get(cell.kind, 0.0) * plans / 1000
        if "llm" in spec:
            steps = spec.get("size", 0.3 * plans) * (4 if cell.kind == "plans" else 1)
            expected += LLM_STEP * steps
        return round(0.1 + expected, 3)


def _name(cell: Cell, shared: bool) -> str:
    """A cell but for its seed and what changes its time little; the general parts come first."""
    keys = (
        "kind",
        "retriever",
        "llm",
        "dataset",
        "encoder",
        "demonstrations",
        "share",
        "plans",
        "icl",
    )
    return "|".join([str(shared), *(str(cell.spec.get(key, "")) for key in keys)])


def _likes(name: str) -> list[str]:
    """Names of what is like a run, the nearest first: the parts from the right left out."""
    parts = name.split("|")
    return ["|".join(parts[:length]) for length in (5, 4, 3, 2, 1)]
