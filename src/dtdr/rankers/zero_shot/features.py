"""Tool-agnostic features of each tool at a step, for models without demonstrations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix
from dtdr.rankers.zero_shot.tool_index import ToolIndex
from dtdr.rankers.zero_shot.words import clauses_of


class ZeroShotRows(FeatureRows):
    """Features of every tool at a step; none is about a certain tool, so they suit any tools."""

    words: Matrix  # words of the query in its text, divided by those of the best tool
    name: Matrix  # share of its name that the query has, all clauses together
    name_in_clause: Matrix  # the same of the best clause
    reads_first: Matrix  # 1 before the first call for a tool that reads
    writes_first: Matrix  # 1 before the first call for a tool that changes something
    late_first: Matrix  # before the first call: where in the query it is asked for, 0 to 1
    left: Matrix  # how much a clause asks for it that calls have not served
    next: Matrix  # how much the clause after that of the last call asks for it
    ahead: Matrix  # how much clauses from there on ask for it
    behind: Matrix  # how much earlier clauses still ask for it
    name_left: Matrix  # share of its name that a clause not served yet has
    called: Matrix  # 1 if it was called
    called_twice: Matrix  # 1 if it was called twice or more
    called_last: Matrix  # 1 for the tool of the last call
    called_and_left: Matrix  # of a tool that was called: left, divided by that of the best tool
    called_earlier: Matrix  # 1 if an earlier turn called it
    like_last_name: Matrix  # similarity of its name with that of the last call's tool
    like_last_text: Matrix  # similarity of their texts
    server_of_last: Matrix  # 1 for tools of the server of the last call
    server_of_run: Matrix  # 1 for tools of any server that was called
    writes_late: Matrix  # of a tool that changes something: share of the query served, less .5
    reads_later: Matrix  # 1 after the first call for a tool that reads


FEATURES = ZeroShotRows.names
_BY_QUERY = ZeroShotRows.span("words", "name_in_clause")
"""Features that no call changes."""
_READS_LATER = FEATURES.index("reads_later")
_LIKE_LAST = ZeroShotRows.span("like_last_name", "like_last_text")

END_FEATURES = ("constant", "calls", "calls_per_clause", "served", "all_served", "is_later_turn")
"""Features of the end of the plan."""

_CLAUSES = FEATURES[ZeroShotRows.span("late_first", "name_left")]
_CALLS = FEATURES[ZeroShotRows.span("called", "called_earlier")]
_LAST_CALL = FEATURES[ZeroShotRows.span("like_last_name", "server_of_run")]
_VERBS = ("reads_first", "writes_first", "writes_late", "reads_later")
GROUPS = (
    ("words", "words of the query in its name and description", FEATURES[_BY_QUERY]),
    ("clauses", "clauses of the query that no call served", _CLAUSES),
    ("calls", "which tools were called", _CALLS),
    ("last_call", "how similar it is to the last call", _LAST_CALL),
    ("verbs", "reading comes first, changing later", _VERBS),
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
        first: shape (features, n): before any call, those features that the query alone decides.
        later: the same after a call.
        known: share of the query's words that some tool has, or has in other words.
        is_later_turn: whether something came before the query.
    """

    def __init__(
        self, index: ToolIndex, text: QueryText, earlier: Sequence[int], is_later_turn: bool
    ) -> None:
        self.index, self.is_later_turn = index, is_later_turn
        clauses = clauses_of(text)
        clause_words = [index.columns(clause) for clause in clauses]
        columns = [np.unique(known) for known in clause_words]
        self.known = sum(map(len, clause_words)) / max(sum(map(len, clauses)), 1)
        words = np.unique(np.concatenate(columns))
        has = np.zeros((len(clauses), len(words)), np.float32)
        for row, clause_columns in zip(has, columns, strict=True):
            row[words.searchsorted(clause_columns)] = 1
        exact, texts, names = index.rows(words)
        by_text = has @ texts
        self.named: Matrix = has @ names
        best = by_text.max(axis=1, initial=0) + _TINY
        asked = by_text / best[:, None] + np.float32(_NAME) * self.named
        weight = np.sqrt(best / best.max()) / np.float32(1 + _NAME)
        self.asked: Matrix = asked * weight[:, None]
        matched = (has @ exact).max(axis=0)
        self.first = np.zeros((len(FEATURES), index.size), np.float32)
        rows = ZeroShotRows(self.first)
        rows.words[:] = matched / (matched.max(initial=0) + _TINY)
        rows.name[:] = names.sum(axis=0)
        rows.name_in_clause[:] = self.named.max(axis=0)
        rows.called_earlier[[tool for tool in earlier if 0 <= tool < index.size]] = 1
        self.later: Matrix = self.first.copy()
        self.later[_READS_LATER] = index.reads
        rows.reads_first[:], rows.writes_first[:] = index.reads, index.writes
        rows.late_first[:] = self.asked.argmax(axis=0) / np.float32(max(1, len(clauses) - 1))


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
        rows = ZeroShotRows((match.later if self.calls else match.first).copy())
        open_ = (1 - self.served)[:, None]
        asked = match.asked * open_
        np.maximum.reduce(asked, axis=0, out=rows.left)
        if after < len(asked):
            rows.next[:] = match.asked[after]
            if self.calls:
                np.maximum.reduce(asked[after:], axis=0, out=rows.ahead)
        if self.clause > 0:
            np.maximum.reduce(asked[: self.clause], axis=0, out=rows.behind)
        np.maximum.reduce(match.named * open_, axis=0, out=rows.name_left)
        np.multiply(index.writes, self.done - np.float32(0.5), out=rows.writes_late)
        if not self.calls:
            return rows.table
        np.greater(self.called, 0, out=rows.called, casting="unsafe")
        np.greater(self.called, 1, out=rows.called_twice, casting="unsafe")
        np.multiply(rows.called, rows.left, out=rows.called_and_left)
        rows.called_and_left /= np.maximum.reduce(rows.left, initial=0) + _TINY
        rows.server_of_run[:] = self.servers
        if self.last >= 0:
            rows.called_last[self.last] = 1
            rows.table[_LIKE_LAST] = index.alike(self.last)
            servers = index.servers
            np.equal(servers, servers[self.last], out=rows.server_of_last, casting="unsafe")
        return rows.table

    @cached_property
    def done(self) -> np.float32:
        """Share of the clauses that are served."""
        share: np.float32 = np.add.reduce(self.served) / np.float32(len(self.served))
        return share

    def end_features(self) -> Matrix:
        """Shape (end features,), in the order of ``END_FEATURES``."""
        served, clauses = self.served, len(self.served)
        values = (
            1.0,
            math.log1p(self.calls),
            min(self.calls / clauses, 3.0),
            self.done,
            np.minimum.reduce(served),
            self.match.is_later_turn,
        )
        return np.array(values, np.float32)
