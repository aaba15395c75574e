"""What a fitted dtdr-f ranks with, and what a session keeps between its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.calibration import Calibration, Floats
from dtdr.calls import ToolCall
from dtdr.demonstrations import Message
from dtdr.encoders.base import Encoder
from dtdr.ranking import Ranking
from dtdr.retrievers.factored import calibration, new_tools, ranker
from dtdr.retrievers.factored.blocks.base import View
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.familiarity import HIGHEST_THRESHOLD, Familiarity
from dtdr.retrievers.factored.fitted_blocks import FittedBlocks, PreparedQuery
from dtdr.retrievers.factored.new_tools import NewToolScorer
from dtdr.retrievers.factored.observations import (
    NO_CONTEXT,
    NO_OUTCOME,
    Outcome,
    RunReader,
    read_context,
)
from dtdr.retrievers.factored.query_features import QueryFeatures
from dtdr.retrievers.factored.query_text import SURFACE_FEATURES, QueryText
from dtdr.retrievers.factored.ranker import CandidateRanker, Scorer, StepScorers
from dtdr.retrievers.factored.step_features import StepFeatures
from dtdr.retrievers.factored.synonyms import Synonyms, WordForms
from dtdr.retrievers.factored.updates import apply_update, change_tools
from dtdr.retrievers.nn import Indices, Matrix
from dtdr.retrievers.vectors import rule_out_end, unit
from dtdr.tools import Tool

_WARM_AFTER_UPDATE = 64
"""Tools up to which what is said of pairs of them is computed at once after an update: 1 ms."""

_NO_COLUMNS: Indices = np.empty(0, np.intp)

_RANKERS, _TOLD_RANKERS, _REWORDED_RANKERS = "ranker.", "told_ranker.", "reworded_ranker."


@dataclass(frozen=True, slots=True)
class FactoredQuery:
    """A query as the blocks read it, and how familiar it is."""

    prepared: PreparedQuery
    familiarity: float


@dataclass(frozen=True, eq=False)
class FactoredModel:
    """Everything that ranking reads. Never changed once made: an update makes another.

    Attributes:
        blocks: fitted on all demonstrations.
        rankers: what weighs their features; empty where too little was demonstrated.
        new_tools: ranks tools without demonstrations; None where that was not learned.
        familiarity: tells queries unlike the demonstrations'.
        calibration: of the rankings.
        told_rankers: what weighs the features of runs of which more is told than names; empty
            where the demonstrations tell names only.
        reworded_rankers: what weighs the features of queries that are worded otherwise than the
            demonstrations; empty in models of earlier versions.
        synonyms: what such queries say in the words of the demonstrations; None where that was
            switched off, and in models of earlier versions.
    """

    blocks: FittedBlocks
    rankers: tuple[CandidateRanker, ...]
    new_tools: NewToolScorer | None
    familiarity: Familiarity
    calibration: Calibration
    told_rankers: tuple[CandidateRanker, ...] = ()
    reworded_rankers: tuple[CandidateRanker, ...] = ()
    synonyms: Synonyms | None = None

    def __post_init__(self) -> None:
        vars(self)["calibration"] = replace(
            self.calibration, familiarity_threshold=self.familiarity.threshold
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The vocabulary, end of plan last."""
        return tuple(tool.name for tool in self.blocks.training.tools.tools)

    @cached_property
    def _scorers(self) -> StepScorers:
        return StepScorers(
            self.blocks.layout, self.rankers, self.told_rankers, self.reworded_rankers
        )

    def scorer(self, step: StepFeatures) -> Scorer | None:
        """What weighs the features of a step; None where too little was demonstrated."""
        return self._scorers.choose(
            is_told=step.is_told,
            is_first=not step.calls,
            is_reworded=step.query.is_reworded,
        )

    def rankers_of(self, step: StepFeatures) -> tuple[CandidateRanker, ...]:
        """Those that weigh the features of a step, before the first call mainly."""
        if step.is_told:
            return self.told_rankers or self.rankers
        return (step.query.is_reworded and self.reworded_rankers) or self.rankers

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def prepare(self, query: str, before: Sequence[Message | ToolCall] = ()) -> FactoredQuery:
        """All that is computed once a query, after what came before it."""
        context = read_context(query, before, self._index) if self.blocks.reads_runs else NO_CONTEXT
        features, familiarity, is_reworded = self._read(query)
        prepared = self.blocks.prepare(features, context)
        return FactoredQuery(
            replace(prepared, is_reworded=True) if is_reworded else prepared, familiarity
        )

    def _read(self, query: str) -> tuple[QueryFeatures, float, bool]:
        """What is ranked, how familiar it is, and whether the query is worded otherwise."""
        featurizer, text = self.blocks.training.featurizer, QueryText.of(query)
        features = featurizer.read(text) if self.familiarity.uses_vectors else None
        familiarity = self._familiarity(text, features)
        is_reworded = familiarity < self.familiarity.usual
        if self.synonyms is not None and familiarity < HIGHEST_THRESHOLD:
            said = QueryText.of(self.synonyms.rewrite(query, self._forms))
            rewritten = features and featurizer.read(said)
            familiarity = max(familiarity, self._familiarity(said, rewritten))
            if is_reworded:
                text = said
                if features and rewritten:  # an encoder knows what other words mean
                    features = replace(rewritten, clauses=features.clauses)
        return features or featurizer.read(text), familiarity, is_reworded

    @cached_property
    def _forms(self) -> WordForms:
        return WordForms(self.blocks.training.featurizer.words)

    def _familiarity(self, text: QueryText, features: QueryFeatures | None) -> float:
        similarity = 0.0
        if features is not None:
            row = unit(features.surface[SURFACE_FEATURES:])
            similarity = float((self._vectors @ row).max(initial=0))
        return self.familiarity.score_words(text.words, similarity)

    @cached_property
    def _vectors(self) -> Matrix:
        """What the further encoder gave of the demonstrations that are kept, of length 1."""
        return unit(self.blocks.replay.queries.surface[:, SURFACE_FEATURES:])

    def probabilities(self, step: StepFeatures) -> Floats:
        """Shape (tools,): probabilities of every tool for the next step; they sum to 1."""
        probabilities = self._probabilities(step)
        if not step.calls and not self.may_end_at_once:
            rule_out_end(probabilities)
        return probabilities

    @cached_property
    def may_end_at_once(self) -> bool:
        """Whether some demonstration calls no tool."""
        return bool((self.blocks.training.plans.lengths == 0).any())

    def new_to_rankers(self, view: View) -> Indices:
        """The columns of tools without demonstrations that are ranked as all others are."""
        is_left = self.new_tools is not None and self.new_tools.leaves_to_rankers
        return view.new if is_left else _NO_COLUMNS

    def _probabilities(self, step: StepFeatures) -> Floats:
        table, view = step.write(), step.query.view
        scorer = self.scorer(step)
        chosen, order = ranker.shortlist(step.layout, table, self.new_to_rankers(view))
        if scorer is not None:
            mixed = ranker.probabilities(scorer, table, chosen, order)
        else:
            prior = step.layout.prior
            mixed = ranker.softmax(order if prior is None else table[prior])
        if self.new_tools is not None and len(view.new) and not self.new_tools.leaves_to_rankers:
            mixed = self.new_tools.mix(mixed, step)
        rest = step.query.rest
        if view.tools is None or rest is None:
            return mixed
        # Tools out of view share less than the least likely tool in view.
        share = 0.5 * float(mixed[mixed.argmin()])
        every: Floats = rest * (share / (1 + share))
        mixed *= 1 / (1 + share)
        every[view.tools] = mixed
        return every

    # -- changes -------------------------------------------------------------------------------

    def update(
        self,
        texts: Sequence[str],
        plans: EncodedPlans,
        runs: EncodedRuns | None,
        *,
        decay: float,
        seed: int,
    ) -> FactoredModel:
        """With further demonstrations; see ``apply_update``."""
        familiarity = self.familiarity.with_queries(texts)
        blocks = apply_update(
            self.blocks,
            texts,
            plans,
            runs,
            phrases=self.familiarity.known,
            decay=decay,
            seed=seed,
        )
        blocks.warm(_WARM_AFTER_UPDATE)
        return replace(self, blocks=blocks, familiarity=familiarity)

    def with_tools(self, tools: Sequence[Tool], position: Sequence[int]) -> FactoredModel:
        """With another vocabulary; see ``change_tools``."""
        blocks = change_tools(self.blocks, tools, position)
        blocks.warm(_WARM_AFTER_UPDATE)
        costs = calibration.token_costs(tools)
        return replace(self, blocks=blocks, calibration=replace(self.calibration, tokens=costs))

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            **self.blocks.arrays(),
            **ranker.arrays(self.rankers, _RANKERS),
            **(ranker.arrays(self.told_rankers, _TOLD_RANKERS) if self.told_rankers else {}),
            **(
                ranker.arrays(self.reworded_rankers, _REWORDED_RANKERS)
                if self.reworded_rankers
                else {}
            ),
            **new_tools.arrays(self.new_tools),
            **self.familiarity.arrays(),
            **({} if self.synonyms is None else self.synonyms.arrays()),
            **calibration.arrays(self.calibration),
        }

    @classmethod
    def restore(
        cls,
        names: Sequence[str],
        tools: Sequence[Tool],
        arrays: Mapping[str, npt.NDArray[Any]],
        *,
        encoder: Encoder | None,
        width: int,
        seed: int,
    ) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        blocks = FittedBlocks.restore(names, tools, arrays, encoder=encoder, width=width, seed=seed)
        blocks.warm()
        features = len(blocks.layout.names)
        told, reworded = (
            ranker.restore(arrays, features, prefix) if f"{prefix}mean" in arrays else ()
            for prefix in (_TOLD_RANKERS, _REWORDED_RANKERS)
        )
        return cls(
            blocks,
            ranker.restore(arrays, features, _RANKERS),
            new_tools.restore(arrays, len(blocks.layout.new_tool_names)),
            Familiarity.restore(arrays),
            calibration.restore(arrays, tools),
            told,
            reworded,
            Synonyms.restore(arrays),
        )


