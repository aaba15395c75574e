"""The linear rankers and dtdr-c after the same search: eight settings each, on inner folds.

    python benchmarks/equal_search.py [--datasets tinyagent t_eval] [--data-dir DATA]
    python benchmarks/equal_search.py --smoke

Each setting is fitted and tested on three folds of the training side. The one with the best MRR
learns from the whole training side and ranks the test side, and so do the default settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dtdr.evaluate import mean_score, run
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split, group_folds
from dtdr.evaluate.tables import Column, share
from dtdr.predict import create
from printing import print_rows
from sets import load_sets, make_parser

Settings = Mapping[str, Any]

FOLDS = 3
LINEAR: tuple[Settings, ...] = (
    {},
    {"recipe": "paper"},
    {"recipe": "paper", "batch_size": 8},
    {"learning_rate": 0.01},
    {"learning_rate": 0.1},
    {"batch_size": 8},
    {"epochs": 40},
    {"weight_decay": 1e-5},
)
SEARCHED: dict[str, tuple[Settings, ...]] = {
    "lr": LINEAR,
    "dtdr-c": (
        {},
        {"recipe": "paper"},
        {"recipe": "paper", "order": 2},
        {"order": 2},
        {"nearest": 1},
        {"nearest": 16},
        {"strength": 2.0},
        {"strength": 32.0},
    ),
    "dtdr-l": LINEAR,
}


def search(
    name: str, dataset: Dataset, split: Split, tried: tuple[Settings, ...]
) -> dict[str, Any]:
    """One line of the table."""
    training = replace(dataset, demonstrations=split.training(dataset.demonstrations))
    folds = group_folds(training.demonstrations, FOLDS)
    inner = [mean_score(run(create(name, **one), training, *folds), "mrr") for one in tried]
    best = max(range(len(tried)), key=inner.__getitem__)
    tests = [
        mean_score(run(create(name, **one), dataset, split), "mrr") for one in ({}, tried[best])
    ]
    return {
        "dataset": dataset.name,
        "ranker": name,
        "settings": ", ".join(f"{key} {value}" for key, value in tried[best].items()) or "default",
        "inner_default": inner[0],
        "inner": inner[best],
        "test_default": tests[0],
        "test": tests[1],
    }


def main() -> None:
    """Search for each method and set."""
    given = make_parser(__doc__, ["tinyagent", "t_eval"]).parse_args()

    def measured() -> Iterator[dict[str, Any]]:
        for dataset, split in load_sets(given, smoke=60):
            for name, tried in SEARCHED.items():
                yield search(name, dataset, split, tried[:2] if given.smoke else tried)

    columns = [
        Column("Set", "dataset"),
        Column("Ranker", "ranker"),
        Column("Best settings", "settings"),
        Column("Inner, default", "inner_default", share, numeric=True),
        Column("Inner, best", "inner", share, numeric=True),
        Column("Test, default", "test_default", share, numeric=True),
        Column("Test, best", "test", share, numeric=True),
    ]
    print_rows(measured(), columns, as_json=given.json, caption=f"MRR; inner: {FOLDS} folds.")


if __name__ == "__main__":
    main()
