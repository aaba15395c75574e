"""Proposes the plans of a query, described for a ranker by what was learned from demonstrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import ModelError
from dtdr.predict.plans.asked import AskedReader
from dtdr.predict.plans.beam import MOST_CALLS, Candidate, Multiset, StepState
from dtdr.predict.plans.candidates import Limits, propose_plans
from dtdr.predict.plans.features import PlanFeatures, describe_plans
from dtdr.predict.plans.links import Links
from dtdr.predict.plans.memory import PlanMemory
from dtdr.predict.plans.spans import SpanExample, SpanTagger, SpanTexts

_DEMONSTRATED = 4
"""Nearest demonstrations whose plans are candidates."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """n candidate plans of one run.

    Attributes:
        plans: the tools of each, calls already made among them.
        candidates: what is left to do of each.
        features: of them.
    """

    plans: list[Multiset]
    candidates: list[Candidate]
    features: PlanFeatures


@dataclass(frozen=True, eq=False)
class PlanProposer:
    """Proposes plans by a beam search, the nearest demonstrations, and edits.

    Attributes:
        tools: names of the tools by the numbers of this model: those that are called in what it
            learned from, new ones last.
        longest: calls that a plan may have.
        memory: the demonstrated plans.
        reader: which tools the parts of a query ask for.
        links: the dependencies in them.
        tagger: which tools the spans of a query are meant for.
    """

    tools: tuple[str, ...]
    longest: int
    memory: PlanMemory
    reader: AskedReader
    links: Links
    tagger: SpanTagger

    def propose(
        self,
        texts: SpanTexts,
        state: StepState,
        made: Sequence[int],
        numbers: Sequence[int],
        *,
        may_be_empty: bool,
        leave_out: int = -1,
    ) -> Proposal | None:
        """The candidates of a run; None where no plan comes to an end.

        Args:
            texts: the query and its spans.
            state: of the run, with its calls; it is not changed.
            made: tools of the calls made so far.
            numbers: of each tool of the retriever, its number here; those from ``len(tools)`` on
                were never demonstrated.
            may_be_empty: whether nothing may be left to do.
            leave_out: the number in the memory of the demonstration that the run is of.
        """
        size = max([len(self.tools), *(number + 1 for number in numbers)])
        cosines = self.memory.cosines(texts.text.text)
        nearest = self.memory.find_nearest(cosines, leave_out)[:_DEMONSTRATED]
        asked = self.reader.read(state, numbers, size)
        proposed, greedy = propose_plans(
            state,
            made,
            [self.memory.plans[number] for number, _ in nearest],
            asked,
            self.links,
            numbers,
            Limits(max(self.longest - len(made), 2), may_be_empty),
        )
        if not proposed:
            return None
        place = {name: number for number, name in enumerate(self.tools)}
        given = np.zeros((len({*texts.forms}) if self.tagger.tools else 0, size))
        given[:, [place[name] for name in self.tagger.tools]] = self.tagger.probabilities(texts)
        features = describe_plans(proposed, given, asked, greedy)
        return Proposal(list(proposed), list(proposed.values()), features)

    # -- changes -------------------------------------------------------------------------------

    def update(self, demonstrations: Sequence[Demonstration], *, seed: int = 0) -> PlanProposer:
        """One that knows further demonstrations too; this one stays as it is."""
        called = [name for item in demonstrations for name in item.plan.tools]
        tools = tuple(dict.fromkeys((*self.tools, *called)))
        index = {name: number for number, name in enumerate(tools)}
        plans = [tuple(index[name] for name in item.plan.tools) for item in demonstrations]
        queries = [item.query for item in demonstrations]
        return PlanProposer(
            tools,
            max(self.longest, most_calls(plans)),
            self.memory.with_plans(queries, plans),
            self.reader.with_tools(len(tools)),
            self.links.with_plans((item.plan for item in demonstrations), index),
            self.tagger.update([SpanExample.of(item) for item in demonstrations], seed=seed),
        )

    def rename_tool(self, old: str, new: str) -> PlanProposer:
        """One that knows a tool by another name."""
        tools = tuple(new if name == old else name for name in self.tools)
        return replace(self, tools=tools, tagger=self.tagger.rename_tool(old, new))

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """The arrays to save, by what they are of."""
        return {
            "memory": self.memory.arrays(),
            "asked": self.reader.arrays(),
            "links": self.links.arrays(),
            "spans": self.tagger.arrays(),
        }

    def config(self) -> dict[str, Any]:
        """The JSON object to save."""
        return {
            "tools": list(self.tools),
            "span_tools": list(self.tagger.tools),
            "longest": self.longest,
        }

    @classmethod
    def restore(
        cls,
        config: Mapping[str, Any],
        parts: Mapping[str, Mapping[str, npt.NDArray[Any]]],
    ) -> Self:
        """What ``config`` and ``arrays`` gave.

        Raises:
            KeyError: something is missing.
            ModelError: it does not fit together.
        """
        tools, span_tools, longest = config["tools"], config["span_tools"], config["longest"]
        names = (*tools, *span_tools)
        if not all(isinstance(name, str) for name in names) or not {*span_tools} <= {*tools}:
            raise ModelError("the tools of the plan model do not fit together; fit it again")
        if len({*tools}) < len(tools) or not isinstance(longest, int):
            raise ModelError("the tools of the plan model are not unique; fit it again")
        return cls(
            tuple(tools),
            max(1, min(longest, MOST_CALLS)),
            PlanMemory.restore(parts["memory"], len(tools)),
            AskedReader.restore(parts["asked"], len(tools)),
            Links.restore(parts["links"]),
            SpanTagger.restore(span_tools, parts["spans"]),
        )


def most_calls(plans: Sequence[Sequence[int]]) -> int:
    """Calls that a plan may have, given those of demonstrations."""
    longest = max(map(len, plans), default=0)
    return min(longest + longest // 2 + 1, MOST_CALLS)
