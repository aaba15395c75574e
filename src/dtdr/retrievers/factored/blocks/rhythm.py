"""How the calls of this plan took turns: one tool for each of three things, then the next tool."""

from __future__ import annotations

from functools import partial
from typing import Self

from dtdr.retrievers.factored.blocks.base import Begin, Block, CallEvent, Query, TrainingSet
from dtdr.retrievers.nn import Indices, Matrix

_MOST_APART = 3
"""Runs of calls that differ by more count as if by so many."""


class Rhythm(Block):
    """Whether the run of the last tool is as long as that before, and what followed it before.

    Nothing is learned. An agent that asked for the details of three hotels asks for three reviews;
    and where details and reviews take turns, what followed the last tool before follows it again.
    How often a tool was called and how long its run is say no more beside that.
    """

    name = "rhythm"
    about = "how calls of this plan took turns"
    names = ("shorter_run_than_before", "followed_last")

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """A block without anything learned."""
        return cls()

    def start(self, query: Query, out: Matrix) -> Begin:
        """No call yet."""
        return partial(_RhythmState, query.view.places)


class _RhythmState:
    __slots__ = ("_after", "_before", "_follower", "_last", "_places", "_rows", "_run", "_tool")

    def __init__(self, places: dict[int, int] | None, rows: Matrix) -> None:
        self._places, self._rows = places, rows
        self._after: dict[int, int] = {}
        self._tool = self._last = self._follower = -1
        self._run = self._before = 0

    def call(self, event: CallEvent) -> None:
        shorter, followed = self._rows
        tool, column = event.tool, event.column
        if self._tool >= 0:
            self._after[self._tool] = tool
        if self._last >= 0:
            shorter[self._last] = 0
        if self._follower >= 0:
            followed[self._follower] = 0
        if self._run and tool == self._tool:
            self._run += 1
        else:
            self._before, self._run = self._run, 1
        self._tool, self._last = tool, column
        if column >= 0 and (self._run > 1 or self._before > 1):
            apart = self._before - self._run
            shorter[column] = min(max(apart, -_MOST_APART), _MOST_APART)
        follower = self._after.get(tool, -1)
        if follower >= 0 and self._places is not None:
            follower = self._places.get(follower, -1)
        self._follower = follower
        if follower >= 0:
            followed[follower] = 1

    def write(self) -> None:
        """Every call wrote already."""

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        """Nothing about new tools."""
