"""The steps that a model got wrong with the highest confidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.records import Record
from dtdr.evaluate.run_log import RunLog


@dataclass(frozen=True, slots=True)
class Mistake(Record):
    """A step whose best tool was not acceptable.

    Attributes:
        id: of the demonstration.
        query: of the demonstration.
        history: tools called before the step, oldest first.
        predicted: the best tool of the ranking.
        probability: of the best tool.
        confidence: of the ranking; the probability where the model gives no confidence.
        called: the tool that the run called next, or ``end``.
        acceptable: all tools that would have been right, sorted.
    """

    id: str
    query: str
    history: tuple[str, ...]
    predicted: str
    probability: float
    confidence: float
    called: str
    acceptable: tuple[str, ...]


def find_mistakes(log: RunLog, demonstrations: Iterable[Demonstration], k: int) -> list[Mistake]:
    """At most k steps of a run log that were ranked wrong, most confident first.

    Args:
        log: of one model.
        demonstrations: those that the log is about.
        k: how many at most.
    """
    by_id = {item.id: item for item in demonstrations}
    probability = log.head_probabilities[:, 0]
    confidence = np.where(np.isnan(log.confidence), probability, log.confidence)
    wrong = np.flatnonzero(log.first_rank > 1)
    order = wrong[np.lexsort((-probability[wrong], -confidence[wrong]))][:k]
    mistakes = []
    for step in order.tolist():
        item = by_id[log.plan_ids[log.plan[step]]]
        acceptable = (log.names[tool] for tool in log.acceptable[step].tolist() if tool >= 0)
        mistakes.append(
            Mistake(
                item.id,
                item.query,
                item.plan.tools[: int(log.step[step])],
                log.names[log.head[step, 0]],
                float(probability[step]),
                float(confidence[step]),
                log.names[log.called[step]],
                tuple(sorted(acceptable)),
            )
        )
    return mistakes
