"""Demonstrations as arrays: what a fit learns from, and all that a model keeps to learn again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import ModelError
from dtdr.rankers.dtdr_f.encoded_plans import EncodedPlans
from dtdr.rankers.dtdr_f.encoded_runs import EncodedRuns
from dtdr.rankers.dtdr_f.queries import EncodedQueries
from dtdr.rankers.dtdr_f.text import hash_word
from dtdr.rankers.folds import ALL_HELD_OUT, HELD_OUT
from dtdr.rankers.nn import Indices
from dtdr.text.encoders.base import Encoder

_FEW_PLANS = 20


@dataclass(frozen=True)
class EncodedDemonstrations:
    """Queries, plans, runs and groups, one each a demonstration.

    Attributes:
        groups: shape (n,): hash of the name of each group, 0 for none.
    """

    queries: EncodedQueries
    plans: EncodedPlans
    runs: EncodedRuns
    groups: npt.NDArray[np.uint32]

    @classmethod
    def of(
        cls,
        demonstrations: Sequence[Demonstration],
        index: Mapping[str, int],
        weights: Sequence[float],
        encoder: Encoder | None,
    ) -> Self:
        """Read demonstrations.

        Args:
            demonstrations: to learn from.
            index: positions of the tools in the vocabulary.
            weights: how much each counts.
            encoder: whose vectors are read in addition to words; or None.
        """
        groups = [hash_word(item.group) if item.group else 0 for item in demonstrations]
        return cls(
            EncodedQueries.of([item.query for item in demonstrations], encoder),
            EncodedPlans.of(demonstrations, index, weights),
            EncodedRuns.of(demonstrations, index),
            np.array(groups, np.uint32),
        )

    def __len__(self) -> int:
        return len(self.groups)

    def subset(self, rows: Indices) -> EncodedDemonstrations:
        """Those at some positions."""
        return EncodedDemonstrations(
            self.queries.subset(rows),
            self.plans.subset(rows),
            self.runs.subset(rows),
            self.groups[rows],
        )

    def concatenate(self, other: EncodedDemonstrations, decay: float) -> EncodedDemonstrations:
        """These, each counting ``decay`` times as much as before, and the others."""
        return EncodedDemonstrations(
            self.queries.concatenate(other.queries),
            self.plans.concatenate(other.plans, decay),
            self.runs.concatenate(other.runs),
            np.concatenate([self.groups, other.groups]),
        )

    def renumber(self, position: Sequence[int], tools: int) -> EncodedDemonstrations:
        """The same in another vocabulary; ``position[old]`` is the new index or ``REMOVED``."""
        plans, runs = self.plans.renumber(position, tools), self.runs.renumber(position)
        return EncodedDemonstrations(self.queries, plans, runs, self.groups)

    def assign_folds(self, folds: int, seed: int) -> Indices:
        """The fold of each demonstration; -1 for those that are never held out.

        Every other group with several demonstrations is kept in one fold, and those of the rest
        are divided at random: the ranker learns what the blocks say of groups that they know and
        of groups that they do not.
        """
        rng = np.random.default_rng(seed)
        number = np.arange(len(self)) << 32
        distinct, counts = np.unique(self.groups, return_counts=True)
        together = rng.permutation(distinct[(counts > 1) & (distinct > 0)])[::2]
        names = np.where(np.isin(self.groups, together), self.groups, number + (1 << 32))
        units, place = np.unique(names, return_inverse=True)
        order = rng.permutation(len(units))
        if len(self) <= ALL_HELD_OUT:
            fold = order % min(folds if len(self) >= _FEW_PLANS else 2, len(units))
        else:  # one fold is enough, and a refit without each would take too long
            fold = np.where(order < len(units) * HELD_OUT / len(self), 0, -1)
        return fold[place]

    @property
    def halves(self) -> npt.NDArray[np.intp]:
        """Shape (n,): 0 or 1; demonstrations of one group are in one half."""
        distinct, place = np.unique(self.groups, return_inverse=True)
        is_grouped = (self.groups > 0) & (len(distinct) > 2)
        return np.where(is_grouped, place, np.arange(len(self))) % 2

    @classmethod
    def restore(
        cls,
        queries: EncodedQueries,
        plans: EncodedPlans,
        runs: Mapping[str, npt.NDArray[Any]],
        groups: npt.NDArray[np.uint32],
    ) -> Self:
        """Rebuild from saved parts.

        Raises:
            ModelError: they are of different numbers of demonstrations.
        """
        if not len(queries) == len(plans) == len(groups):
            raise ModelError("the demonstrations of the model do not fit together; fit it again")
        return cls(queries, plans, EncodedRuns.restore(runs, plans.lengths, plans.tools), groups)
