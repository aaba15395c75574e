"""How well arguments are filled: teacher-forced, the right tool given at every step."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import DemonstrationLike, as_demonstrations
from dtdr.errors import InputError
from dtdr.evaluate.statistics import Record
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.arguments.state import RunState, is_exact, iter_calls
from dtdr.predict.arguments.values import canonical, resolve_references

THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95)
"""Least probabilities of the coverage."""


class Covered(NamedTuple):
    """The share of the calls with a least probability, and of those the share that is exact."""

    calls: float
    exact: float


@dataclass(frozen=True, slots=True)
class CallScores(Record):
    """Scores of predicted calls against the demonstrated ones, c of them.

    Case, runs of spaces, the format of numbers, and whether a part of a known output is named or
    written do not count.

    Attributes:
        calls: c.
        exact: the share of calls whose every argument is right and that have no other.
        exact_most_sure_half: the same among the half with the highest probabilities.
        plans_dependencies: the share of plans in which every call uses the right outputs: those
            that it refers to, and otherwise only outputs with a value that the demonstration gives.
        slots: by source, the share of the predicted arguments from there that are right; of
            ``unknown`` ones, the share that the demonstration left out too.
        coverage: by least probability; exact is 1 if no call has it.
        milliseconds_median: for one call.
    """

    calls: int
    exact: float
    exact_most_sure_half: float
    plans_dependencies: float
    slots: dict[str, float]
    coverage: dict[float, Covered]
    milliseconds_median: float


def score_calls(
    folds: Iterable[tuple[ArgumentModel, Iterable[DemonstrationLike]]],
) -> CallScores:
    """Fill every call of held-out demonstrations, given its tool and all that came before it.

    Args:
        folds: models, each with the demonstrations that it did not learn from.

    Raises:
        InputError: the demonstrations have no calls.
    """
    calls: list[tuple[float, bool, float]] = []  # probability, whether it is exact, seconds
    plans: list[bool] = []
    slots: dict[str, list[bool]] = defaultdict(list)
    for model, item in (
        (model, item) for model, items in folds for item in as_demonstrations(items)
    ):
        uses_right_outputs = True
        for state, call in iter_calls([item]):
            started = time.perf_counter()
            prediction = model.fill(call.tool, state)
            seconds = time.perf_counter() - started
            calls.append((prediction.probability, is_exact(prediction, call, state), seconds))
            judged = _judge_slots(prediction, call, state)
            # A demonstration may write out a value that an output has.
            right = [prediction.sources.get(name, ()) for name, _, is_right in judged if is_right]
            held = {
                source.call for sources in right for source in sources if source.kind == "output"
            }
            referred = {*call.references()}
            uses_right_outputs &= referred <= prediction.outputs <= referred | held
            for _, kind, is_right in judged:
                if kind != "omitted":
                    slots[kind].append(is_right)
        plans.append(uses_right_outputs)
    if not calls:
        raise InputError("the held-out plans have no calls to fill; give others")
    sure, right, times = np.array(sorted(calls, key=lambda call: -call[0])).T
    coverage = {}
    for least in THRESHOLDS:
        count = int((sure >= least).sum())
        exact = float(right[:count].mean()) if count else 1.0
        coverage[least] = Covered(count / len(sure), exact)
    return CallScores(
        len(right),
        float(right.mean()),
        float(right[: max(1, len(right) // 2)].mean()),
        statistics.fmean(plans),
        {kind: statistics.fmean(values) for kind, values in sorted(slots.items())},
        coverage,
        1000 * statistics.median(times),
    )


def _judge_slots(
    prediction: CallPrediction, call: ToolCall, state: RunState
) -> list[tuple[str, str, bool]]:
    """Each argument that was predicted or given: name, source, and whether it is right.

    One that was given and not predicted has the source ``omitted``.
    """
    judged: list[tuple[str, str, bool]] = []
    for name, value in prediction.arguments.items():
        sources = prediction.sources[name]
        kind = sources[0].kind if sources else "constant"
        is_right = name in call.arguments and (
            canonical(resolve_references(value, state.by_id))
            == canonical(resolve_references(call.arguments[name], state.by_id))
        )
        judged.append((name, kind, is_right))
    judged += [(name, "unknown", name not in call.arguments) for name in prediction.unknown]
    known = {*prediction.arguments, *prediction.unknown}
    judged += [(name, "omitted", False) for name in call.arguments if name not in known]
    return judged
