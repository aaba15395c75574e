"""``prompts``, ``selections``, ``plans``: does the ranking help an LLM, and what does it cost?"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from statistics import fmean
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.datasets.splits import paper_split
from dtdr.evaluate.harness import rank_after_calls, split_sha256
from dtdr.evaluate.lab.data import LabContext, TrainTest, train_test
from dtdr.evaluate.lab.experiments import Experiment
from dtdr.evaluate.lab.fitting import asks_llm, fit_model, make_model
from dtdr.evaluate.lab.oracle import Oracle
from dtdr.evaluate.planning.harness import (
    choose_plans,
    choose_steps,
    run_plans,
    run_selections,
)
from dtdr.evaluate.planning.planning_metrics import (
    function_selection_accuracy,
    is_correct,
    is_success,
)
from dtdr.evaluate.planning.run_log import PlanningLog
from dtdr.llm import backends
from dtdr.llm.backends import LLM
from dtdr.llm.planning import Planner
from dtdr.llm.prompting import LAYOUTS, Examples, Prompt, SelectionPrompts
from dtdr.predict.model import Model
from dtdr.rankers.model_folder import versions
from dtdr.rankers.selection import BYTES_PER_TOKEN, Selection, count_tokens

ALPHAS = (0.2, 0.23, 0.5)
"""The paper's values of the threshold α (appendix on implementation)."""

HELD_OUT = 0.2
"""Share of the training plans that chooses α."""

ALPHA_STEPS = 150
"""Held-out training steps on which α is chosen, at most."""

ANSWERS = 100_000
"""Descriptions of ideal tools in memory: all of TinyAgent's queries, some 30 MB."""

ANSWER_TOKENS = 256
"""Ten sentences."""


def measure_prompts(spec: Mapping[str, Any], context: LabContext) -> dict[str, Any]:
    """Mean prompt tokens over held-out steps, by ICL method (paper, Figure "Prompt length").

    Tokens are the model's own where the experiment names an LLM, else a stated share of the bytes.
    """
    data = train_test(context.dataset(spec), spec)
    model, _ = fit_model(spec, data)
    seed = int(spec.get("seed", 0))
    steps = choose_steps(data.test, spec.get("steps"), seed=seed)
    rankings = rank_after_calls(model, steps)
    count: Callable[[str], int] = count_tokens
    counted = f"UTF-8 bytes / {BYTES_PER_TOKEN}"
    if "llm" in spec:
        count = _open_model(context, spec).count_tokens
        counted = f"tokenizer of {spec['llm']}"
    selection = _selection_of(spec, spec.get("threshold"))
    writer = SelectionPrompts(
        model.tools_,
        icl=str(spec["icl"]),
        examples=Examples(data.train, seed=seed),
        layout=str(spec.get("layout", LAYOUTS[0])),
    )
    constant = 0
    lengths = []
    for (item, step), ranking in zip(steps, rankings, strict=True):
        shown = ranking.select(selection)
        prompt = writer.prompt(item.query, item.plan.calls[:step], shown)
        constant = constant or count(prompt.constant)
        lengths.append((count(f"{prompt.variable}\n\n{prompt.cue}"), len(shown)))
    variable, tools = map(fmean, zip(*lengths, strict=True))
    means = {"constant": constant, "variable": variable, "total": constant + variable}
    return {"versions": versions(), "counted": counted, "means": {**means, "shown": tools}}


def select_steps(spec: Mapping[str, Any], context: LabContext) -> dict[str, Any]:
    """Select a function at each step; steps in the planning log are not asked again.

    Raises:
        LLMError: the LLM could not be asked; what was answered is kept.
    """
    planner, data, about, threshold = _prepare(spec, context)
    steps = choose_steps(data.test, spec.get("size"), seed=about["seed"])
    log = run_selections(planner, steps, **about)
    return {
        "versions": versions(),
        **threshold,
        "train": len(data.train),
        "parameters": planner.model.parameters(),
        "records": [_selection(record) for record in log],
    }


def make_plans(spec: Mapping[str, Any], context: LabContext) -> dict[str, Any]:
    """Plan whole queries; plans in the planning log are not asked again.

    Raises:
        LLMError: the LLM could not be asked; what was answered is kept.
    """
    planner, data, about, threshold = _prepare(spec, context)
    plans = choose_plans(data.test, spec.get("size"), seed=about["seed"])
    log = run_plans(planner, plans, gold_history=spec.get("loop") == "gold", **about)
    return {"versions": versions(), **threshold, "records": [_plan(record, log) for record in log]}


def _prepare(
    spec: Mapping[str, Any], context: LabContext
) -> tuple[Planner, TrainTest, dict[str, Any], dict[str, Any]]:
    """The planner, the data, further arguments of the experiments, and the mask that was chosen."""
    dataset = context.dataset(spec)
    data = train_test(dataset, spec)
    seed = int(spec.get("seed", 0))
    ask = asker(context, spec)
    model = fit_model(spec, data, ask)[0]
    if isinstance(model.ranker, Oracle):
        model.ranker.plans = {item.query: item.plan for item in data.test}
    mask = _selection_of(spec, spec.get("threshold"))
    threshold: dict[str, Any] = {}
    if spec.get("mask") == "paper" and model.ranker.cut is None:
        mask, threshold = _choose_threshold(spec, context, data, ask)
    about: dict[str, Any] = {
        "path": context.folder / "planning" / f"{Experiment.of(spec).key}.jsonl",
        "dataset": dataset.name,
        "split_sha256": split_sha256(data.train, data.test),
        "seed": seed,
    }
    return _planner(spec, context, model, mask, data.train), data, about, threshold


