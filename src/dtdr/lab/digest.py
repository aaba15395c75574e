"""What tables and figures need of one run, computed from its log in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.lab.log import LOWEST, LabLog

Floats = npt.NDArray[np.float64]

METRICS = ("mrr", "f1", "top1", "recall@5")

CUTS = (LOWEST, 0.1, 0.15, 0.2, 0.23, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Thresholds of the sweep; .2, .23 and .5 are the paper's."""

LOW = (0.3, 0.4, 0.5)
"""Below these no acceptable tool was given a probability (paper, App. "Weighted vs")."""

DEEPEST = 100
"""Recall is kept for the first so many tools."""


@dataclass(frozen=True)
class Digest:
    """One run.

    Attributes:
        header: of the log.
        steps: how many.
        means: of ``METRICS``, over all steps.
        plans: ids of the held-out plans.
        by_plan: for each metric, shape (plans,): mean over the plan's steps.
        top1_by_length: by number of calls, ``(hits, steps)``.
        recall: shape (k,): mean share of the acceptable tools among the first 1, 2, ... k.
        hit: shape (k,): share of the steps with an acceptable tool among the first 1, 2, ... k.
        sweep: by threshold, ``(mean tools shown, share of steps that show an acceptable one)``.
        below: by threshold, share of steps where no acceptable tool is above it.
    """

    header: Mapping[str, Any]
    steps: int
    means: Mapping[str, float]
    plans: tuple[str, ...]
    by_plan: Mapping[str, Floats]
    top1_by_length: Mapping[int, tuple[int, int]]
    recall: Floats
    hit: Floats
    sweep: Mapping[float, tuple[float, float]]
    below: Mapping[float, float]


def digest(log: LabLog) -> Digest:
    """The digest of a ``rank`` log."""
    records = log.records
    tools = len(log.header["tools"])
    count = len(records)
    first = np.array([record["at"][0] if record["at"] else 0 for record in records], np.int64)
    accepted = np.array([len(record["ok"]) for record in records], np.int64)
    found = np.array([len(record["at"]) for record in records], np.int64)
    owner = np.repeat(np.arange(count), found)
    places = np.array([place for record in records for place in record["at"]], np.int64)
    with np.errstate(divide="ignore"):
        reciprocal = np.where(first > 0, 1.0 / first, 0.0)
    scores = {
        "mrr": reciprocal,
        "f1": _f1(owner, places, accepted, tools),
        "top1": (first == 1).astype(float),
        "recall@5": _recall_at(5, owner, places, accepted),
    }
    plans, index = _groups([record["plan"] for record in records])
    sizes = np.bincount(index)
    depth = max(1, min(DEEPEST, tools))
    inside = places <= depth
    weights = 1.0 / accepted[owner]
    recall = np.bincount(places[inside], weights[inside], depth + 1)[1:].cumsum() / max(1, count)
    near = first[(first > 0) & (first <= depth)]
    hit = np.bincount(near, minlength=depth + 1)[1:].cumsum() / max(1, count)
    best = np.array([max(record["ok_p"], default=0.0) for record in records])
    heads = np.array([value for record in records for value in record["top_p"]], float)
    heads_of = np.repeat(np.arange(count), [len(record["top_p"]) for record in records])
    sweep = {}
    for cut in CUTS:
        shown = np.maximum(1, np.bincount(heads_of, heads > cut, count))
        sweep[cut] = (float(shown.mean()), float(((first > 0) & (first <= shown)).mean()))
    lengths = np.array([record["length"] for record in records], np.int64)
    return Digest(
        log.header,
        count,
        {name: float(values.mean()) for name, values in scores.items()},
        plans,
        {name: np.bincount(index, values) / sizes for name, values in scores.items()},
        {
            length: (int((first[lengths == length] == 1).sum()), int((lengths == length).sum()))
            for length in np.unique(lengths).tolist()
        },
        recall,
        hit,
        sweep,
        {cut: float((best <= cut).mean()) for cut in LOW},
    )


def _f1(
    owner: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    accepted: npt.NDArray[np.int64],
    tools: int,
) -> Floats:
    """As ``dtdr.evaluation.metrics.f1``: of the top k, k the number of acceptable tools."""
    hits = np.bincount(owner, places <= accepted[owner], len(accepted))
    precision = hits / np.minimum(accepted, tools)
    recall = hits / accepted
    total = precision + recall
    return np.divide(2 * precision * recall, total, out=np.zeros(len(hits)), where=total > 0)


def _recall_at(
    k: int,
    owner: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    accepted: npt.NDArray[np.int64],
) -> Floats:
    found: Floats = np.bincount(owner, places <= k, len(accepted)) / accepted
    return found


def _groups(names: Sequence[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    distinct = dict.fromkeys(names)
    position = {name: index for index, name in enumerate(distinct)}
    return tuple(distinct), np.array([position[name] for name in names], np.int64)
