"""Chooses λ and temperature of ``fused``, and the confidence of ``auto``, on held-out plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dtdr.errors import InputError
from dtdr.planning import Fusion

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
TEMPERATURES = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)


def tune(records: Iterable[Mapping[str, Any]]) -> Fusion:
    """The fusion under which the acceptable tools are most likely on average.

    The likelihood of the acceptable tools is smoother than the accuracy, so that a few dozen steps
    suffice to choose.

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
    return max(fusions, key=lambda fusion: _mean_log_likelihood(scored, fusion))


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


def _mean_log_likelihood(records: Sequence[Mapping[str, Any]], fusion: Fusion) -> float:
    total = 0.0
    for record in records:
        scores = fusion.scores(record["likelihoods"], record["probabilities"])
        highest = max(scores)
        weights = [math.exp(score - highest) for score in scores]
        right = math.fsum(
            weight
            for weight, name in zip(weights, record["candidates"], strict=True)
            if name in record["acceptable"]
        )
        total += math.log(max(right / math.fsum(weights), 1e-6))
    return total / len(records)
