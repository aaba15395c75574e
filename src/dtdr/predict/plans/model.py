"""Whole plans: learned from plans that the retriever has not seen, predicted for any retriever."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import ModelError
from dtdr.predict.arguments.model import ArgumentModel
from dtdr.predict.plans.best_first import MOST_CALLS, Candidate
from dtdr.predict.plans.features import BY_TOOL, SIGNS, cut_in_two, find_plans
from dtdr.predict.plans.held_out import Confidence, fit_ranker, hold_out, rank_held_out
from dtdr.predict.plans.links import Links
from dtdr.predict.plans.prediction import PlanPrediction, PlanWriter
from dtdr.predict.plans.ranker import PlanRanker
from dtdr.predict.plans.spans import BUCKETS, SpanTagger, read_spans
from dtdr.rankers.base import HeldOutFold, StepState

logger = logging.getLogger("dtdr")

VERSION = 5
"""Of what a saved plan model has."""

_JOINED = 4
"""Plans of each half of a request for two things that are joined with those of the other."""


class Check(NamedTuple):
    """How many of some held-out plans were right.

    Attributes:
        plans: that were held out.
        ranked: how many of these came first by the ranker, learned from the other half of them.
        greedy: how many were what the best tool of each step makes.
    """

    plans: int
    ranked: int
    greedy: int

    @property
    def ranks_better(self) -> bool:
        """Whether plans are ranked; otherwise the best tool of each step makes the first one."""
        return self.ranked > self.greedy or not self.plans


@dataclass(frozen=True, eq=False)
class PlanModel:
    """Finds plans, and ranks each as a whole.

    Attributes:
        tools: names of the tools that the ranker and the tagger know.
        longest: calls that a plan may have.
        words: words from which on a query may ask for two things: nine in ten demonstrated queries
            have fewer; and from which on it surely does: all have fewer.
        tagger: which tools the spans of a query are meant for.
        links: which calls depend on which.
        ranker: weighs plans.
        confidence: how likely a plan of a probability is right.
        check: how many held-out plans were right.
    """

    tools: tuple[str, ...]
    longest: int
    words: tuple[int, int]
    tagger: SpanTagger
    links: Links
    ranker: PlanRanker
    confidence: Confidence
    check: Check

    @classmethod
    def fit(
        cls,
        demonstrations: Sequence[Demonstration],
        tools: Sequence[Tool],
        folds: Iterable[HeldOutFold],
        *,
        may_be_empty: bool,
        seed: int = 0,
    ) -> Self:
        """Learn from plans that a retriever has not seen.

        Args:
            demonstrations: with arguments where they are known.
            tools: of the retriever, without the end of plan.
            folds: parts of the demonstrations that were held out in turn.
            may_be_empty: whether a plan may have no call.
            seed: of which plans are taken of many.
        """
        names = tuple(tool.name for tool in tools)
        index = {name: number for number, name in enumerate(names)}
        longest = _most_calls(demonstrations)
        held_out, under_way = hold_out(
            demonstrations, index, longest, list(folds), may_be_empty=may_be_empty, seed=seed
        )
        rankers = rank_held_out(held_out, len(names))
        check = Check(
            len(held_out),
            sum(rankers[one.plan].best(one.found) == one.right for one in held_out),
            sum(one.found.greedy == one.right for one in held_out),
        )
        ranker = fit_ranker(held_out, len(names))
        if not check.ranks_better:
            rankers = {plan: replace(one, greedy_first=True) for plan, one in rankers.items()}
            ranker = replace(ranker, greedy_first=True)
        lengths = [len(item.query.split()) for item in demonstrations]
        often = int(np.quantile(lengths, 0.9)) + 1
        return cls(
            names,
            longest,
            (often, max(often, *lengths) + 1),
            SpanTagger.fit(demonstrations, index),
            Links.fit(item.plan for item in demonstrations),
            ranker,
            Confidence.fit(held_out, under_way, rankers),
            check,
        )

    def predict(
        self,
        run: Run,
        state: StepState,
        vocabulary: Sequence[str],
        k: int,
        *,
        arguments: ArgumentModel | None,
        may_be_empty: bool,
        start: Callable[[str], StepState],
    ) -> list[PlanPrediction]:
        """What is left to do of the k most probable plans; none where no plan comes to an end.

        Args:
            run: the query and the calls made so far, and which tools can be called.
            state: of the run, with its calls; it is not changed.
            vocabulary: names of the retriever's tools, end of plan last.
            k: how many at most.
            arguments: fills the calls where it is given.
            may_be_empty: whether a plan may have no call.
            start: the state of another query before its first call.
        """
        names = tuple(vocabulary[:-1])
        known = {name: number for number, name in enumerate(self.tools)}
        places = [known.get(name, -1) for name in names]
        ranker = self.ranker if names == self.tools else self.ranker.of_tools(places)
        index = {name: number for number, name in enumerate(names)}
        made = [index[name] for name in run.history if name in index]
        allowed = None
        if run.offered is not None:
            allowed = np.array([name in run.offered or name == END for name in vocabulary])

        def rank(query: str, state: StepState, joined: Sequence[Candidate] = ()) -> Ranked:
            scores = self.tagger.count_scores(read_spans(query), len(self.tools) + 1)
            found = find_plans(
                state,
                scores[:, places],
                made,
                self.longest,
                may_be_empty=may_be_empty or bool(run.calls),
                allowed=allowed,
                joined=joined,
            )
            if found is None:
                return []
            shares = ranker.probabilities(found)
            probabilities = self.confidence.of(shares, is_under_way=bool(made))
            order = np.argsort(-probabilities, kind="stable").tolist()
            return [(found.left[place], float(probabilities[place])) for place in order]

        words = len(run.query.split())
        is_long = not run.calls and words >= self.words[0]
        halves = [
            rank(half, start(half))[:_JOINED] for half in (cut_in_two(run.query) if is_long else ())
        ]
        joint = [
            (Candidate((*one.tools, *other.tools), one.total + other.total), share * rest)
            for (one, share), (other, rest) in (product(*halves) if halves else ())
            if len(one.tools) + len(other.tools) <= MOST_CALLS
        ]
        plans = rank(run.query, state, [plan for plan, _ in joint])
        if joint:
            plans = _mix(plans, joint, (self.words[1] - words) / (self.words[1] - self.words[0]))
        writer = PlanWriter(run, arguments, self.links)
        return [
            writer.predict([names[tool] for tool in plan.tools], probability)
            for plan, probability in plans[:k]
        ]

    def update(self, demonstrations: Sequence[Demonstration]) -> PlanModel:
        """A model that knows the dependencies and lengths of further plans; this one stays.

        How plans are weighed, and the calibration, stay those of ``fit``.
        """
        return replace(
            self,
            longest=max(self.longest, _most_calls(demonstrations)),
            links=self.links.with_plans(item.plan for item in demonstrations),
        )

    def rename_tool(self, old: str, new: str) -> PlanModel:
        """A model that knows a tool by another name."""
        return replace(
            self,
            tools=tuple(new if name == old else name for name in self.tools),
            links=self.links.rename_tool(old, new),
        )

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
            "version": VERSION,
            "tools": list(self.tools),
            "longest": self.longest,
            "words": list(self.words),
            "links": self.links.to_dict(),
            "confidence": list(self.confidence),
            "held_out": self.check._asdict(),
        }

    @classmethod
    def restore(
        cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self | None:
        """What ``config`` and ``arrays`` gave; None, with a warning, for those of another version.

        Raises:
            KeyError: something is missing.
            ModelError: it does not fit together.
        """
        if config.get("version") != VERSION:
            logger.warning("the plans of another version are left out; fit the model again")
            return None
        tools, longest, words = config["tools"], config["longest"], config["words"]
        known, spans, dense, by_tool = (
            arrays[name]
            for name in ("spans.known", "spans.weights", "ranker.dense", "ranker.by_tool")
        )
        shapes = (spans.shape, dense.shape, by_tool.shape)
        if (
            shapes != ((BUCKETS, len(known)), (len(SIGNS),), (len(tools), BY_TOOL))
            or not {*known.tolist()} <= {*range(len(tools))}
            or not all(isinstance(name, str) for name in tools)
            or not all(isinstance(number, int) for number in (longest, *words))
            or len({*tools}) < len(tools)
        ):
            raise ModelError("the parts of the plan model do not fit together; fit it again")
        check = Check(**config["held_out"])
        return cls(
            tuple(tools),
            max(1, min(longest, MOST_CALLS)),
            (words[0], max(words[0] + 1, words[1])),
            SpanTagger(known, spans.astype(np.float64)),
            Links.from_dict(config["links"]),
            PlanRanker(
                dense.astype(np.float64), by_tool.astype(np.float64), not check.ranks_better
            ),
            Confidence(*map(float, config["confidence"])),
            check,
        )


Ranked = list[tuple[Candidate, float]]
"""Plans with their probabilities, most probable first."""


def _mix(plans: Ranked, joint: Ranked, share: float) -> Ranked:
    """Plans of a request for one thing or two, with this share for one thing."""
    share = min(max(share, 0.0), 1.0)
    two: dict[tuple[int, ...], float] = defaultdict(float)
    for plan, probability in joint:
        two[tuple(sorted(plan.tools))] += probability
    mixed = [
        (plan, share * probability + (1 - share) * two[tuple(sorted(plan.tools))])
        for plan, probability in plans
    ]
    return sorted(mixed, key=lambda item: -item[1])


def _most_calls(demonstrations: Iterable[Demonstration]) -> int:
    """Calls that a plan may have, given those of demonstrations."""
    longest = max((len(item.plan) for item in demonstrations), default=0)
    return min(longest + longest // 2 + 1, MOST_CALLS)
