"""Whole plans: learned from plans that the ranker has not seen, for any ranker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import ModelError
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.plans.best_first import MOST_CALLS
from dtdr.predict.plans.held_out import Check, PlanConfidence, fit_ranker, hold_out, rank_held_out
from dtdr.predict.plans.plan_ranker import BY_TOOL, SIGNS, PlanRanker, find_plans
from dtdr.predict.plans.prediction import PlanPrediction, PlanWriter
from dtdr.predict.plans.spans import BUCKETS, SpanTagger, read_spans
from dtdr.predict.plans.two_requests import QueryLengths, Ranked, add_plans_for_two
from dtdr.predict.steps import RunRanker
from dtdr.rankers.base import HeldOutFold, StepState


@dataclass(frozen=True, eq=False)
class PlanModel:
    """Finds plans, and ranks each as a whole.

    Attributes:
        tools: names of the tools that the ranker and the tagger know.
        longest: limit of calls in a plan.
        lengths: of demonstrated queries; a much longer query may make two requests.
        tagger: which tools the spans of a query are meant for.
        is_chain: whether each call depends on the one before it, references aside.
        ranker: of plans.
        confidence: calibrates probabilities.
        check: ranked plans against the best tool of each step.
    """

    tools: tuple[str, ...]
    longest: int
    lengths: QueryLengths
    tagger: SpanTagger
    is_chain: bool
    ranker: PlanRanker
    confidence: PlanConfidence
    check: Check

    @classmethod
    def fit(
        cls,
        demonstrations: Sequence[Demonstration],
        tools: Sequence[Tool],
        folds: Sequence[HeldOutFold],
        *,
        may_be_empty: bool,
        seed: int = 0,
    ) -> Self:
        """Learn from plans that a ranker has not seen.

        Args:
            demonstrations: with arguments if they are known.
            tools: of the ranker, without the end of plan.
            folds: parts of the demonstrations, each with a ranker that has not seen them.
            may_be_empty: whether a plan may have no call.
            seed: of the choice among many plans.
        """
        names = tuple(tool.name for tool in tools)
        index = {name: position for position, name in enumerate(names)}
        longest = _most_calls(demonstrations)
        examples = [(item, read_spans(item.query)) for item in demonstrations]
        held_out = hold_out(examples, index, longest, folds, may_be_empty=may_be_empty, seed=seed)
        first = [item for item in held_out if not item.is_under_way]
        rankers = rank_held_out(first, len(names))
        check = Check.of(first, rankers)
        greedy_first = not check.is_ahead
        rankers = [replace(half, greedy_first=greedy_first) for half in rankers]
        ranker = replace(fit_ranker(first, len(names)), greedy_first=greedy_first)
        return cls(
            names,
            longest,
            QueryLengths.fit(item.query for item in demonstrations),
            SpanTagger.fit(examples, index),
            form_chains(item.plan for item in demonstrations),
            ranker,
            PlanConfidence.fit(held_out, rankers),
            check,
        )

    def predict(
        self,
        run: Run,
        state: StepState,
        steps: RunRanker,
        top_k: int,
        arguments: ArgumentModel | None,
    ) -> list[PlanPrediction]:
        """The remaining calls of the most probable plans; empty if no plan ends.

        Args:
            run: the query and the calls made so far, and which tools can be called.
            state: of the run, with its calls; it is not changed.
            steps: ranks the steps of runs.
            top_k: limit of plans.
            arguments: fills the calls; None leaves them empty.
        """
        names = steps.names[:-1]
        known = {name: position for position, name in enumerate(self.tools)}
        places = [known.get(name, -1) for name in names]
        by_tool = np.vstack([self.ranker.by_tool, np.zeros(BY_TOOL)])  # the last: not known
        ranker = replace(self.ranker, by_tool=by_tool[places])
        called = [steps.index[name] for name in run.history if name in names]
        allowed = None
        if run.offered is not None:
            allowed = np.array([name in run.offered or name == END for name in steps.names])

        def rank(query: str, state: StepState) -> Ranked:
            scores = self.tagger.count_scores(read_spans(query), len(self.tools) + 1)
            plan_set = find_plans(
                state,
                scores[:, places],
                called,
                self.longest,
                may_be_empty=steps.may_end_at_once or bool(run.calls),
                allowed=allowed,
            )
            if plan_set is None:
                return []
            shares = ranker.probabilities(plan_set)
            probabilities = self.confidence.of(shares, is_under_way=bool(called))
            order = np.argsort(-shares, kind="stable").tolist()
            return [(plan_set.left[row].tools, float(probabilities[row])) for row in order]

        plans = rank(run.query, state)
        if not run.calls:
            plans = add_plans_for_two(
                run.query,
                plans,
                self.lengths,
                lambda half: rank(half, steps.state_of(Run(half, run.before))),
            )
        writer = PlanWriter(run, arguments, is_chain=self.is_chain)
        return [
            writer.predict([names[tool] for tool in tools], probability)
            for tools, probability in plans[:top_k]
        ]

    def update(self, demonstrations: Sequence[Demonstration]) -> PlanModel:
        """A model that allows plans as long as further ones; all else stays as in ``fit``."""
        return replace(self, longest=max(self.longest, _most_calls(demonstrations)))

    def rename_tool(self, old: str, new: str) -> PlanModel:
        """A model that knows a tool by another name."""
        return replace(self, tools=tuple(new if name == old else name for name in self.tools))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "spans.known": self.tagger.known,
            "spans.weights": self.tagger.weights.astype(np.float16),
            "ranker.dense": self.ranker.dense,
            "ranker.by_tool": self.ranker.by_tool.astype(np.float32),
        }

    def config(self) -> dict[str, Any]:
        """The JSON object to save."""
        return {
            "tools": list(self.tools),
            "longest": self.longest,
            "lengths": list(self.lengths),
            "is_chain": self.is_chain,
            "confidence": list(self.confidence),
            "held_out": self.check._asdict(),
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Rebuild from ``config`` and ``arrays``.

        Raises:
            KeyError: something is missing.
            ModelError: the parts do not fit together.
        """
        tools, longest = config["tools"], config["longest"]
        known, spans = arrays["spans.known"], arrays["spans.weights"]
        dense, by_tool = arrays["ranker.dense"], arrays["ranker.by_tool"]
        lengths = QueryLengths(*map(float, config["lengths"]))
        confidence = PlanConfidence(*map(float, config["confidence"]))
        shapes = (spans.shape, dense.shape, by_tool.shape)
        if (
            shapes != ((BUCKETS, len(known)), (len(SIGNS),), (len(tools), BY_TOOL))
            or known.dtype.kind not in "iu"
            or not {*known.tolist()} <= {*range(len(tools))}
            or not all(isinstance(name, str) for name in tools)
            or not isinstance(longest, int)
            or len({*tools}) < len(tools)
            # With larger numbers, a probability is 0 or not a number.
            or not (0 <= lengths.mean <= 1e9 and 1 <= lengths.deviation <= 1e9)
            or not all(-9 <= weight <= 9 for weight in confidence)
        ):
            raise ModelError("the parts of the plan model do not fit together; fit it again")
        check = Check(**config["held_out"])
        return cls(
            tuple(tools),
            max(1, min(longest, MOST_CALLS)),
            lengths,
            SpanTagger(known, spans.astype(np.float64)),
            bool(config["is_chain"]),
            PlanRanker(dense.astype(np.float64), by_tool.astype(np.float64), not check.is_ahead),
            confidence,
            check,
        )


def form_chains(plans: Iterable[Plan]) -> bool:
    """Whether most calls depend on the call before them without a reference to it."""
    pairs = chained = 0
    for plan in plans:
        for later, sources in enumerate(plan.dependencies[1:], 1):
            is_reference = plan.calls[later - 1].id in plan.calls[later].references()
            pairs += 1
            chained += later - 1 in sources and not is_reference
    return chained > pairs / 2


def _most_calls(demonstrations: Iterable[Demonstration]) -> int:
    """Limit of calls in a plan, by those of demonstrations."""
    longest = max((len(item.plan) for item in demonstrations), default=0)
    return min(longest + longest // 2 + 1, MOST_CALLS)
