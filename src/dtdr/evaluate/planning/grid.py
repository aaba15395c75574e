"""A table of ICL methods, retrievers and selection methods over one sample of steps.

One pass of the LLM over a prompt answers for every selection method: it scores the candidates,
chooses among them and writes freely on the same cached prefix; ``fused``, ``retriever`` and
``auto`` follow without a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.harness import rank_after_calls
from dtdr.evaluate.planning.harness import choose_steps
from dtdr.evaluate.planning.tuning import confidence_for, confidence_worth, reselect, tune
from dtdr.evaluate.statistics import Proportion, proportion
from dtdr.llm.backends import LLM
from dtdr.llm.planning import Fusion, Selector
from dtdr.llm.prompting import Examples, Prompt, SelectionPrompts
from dtdr.predict.model import Model
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """What one retriever and one ICL method ask at one step.

    Attributes:
        prompt: what the LLM reads.
        writer: who wrote it.
        ranking: every tool.
        shown: the tools that the prompt shows as retrieved.
        acceptable: names of the right answers.
    """

    prompt: Prompt
    writer: SelectionPrompts
    ranking: Ranking
    shown: Ranking
    acceptable: frozenset[str]

    @property
    def key(self) -> tuple[str, str, tuple[str, ...]]:
        """Questions of the same key have the same answers."""
        return self.prompt.constant, self.prompt.variable, self.writer.choices(self.shown)


def questions(
    retriever: Model,
    steps: Sequence[tuple[Demonstration, int]],
    *,
    icl: str,
    mask: Selection,
    examples: Examples,
) -> list[Question]:
    """The questions of one cell, in the order of the steps.

    Args:
        retriever: fitted on other demonstrations.
        steps: what ``choose_steps`` gave.
        icl: the ICL method.
        mask: which tools count as retrieved.
        examples: where the examples in the prompt come from.
    """
    writer = SelectionPrompts(retriever.tools_, icl=icl, examples=examples)
    listed: list[Question] = []
    for (item, step), ranking in zip(steps, rank_after_calls(retriever, steps), strict=True):
        shown = ranking.select(mask)
        prompt = writer.prompt(item.query, item.plan.calls[:step], shown)
        acceptable = item.plan.acceptable_next(range(step))
        listed.append(Question(prompt, writer, ranking, shown, acceptable))
    return listed


def confidences_of(
    retriever: Model, demonstrations: Sequence[Demonstration], *, seed: int = 0
) -> list[float]:
    """The retriever's confidence at every step of plans that it was not fitted on."""
    steps = choose_steps(demonstrations, seed=seed)
    return [ranking.confidence for ranking in rank_after_calls(retriever, steps)]


def in_cache_order(asked: Iterable[Question]) -> list[Question]:
    """Each distinct question once, so that neighbours share as long a beginning as can be."""
    distinct = {question.key: question for question in asked}
    return [distinct[key] for key in sorted(distinct)]


def answer(llm: LLM, question: Question) -> Record:
    """A record of all that the LLM says to a question: ``tune`` and ``reselect`` read it.

    Raises:
        LLMError: the LLM could not be asked, or a replayed recording lacks an answer.
    """
    asked = question.writer, question.prompt, question.ranking, question.shown
    scored = Selector("fused").select(llm, *asked)
    greedy = Selector("greedy").select(llm, *asked)
    constrained = Selector("constrained").select(llm, *asked)
    return {
        "acceptable": sorted(question.acceptable),
        "selected": scored.tool,
        "greedy": greedy.tool,
        "constrained": constrained.tool,
        "too_long": greedy.outcome == "too long",
        "best": question.ranking.best,
        "confidence": question.ranking.confidence,
        "candidates": list(scored.candidates),
        "probabilities": [question.ranking.probability(name) for name in scored.candidates],
        "likelihoods": list(scored.likelihoods),
    }


@dataclass(frozen=True)
class CellResult:
    """One row of the table.

    Attributes:
        accuracy: of each selection method; ``fused`` and ``auto`` only after tuning.
        invalid: how often ``greedy`` named no listed tool.
        fusion: what was chosen on held-out plans.
        confidence: of ``auto``, chosen on held-out plans.
        asks: share of the steps at which each method asks the LLM; none does where it may choose
            one tool only, but for ``greedy``.
    """

    accuracy: Mapping[str, Proportion]
    invalid: float
    fusion: Fusion | None = None
    confidence: float | None = None
    asks: Mapping[str, float] = field(default_factory=dict)


def cell_result(
    records: Sequence[Record],
    tuning: Sequence[Record] = (),
    confidences: Sequence[float] = (),
    *,
    budget: float = 0.5,
) -> CellResult:
    """The accuracies of one ICL method and retriever.

    Args:
        records: answers on tested steps.
        tuning: answers on held-out steps of the training side, by a retriever that was fitted on
            the others: λ and temperature are chosen on these.
        confidences: of that retriever at held-out steps: the confidence of ``auto`` is chosen on
            these.
        budget: share of the steps at which ``auto`` may ask; it asks at fewer of them where that
            is as good on the held-out steps.
    """
    right = {
        name: proportion(record[field] in record["acceptable"] for record in records)
        for name, field in (("greedy",) * 2, ("constrained",) * 2, ("retriever", "best"))
    }
    answered = [record for record in records if not record["too_long"]]
    invalid = proportion(record["greedy"] is None for record in answered).value
    open_steps = [len(record["candidates"]) > 1 for record in records]
    often = proportion(open_steps).value
    asks = {"greedy": 1.0, "constrained": often, "fused": often, "retriever": 0.0}
    if not tuning or not confidences:
        return CellResult(right, invalid, asks=asks)
    fusion = tune(tuning)
    threshold = confidence_worth(tuning, fusion, confidence_for(confidences, budget))
    fused = [reselect(record, fusion) for record in records]
    unsure = [record["confidence"] < threshold for record in records]
    automatic = [
        choice if ask else record["best"]
        for record, choice, ask in zip(records, fused, unsure, strict=True)
    ]
    asks["auto"] = proportion(map(all, zip(unsure, open_steps, strict=True))).value
    for name, chosen in (("fused", fused), ("auto", automatic)):
        right[name] = proportion(
            tool in record["acceptable"] for tool, record in zip(chosen, records, strict=True)
        )
    return CellResult(right, invalid, fusion, threshold, asks)
