"""Metrics by the names that users type: ``mrr``, ``f1``, ``top1``, ``recall@5``, ``hit@3``.

A metric gives one number from 0 to 1 for one step of a run log; 1 is best. Means are taken by
``dtdr.evaluation.scores``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dtdr.errors import InputError, unknown_choice
from dtdr.evaluation.metrics.f1 import f1
from dtdr.evaluation.metrics.hit import hit_at
from dtdr.evaluation.metrics.mrr import reciprocal_rank
from dtdr.evaluation.metrics.recall import recall_at
from dtdr.evaluation.metrics.top1 import top1
from dtdr.evaluation.run_log import LoggedStep

Metric: TypeAlias = Callable[[LoggedStep], float]

# One line a metric: those that stand alone, and those that take a number of tools after an @.
_PLAIN: dict[str, Metric] = {"mrr": reciprocal_rank, "f1": f1, "top1": top1}
_AT: dict[str, Callable[[int], Metric]] = {"recall": recall_at, "hit": hit_at}

NAMES = (*_PLAIN, *(f"{name}@k" for name in _AT))

DEFAULT = ("mrr", "f1", "top1", "recall@5")
"""The columns of the retrieval table: the paper's two, and what a user of the top tools asks."""


def metric(name: str) -> Metric:
    """The metric behind a name such as ``"mrr"`` or ``"recall@5"``.

    Raises:
        InputError: no metric has that name, or k is no whole number from 1.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    base, at, k = name.partition("@")
    if base not in _AT or not at:
        raise unknown_choice("metric", name, NAMES)
    if not (k.isascii() and k.isdigit()) or int(k) < 1:
        raise InputError(f"metric {name!r} needs a whole number from 1 after the @: {base}@5")
    return _AT[base](int(k))


__all__ = ["DEFAULT", "NAMES", "Metric", "metric"]
