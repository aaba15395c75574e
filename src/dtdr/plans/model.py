"""Whole plans: learned from plans that the retriever has not seen, predicted for any retriever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.arguments.model import ArgumentModel
from dtdr.demonstrations import Demonstration, Tool
from dtdr.errors import ModelError
from dtdr.plans.beam import MOST_CALLS, Candidate, Multiset, StepState
from dtdr.plans.candidates import propose_plans
from dtdr.plans.expected import ExpectedCalls, PartRegression
from dtdr.plans.features import describe_plans
from dtdr.plans.held_out import (
    HeldOutFold,
    HeldOutPlan,
    calibrate,
    orders_better,
    rank_halves,
    targets_of,
)
from dtdr.plans.links import Links
from dtdr.plans.lookahead import HeldOutCandidates, choose_share
from dtdr.plans.memory import PlanMemory
from dtdr.plans.prediction import PlanPrediction, PlanTemplate, PlanWriter
from dtdr.plans.ranker import PlanRanker
from dtdr.plans.spans import SpanExample, SpanTagger, SpanTexts
from dtdr.progress import track
from dtdr.run import Run

Floats = npt.NDArray[np.float64]

_MOST_HELD_OUT = 1_200
"""Plans that the ranker learns from, of more: each takes a beam search."""
_MOST_TAGGED = 4_000
"""Demonstrations whose spans are learned, of more: each is read in 2 ms."""
_DEMONSTRATED = 4
"""Nearest demonstrations whose plans are candidates."""


@dataclass(frozen=True, slots=True)
class CandidatePlans:
    """The candidates of one query by their tools, most probable first.

    Attributes:
        candidates: what is left to do of each.
        probabilities: shape (n,), calibrated; they sum to about 1.
    """

    candidates: list[Candidate]
    probabilities: Floats


class PlanModel:
    """Proposes plans by a beam search, and ranks them as a whole.

    Args:
        tools: names of the tools by the numbers of this model: those that are called in what it
            learned from, new ones last.
        longest: calls that a plan may have.
        memory: the demonstrated plans.
        regression: which tools the words of a query ask for.
        links: the dependencies in them.
        tagger: which tools the spans of a query are meant for.
        ranker: weighs the candidates.
        confidence: shape (2, points): probabilities of the ranker, rising, and how often a plan of
            that probability was right on held-out demonstrations; None where too few were.
        lookahead: how much plans count in the steps of a session; see ``choose_share``.
    """

    def __init__(
        self,
        tools: Sequence[str],
        longest: int,
        memory: PlanMemory,
        regression: PartRegression,
        links: Links,
        tagger: SpanTagger,
        ranker: PlanRanker,
        confidence: Floats | None,
        lookahead: float = 0.0,
    ) -> None:
        self.tools, self.longest, self.lookahead = tuple(tools), longest, lookahead
        self.memory, self.regression, self.links, self.tagger = memory, regression, links, tagger
        self.ranker, self.confidence = ranker, confidence
        self._index = {name: number for number, name in enumerate(self.tools)}
        self._span_columns = np.array([self._index[name] for name in tagger.tools], np.intp)

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
    ) -> PlanModel:
        """Learn from plans that a retriever has not seen.

        Args:
            demonstrations: with arguments where they are known.
            tools: of the retriever, without the end of plan.
            folds: parts of the demonstrations that were held out in turn.
            may_be_empty: whether a plan may have no call.
            seed: of which plans are taken of many, and of the order of examples.
        """
        names = [tool.name for tool in tools]
        index = {name: number for number, name in enumerate(names)}
        plans = [tuple(index[name] for name in item.plan.tools) for item in demonstrations]
        folds = list(folds)
        rng = np.random.default_rng(seed)
        held = _some([place for fold in folds for place in fold.positions], _MOST_HELD_OUT, rng)
        tagged = _some(range(len(plans)), _MOST_TAGGED, rng)
        examples = {place: SpanExample.of(demonstrations[place]) for place in {*held, *tagged}}
        longest = max(map(len, plans))
        queries = [item.query for item in demonstrations]
        memory = PlanMemory.fit(queries, plans)
        kept = len(memory.plans)
        regression, expected = PartRegression.fit(queries[-kept:], memory.plans, tools, seed=seed)
        model = cls(
            names,
            min(longest + longest // 2 + 1, MOST_CALLS),
            memory,
            regression,
            Links.fit((item.plan for item in demonstrations), index),
            SpanTagger.fit([examples[place] for place in tagged], seed=seed),
            PlanRanker.fit([], [], len(tools)),
            None,
        )
        held_out = model._held_out(
            examples, tagged, plans, expected, folds, held, may_be_empty, seed
        )
        described, targets = (
            [item.features for item in held_out],
            [item.targets for item in held_out],
        )
        model.ranker = PlanRanker.fit(described, targets, len(tools))
        shares = rank_halves(described, targets, len(tools))
        model.confidence = calibrate(shares, [item.right for item in held_out])
        candidates = [
            HeldOutCandidates(item.position, item.start, item.candidates, model._believe(one))
            for item, one in zip(held_out, shares, strict=True)
        ]
        model.lookahead = choose_share(candidates, demonstrations, names)
        model.links = Links.fit(
            (item.plan for item in demonstrations),
            index,
            reorders=orders_better(held_out, demonstrations, folds, names),
        )
        return model

    def _held_out(
        self,
        examples: Mapping[int, SpanExample],
        tagged: Sequence[int],
        plans: Sequence[tuple[int, ...]],
        expected: Sequence[ExpectedCalls],
        folds: Iterable[HeldOutFold],
        held: Sequence[int],
        may_be_empty: bool,
        seed: int,
    ) -> list[HeldOutPlan]:
        """The candidates of the held plans, which nothing here has seen.

        ``expected`` is what a regression says of each remembered plan without its query.
        """
        chosen = set(held)
        first = len(plans) - len(self.memory.plans)
        result: list[HeldOutPlan] = []
        work = [(fold, [one for one in fold.positions if one in chosen]) for fold in folds]
        total = sum(len(positions) for _, positions in work)
        todo = iter(track([(f, p) for f, positions in work for p in positions], "plans", total))
        tagger, current = self.tagger, None
        for fold, position in todo:
            if fold is not current:
                current, inside = fold, set(fold.positions)
                rest = [examples[place] for place in tagged if place not in inside]
                tagger = SpanTagger.fit(rest, seed=seed)
            texts, own = examples[position].texts, tuple(sorted(plans[position]))
            cosines = self.memory.cosines(texts.text.text)
            nearest = self.memory.nearest(cosines, position - first)
            calls = (
                expected[position - first]
                if position >= first
                else self.regression.expect(self.regression.predict(texts.text.text))
            )
            found = self._propose(
                fold.start(position), (), nearest, calls, range(len(self.tools)), may_be_empty
            )
            if not found:
                continue
            kept = own if position >= first else None
            given = self._given(tagger, texts, len(self.tools))
            result.append(
                HeldOutPlan(
                    position,
                    fold.start,
                    list(found.values()),
                    describe_plans(texts, found, self.memory, nearest, given, calls, kept),
                    targets_of(list(found), own),
                    list(found).index(own) if own in found else -1,
                )
            )
        return result

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
        numbers, size = [], len(self.tools)
        for name in vocabulary[:-1]:
            number = self._index.get(name, -1)
            if number < 0:  # a tool without demonstrations: nothing is known of its counts
                number, size = size, size + 1
            numbers.append(number)
        known = dict(zip(vocabulary, numbers, strict=False))
        made = [known[name] for name in run.history if name in known]
        texts = SpanTexts(run.query)
        cosines = self.memory.cosines(run.query)
        nearest = self.memory.nearest(cosines)
        expected = self.regression.expect(self.regression.predict(run.query)).padded(size)
        may_be_empty = may_be_empty or bool(run.calls)
        found = self._propose(state, made, nearest, expected, numbers, may_be_empty)
        if not found:
            return CandidatePlans([], np.empty(0))
        given = self._given(self.tagger, texts, size)
        described = describe_plans(texts, found, self.memory, nearest, given, expected)
        probabilities = self.ranker.probabilities(described)
        order = np.argsort(-probabilities, kind="stable")
        every = list(found.values())
        return CandidatePlans(
            [every[number] for number in order.tolist()], self._believe(probabilities[order])
        )

    def _believe(self, shares: Floats) -> Floats:
        """How often plans of such probabilities were right."""
        if self.confidence is None:
            return shares
        believed: Floats = np.interp(shares, self.confidence[0], self.confidence[1])
        return believed

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
        found = self.candidates(run, state, vocabulary, may_be_empty=may_be_empty)
        chosen = list(zip(found.candidates[:k], found.probabilities.tolist(), strict=False))
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
        found = self.candidates(run, state, vocabulary, may_be_empty=may_be_empty)
        left = {
            tuple(sorted(vocabulary[tool] for tool in one.tools)): (one, probability)
            for one, probability in zip(found.candidates, found.probabilities.tolist(), strict=True)
        }
        made = Counter(name for name in run.history if name in vocabulary)
        similar: dict[tuple[str, ...], tuple[float, int]] = {}
        for number, cosine in self.memory.nearest(self.memory.cosines(run.query)):
            names = Counter(self.tools[tool] for tool in self.memory.plans[number])
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
        """The calls of candidates, in order and with arguments where they are known."""
        writer = PlanWriter(run, arguments)
        use_links = arguments is None or self.links.by_reference < 0.5
        made = [self._index.get(name, -1) for name in run.history]
        plans = []
        for one, probability in chosen:
            found_order = [vocabulary[tool] for tool in one.tools]
            order = self.links.order([self._index.get(name, -1) for name in found_order])
            names = [found_order[place] for place in order]
            calls, links = writer.write(names)
            every = [*made, *(self._index.get(name, -1) for name in names)]
            shifted = {(earlier + len(made), later + len(made)) for earlier, later in links}
            shifted |= set(self.links.of(every)) if use_links else set()
            links = {
                (earlier - len(made), later - len(made))
                for earlier, later in self.links.complete(every, shifted)
                if earlier >= len(made)
            }
            ids = writer.ids[: len(calls)]
            known = arguments is not None
            plans.append(PlanPrediction(calls, ids, tuple(sorted(links)), probability, known))
        return plans

    def _propose(
        self,
        state: StepState,
        made: Sequence[int],
        nearest: Sequence[tuple[int, float]],
        expected: ExpectedCalls,
        numbers: Sequence[int],
        may_be_empty: bool,
    ) -> dict[Multiset, Candidate]:
        return propose_plans(
            state,
            made,
            [self.memory.plans[number] for number, _ in nearest[:_DEMONSTRATED]],
            expected,
            self.links,
            numbers,
            longest=max(self.longest - len(made), 2),
            may_be_empty=may_be_empty,
        )

    def _given(self, tagger: SpanTagger, texts: SpanTexts, size: int) -> Floats:
        """How likely each tool is given each value of a query; shape (values, size)."""
        some = tagger.probabilities(texts)
        columns = self._span_columns
        if tagger is not self.tagger:
            columns = np.array([self._index[name] for name in tagger.tools], np.intp)
        every = np.zeros((len(some), size))
        every[:, columns] = some
        return every

    # -- changes -------------------------------------------------------------------------------

    def update(self, demonstrations: Sequence[Demonstration], *, seed: int = 0) -> PlanModel:
        """A model that knows further demonstrations too; this one stays as it is.

        Their plans, dependencies and spans are learned; how candidates are weighed, and the
        calibration, stay those of ``fit``.
        """
        called = [name for item in demonstrations for name in item.plan.tools]
        tools = list(dict.fromkeys((*self.tools, *called)))
        index = {name: number for number, name in enumerate(tools)}
        plans = [tuple(index[name] for name in item.plan.tools) for item in demonstrations]
        longest = max(map(len, plans), default=0)
        queries = [item.query for item in demonstrations]
        return PlanModel(
            tools,
            max(self.longest, min(longest + longest // 2 + 1, MOST_CALLS)),
            self.memory.with_plans(queries, plans),
            self.regression.with_plans(queries, plans, len(tools)),
            self.links.with_plans((item.plan for item in demonstrations), index),
            self.tagger.update([SpanExample.of(item) for item in demonstrations], seed=seed),
            self.ranker,
            self.confidence,
            self.lookahead,
        )

    def rename_tool(self, old: str, new: str) -> PlanModel:
        """A model that knows a tool by another name."""
        if old not in self._index:
            return self
        tools = [new if name == old else name for name in self.tools]
        return PlanModel(
            tools,
            self.longest,
            self.memory,
            self.regression,
            self.links,
            self.tagger.rename_tool(old, new),
            self.ranker,
            self.confidence,
            self.lookahead,
        )

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        parts = {
            "memory": self.memory.arrays(),
            "regression": self.regression.arrays(),
            "links": self.links.arrays(),
            "spans": self.tagger.arrays(),
            "ranker": self.ranker.arrays(),
        }
        arrays = {
            f"{part}.{name}": array
            for part, inner in parts.items()
            for name, array in inner.items()
        }
        if self.confidence is not None:
            arrays["confidence"] = self.confidence
        return arrays

    def config(self) -> dict[str, Any]:
        """The JSON object to save."""
        return {
            "tools": list(self.tools),
            "span_tools": list(self.tagger.tools),
            "longest": self.longest,
            "lookahead": self.lookahead,
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """What ``config`` and ``arrays`` gave.

        Raises:
            KeyError: something is missing.
            ModelError: it does not fit together.
        """
        tools, span_tools, longest = config["tools"], config["span_tools"], config["longest"]
        lookahead = config["lookahead"]
        if not isinstance(lookahead, (int, float)) or not 0 <= lookahead <= 1:
            raise ModelError("the lookahead of the plan model is not a share; fit it again")
        names = (*tools, *span_tools)
        if not all(isinstance(name, str) for name in names) or not {*span_tools} <= {*tools}:
            raise ModelError("the tools of the plan model do not fit together; fit it again")
        if len({*tools}) < len(tools) or not isinstance(longest, int):
            raise ModelError("the tools of the plan model are not unique; fit it again")
        parts: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            part, _, inner = name.partition(".")
            parts.setdefault(part, {})[inner] = array
        ranker = PlanRanker.restore(parts["ranker"])
        if len(ranker.tools) > len(tools):
            raise ModelError("the ranker of plans knows more tools than the model; fit it again")
        memory = PlanMemory.restore(parts["memory"], len(tools))
        return cls(
            tools,
            max(1, min(longest, MOST_CALLS)),
            memory,
            PartRegression.restore(parts["regression"], len(tools)),
            Links.restore(parts["links"]),
            SpanTagger.restore(span_tools, parts["spans"]),
            ranker,
            arrays.get("confidence"),
            lookahead,
        )


def _some(places: Sequence[int], most: int, rng: np.random.Generator) -> list[int]:
    """All places, rising, or so many of them drawn at random."""
    if len(places) > most:
        places = rng.choice(np.array(places), most, replace=False).tolist()
    return sorted(places)
