"""Which row of a step's table holds which feature, and which candidates the ranker sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.retrievers.factored.alignment import ROWS
from dtdr.retrievers.factored.parts import Switches

Array = npt.NDArray[Any]

ALL_RANKED = 64
"""Up to so many tools, the ranker sees all of them."""
SHORTLIST = 32
"""Candidates a step among more tools; 40 changed validation MRR by less than .004 on three sets."""


class Layout:
    """Which row of the table holds which feature; rows that are written together are neighbours.

    Args:
        switches: which parts are used.

    Attributes:
        names: the features, in the order of their rows; a row of ones follows them.
    """

    def __init__(self, switches: Switches) -> None:
        names = ["log_next", "last", "called_once", "called_twice", "called_often", "end", "steps"]
        names += ["steps_at_end", "log_frequency", "producers_missing", "together", "uses_last"]
        if switches.descriptions:
            names += ["like_last", "name_like_last", "after_tools_like_last"]
            names += ["likeness", "likeness_relative"]
        if switches.kernel:
            names += ["kernel", "markov"]
        if switches.need:
            names += ["need", "expected_left", "needed_before"]
        if switches.alignment:
            names += ["ahead", "behind", "described_ahead", "near", "centre_ahead", "pointer"]
            names += ["best_ahead", "best_near", "pointer_at_end", "best_ahead_at_end"]
            names += ["centre", "centre_of_last", "from_last"]
            names += ["needed_earlier_in_query"] if switches.need else []
        self.names = names
        row = {name: number for number, name in enumerate(names)}
        self.last = row["last"]
        self.once, self.twice = row["called_once"], row["called_twice"]
        self.often = row["called_often"]
        self.end, self.steps = row["end"], row["steps"]
        self.steps_at_end = row["steps_at_end"]
        self.frequency = row["log_frequency"]
        self.missing, self.together = row["producers_missing"], row["together"]
        pairs = 4 if switches.descriptions else 1
        self.pairs = slice(row["uses_last"], row["uses_last"] + pairs)
        self.pair_rows = pairs
        self.likeness = row.get("likeness", -1)
        self.kernel = row.get("kernel", -1)
        self.need, self.left = row.get("need", -1), row.get("expected_left", -1)
        self.needed_before = row.get("needed_before", -1)
        self.ahead = row.get("ahead", -1)
        self.described_ahead = row.get("described_ahead", -1)
        self.aligned = slice(self.ahead, self.ahead + ROWS)
        self.near, self.pointer = row.get("near", -1), row.get("pointer", -1)
        self.best_ahead, self.best_near = row.get("best_ahead", -1), row.get("best_near", -1)
        self.pointer_at_end = row.get("pointer_at_end", -1)
        self.best_ahead_at_end = row.get("best_ahead_at_end", -1)
        self.centre, self.from_last = row.get("centre", -1), row.get("from_last", -1)
        self.centre_of_last = row.get("centre_of_last", -1)
        self.needed_earlier = row.get("needed_earlier_in_query", -1)


def feature_names(switches: Switches) -> list[str]:
    """The features of a candidate; the first is the network's log probability."""
    return Layout(switches).names


def shortlist(layout: Layout, switches: Switches, table: Array) -> npt.NDArray[np.intp] | None:
    """The candidates among many tools, rising; None where the ranker sees all of them."""
    if table.shape[1] <= ALL_RANKED:
        return None
    order = table[0].copy()
    if switches.kernel:
        order += np.float32(0.5) * table[layout.kernel]
    if switches.need:
        order += np.float32(0.1) * table[layout.need]
    if switches.descriptions:
        order += np.float32(2) * table[layout.likeness + 1]
    return np.sort(np.argpartition(-order, SHORTLIST - 1)[:SHORTLIST])
