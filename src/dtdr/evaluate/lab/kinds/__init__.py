"""Kinds of experiments: one function for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dtdr.evaluate import harness
from dtdr.evaluate.lab.data import LabContext, train_test
from dtdr.evaluate.lab.fitting import fit_model, learns_truncated
from dtdr.evaluate.lab.kinds.llm import asker, make_plans, measure_prompts, select_steps
from dtdr.evaluate.next_calls import agreement
from dtdr.evaluate.run_log import RunLog


def rank(spec: Mapping[str, Any], context: LabContext) -> RunLog:
    """One row of the retrieval table, step by step.

    Raises:
        InputError: a side of the split is empty, or the data cannot be learned from.
        LLMError: the ranker asks an LLM, which could not be asked.
    """
    dataset = context.dataset(spec)
    data = train_test(dataset, spec)
    model, fit_seconds = fit_model(spec, data, asker(context, spec))
    log = harness.score_model(
        model,
        replace(dataset, demonstrations=data.test),
        train=data.train,
        history=None if learns_truncated(spec) else spec.get("history"),
    )
    arrays = model.ranker.arrays()
    details: dict[str, Any] = {"stored": sum(int(array.size) for array in arrays.values())}
    if model.name in PARAMETERS:
        details["parameters"] = int(arrays[PARAMETERS[model.name]].size)
    other = agreement(log, dataset.demonstrations) if spec.get("split") == "group" else None
    if other is not None:
        details["another_run"] = other.to_dict()
    return replace(log, header=replace(log.header, details=details, fit_seconds=fit_seconds))


PARAMETERS = {"lr": "weights_", "dtdr-l": "weights_", "dtdr-c": "clusters_.centres"}
"""The array whose size the paper counts as parameters, e·|F| or e·K (Section 4)."""

RANK = "rank"
"""The kind whose result is a run log; that of the others is a JSON object."""

KINDS: dict[str, Callable[[Mapping[str, Any], LabContext], Any]] = {
    RANK: rank,
    "prompts": measure_prompts,
    "selections": select_steps,
    "plans": make_plans,
}
