"""Tool-agnostic features of each tool at a step, for models without demonstrations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.rankers.nn import Matrix
from dtdr.rankers.zero_shot.tool_index import ToolIndex
from dtdr.rankers.zero_shot.words import clauses_of

FEATURES = (
    *("words", "name", "name_in_clause"),
    *("reads_first", "writes_first", "late_first"),
    *("left", "next", "ahead", "behind", "name_left"),
    *("called", "called_twice", "called_last", "called_and_left", "called_earlier"),
    *("like_last_name", "like_last_text", "server_of_last", "server_of_run"),
    *("writes_late", "reads_later"),
)
"""Features of every tool."""

END_FEATURES = ("constant", "calls", "calls_per_clause", "served", "all_served", "is_later_turn")
"""Features of the end of the plan."""

GROUPS = (
    ("words", "words of the query in its name and description", FEATURES[:3]),
    ("clauses", "clauses of the query that no call served", FEATURES[5:11]),
    ("calls", "which tools were called", FEATURES[11:16]),
    ("last_call", "how similar it is to the last call", FEATURES[16:20]),
    ("verbs", "reading comes first, changing later", (*FEATURES[3:5], *FEATURES[20:])),
)
"""Features that say the same kind of thing, for explanations."""

_NAME = 0.6
"""How much the words of a name count against those of the whole text."""
_SHARPNESS = 12.0
"""How clearly a call serves the clause that asks most for its tool."""
_AGAIN = 0.7
"""How much less a clause that was served counts for another call."""
_TINY = np.float32(1e-6)


class QueryMatch:
    """Matches of each clause of a query with the tools; computed once per query.

    Args:
        index: the words of n tools.
        text: the query.
        earlier: positions of the tools that earlier turns called.

    Attributes:
        asked: shape (clauses, n): how much each clause asks for each tool, up to 1.
        named: shape (clauses, n): which share of the name of each tool each clause has.
        fixed: shape (4, n): the first three features, and how late in the query the clause is that
            asks most for a tool.
        known: share of the query's words that some tool has, or has in other words.
        is_later_turn: whether something came before the query.
    """

    def __init__(
        self, index: ToolIndex, text: QueryText, earlier: Sequence[int], is_later_turn: bool
    ) -> None:
        self.index, self.is_later_turn = index, is_later_turn
        clauses = clauses_of(text)
        found = [index.columns(clause) for clause in clauses]
        columns = [np.unique(known) for known in found]
        self.known = sum(map(len, found)) / max(sum(map(len, clauses)), 1)
        words = np.unique(np.concatenate(columns))
        has = np.zeros((len(clauses), len(words)), np.float32)
        for row, own in zip(has, columns, strict=True):
            row[words.searchsorted(own)] = 1
        exact, texts, names = index.rows(words)
        by_text = has @ texts
        self.named: Matrix = has @ names
        best = by_text.max(axis=1, initial=0) + _TINY
        asked = by_text / best[:, None] + np.float32(_NAME) * self.named
        weight = np.sqrt(best / best.max()) / np.float32(1 + _NAME)
        self.asked: Matrix = asked * weight[:, None]
        matched = (has @ exact).max(axis=0)
        self.fixed = np.stack([
            matched / (matched.max(initial=0) + _TINY),
            names.sum(axis=0),
            self.named.max(axis=0),
            self.asked.argmax(axis=0) / np.float32(max(1, len(clauses) - 1)),
        ])  # fmt: skip
        self.earlier = np.zeros(index.size, np.float32)
        self.earlier[[tool for tool in earlier if 0 <= tool < index.size]] = 1


@dataclass(frozen=True, eq=False)
class RunProgress:
    """The calls made for a query; never changed.

    Attributes:
        match: the query.
        calls: how many were made.
        served: shape (clauses,): how far each clause is served, 0 to 1.
        called: shape (n,): how often each tool was called.
        servers: shape (n,): 1 for the tools of servers that were called.
        clause: the clause that the last call serves; -1 before any.
        last: the tool of the last call; -1 if there is none, or if it is not known.
    """

    match: QueryMatch
    calls: int
    served: Matrix
    called: Matrix
    servers: Matrix
    clause: int = -1
    last: int = -1

    @classmethod
    def start(cls, match: QueryMatch) -> RunProgress:
        """No call was made."""
        nothing = np.zeros(match.index.size, np.float32)
        return cls(match, 0, np.zeros(len(match.asked), np.float32), nothing, nothing)

    def call(self, tool: int) -> RunProgress:
        """After one more call; a position outside the tools is of an unknown one."""
        if not 0 <= tool < len(self.called):
            return replace(self, calls=self.calls + 1, last=-1)
        match = self.match
        scores = match.asked[:, tool] * (1 - np.float32(_AGAIN) * self.served)
        share = np.exp(np.float32(_SHARPNESS) * (scores - scores.max()))
        share /= share.sum()
        called = self.called.copy()
        called[tool] += 1
        servers = match.index.servers
        return RunProgress(
            match,
            self.calls + 1,
            1 - (1 - self.served) * (1 - share),
            called,
            np.maximum(self.servers, servers == servers[tool]),
            int(scores.argmax()),
            tool,
        )

    def features(self) -> Matrix:
        """Shape (features, n), in the order of ``FEATURES``."""
        match, index, after = self.match, self.match.index, self.clause + 1
        rows = np.zeros((len(FEATURES), index.size), np.float32)
        rows[:3] = match.fixed[:3]
        open_ = (1 - self.served)[:, None]
        asked = match.asked * open_
        left = np.maximum.reduce(asked, axis=0, out=rows[6])
        if after < len(asked):
            rows[7] = match.asked[after]
            if self.calls:
                np.maximum.reduce(asked[after:], axis=0, out=rows[8])
        if self.clause > 0:
            np.maximum.reduce(asked[: self.clause], axis=0, out=rows[9])
        np.maximum.reduce(match.named * open_, axis=0, out=rows[10])
        rows[15] = match.earlier
        done = np.add.reduce(self.served) / np.float32(len(self.served))
        np.multiply(index.writes, done - np.float32(0.5), out=rows[20])
        if not self.calls:
            rows[3], rows[4], rows[5] = index.reads, index.writes, match.fixed[3]
            return rows
        rows[11] = self.called > 0
        rows[12] = self.called > 1
        np.multiply(rows[11], left, out=rows[14])
        rows[14] /= np.maximum.reduce(left, initial=0) + _TINY
        rows[19] = self.servers
        rows[21] = index.reads
        if self.last >= 0:
            rows[13, self.last] = 1
            rows[16:18] = index.alike(self.last)
            rows[18] = index.servers == index.servers[self.last]
        return rows

    def end_features(self) -> Matrix:
        """Shape (end features,), in the order of ``END_FEATURES``."""
        served, clauses = self.served, len(self.served)
        values = (
            1.0,
            math.log1p(self.calls),
            min(self.calls / clauses, 3.0),
            np.add.reduce(served) / np.float32(clauses),
            np.minimum.reduce(served),
            self.match.is_later_turn,
        )
        return np.array(values, np.float32)
