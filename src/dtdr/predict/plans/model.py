"""Whole plans: learned from plans that the retriever has not seen, predicted for any retriever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import ModelError
from dtdr.predict.arguments.model import ArgumentModel
from dtdr.predict.plans.beam import MOST_CALLS, StepState
from dtdr.predict.plans.features import cut_in_two, propose_plans
from dtdr.predict.plans.held_out import calibrate, fit_ranker, hold_out, rank_held_out
from dtdr.predict.plans.links import Links
from dtdr.predict.plans.prediction import PlanPrediction, PlanWriter
from dtdr.predict.plans.ranker import PlanRanker
from dtdr.predict.plans.spans import SpanExample, SpanTagger, SpanTexts
from dtdr.rankers.base import HeldOutFold

logger = logging.getLogger("dtdr")

Floats = npt.NDArray[np.float64]

VERSION = 4
"""Of what a saved plan model has."""

_MOST_HELD_OUT = 1_200
"""Plans that the ranker learns from, of more: each takes a beam search."""
_MOST_TAGGED = 4_000
"""Demonstrations whose spans are learned, of more: each is read in 2 ms."""


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
        tools: names of the tools that the ranker has weights for.
        longest: calls that a plan may have.
        long_query: words from which on a query may ask for two things: nine in ten demonstrated
            queries have fewer.
        tagger: which tools the spans of a query are meant for.
        links: which calls depend on which.
        ranker: weighs plans.
        confidence: shape (2, points): probabilities of the ranker, sorted, and how often a plan of
            that probability was right on held-out demonstrations; None where too few were.
        confidence_under_way: the same after some calls were made.
        check: how many held-out plans were right.
    """

    tools: tuple[str, ...]
    longest: int
    long_query: int
    tagger: SpanTagger
    links: Links
    ranker: PlanRanker
    confidence: Floats | None
    confidence_under_way: Floats | None
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
        folds = list(folds)
        rng = np.random.default_rng(seed)
        held = {*_some([one for fold in folds for one in fold.positions], _MOST_HELD_OUT, rng)}
        tagged = _some(range(len(demonstrations)), _MOST_TAGGED, rng)
        examples = {place: SpanExample.of(demonstrations[place]) for place in {*held, *tagged}}
        longest = _most_calls(demonstrations)
        held_out, under_way = hold_out(
            demonstrations,
            names,
            longest,
            examples,
            tagged,
            folds,
            held,
            may_be_empty=may_be_empty,
            seed=seed,
        )
        rankers = rank_held_out(held_out, len(names))
        ranked = sum(
            int(rankers[one.plan].probabilities(one.proposal.features).argmax()) == one.right
            for one in held_out
        )
        greedy = sum(one.proposal.features.greedy == one.right for one in held_out)
        check = Check(len(held_out), ranked, greedy)
        ranker = fit_ranker(held_out, len(names))
        if not check.ranks_better:
            rankers = {plan: replace(one, greedy_first=True) for plan, one in rankers.items()}
            ranker = replace(ranker, greedy_first=True)
        return cls(
            names,
            longest,
            int(np.quantile([len(item.query.split()) for item in demonstrations], 0.9)) + 1,
            SpanTagger.fit([examples[place] for place in tagged]),
            Links.fit(item.plan for item in demonstrations),
            ranker,
            calibrate(held_out, rankers),
            calibrate(under_way, rankers),
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
            run: the query and the calls made so far.
            state: of the run, with its calls; it is not changed.
            vocabulary: names of the retriever's tools, end of plan last.
            k: how many at most.
            arguments: fills the calls where it is given.
            may_be_empty: whether a plan may have no call.
            start: the state of another query before its first call.
        """
        is_long = not run.calls and len(run.query.split()) >= self.long_query
        names = tuple(vocabulary[:-1])
        index = {name: number for number, name in enumerate(names)}
        made = [index[name] for name in run.history if name in index]
        proposal = propose_plans(
            SpanTexts(run.query),
            self.tagger,
            state,
            made,
            names,
            self.longest,
            may_be_empty=may_be_empty or bool(run.calls),
            halves=list(map(start, cut_in_two(run.query))) if is_long else (),
        )
        if proposal is None:
            return []
        ranker = self.ranker if names == self.tools else self.ranker.of_tools(self.tools, names)
        probabilities = ranker.probabilities(proposal.features)
        order = np.argsort(-probabilities, kind="stable")[:k].tolist()
        curve = self.confidence_under_way if made else None
        curve = self.confidence if curve is None else curve
        if curve is not None:
            probabilities = np.interp(probabilities, curve[0], curve[1])
        writer = PlanWriter(run, arguments, self.links)
        return [
            writer.predict(
                [names[tool] for tool in proposal.candidates[number].tools],
                float(probabilities[number]),
            )
            for number in order
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
            tagger=self.tagger.rename_tool(old, new),
            links=self.links.rename_tool(old, new),
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        arrays = {f"spans.{name}": array for name, array in self.tagger.arrays().items()}
        arrays |= {f"ranker.{name}": array for name, array in self.ranker.arrays().items()}
        for name in ("confidence", "confidence_under_way"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        return arrays

    def config(self) -> dict[str, Any]:
        """The JSON object to save."""
        return {
            "version": VERSION,
            "tools": list(self.tools),
            "span_tools": list(self.tagger.tools),
            "longest": self.longest,
            "long_query": self.long_query,
            "links": self.links.to_dict(),
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
        tools, span_tools, longest = config["tools"], config["span_tools"], config["longest"]
        names = (*tools, *span_tools)
        if not all(isinstance(name, str) for name in names) or not {*span_tools} <= {*tools}:
            raise ModelError("the tools of the plan model do not fit together; fit it again")
        if len({*tools}) < len(tools) or not isinstance(longest, int):
            raise ModelError("the tools of the plan model are not unique; fit it again")
        parts: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            part, _, inner = name.partition(".")
            parts.setdefault(part, {})[inner] = array
        return cls(
            tuple(tools),
            max(1, min(longest, MOST_CALLS)),
            int(config["long_query"]),
            SpanTagger.restore(span_tools, parts["spans"]),
            Links.from_dict(config["links"]),
            PlanRanker.restore(parts["ranker"], len(tools)),
            arrays.get("confidence"),
            arrays.get("confidence_under_way"),
            Check(**config["held_out"]),
        )


def _most_calls(demonstrations: Iterable[Demonstration]) -> int:
    """Calls that a plan may have, given those of demonstrations."""
    longest = max((len(item.plan) for item in demonstrations), default=0)
    return min(longest + longest // 2 + 1, MOST_CALLS)


def _some(places: Sequence[int], most: int, rng: np.random.Generator) -> list[int]:
    """All places, sorted, or this many of them drawn at random."""
    if len(places) > most:
        places = rng.choice(np.array(places), most, replace=False).tolist()
    return sorted(places)
