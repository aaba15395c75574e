"""Run a planner on held-out demonstrations, step by step or plan by plan, into a run log."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.data.progress import track
from dtdr.evaluate.harness import rank_after_calls
from dtdr.evaluate.planning.run_log import PlanningLog, append_log
from dtdr.llm.planning import Planner
from dtdr.llm.prompting import LAYOUTS
from dtdr.rankers.model_folder import versions

T = TypeVar("T")


def choose_steps(
    demonstrations: Iterable[DemonstrationLike], size: int | None = None, *, seed: int = 0
) -> list[tuple[Demonstration, int]]:
    """Steps to run: all, or a random sample of that size, the same for the same seed.

    A larger sample of the same seed contains the smaller one.
    """
    plans = (item for item in as_demonstrations(demonstrations) if item.outcome != "failure")
    return _sample([(item, at) for item in plans for at in range(len(item.plan) + 1)], size, seed)


def choose_plans(
    demonstrations: Iterable[DemonstrationLike], size: int | None = None, *, seed: int = 0
) -> list[Demonstration]:
    """Plans to run: all, or a random sample of that size, the same for the same seed."""
    plans = (item for item in as_demonstrations(demonstrations) if item.outcome != "failure")
    return _sample(list(plans), size, seed)


def _sample(items: list[T], size: int | None, seed: int) -> list[T]:
    random.Random(seed).shuffle(items)
    return items[:size]


def run_selections(
    planner: Planner,
    steps: Sequence[tuple[Demonstration, int]],
    path: str | Path,
    **about: Any,
) -> PlanningLog:
    """Select one function at each step, teacher-forced: the calls before it are the gold plan's.

    Args:
        planner: its model was fitted on other demonstrations.
        steps: from ``choose_steps``.
        path: the run log; if it exists, the run continues.
        about: more entries of the header: ``dataset``, ``split_sha256`` and the ``seed`` of the
            examples in the prompt.

    Raises:
        InputError: the log is of another run.
        LLMError: the LLM could not be asked; run again to continue.
    """
    header = _header(planner, "selections", [[item.id, step] for item, step in steps], about)
    with append_log(path, header) as (log, add):
        for demonstration, step in track(steps, "Selecting", total=len(steps)):
            if (demonstration.id, step) not in log.records:
                add(_select(planner, demonstration, step))
    return log


def _select(planner: Planner, demonstration: Demonstration, step: int) -> dict[str, Any]:
    (ranking,) = rank_after_calls(planner.model, [(demonstration, step)])
    result = planner.select(demonstration.query, list(demonstration.plan.calls[:step]), ranking)
    selected = result.selected
    return {
        "plan": demonstration.id,
        "step": step,
        "acceptable": sorted(demonstration.plan.acceptable_next(range(step))),
        "selected": selected.tool,
        "outcome": selected.outcome,
        "answer": selected.answer,
        "best": ranking.best,
        "confidence": round(ranking.confidence, 6),
        "shown": list(result.shown),
        "candidates": list(selected.candidates),
        "probabilities": [round(ranking.probability(name), 6) for name in selected.candidates],
        "prompt_tokens": selected.prompt_tokens,
        "llm_calls": result.llm_calls,
        "seconds": round(result.seconds["select"], 6),
    }


def run_plans(
    planner: Planner,
    demonstrations: Iterable[DemonstrationLike],
    path: str | Path,
    *,
    gold_history: bool = False,
    **about: Any,
) -> PlanningLog:
    """Plan each query from the start; further arguments as for ``run_selections``.

    With ``gold_history``, each step goes on after the gold calls (paper, Algorithms 1 and 2);
    without it, after the plan's own (paper, Section 4).

    Raises:
        InputError: the log is of another run.
        LLMError: the LLM could not be asked; run again to continue.
    """
    plans = list(as_demonstrations(demonstrations))
    header = _header(planner, "plans", [item.id for item in plans], about)
    if gold_history:
        header["select"]["gold_history"] = True
    with append_log(path, header) as (log, add):
        for demonstration in track(plans, "Planning", total=len(plans)):
            if (demonstration.id, -1) in log.records:
                continue
            if gold_history:
                result = planner.plan_along(demonstration.query, demonstration.plan.calls)
            else:
                result = planner.plan(demonstration.query)
            gold, planned = demonstration.to_dict(), result.to_dict()
            add(
                {
                    "plan": demonstration.id,
                    "step": -1,
                    "gold": {"calls": gold["calls"], "links": gold.get("links", [])},
                    **{name: planned[name] for name in ("calls", "stopped", "steps")},
                }
            )
    return log


def _header(
    planner: Planner, kind: str, names: list[Any], about: Mapping[str, Any]
) -> dict[str, Any]:
    """See ``PlanningLog``."""
    selector, model = planner.selector, planner.model
    name = "" if planner.llm is None else planner.llm.name
    kind_of_llm, _, llm = name.partition(":")
    is_whole = kind == "plans"
    return {
        "kind": kind,
        "dataset": about.get("dataset", ""),
        "split_sha256": about.get("split_sha256", ""),
        "subset_sha256": hashlib.sha256(json.dumps(names).encode()).hexdigest(),
        "size": len(names),
        "retriever": {"name": model.name, "parameters": model.parameters()},
        # The folder is different on another machine.
        "llm": f"{kind_of_llm}:{Path(llm).name}" if kind_of_llm == "gguf" else name,
        "icl": planner.prompts.method.name,
        "select": {
            "method": selector.method,
            **({} if planner.layout == LAYOUTS[0] else {"layout": planner.layout}),
        },
        "mask": {"top_k": None, "threshold": None, "coverage": None} | planner.mask.bounds,
        "seed": about.get("seed", 0),
        "versions": versions(),
        "examples_sha256": planner.examples.sha256,
        "max_steps": planner.max_steps if is_whole else None,
        "fill": planner.filler.method if is_whole else None,
    }
