"""Whole plans: learned from plans that the retriever has not seen, predicted for any retriever."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import ModelError
from dtdr.predict.arguments.model import ArgumentModel
from dtdr.predict.plans.beam import Candidate, StepState
from dtdr.predict.plans.held_out import (
    HalfRankers,
    HeldOutFold,
    calibrate,
    fit_ranker,
    hold_out,
    orders_better,
    read_held_out,
)
from dtdr.predict.plans.links import Links
from dtdr.predict.plans.memory import PlanMemory
from dtdr.predict.plans.prediction import PlanPrediction, PlanTemplate, PlanWriter
from dtdr.predict.plans.proposer import PlanProposer, most_calls
from dtdr.predict.plans.ranker import PlanRanker
from dtdr.predict.plans.spans import SpanExample, SpanTagger, SpanTexts

logger = logging.getLogger("dtdr")

Floats = npt.NDArray[np.float64]

VERSION = 3
"""Of the features that a saved plan model weighs."""

_MOST_HELD_OUT = 1_200
"""Plans that the ranker learns from, of more: each takes a beam search."""
_MOST_TAGGED = 4_000
"""Demonstrations whose spans are learned, of more: each is read in 2 ms."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidatePlans:
    """The candidates of one run by their tools, most probable first.

    Attributes:
        candidates: what is left to do of each.
        probabilities: shape (n,), calibrated; they sum to about 1.
    """

    candidates: Sequence[Candidate]
    probabilities: Floats


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
    """Ranks proposed plans as a whole.

    Attributes:
        proposer: finds the candidates of a run and describes them.
        ranker: weighs them.
        confidence: shape (2, points): probabilities of the ranker, sorted, and how often a plan of
            that probability was right on held-out demonstrations; None where too few were.
        confidence_under_way: the same after some calls were made.
        check: how many held-out plans were right.
    """

    proposer: PlanProposer
    ranker: PlanRanker
    confidence: Floats | None
    confidence_under_way: Floats | None
    check: Check

    # -- fitting -------------------------------------------------------------------------------

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
            seed: of which plans are taken of many, and of the order of examples.
        """
        names = tuple(tool.name for tool in tools)
        index = {name: number for number, name in enumerate(names)}
        plans = [tuple(index[name] for name in item.plan.tools) for item in demonstrations]
        queries = [item.query for item in demonstrations]
        folds = list(folds)
        rng = np.random.default_rng(seed)
        positions = [place for fold in folds for place in fold.positions]
        held = {*_some(positions, _MOST_HELD_OUT, rng)}
        tagged = _some(range(len(plans)), _MOST_TAGGED, rng)
        examples = {
            place: SpanExample.of(demonstrations[place]) for place in sorted({*held, *tagged})
        }
        memory = PlanMemory.fit(queries, plans)
        reader = read_held_out(folds, held, plans, len(names))
        links = Links.fit((item.plan for item in demonstrations), index)
        tagger = SpanTagger.fit([examples[place] for place in tagged], seed=seed)
        proposer = PlanProposer(names, most_calls(plans), memory, reader, links, tagger)
        held_out, under_way = hold_out(
            proposer,
            demonstrations,
            examples,
            tagged,
            folds,
            held,
            may_be_empty=may_be_empty,
            seed=seed,
        )
        rankers = HalfRankers.fit(held_out, len(names))
        greedy = rankers.with_greedy_first()
        check = Check(len(held_out), rankers.count_right(held_out), greedy.count_right(held_out))
        if not check.ranks_better:
            rankers = greedy
        reorders = orders_better(held_out, demonstrations, folds, names)
        links = Links.fit((item.plan for item in demonstrations), index, reorders=reorders)
        ranker = fit_ranker(held_out, len(names))
        return cls(
            replace(proposer, links=links),
            replace(ranker, greedy_first=not check.ranks_better),
            calibrate(held_out, [rankers.probabilities(one) for one in held_out]),
            calibrate(under_way, [rankers.probabilities(one) for one in under_way]),
            check,
        )

    # -- predicting ----------------------------------------------------------------------------

    def candidates(
        self, run: Run, state: StepState, vocabulary: Sequence[str], *, may_be_empty: bool
    ) -> CandidatePlans:
        """The plans of a run, those of its calls that are already made left out.

        Args:
            run: the query and the calls made so far.
            state: of the run, with its calls; it is not changed.
            vocabulary: names of the retriever's tools, end of plan last.
            may_be_empty: whether a plan may have no call.
        """
        index, size = self._index(), len(self.proposer.tools)
        numbers = []
        for name in vocabulary[:-1]:
            number = index.get(name, -1)
            if number < 0:  # a tool without demonstrations: nothing is known of its counts
                number, size = size, size + 1
            numbers.append(number)
        known = dict(zip(vocabulary, numbers, strict=False))
        made = [known[name] for name in run.history if name in known]
        proposal = self.proposer.propose(
            SpanTexts(run.query),
            state,
            made,
            numbers,
            may_be_empty=may_be_empty or bool(run.calls),
        )
        if proposal is None:
            return CandidatePlans([], np.empty(0))
        probabilities = self.ranker.probabilities(proposal.features)
        order = np.argsort(-probabilities, kind="stable")
        curve = self.confidence_under_way if made else self.confidence
        return CandidatePlans(
            [proposal.candidates[number] for number in order.tolist()],
            _believe(probabilities[order], self.confidence if curve is None else curve),
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
    ) -> list[PlanPrediction]:
        """The k most probable plans, with arguments where they are known.

        See ``candidates``; none where no plan comes to an end.
        """
        proposal = self.candidates(run, state, vocabulary, may_be_empty=may_be_empty)
        chosen = list(zip(proposal.candidates[:k], proposal.probabilities.tolist(), strict=False))
        return self._write(run, vocabulary, chosen, arguments)

    def templates(
        self,
        run: Run,
        state: StepState,
        vocabulary: Sequence[str],
        k: int,
        *,
        arguments: ArgumentModel | None,
        may_be_empty: bool,
    ) -> list[PlanTemplate]:
        """The plans of the k nearest demonstrations, the most similar query first.

        See ``candidates``; demonstrations whose plan does not contain the calls that are made
        already are left out.
        """
        proposal = self.candidates(run, state, vocabulary, may_be_empty=may_be_empty)
        left = {
            tuple(sorted(vocabulary[tool] for tool in one.tools)): (one, probability)
            for one, probability in zip(
                proposal.candidates, proposal.probabilities.tolist(), strict=True
            )
        }
        made = Counter(name for name in run.history if name in vocabulary)
        similar: dict[tuple[str, ...], tuple[float, int]] = {}
        memory, tools = self.proposer.memory, self.proposer.tools
        for number, cosine in memory.find_nearest(memory.cosines(run.query)):
            names = Counter(tools[tool] for tool in memory.plans[number])
            key = tuple(sorted((names - made).elements()))
            if made <= names and key in left:
                first, count = similar.get(key, (cosine, 0))
                similar[key] = first, count + 1
        written = self._write(run, vocabulary, [left[key] for key in list(similar)[:k]], arguments)
        return [
            PlanTemplate(plan, cosine, count)
            for plan, (cosine, count) in zip(written, similar.values(), strict=False)
        ]

    def _write(
        self,
        run: Run,
        vocabulary: Sequence[str],
        chosen: Sequence[tuple[Candidate, float]],
        arguments: ArgumentModel | None,
    ) -> list[PlanPrediction]:
        """Candidates as predictions, the calls of each in order."""
        writer = PlanWriter(run, arguments, self.proposer.links, self._index())
        return [
            writer.predict([vocabulary[tool] for tool in one.tools], probability)
            for one, probability in chosen
        ]

    def _index(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.proposer.tools)}

    # -- changes -------------------------------------------------------------------------------

    def update(self, demonstrations: Sequence[Demonstration], *, seed: int = 0) -> PlanModel:
        """A model that knows further demonstrations too; this one stays as it is.

        Their plans, dependencies and spans are learned; how candidates are weighed, and the
        calibration, stay those of ``fit``.
        """
        return replace(self, proposer=self.proposer.update(demonstrations, seed=seed))

    def rename_tool(self, old: str, new: str) -> PlanModel:
        """A model that knows a tool by another name."""
        return replace(self, proposer=self.proposer.rename_tool(old, new))

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        parts = self.proposer.arrays() | {"ranker": self.ranker.arrays()}
        arrays = {
            f"{part}.{name}": array
            for part, inner in parts.items()
            for name, array in inner.items()
        }
        for name in ("confidence", "confidence_under_way"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        return arrays

    def config(self) -> dict[str, Any]:
        """The JSON object to save."""
        return self.proposer.config() | {"version": VERSION, "held_out": self.check._asdict()}

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
        parts: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            part, _, inner = name.partition(".")
            parts.setdefault(part, {})[inner] = array
        proposer, ranker = PlanProposer.restore(config, parts), PlanRanker.restore(parts["ranker"])
        if len(ranker.tools) > len(proposer.tools):
            raise ModelError("the ranker of plans knows more tools than the model; fit it again")
        return cls(
            proposer,
            ranker,
            arrays.get("confidence"),
            arrays.get("confidence_under_way"),
            Check(**config["held_out"]),
        )


def _believe(shares: Floats, curve: Floats | None) -> Floats:
    """How often plans of such probabilities were right."""
    if curve is None:
        return shares
    believed: Floats = np.interp(shares, curve[0], curve[1])
    return believed


def _some(places: Sequence[int], most: int, rng: np.random.Generator) -> list[int]:
    """All places, sorted, or this many of them drawn at random."""
    if len(places) > most:
        places = rng.choice(np.array(places), most, replace=False).tolist()
    return sorted(places)
