"""Whole calls: learns from demonstrations which value each parameter takes, and fills a call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import ModelError, check_at_least
from dtdr.predict.arguments.candidates import OMITTED, CallCandidates
from dtdr.predict.arguments.confidence import Confidence
from dtdr.predict.arguments.constants import Constants, group_hash
from dtdr.predict.arguments.filling import fill_slot, iter_examples
from dtdr.predict.arguments.prediction import CallPrediction, ValueSource
from dtdr.predict.arguments.state import RunState, is_exact, iter_calls, rename
from dtdr.predict.arguments.value_ranker import BUCKETS, Buckets, SlotExample, ValueRanker
from dtdr.predict.arguments.values import convert

_MOST_RUNS = 20_000
"""Runs whose decisions are learned, drawn where there are more; values are counted in all."""
_MOST_DECISIONS = 20_000
"""That are learned together; their features take 20 KB each."""
_DAMAGED = "its part about arguments is damaged, or of another version; fit it again"
_BROKEN = (AttributeError, KeyError, TypeError, ValueError, RecursionError, msgspec.ValidationError)
_HELD_OUT = 5
"""Every fifth run is held out to calibrate on, and learned afterwards."""


class ArgumentModel:
    """Fills the parameters of a call from what is known before it.

    Each parameter has candidates: spans of the query and of earlier messages, outputs of earlier
    calls and parts of them, earlier arguments, constants of the demonstrations, left out, and
    ``unknown``. One log-linear ranker gives each a probability; parameters are decided one after
    the other, each seeing the ones before. A list is put together from the candidates that belong
    to it. Nothing is ever made up: a value is from the run or from the demonstrations.

    Args:
        constants: what demonstrations show of slots.
        ranker: scores them.
        tools: for parameters that no demonstration gave.
        confidence: says how sure calls are.
        names: what tools were called when their arguments were learned, by today's names, where
            that differs.
    """

    def __init__(
        self,
        constants: Constants,
        ranker: ValueRanker,
        tools: Sequence[Tool] = (),
        confidence: Confidence | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.constants = constants
        self.ranker = ranker
        self.confidence = confidence or Confidence()
        self.names = dict(names or {})
        self.tools = {self.names.get(tool.name, tool.name): tool for tool in tools}

    @classmethod
    def fit(
        cls,
        demonstrations: Sequence[Demonstration],
        tools: Sequence[Tool] = (),
        *,
        value_runs: int = 3,
        seed: int = 0,
    ) -> ArgumentModel:
        """Learn from demonstrations with arguments.

        Args:
            demonstrations: of any version; outputs and earlier turns are used where there are any.
            tools: for the parameters of tools that no demonstration calls.
            value_runs: runs of at least two groups that a value must occur in to be kept as a
                constant; 0 keeps none.
            seed: of the order of examples.

        Raises:
            InputError: ``value_runs`` is negative.
        """
        check_at_least(0, value_runs=value_runs)
        constants = Constants.fit(demonstrations, min_runs=value_runs)
        model = cls(constants, ValueRanker(), tools)
        if len(demonstrations) > _MOST_RUNS:
            draw = np.random.default_rng(seed).choice(len(demonstrations), _MOST_RUNS, False)
            demonstrations = [demonstrations[position] for position in np.sort(draw).tolist()]
        groups: dict[str, int] = {}
        learned, held = list[Demonstration](), list[Demonstration]()
        for position, item in enumerate(demonstrations):
            # A run without a group is one of its own.
            number_of_group = groups.setdefault(item.group or f"\x00{position}", len(groups))
            (learned if number_of_group % _HELD_OUT else held).append(item)
        if len(groups) < 2 * _HELD_OUT:
            model._train(demonstrations, seed)
        else:
            model._train(learned, seed)
            model._train(held, seed + 1, is_held=True)
        model.ranker.finish()
        return model

    def update(self, demonstrations: Sequence[Demonstration], seed: int = 0) -> ArgumentModel:
        """A model that learned from further demonstrations too; this one stays as it is.

        Calibration stays that of ``fit``. A value becomes a constant once it occurs in enough
        runs, those of ``fit`` among them.
        """
        demonstrations = [self._with_learned_names(item) for item in demonstrations]
        constants = self.constants.update(demonstrations)
        tools = tuple(self.tools.values())
        model = ArgumentModel(constants, self.ranker.copy(), tools, self.confidence, self.names)
        model._train(demonstrations, seed)
        model.ranker.finish()
        return model

    def with_tools(
        self, tools: Sequence[Tool], renamed: Mapping[str, str], removed: Collection[str] = ()
    ) -> ArgumentModel:
        """A model of another vocabulary; this one stays as it is.

        Args:
            tools: all of them, by today's names.
            renamed: today's names by those before.
            removed: names of tools whose values are forgotten.
        """
        names = dict(self.names)
        learned = {today: names.pop(before, before) for before, today in renamed.items()}
        # Another tool that takes a name which is free now has to be learned.
        names |= {before: f"{before}\x00" for before in renamed} | learned
        gone = {self.names.get(name, name) for name in removed}
        constants = self.constants.without(gone)
        return ArgumentModel(constants, self.ranker, tools, self.confidence, names)

    def _with_learned_names(self, item: Demonstration) -> Demonstration:
        calls = [rename(call, self.names) for call in item.plan.calls]
        before = [
            rename(entry, self.names) if isinstance(entry, ToolCall) else entry
            for entry in item.before
        ]
        return replace(item, plan=replace(item.plan, calls=tuple(calls)), before=tuple(before))

    def _train(
        self, demonstrations: Sequence[Demonstration], seed: int, *, is_held: bool = False
    ) -> None:
        """Learn from every decision of every call; if held out, first how often calls are right."""
        examples: list[SlotExample] = []
        products, exact = list[float](), list[bool]()
        for item in demonstrations:
            # Candidates are as if the group of the call had not been counted.
            group = group_hash(item)
            for state, call in iter_calls([item]):
                if is_held:
                    candidates = CallCandidates(state, call.tool, self.constants, group)
                    prediction, product = self._fill(candidates)
                    products.append(product)
                    exact.append(is_exact(prediction, call, state))
                candidates = CallCandidates(state, call.tool, self.constants, group)
                parameters = self._parameters(call.tool, call.arguments)
                examples += iter_examples(candidates, call, parameters)
            if len(examples) >= _MOST_DECISIONS:
                self.ranker.train(examples, seed)
                examples.clear()
                is_held = False  # The ranker has learned some of them, perhaps of the same group.
        if products:
            self.confidence = Confidence.fit(products, exact)
        self.ranker.train(examples, seed)

    def fill(self, tool: str, run: Run | RunState) -> CallPrediction:
        """The most probable call of a tool.

        Args:
            tool: its name; one never seen is filled by the names of its parameters, if known.
            run: what happened before the call.
        """
        state = RunState.from_run(run) if isinstance(run, Run) else run
        if self.names:
            state = state.with_names(self.names)
        candidates = CallCandidates(state, self.names.get(tool, tool), self.constants)
        return replace(self._fill(candidates)[0], tool=tool)

    def _declared(self, tool: str) -> dict[str, Parameter]:
        declared = self.tools[tool].parameters if tool in self.tools else ()
        return {item.name: item for item in declared}

    def _parameters(self, tool: str, named: Iterable[str] = ()) -> list[str]:
        """Parameters in the order they are decided: those of the demonstrations, then others."""
        seen = self.constants.parameters.get(tool, ())
        return list(dict.fromkeys((*seen, *self._declared(tool), *named)))

    def _fill(self, candidates: CallCandidates) -> tuple[CallPrediction, float]:
        """A call, and the product of its values' probabilities; 0 if a value is unknown."""
        arguments: dict[str, Any] = {}
        sources: dict[str, tuple[ValueSource, ...]] = {}
        contains: dict[str, tuple[ValueSource, ...]] = {}
        unknown: list[str] = []
        shares: dict[str, float] = {}
        tool = candidates.tool
        seen, declared = self.constants.parameters.get(tool, ()), self._declared(tool)
        product = 1.0
        for parameter in self._parameters(tool):
            choice = fill_slot(self.ranker, candidates, parameter)
            product *= choice.probability
            about = declared.get(parameter)
            if choice.form == OMITTED:
                if about is not None and about.required and parameter not in seen:
                    unknown.append(parameter)
            elif choice.is_unknown:
                unknown.append(parameter)
                if choice.sources:
                    contains[parameter] = choice.sources
            else:
                # The values in demonstrations decide; else what the tool declares.
                known = self.constants.slot(tool, parameter).type
                arguments[parameter] = convert(choice.value, known or (about.type if about else ""))
                sources[parameter] = choice.sources
                shares[parameter] = choice.probability
        probability = 0.0 if unknown else self.confidence.probability(product)
        prediction = CallPrediction(
            tool, arguments, sources, probability, tuple(unknown), shares, contains
        )
        return prediction, 0.0 if unknown else product

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        buckets, weights = self.ranker.arrays()
        return {
            "gaps": _to_gaps(buckets),
            "weights": weights.astype(np.float16),
            "confidence": self.confidence.curve,
            **self.constants.statistics.arrays(),
        }

    def config(self) -> dict[str, Any]:
        """The JSON object to save: constants, and the names that the arrays speak of."""
        return {
            **self.constants.config(),
            "names": self.names,
            "thresholds": self.confidence.describe(),
        }

    @classmethod
    def restore(
        cls,
        config: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        tools: Sequence[Tool] = (),
    ) -> ArgumentModel:
        """Restore from the output of ``config()`` and ``arrays()``.

        Raises:
            ModelError: they are damaged, or do not belong together.
        """
        try:
            ranker = ValueRanker(_from_gaps(arrays["gaps"]), arrays["weights"].astype(np.float32))
            confidence = Confidence(arrays["confidence"].astype(np.float64))
            learned = {str(today): str(name) for today, name in config["names"].items()}
            constants = Constants.restore(config, arrays)
        except _BROKEN as error:
            raise ModelError(_DAMAGED) from error
        return cls(constants, ranker, tools, confidence, learned)


def _to_gaps(buckets: Buckets) -> npt.NDArray[Any]:
    """How far each bucket is from the one before, in as few bytes as the farthest needs.

    Most of the arguments' part of a folder would be buckets; they are sorted, and a byte is enough
    for the gaps between a hundred thousand.
    """
    gaps = np.diff(buckets, prepend=np.int32(0))
    return gaps.astype(np.min_scalar_type(int(gaps.max(initial=0))))


def _from_gaps(gaps: npt.NDArray[Any]) -> Buckets:
    """The buckets; those of damaged gaps are outside of all."""
    return np.cumsum(gaps, dtype=np.int64).clip(-1, BUCKETS).astype(np.int32)
