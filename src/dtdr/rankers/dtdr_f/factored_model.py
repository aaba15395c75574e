"""The fitted state of dtdr-f, and the state of a session between its steps."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Self

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Message
from dtdr.data.tools import Tool
from dtdr.rankers.base import UNKNOWN
from dtdr.rankers.calibration import NO_CALIBRATION, Calibration, Floats
from dtdr.rankers.dtdr_f import candidate_ranker
from dtdr.rankers.dtdr_f.blocks import BLOCKS, LAYOUT
from dtdr.rankers.dtdr_f.blocks.block import Block, Query, StepFeatures, TrainingSet
from dtdr.rankers.dtdr_f.blocks.parts import Parts
from dtdr.rankers.dtdr_f.candidate_ranker import CandidateRanker
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.encoding import read_texts
from dtdr.rankers.dtdr_f.hand_over import HandOver
from dtdr.rankers.dtdr_f.new_tools import NewToolScorer
from dtdr.rankers.dtdr_f.observations import (
    NO_CONTEXT,
    Context,
    RunReader,
    is_parallel,
    read_context,
)
from dtdr.rankers.dtdr_f.outcomes import ERROR, Outcome
from dtdr.rankers.dtdr_f.queries import QueryFeatures, QueryFeaturizer
from dtdr.rankers.dtdr_f.run_tools import CallSequence, RunTools
from dtdr.rankers.dtdr_f.text import QueryText, stems_of
from dtdr.rankers.dtdr_f.tool_texts import ToolTexts, documents_of
from dtdr.rankers.dtdr_f.values import NO_VALUES, Values, read_query
from dtdr.rankers.dtdr_f.word_weights import WordWeights
from dtdr.rankers.nn import Indices, Matrix
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import token_costs
from dtdr.rankers.vectors import dense, rule_out_end, unit
from dtdr.rankers.zero_shot.model import ZeroShotModel
from dtdr.rankers.zero_shot.scorer import ZeroShotState
from dtdr.text.encoders.base import Encoder

_FULL_TRUST = 0.25
"""Share of known words from which the query is trusted; below, counts of what comes next are mixed
in. Without any, what the ranker learned of words ranks rare tools first."""

_MOST_TRUST = 0.98
"""The most that a query is trusted if there are tools without demonstrations. Where the next
tool is nearly certain, these together get more than tools that are often called. Counts then
decide which of the others is likely: of five tools shown by a CI assistant that offers 20 tools no
run called, 0.6 to 1.5 are such tools (1.7 to 2.4 without counts)."""


@dataclass(frozen=True, eq=False)
class FactoredModel:
    """Everything that ranking reads. Never changed once made: an update makes another.

    Attributes:
        training: what the blocks were fitted on, with all demonstrations.
        zero_shot: ranks the tools without demonstrations.
        blocks: one of each type in ``BLOCKS``, in their order.
        offered: shape (tools,): whether the demonstrations could have called each tool.
        encoder: whose vectors are read in addition to words; or None.
        ranker: what weighs the features of the blocks; None where too little was demonstrated.
        new_tools: ranks tools without demonstrations; None where that was not learned.
        state_share: weight of the probabilities of the block ``state`` alone, where it has some.
        run_tools: ranks tools that a run called and that are not in the vocabulary.
        calibration: of the rankings, with the threshold of familiarity.
    """

    training: TrainingSet
    zero_shot: ZeroShotModel
    blocks: tuple[Block, ...]
    offered: npt.NDArray[np.bool_]
    encoder: Encoder | None = None
    ranker: CandidateRanker | None = None
    new_tools: NewToolScorer | None = None
    state_share: float = 0.0
    run_tools: RunTools | None = None
    calibration: Calibration = NO_CALIBRATION

    @classmethod
    def fit(
        cls,
        zero_shot: ZeroShotModel,
        encoded: EncodedDemonstrations,
        *,
        reference: float,
        seed: int,
        seen: Indices | None = None,
    ) -> Self:
        """Learn from queries and their plans all but how to weigh the blocks.

        For ``reference`` and ``seen`` see ``TrainingSet``; by default, plans call all seen tools.
        """
        tools = zero_shot.tools
        featurizer = QueryFeaturizer.fit(encoded.columns, documents_of(tools))
        seen = encoded.seen if seen is None else seen
        training = TrainingSet(
            ToolTexts(tools, featurizer.stems),
            featurizer,
            encoded,
            seen,
            WordWeights.fit(featurizer, encoded, tools, seen, seed),
            reference,
            seed,
        )
        blocks = tuple(block.fit(training) for block in BLOCKS)
        return cls(training, zero_shot, blocks, np.ones(len(tools), np.bool_))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The vocabulary, end of plan last."""
        return tuple(tool.name for tool in self.training.tools.tools)

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each tool in the vocabulary."""
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def may_end_at_once(self) -> bool:
        """Whether some demonstration calls no tool."""
        return bool((self.training.data.lengths == 0).any())

    def prepare(self, query: str, before: Sequence[Message | ToolCall] = ()) -> Query:
        """All that is computed once a query, after what came before it."""
        featurizer, text = self.training.featurizer, QueryText.of(query)
        features = featurizer.read(text)
        if self.encoder is not None:
            encoded = dense(self.encoder.encode([query]))[0]
            # Other words with the same meaning are familiar.
            cosine = float((featurizer.further_vectors @ unit(encoded)).max(initial=0))
            features = replace(
                features,
                text=replace(text, surface=np.concatenate([text.surface, encoded])),
                familiarity=(features.familiar + cosine) / 2,
                # A middling cosine is far from words that are known: its square counts.
                covered=max(features.covered, cosine * cosine),
            )
        reader = RunReader(before, query)
        context = read_context(before, self.index, reader.earlier)
        prepared = self.prepare_features(features, context, read_query(query))
        return replace(prepared, reader=reader)

    def prepare_features(
        self, features: QueryFeatures, context: Context, values: Values = NO_VALUES
    ) -> Query:
        """Everything that depends on the query and what came before it alone."""
        table = np.zeros((len(LAYOUT.names) + 1, len(self.training.tools)), np.float32)
        table[-1] = 1
        earlier = [tool for tool, _ in context.calls]
        match = partial(self.zero_shot.match, features.text, earlier, context is not NO_CONTEXT)
        zero_shot = ZeroShotState(match, self.zero_shot.weights)
        query = Query(features, context, values, table, zero_shot)
        for block, part in zip(self.blocks, LAYOUT.rows, strict=True):
            state = block.start(query, block.rows(table[part]))
            if state is not None:
                query.states.append((state, block.rows, part))
        return query

    def start(self, query: Query) -> FactoredStepState:
        """The state of a run before its first call."""
        return FactoredStepState(query, self)

    def probabilities(self, step: StepFeatures, table: Matrix | None = None) -> Floats:
        """Probabilities of every tool for the next step; shape (tools,), they sum to 1.

        Args:
            step: what is ranked.
            table: its features if some of them are to be others.
        """
        table, new = step.write() if table is None else table, self.training.new
        if self.ranker is None:
            mixed = candidate_ranker.softmax(LAYOUT.prior @ table[:-1])
        else:
            mixed = self.ranker.probabilities(table, new)
            known = table[LAYOUT.state]
            # The block ``state`` does not read what the agent wrote.
            if self.state_share and known.any() and not table[LAYOUT.has_text, 0]:
                mixed += self.state_share * (known - mixed)
        if self.new_tools is not None and len(new):
            described = table[np.ix_(LAYOUT.text_rows, new)]
            mixed = self.new_tools.mix(mixed, described, new, self.offered[new])
        trust = min(step.query.features.covered / _FULL_TRUST, _MOST_TRUST if len(new) else 1.0)
        if trust < 1:
            mixed = trust * mixed + (1 - trust) * candidate_ranker.softmax(table[LAYOUT.counts])
        mixed = self.hand_over.mix(mixed, step.zero_shot)
        if not step.calls and not self.may_end_at_once:
            rule_out_end(mixed)
        return mixed

    @cached_property
    def hand_over(self) -> HandOver:
        """How the rankings with and without demonstrations are mixed."""
        return HandOver.of(self.training.data)

    # -- changes -------------------------------------------------------------------------------

    def with_tools(self, tools: Sequence[Tool], position: Sequence[int]) -> FactoredModel:
        """With tools that are renamed or added, which keep what was learned.

        Weights are kept by the order of ``TrainingSet.seen``, so none of them moves.

        Args:
            tools: the new vocabulary, end of plan last.
            position: for each old tool its index among the new ones.
        """
        before, zero_shot = self.training, ZeroShotModel(tools)
        stems = before.featurizer.stems.extend(stems_of(documents_of(tools)).values)
        training = replace(
            before,
            tools=ToolTexts(tools, stems),
            featurizer=replace(before.featurizer, stems=stems),
            data=before.data.renumber(position, len(tools)),
            seen=np.array(position, np.intp)[before.seen],
        )
        offered = np.zeros(len(tools), np.bool_)
        offered[np.array(position)] = self.offered
        return replace(
            self,
            training=training,
            zero_shot=zero_shot,
            blocks=tuple(block.restore(block.arrays(), training) for block in self.blocks),
            calibration=replace(self.calibration, tokens=token_costs(tools), added=~offered),
            offered=offered,
        )


class FactoredStepState:
    """State of a session: features along its calls, and the model that prepared its query.

    Attributes:
        features: of every tool, after the calls so far.
    """

    def __init__(self, query: Query, model: FactoredModel) -> None:
        self._model, self._query = model, query
        self._reader = query.reader.copy()
        self.features = StepFeatures(query)
        self._steps: list[list[tuple[int, Outcome]]] = []
        self._last: ToolCall | None = None
        self._sequence = CallSequence(query.features.text.stems)
        for name, has_failed in query.reader.names:
            self._follow(model.index.get(name, UNKNOWN), name, has_failed)

    def _follow(self, tool: int, name: str, has_failed: bool) -> None:
        """Remember the call of a tool, by its name where it has no position."""
        is_unknown = tool < 0 and name != ""
        key = name if is_unknown else tool
        self._sequence.add(key, name, is_unknown=is_unknown, has_failed=has_failed)

    def call(self, tool: int, call: ToolCall | None = None) -> None:
        """One more call; what it returned is read once."""
        outcome = self._reader.read(call)
        name = call.tool if call is not None else self._model.names[tool] if tool >= 0 else ""
        self._follow(tool, name, outcome.status == ERROR)
        if not is_parallel(self._last, call):
            self._steps.append([])
        self._last = call
        step = self._steps[-1]
        step.append((tool, outcome))
        if len(step) == 1 or tool >= step[-2][0]:
            self.features.call(tool, outcome, is_parallel=len(step) > 1)
            return
        # Parallel calls count in the order of their tools, whichever was reported first.
        step.sort(key=itemgetter(0))
        self.features = StepFeatures(self._query)
        for step in self._steps:
            for at, (tool, outcome) in enumerate(step):
                self.features.call(tool, outcome, is_parallel=at > 0)

    def say(self, text: str | None) -> None:
        """Read what the agent wrote before its next call; None: nothing is known."""
        self.features.say(read_texts([text]).values)

    def rank(self) -> Ranking:
        """The ranking of the next step."""
        model, familiarity = self._model, self._query.features.familiarity
        names, probabilities = model.names, model.probabilities(self.features)
        calibration = model.calibration
        if model.run_tools is not None and (unknown := self._sequence.unknown):
            odds = model.run_tools.odds(self._sequence)
            # The odds are against all known tools together, which so have odds 1.
            share = 1 / (1 + float(odds.sum()))
            probabilities = np.concatenate([probabilities * share, odds * share])
            names = (*names, *map(str, unknown))
            calibration = calibration.extend(len(unknown))
        return Ranking(names, probabilities, calibration=calibration, familiarity=familiarity)

    def asked(self) -> Matrix:
        """Whether and how often each part of the query asks for each tool.

        Shape (2, parts, tools).
        """
        training = self._model.training
        asked = next(block for block in self._model.blocks if isinstance(block, Parts)).read(
            self._query.features
        )
        table = np.zeros((*asked.shape[:2], len(training.tools)), np.float32)
        table[:, :, training.seen] = asked
        return table

    def copy(self) -> FactoredStepState:
        """The same state, to go on from in another way."""
        state = copy(self)
        state._reader = self._reader.copy()
        state._steps = [step.copy() for step in self._steps]
        state.features = self.features.copy()
        state._sequence = self._sequence.copy()
        return state
