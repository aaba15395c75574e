"""Expected seconds of runs: a rule by demonstrations and tools, corrected by earlier runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dtdr.data.files import read_regular_file, replace_file
from dtdr.evaluate.lab.data import Context
from dtdr.evaluate.lab.runs import Run
from dtdr.evaluate.lab.store import Store

RULES = {"dtdr-f": (16.0, 0.2), "dtdr-l": (2.2, 0.5), "dtdr-c": (1.2, 0.0), "lr": (0.35, 0.85)}
"""Seconds to fit and rank 1,000 plans with 16 tools, and the power of the number of tools that they
grow with: measured on TinyAgent (16 tools), T-Eval (50) and UltraTool (260)."""
OTHERS = (0.15, 0.0)

SHARED = 0.3
"""Share of the seconds that a run takes if its retriever is fitted already."""

LLM_STEP = 2.0
"""Seconds in which a small LLM on a processor selects a tool; a plan has about four steps."""


class Estimates:
    """Expected seconds; the cache keeps by how much each method was slower than the rule.

    Args:
        store: the cache.
        context: has the data sets of the runs.
    """

    def __init__(self, store: Store, context: Context) -> None:
        self._path, self._context = store.folder / "seconds.json", context
        self._ratios: dict[str, float] = {}
        try:
            kept = json.loads(read_regular_file(self._path, 1 << 20))
            self._ratios = {str(name): float(ratio) for name, ratio in kept.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            pass  # nothing was measured, or the file is damaged

    def seconds(self, runs: Sequence[Run]) -> float:
        """Of runs that share a fitted retriever."""
        return self._ratios.get(_method(runs), 1.0) * self._rule(runs)

    def add(self, runs: Sequence[Run], seconds: float) -> None:
        """Record what they took."""
        name, ratio = _method(runs), seconds / self._rule(runs)
        self._ratios[name] = round((self._ratios.get(name, ratio) + ratio) / 2, 3)
        with replace_file(self._path) as stream:
            json.dump(self._ratios, stream)

    def _rule(self, runs: Sequence[Run]) -> float:
        seconds = 0.0
        for run in runs:
            spec = run.spec
            dataset = self._context.dataset(spec)
            plans, tools = len(dataset), len(dataset.tools)
            share = spec.get("share", min(1.0, spec.get("demonstrations", plans) / (0.7 * plans)))
            rate, power = RULES.get(str(spec["retriever"]), OTHERS)
            shared = SHARED if seconds else 1.0
            seconds += 0.1 + shared * rate * share * plans / 1000 * max(1.0, tools / 16) ** power
            if "llm" in spec:
                steps = spec.get("size", 0.3 * plans) * (4 if run.kind == "plans" else 1)
                seconds += LLM_STEP * steps
        return seconds


def _method(runs: Sequence[Run]) -> str:
    return "|".join(str(runs[0].spec.get(key, "")) for key in ("kind", "retriever", "llm"))
