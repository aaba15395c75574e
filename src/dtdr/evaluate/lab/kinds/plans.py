"""``arguments``, ``whole-plans``: whole calls and whole plans, predicted without an LLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluate.call_accuracy import score_calls
from dtdr.evaluate.lab.fitting import make_retriever
from dtdr.evaluate.lab.kinds import Context
from dtdr.evaluate.lab.train_test import TrainTest, train_test
from dtdr.evaluate.plan_accuracy import score_plans
from dtdr.evaluate.planning import choose_plans
from dtdr.evaluate.planning.planning_metrics import similar_arguments
from dtdr.llm.planning import Planner
from dtdr.predict.model import Model
from dtdr.rankers.model_folder import versions

READINGS: Mapping[str, Any] = {"names": False, "similar": similar_arguments, "strict": True}


def predict_plans(spec: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """How many whole plans are right, from the query alone.

    Raises:
        InputError: a side of the split is empty, or the data cannot be learned from.
    """
    retriever, data = _fit(spec, context)
    return {"versions": versions(), "result": score_plans(retriever, data.test).to_dict()}


def measure_arguments(spec: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Calls given their tools, and whole plans without an LLM.

    Raises:
        InputError: a side of the split is empty, or its plans have no calls or arguments.
    """
    retriever, data = _fit(spec, context)
    if retriever.arguments_ is None:
        raise InputError(f"retriever {spec['retriever']!r} learned no arguments")
    test = [item for item in data.test if item.outcome != "failure"]
    chosen = choose_plans(test, spec.get("size"), seed=int(spec.get("seed", 0)))
    free = {
        select: _plan_freely(Planner(retriever, select=select, fill="learned"), chosen)
        for select in ("retriever", "plan")
    }
    calls = score_calls([(retriever.arguments_, test)]).to_dict()
    return {"versions": versions(), "result": {"calls": calls, "free_running": free}}


def _fit(spec: Mapping[str, Any], context: Context) -> tuple[Model, TrainTest]:
    data = train_test(context.dataset(spec), spec)
    retriever = make_retriever(spec, len(data.train))
    retriever.fit(data.train, data.tools or None, arguments=True, plans=True)
    return retriever, data


def _plan_freely(planner: Planner, plans: Sequence[Demonstration]) -> dict[str, Any]:
    """How many plans are right from the query alone, by what is compared."""
    counts: Counter[str] = Counter()
    for item in plans:
        result = planner.plan(item.query)
        has_ended = result.stopped == "end"
        plan, gold = result.plan, item.plan
        counts["tools"] += has_ended and Counter(plan.tools) == Counter(gold.tools)
        for reading, arguments in READINGS.items():
            counts[reading] += has_ended and plan.is_isomorphic(gold, arguments=arguments)
    return {"plans": len(plans), **{name: counts[name] for name in ("tools", *READINGS)}}
