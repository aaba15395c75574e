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


def assign_folds(
    demonstrations: Sequence[Demonstration], *, folds: int, grouped: bool, seed: int
) -> Indices:
    """The fold of each demonstration; -1 for those that are never held out.

    Args:
        demonstrations: those to divide.
        folds: how many; few demonstrations take two.
        grouped: keep demonstrations of one ``group`` together.
        seed: of the division.
    """
    rng = np.random.default_rng(seed)
    plans = len(demonstrations)
    names = [str(number) for number in range(plans)]
    if grouped:
        names = [
            item.group or f"\0{name}" for item, name in zip(demonstrations, names, strict=True)
        ]
    distinct = list(dict.fromkeys(names))
    numbers = rng.permutation(len(distinct))
    if plans <= ALL_HELD_OUT:
        numbers %= min(folds if plans >= _FEW_PLANS else 2, len(distinct))
    else:  # one fold is enough, and a refit without each would take too long
        numbers = np.where(numbers < len(distinct) * HELD_OUT / plans, 0, -1)
    fold = dict(zip(distinct, numbers.tolist(), strict=True))
    return np.array([fold[name] for name in names], np.intp)
