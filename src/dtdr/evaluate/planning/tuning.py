"""Chooses λ and temperature of ``fused``, and the confidence of ``auto``, on held-out plans."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from dtdr.errors import InputError
from dtdr.llm.planning import Fusion

WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
TEMPERATURES = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)

RETRIEVER_ONLY = Fusion(weight=1.0, temperature=1e9)
"""The LLM only breaks ties."""


def tune(records: Iterable[Mapping[str, Any]]) -> Fusion:
    """The fusion under which the acceptable tools are most likely on average.

    The likelihood of the acceptable tools is smoother than the accuracy, so that fewer steps
    suffice to choose. Of the fusions that are within one standard error of the best, the one that
    trusts the retriever most is taken: it knows these plans, and a hundred steps cannot tell the
    others apart.

    Args:
        records: of a ``fused`` run on plans that the retriever was not fitted on and that are not
            tested; steps at which no candidate was scored are left out.

    Raises:
        InputError: no step was scored.
    """
    scored = [record for record in records if record["likelihoods"]]
    if not scored:
        raise InputError("no step of this run was scored; run it with select fused")
    fusions = [Fusion(weight, temperature) for weight in WEIGHTS for temperature in TEMPERATURES]
    fusions.append(RETRIEVER_ONLY)
    by_fusion = [_log_likelihoods(scored, fusion) for fusion in fusions]
    best = max(by_fusion, key=math.fsum)
    good = [
        fusion
        for fusion, values in zip(fusions, by_fusion, strict=True)
        if _is_no_worse(values, best)
    ]
    return max(good, key=lambda fusion: fusion.weight * fusion.temperature)


def reselect(record: Mapping[str, Any], fusion: Fusion) -> str | None:
    """What another fusion would have selected at a step that was scored."""
    if not record["likelihoods"]:
        selected: str | None = record["selected"]
        return selected
    scores = fusion.scores(record["likelihoods"], record["probabilities"])
    best = max(range(len(scores)), key=scores.__getitem__)
    return str(record["candidates"][best])


def confidence_for(confidences: Sequence[float], budget: float) -> float:
    """The confidence for ``auto`` at which the LLM is asked in at most that share of the steps.

    Args:
        confidences: of the retriever on plans that were held out.
        budget: share of the steps, from 0 to 1.

    Raises:
        InputError: there are no confidences, or the budget is outside [0, 1].
    """
    if not confidences:
        raise InputError("there are no held-out confidences to choose a threshold from")
    if not 0 <= budget <= 1:
        raise InputError(f"budget is {budget}; it must be between 0 and 1")
    ordered = sorted(confidences)
    allowed = math.floor(budget * len(ordered) + 1e-9)
    # The LLM is asked strictly below the threshold, so ties at it are not asked.
    return 1.0 if allowed == len(ordered) else ordered[allowed]


def confidence_worth(records: Iterable[Mapping[str, Any]], fusion: Fusion, most: float) -> float:
    """The lowest confidence for ``auto`` that selects as many right tools as ``most`` does.

    A budget says how often the LLM may be asked, not that it helps: where the retriever alone is
    as good, it is asked less, down to never.

    Args:
        records: of a ``fused`` run on plans that were held out.
        fusion: what ``fused`` is at the steps where the LLM is asked.
        most: the highest confidence that is allowed: what ``confidence_for`` gave.
    """
    gains: dict[float, int] = defaultdict(int)
    for record in records:
        if record["confidence"] < most:
            asked = reselect(record, fusion) in record["acceptable"]
            gains[record["confidence"]] += int(asked) - int(record["best"] in record["acceptable"])
    values = sorted(gains)
    if not values:
        return 0.0
    # The LLM is asked strictly below a threshold: not at all, then at one confidence after another.
    thresholds = [0.0, *values[1:], most]
    gained = [0, *accumulate(map(gains.__getitem__, values))]
    return next(
        threshold for threshold, gain in zip(thresholds, gained, strict=True) if gain >= gained[-1]
    )


def _is_no_worse(values: Sequence[float], best: Sequence[float]) -> bool:
    """Whether the mean lies within one standard error of the paired difference to the best."""
    behind = [high - value for high, value in zip(best, values, strict=True)]
    mean = math.fsum(behind) / len(behind)
    variance = math.fsum((one - mean) ** 2 for one in behind) / max(1, len(behind) - 1)
    return mean <= math.sqrt(variance / len(behind))


def _log_likelihoods(records: Sequence[Mapping[str, Any]], fusion: Fusion) -> list[float]:
    """For each step, the logarithm of the probability that an acceptable tool is selected."""
    logarithms: list[float] = []
    for record in records:
        scores = fusion.scores(record["likelihoods"], record["probabilities"])
        highest = max(scores)
        weights = [math.exp(score - highest) for score in scores]
        right = math.fsum(
            weight
            for weight, name in zip(weights, record["candidates"], strict=True)
            if name in record["acceptable"]
        )
        logarithms.append(math.log(max(right / math.fsum(weights), 1e-6)))
    return logarithms
