"""A model that ranks tools without demonstrations, and the state of its sessions."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Message
from dtdr.data.tools import Tool
from dtdr.rankers.base import UNKNOWN
from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.rankers.explanation import Contribution, Explanation
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import token_costs
from dtdr.rankers.vectors import rule_out_end
from dtdr.rankers.zero_shot.features import GROUPS, QueryMatch
from dtdr.rankers.zero_shot.scorer import Weights, ZeroShotState, shipped_weights
from dtdr.rankers.zero_shot.tool_index import ToolIndex


class ZeroShotModel:
    """The tools that are ranked, and the weights; never changed.

    Args:
        tools: the vocabulary, end of plan last.
        weights: of the features; by default, those of this package.
        may_end_at_once: whether a plan may end before its first call.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        weights: Weights | None = None,
        *,
        may_end_at_once: bool = False,
    ) -> None:
        self.may_end_at_once = may_end_at_once
        self.tools = tuple(tools)
        self.names = tuple(tool.name for tool in tools)
        self.index = {name: at for at, name in enumerate(self.names)}
        self.weights = shipped_weights() if weights is None else weights
        self.words = ToolIndex(self.tools[:-1])
        self.calibration = replace(self.weights.calibration(), tokens=token_costs(tools))

    def match(self, text: QueryText, earlier: Sequence[int], is_later_turn: bool) -> QueryMatch:
        """Match a query with the tools; see ``QueryMatch``."""
        return QueryMatch(self.words, text, earlier, is_later_turn)

    def prepare(self, query: str, before: Sequence[Message | ToolCall] = ()) -> QueryMatch:
        """Prepare a query, with the conversation before it."""
        called = [item.tool for item in before if isinstance(item, ToolCall)]
        earlier = [self.index.get(name, UNKNOWN) for name in called]
        return self.match(QueryText.of(query), earlier, bool(before))

    def start(self, match: QueryMatch) -> ZeroShotStepState:
        """The state of a run before its first call."""
        return ZeroShotStepState(self, match)

    def explain(
        self, explanation: Explanation, query: str, state: ZeroShotStepState
    ) -> Explanation:
        """The explanation with what each group of features adds, and the words that are shared."""
        return _explain(explanation, self, state.state, query)


class ZeroShotStepState:
    """State of a session: the calls of a run."""

    def __init__(self, model: ZeroShotModel, match: QueryMatch) -> None:
        self._model, self._match = model, match
        self.state = ZeroShotState(lambda: match, model.weights)

    def call(self, tool: int, call: ToolCall | None = None) -> None:
        """One more call; only its tool is read."""
        self.state = self.state.call(tool)

    def rank(self) -> Ranking:
        """The ranking of the next step."""
        model, row = self._model, self.state.probabilities()
        if not self.state.progress.calls and not model.may_end_at_once:
            rule_out_end(row)
        match = self._match
        # "Yes, go ahead" says nothing about the tools that earlier turns were about.
        known = None if match.is_later_turn else match.known
        return Ranking(model.names, row, calibration=model.calibration, familiarity=known)

    def copy(self) -> Self:
        """The same state, to go on from in another way."""
        return copy(self)


def _explain(
    explanation: Explanation, model: ZeroShotModel, state: ZeroShotState, query: str
) -> Explanation:
    """The explanation with what each group of features adds, and the words that a tool shares."""
    if END in (explanation.tool, explanation.rival):
        note = "No demonstration was learned from, so the clauses that no call served decide."
        return replace(explanation, note=f"{explanation.note} {note}".strip())
    tool, rival = (model.index[name] for name in (explanation.tool, explanation.rival))
    whole = state.tools()
    contributions = []
    for name, about, features in GROUPS:
        rest = state.tools(without=features)
        contributions.append(
            Contribution(
                block=name,
                about=about,
                adds=round(float(np.log(whole[tool] / whole[rival] * rest[rival] / rest[tool])), 6),
                probability_without=round(float(rest[tool]), 6),
                best_without=model.names[int(rest.argmax())],
            )
        )
    words = model.words.shared_words(tool, query)
    said = f" (“{'”, “'.join(words)}”)" if words else ", which share no word with the query"
    note = f"It is ranked by its name and description{said}; no demonstration was learned from."
    return replace(
        explanation,
        contributions=tuple(contributions),
        note=f"{explanation.note} {note}".strip(),
    )