class FactoredStepState:
    """What a session keeps: the features along its calls, and the model of its start.

    Args:
        query: prepared by the model.
        before: what came before it, oldest first.
        model: ranks every step.

    Attributes:
        features: of every tool in view, after the calls so far.
    """

    def __init__(
        self, query: FactoredQuery, before: Sequence[Message | ToolCall], model: FactoredModel
    ) -> None:
        self._model, self._query = model, query
        self._reader = RunReader(before) if model.blocks.reads_runs else None
        self.features = StepFeatures(model.blocks, query.prepared)
        self._calls: list[tuple[int, Outcome]] = []

    def call(self, tool: int, call: ToolCall | None = None) -> None:
        """One more call; what it returned is read once."""
        outcome = NO_OUTCOME if self._reader is None else self._reader.read(call)
        self.features.call(tool, outcome)
        self._calls.append((tool, outcome))

    def rank(self) -> Ranking:
        """The ranking of the next step."""
        model = self._model
        return Ranking(
            model.names,
            model.probabilities(self.features),
            calibration=model.calibration,
            familiarity=self._query.familiarity,
        )

    def copy(self) -> FactoredStepState:
        """The same state, to go on from in another way; the calls are made again, 15 µs each."""
        state = FactoredStepState(self._query, (), self._model)
        state._reader = None if self._reader is None else self._reader.copy()
        for tool, outcome in self._calls:
            state.features.call(tool, outcome)
        state._calls = self._calls.copy()
        return state
