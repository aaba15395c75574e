"""``--fail-under``: the least that the best retriever must reach, for a user's own CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdr.errors import InputError
from dtdr.evaluate import metrics
from dtdr.evaluate.lab.report.results import Results, group_runs


def parse_thresholds(texts: Sequence[str]) -> dict[str, float]:
    """``["recall@5=0.9"]`` as numbers by metric.

    Raises:
        InputError: a text is not METRIC=VALUE, no metric has that name, or the value is not from
            0 to 1.
    """
    thresholds = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        metrics.metric(name)
        try:
            threshold = float(value)
        except ValueError:
            threshold = -1.0
        if not equals or not 0 <= threshold <= 1:
            raise InputError(
                f"--fail-under {text!r} is not METRIC=VALUE with a value from 0 to 1; write for "
                "example --fail-under recall@5=0.9"
            )
        thresholds[name] = threshold
    return thresholds


def failures(results: Results, suite: str, thresholds: Mapping[str, float]) -> list[str]:
    """A sentence for each threshold that the best retriever does not reach."""
    sentences = []
    runs = [run for run in results.runs(suite, "rank") if run.is_plain] if thresholds else []
    for place, here in group_runs(runs, lambda run: run.place).items():
        methods = group_runs(here, lambda run: run.method)
        for metric, threshold in thresholds.items():
            reached = {
                name: metrics.mean(metrics.mean_score(results.log(run), metric) for run in same)
                for name, same in methods.items()
            }
            best = max(reached, key=lambda name: reached[name])
            if reached[best] < threshold:
                sentences.append(
                    f"{results.place_title(place)}: the best retriever, {best}, has {metric} "
                    f"{reached[best]:.3f}, below the {threshold:g} asked for"
                )
    return sentences


def method_means(results: Results, suite: str) -> list[dict[str, Any]]:
    """Every method's means, for ``--json``."""
    return [
        {
            "suite": suite,
            "dataset": place[0],
            "split": place[1],
            "method": name,
            "splits": len(splits),
            **{
                metric: round(metrics.mean(split.means[metric] for split in splits), 6)
                for metric in metrics.DEFAULT
            },
        }
        for place, methods in results.by_place(suite).items()
        for name, splits in methods.items()
    ]
