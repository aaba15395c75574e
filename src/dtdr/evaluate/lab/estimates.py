"""Expected times of runs, from measured rules and from similar runs on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from dtdr.data.files import read_regular_file, replace_file
from dtdr.errors import OutputError
from dtdr.evaluate.lab.runs import Run
from dtdr.evaluate.lab.store import Store

RETRIEVERS = {"dtdr-f": (16.0, 0.2), "dtdr-l": (2.2, 0.5), "dtdr-c": (1.2, 0.0), "lr": (0.35, 0.85)}
"""Processor seconds to fit and rank 1,000 plans of a set with 16 tools, and the power of the number
of tools that they grow with: measured on TinyAgent (16 tools), T-Eval (50) and UltraTool (260)."""

OTHERS = (0.15, 0.0)
"""The same of any other retriever."""

FEW_TOOLS = 16
START = 3.0
"""Seconds until a new process has imported what it needs."""

SHARED = 0.3
"""What a run takes of the time of an equal one where its retriever is fitted already."""

LLM_STEP = 2.0
"""Seconds of a small LLM on a processor to select a tool; a plan is about four of them."""

_LARGEST_FILE = 16 << 20


class Estimates:
    """Seconds that runs are expected to take.

    The cache folder keeps by how much the runs of each method were slower than the rules.

    Args:
        store: the cache.
        sizes: plans and tools of each data set.
    """

    def __init__(self, store: Store, sizes: Mapping[str, tuple[int, int]]) -> None:
        self._path = store.folder / "seconds.json"
        self._sizes = sizes
        self._ratios: dict[str, float] = {}
        try:
            kept = json.loads(read_regular_file(self._path, _LARGEST_FILE))
            self._ratios = {str(name): float(ratio) for name, ratio in kept.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            pass

    def seconds(self, run: Run, *, shared: bool = False) -> float:
        """Expected seconds of one run; ``shared`` means that its retriever is fitted."""
        return self._ratios.get(_method(run, shared), 1.0) * self._rule(run, shared)

    def total(self, groups: Iterable[Sequence[Run]], workers: int) -> float:
        """Wall-clock seconds of groups of runs that share a fitted retriever."""
        parallel, alone = 0.0, 0.0
        for group in groups:
            for index, run in enumerate(group):
                seconds = self.seconds(run, shared=index > 0)
                if "llm" in run.spec:
                    alone += seconds
                else:
                    parallel += seconds
        start = START if parallel and workers > 1 else 0.0
        return start + parallel / workers + alone

    def add(self, run: Run, seconds: float, *, shared: bool) -> None:
        """Record what a run took."""
        if seconds > 0:
            name, ratio = _method(run, shared), seconds / self._rule(run, shared)
            self._ratios[name] = round((self._ratios.get(name, ratio) + ratio) / 2, 3)

    def save(self) -> None:
        """Keep what was measured; a cache that cannot be written costs the estimate only."""
        try:
            with replace_file(self._path) as stream:
                json.dump(dict(sorted(self._ratios.items())), stream, indent=0)
        except OutputError:
            return

    def _rule(self, run: Run, shared: bool) -> float:
        spec = run.spec
        plans, tools = self._sizes.get(str(spec["dataset"]), (1000, FEW_TOOLS))
        plans = min(plans, int(spec.get("plans", plans)))
        share = min(1.0, spec.get("demonstrations", plans) / max(1, 0.7 * plans))
        share *= spec.get("share", 1.0)
        rate, power = RETRIEVERS.get(str(spec["retriever"]), OTHERS)
        expected: float = rate * plans / 1000 * share * max(1.0, tools / FEW_TOOLS) ** power
        expected *= SHARED if shared else 1.0
        if "llm" in spec:
            steps = spec.get("size", 0.3 * plans) * (4 if run.kind == "plans" else 1)
            expected += LLM_STEP * steps
        return 0.1 + expected


def _method(run: Run, shared: bool) -> str:
    names = (str(run.spec.get(key, "")) for key in ("kind", "retriever", "llm"))
    return "|".join([str(shared), *names])
