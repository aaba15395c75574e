"""Demonstrations divided into folds, each held out in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.nn import Indices

_FEW_PLANS = 20
ALL_HELD_OUT = 12_000
"""Demonstrations up to which each is held out once."""
HELD_OUT = 6_000
"""How many are held out of more: a ranker has some 40 features to weigh."""


def assign_folds(demonstrations: Sequence[Demonstration], *, folds: int, seed: int) -> Indices:
    """The fold of each demonstration; -1 for those that are never held out.

    Args:
        demonstrations: those to divide; those of one ``group`` stay together.
        folds: how many; few demonstrations take two.
        seed: of the division.
    """
    names = [item.group or f"\0{position}" for position, item in enumerate(demonstrations)]
    distinct = {name: position for position, name in enumerate(dict.fromkeys(names))}
    fold = divide(len(distinct), len(names), folds, np.random.default_rng(seed))
    return fold[[distinct[name] for name in names]]


def divide(units: int, plans: int, folds: int, rng: np.random.Generator) -> Indices:
    """The fold of each unit, which all of its demonstrations are in; -1 for one never held out.

    Args:
        units: how many there are.
        plans: how many demonstrations they have together.
        folds: how many; few demonstrations take two.
        rng: divides.
    """
    order = rng.permutation(units)
    if plans <= ALL_HELD_OUT:
        return order % min(folds if plans >= _FEW_PLANS else 2, units)
    # One fold is enough, and a refit without each would take too long.
    return np.where(order < units * HELD_OUT / plans, 0, -1)
