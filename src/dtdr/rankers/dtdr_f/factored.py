"""``dtdr-f``: query and history as blocks of features, weighed by a ranker on held-out plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.rankers.base import UNKNOWN, Arrays, HeldOutFold, IncrementalRanker, StepState
from dtdr.rankers.calibration import Floats
from dtdr.rankers.dtdr_f import fitting
from dtdr.rankers.dtdr_f.blocks.block import Query, StepFeatures
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.encoding import text_of
from dtdr.rankers.dtdr_f.factored_model import FactoredModel, FactoredStepState
from dtdr.rankers.dtdr_f.model_arrays import from_arrays, to_arrays
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.dtdr_f.reasons import add_reasons
from dtdr.rankers.explanation import Explanation
from dtdr.rankers.zero_shot.features import QueryMatch
from dtdr.rankers.zero_shot.model import ZeroShotModel, ZeroShotStepState
from dtdr.text import encoders
from dtdr.text.encoders.base import Encoder
from dtdr.text.encoders.lexical import LexicalEncoder


class DTDRFactored(IncrementalRanker):
    """DTDR-F: blocks of features that know the demonstrations, and a ranker that weighs them.

    Each block (``dtdr.rankers.dtdr_f.blocks``) computes features of every tool, from the query, the
    calls, their outputs, and the tools' descriptions. One small ranker, shared by all tools, turns
    the features into probabilities. It learns from plans that the blocks have not seen: the
    demonstrations are divided into folds, and the blocks are fitted again without each.

    Args:
        encoder: a further encoder whose vectors are read in addition to words, such as
            ``"minilm"``; words and pairs of words are always used.
        seed: of weights, folds and order of examples.
    """

    name = "dtdr-f"
    uses_encoder = True
    needs_demonstrations = False

    model_: FactoredModel | ZeroShotModel
    """The latter as long as there are no demonstrations."""
    _folds: Sequence[fitting.FittedFold]
    """Between learning and ``held_out`` of one fit."""

    def __init__(self, *, encoder: str | Encoder = "lexical", seed: int = 0) -> None:
        fitted_encoder = encoders.as_encoder(encoder)
        # Words by TF-IDF are always there, fitted without each fold's own plans.
        self.encoder = None if isinstance(fitted_encoder, LexicalEncoder) else fitted_encoder
        self.seed = seed

    # -- fitting -------------------------------------------------------------------------------

    def fit(self, demonstrations: Sequence[Demonstration], tools: Sequence[Tool]) -> None:
        """See ``Ranker.fit``."""
        index = {tool.name: position for position, tool in enumerate(tools)}
        self._learn(tools, EncodedDemonstrations.of(demonstrations, index, self.encoder))

    def _learn(self, tools: Sequence[Tool], encoded: EncodedDemonstrations) -> None:
        from threadpoolctl import threadpool_limits

        if not len(encoded):
            self._folds = []
            self._install(ZeroShotModel(tools))
            return
        # Another number of threads adds in another order: the third decimal of a score would
        # depend on it.
        with threadpool_limits(limits=1):
            limited = encoded.limit_tools()
            model, self._folds = fitting.fit(tools, limited, self.encoder, self.seed)
        self._install(model)

    def add_phrases(self, phrases: npt.NDArray[np.uint32]) -> None:
        """See ``IncrementalRanker.add_phrases``."""
        model = self.model_
        if isinstance(model, ZeroShotModel):
            return
        featurizer = replace(model.training.featurizer, further=phrases)
        self._install(replace(model, training=replace(model.training, featurizer=featurizer)))

    def held_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        """See ``IncrementalRanker.held_out``."""
        folds, self._folds = self._folds, []

        def start(models: fitting.FittedFold, position: int) -> StepState:
            item, model = demonstrations[position], models[position]
            return model.start(model.prepare(item.query, item.before))

        return (HeldOutFold(list(models), partial(start, models)) for models in folds)

    def _install(self, model: FactoredModel | ZeroShotModel) -> None:
        self.model_ = model
        self.calibration_ = model.calibration

    # -- updates -------------------------------------------------------------------------------

    def update(self, demonstrations: Sequence[Demonstration]) -> None:
        """See ``IncrementalRanker.update``.

        The model is fitted again, to the demonstrations that it keeps as arrays and to these, so
        that it ranks as if it had been fitted to all of them. That takes as long as a fit; a
        server does it in the background.
        """
        model = self.model_
        new = EncodedDemonstrations.of(demonstrations, model.index, self.encoder)
        if isinstance(model, ZeroShotModel):
            self._learn(model.tools, new)
            self._folds = []
        else:
            self._learn_again(
                model, model.training.tools.tools, model.training.data.concatenate(new)
            )

    def change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """See ``IncrementalRanker.change_tools``; fits again where tools are gone."""
        model = self.model_
        if isinstance(model, ZeroShotModel):
            self._install(ZeroShotModel(tools))
            return
        index = {tool.name: position for position, tool in enumerate(tools)}
        position = [index.get(name, REMOVED) for name in names]
        if REMOVED in position:
            self._learn_again(model, tools, model.training.data.renumber(position, len(tools)))
        else:
            self._install(model.with_tools(tools, position))

    def _learn_again(
        self, model: FactoredModel, tools: Sequence[Tool], encoded: EncodedDemonstrations
    ) -> None:
        self._learn(tools, encoded)
        self._folds = []
        self.add_phrases(model.training.featurizer.further)

    # -- ranking -------------------------------------------------------------------------------

    def prepare(self, query: str) -> Query | QueryMatch:
        """See ``Ranker.prepare``."""
        return self.model_.prepare(query)

    def prepare_all(self, runs: Sequence[Run]) -> Sequence[Query | QueryMatch]:
        """See ``Ranker.prepare_all``; what came before a query counts."""
        return [self.model_.prepare(run.query, run.before) for run in runs]

    def start(self, prepared: Any, run: Run) -> StepState:
        """See ``IncrementalRanker.start``."""
        return self.model_.start(prepared)

    def probabilities(self, prepared: Any, run: Run) -> Floats:
        """See ``Ranker.probabilities``."""
        state = self.start(prepared, run)
        for call in run.calls:
            state.call(self.model_.index.get(call.tool, UNKNOWN), call)
        return state.rank().scores

    def explain(self, explanation: Explanation, run: Run, state: StepState) -> Explanation:
        """See ``IncrementalRanker.explain``: the effect of each block, and similar runs."""
        model = self.model_
        for tool in (explanation.tool, explanation.rival):
            if tool not in model.index:
                note = f"{tool} is not in the model: its probability follows from this run's calls."
                return replace(explanation, note=f"{explanation.note} {note}".strip())
        if isinstance(state, FactoredStepState) and isinstance(model, FactoredModel):
            return add_reasons(explanation, model, state.features, run.query)
        assert isinstance(state, ZeroShotStepState)
        assert isinstance(model, ZeroShotModel)
        return model.explain(explanation, run.query, state)

    def recall(self, limit: int) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """The first steps of the demonstrations that were learned first, in their order.

        Yields:
            The names of all tools, best first, and of those that are acceptable.
        """
        model = self.model_
        if isinstance(model, ZeroShotModel):
            return
        data, names = model.training.data, model.names
        seen: set[int] = set()
        for step in data.steps():
            if step.plan in seen:
                continue
            seen.add(step.plan)
            if len(seen) > limit:
                return
            text = text_of(data.columns, step.plan)
            features = model.training.featurizer.read(text)
            query = model.prepare_features(features, data.contexts[step.plan])
            chances = model.probabilities(StepFeatures(query))
            order = np.argsort(-chances, kind="stable").tolist()
            yield [names[at] for at in order], [names[at] for at in step.acceptable]

    def demonstrated_plans(self) -> list[Plan]:
        """The plans that were learned from, by names; calls of removed tools are left out."""
        if isinstance(self.model_, ZeroShotModel):
            return []
        data, names = self.model_.training.data, self.model_.names
        demonstrated = []
        for plan in range(len(data)):
            called = {at: tool for at, tool in enumerate(data.plan(plan)) if tool != REMOVED}
            calls = tuple(ToolCall(str(at), names[tool]) for at, tool in called.items())
            pairs = data.columns["edges"][plan].reshape(-1, 2).tolist()
            kept = [pair for pair in pairs if called.keys() >= set(pair)]
            links = tuple((str(earlier), str(later)) for later, earlier in kept)
            demonstrated.append(Plan(calls, links))
        return demonstrated

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """See ``Ranker.arrays``."""
        return {} if isinstance(self.model_, ZeroShotModel) else to_arrays(self.model_)

    def restore(self, tools: Sequence[Tool], arrays: Arrays) -> None:
        """See ``Ranker.restore``."""
        if arrays:
            self._install(from_arrays(tools, arrays, self.encoder))
        else:
            self._install(ZeroShotModel(tools))