def _planner(
    spec: Mapping[str, Any],
    context: LabContext,
    model: Model,
    mask: Selection,
    examples: Sequence[Demonstration],
) -> Planner:
    return Planner(
        model,
        _open_model(context, spec),
        icl=str(spec["icl"]),
        layout=str(spec.get("layout", LAYOUTS[0])),
        select=str(spec.get("select", "constrained")),
        mask=mask,
        demonstrations=examples,
        seed=int(spec.get("seed", 0)),
    )


def _selection_of(spec: Mapping[str, Any], threshold: float | None) -> Selection:
    """Which tools count as retrieved.

    The paper's experiments show the retrieved tools for every query, also for one that is unlike
    the demonstrations.
    """
    is_paper = spec.get("parameters", {}).get("recipe") == "paper"
    return Selection(top_k=spec.get("top"), threshold=threshold, fallback=not is_paper)


def _choose_threshold(
    spec: Mapping[str, Any],
    context: LabContext,
    data: TrainTest,
    ask: Callable[[str], str] | None,
) -> tuple[Selection, dict[str, Any]]:
    """The α of the paper's three with the best accuracy on held-out training plans.

    The paper sets it "based on function selection accuracy" (appendix) and does not
    say on which plans; those of the test side must not decide. Of equal ones, the lowest, which
    shows the most.
    """
    seed = int(spec.get("seed", 0))
    split = paper_split(data.train, seed, HELD_OUT)
    kept, held_out = split.training(data.train), split.testing(data.train)
    model = make_model(spec, len(kept), ask)
    model.fit(kept, data.tools or None, arguments=False, plans=False)
    steps = choose_steps(held_out, min(ALPHA_STEPS, spec.get("size") or ALPHA_STEPS), seed=seed)
    rankings = rank_after_calls(model, steps)
    accuracies: dict[float, float] = {}
    known: dict[tuple[tuple[str, ...], ...], float] = {}
    base = {key: value for key, value in spec.items() if key not in ("loop", "size", "mask")}
    for alpha in ALPHAS:
        selection = _selection_of(spec, alpha)
        shown = tuple(ranking.select(selection).tools for ranking in rankings)
        if shown not in known:
            experiment = Experiment.of(
                {**base, "kind": "selections", "threshold": alpha, "size": len(steps)}
            )
            log = run_selections(
                _planner(spec, context, model, selection, kept),
                steps,
                context.folder / "planning" / f"{experiment.key}-alpha.jsonl",
                dataset=str(spec["dataset"]),
                split_sha256=split_sha256(kept, held_out),
                seed=seed,
            )
            known[shown] = function_selection_accuracy(log, "exact").value
        accuracies[alpha] = known[shown]
    best = max(ALPHAS, key=lambda alpha: (accuracies[alpha], -alpha))
    return _selection_of(spec, best), {
        "alpha": best,
        "alpha_accuracy": {f"{alpha:g}": value for alpha, value in accuracies.items()},
    }


def _selection(record: Mapping[str, Any]) -> dict[str, Any]:
    by_name = dict(zip(record["candidates"], record["probabilities"], strict=True))
    return {
        "plan": record["plan"],
        "step": record["step"],
        "right": is_correct(record),
        "exact": is_correct(record, "exact"),
        "ranker": record["best"] in record["acceptable"],
        "outcome": record["outcome"],
        "tokens": record["prompt_tokens"],
        "seconds": record["seconds"],
        "best_acceptable": max(
            (by_name.get(name, 0.0) for name in record["acceptable"]), default=0
        ),
    }


def _plan(record: Mapping[str, Any], log: PlanningLog) -> dict[str, Any]:
    right = {name: is_success(log, record, name) for name in ("strict", "names")}
    return {"plan": record["plan"], "stopped": record["stopped"], **right}


def asker(context: LabContext, spec: Mapping[str, Any]) -> Callable[[str], str] | None:
    """A function from a prompt to the model's answer; None for rankers that ask no LLM."""
    if not asks_llm(spec):
        return None
    name = context.models.get(str(spec["llm"]), str(spec["llm"]))
    return lambda prompt: _answer(name, prompt)


@lru_cache(ANSWERS)
def _answer(name: str, prompt: str) -> str:
    """One a process and query: several experiments need the same."""
    asked = Prompt("You describe software tools.", prompt, "")
    return _open_once(name).complete(asked, max_tokens=ANSWER_TOKENS).text


def _open_model(context: LabContext, spec: Mapping[str, Any]) -> LLM:
    """The model that an experiment names.

    Raises:
        InputError: the name leads nowhere.
        LLMError: the model cannot be loaded.
    """
    name = str(spec["llm"])
    return _open_once(context.models.get(name, name))


@cache
def _open_once(name: str) -> LLM:
    """One a process: loading takes seconds and gigabytes."""
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    parameters: dict[str, Any] = {"threads": threads} if name.startswith("gguf:") else {}
    model = backends.create(name, **parameters)
    atexit.register(model.close)
    return model
