"""Demonstrations as examples in a prompt: one for the task, some for a tool, some for a set."""

from __future__ import annotations

import hashlib
import heapq
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.errors import check_choice

_MOST_COMPARED = 2_000
"""Demonstrations of one tool that are compared: some 20 ms, where an LLM takes seconds."""


@dataclass(frozen=True, slots=True)
class Example:
    """A step of a demonstration: the calls before it and the call that came next.

    ``call`` is None where the plan ended there.
    """

    query: str
    before: tuple[ToolCall, ...]
    call: ToolCall | None

    @property
    def answer(self) -> str:
        """Name of the tool that came next; the end of plan included."""
        return END if self.call is None else self.call.tool


CHOICES = ("similar", "random")
"""How one example is chosen. ``random`` is the paper's: any step of any demonstration shows the
task, and any call of the same function how to fill it. ``similar``: a step with a history, and the
most similar call."""


class Examples:
    """Chooses examples among demonstrations; the same seed gives the same examples.

    Args:
        demonstrations: those to learn from, never those that are tested; failures are left out.
        seed: of the random choices.
        choice: one of ``CHOICES``.

    Raises:
        InputError: there is no such choice.
    """

    def __init__(
        self,
        demonstrations: Iterable[DemonstrationLike] = (),
        *,
        seed: int = 0,
        choice: str = CHOICES[0],
    ) -> None:
        check_choice("choice of examples", choice, CHOICES)
        self.choice = choice
        self._seed = seed
        items = as_demonstrations(demonstrations)
        kept = [item for item in items if item.outcome != "failure" and len(item.plan)]
        random.Random(seed).shuffle(kept)
        self._demonstrations = kept
        self._with_tool: dict[str, list[int]] = defaultdict(list)
        for position, item in enumerate(kept):
            # Every plan ends, so where only the end of plan is retrieved, any plan is an example.
            for tool in dict.fromkeys([*item.plan.tools, END]):
                self._with_tool[tool].append(position)

    @property
    def sha256(self) -> str:
        """Which demonstrations these are, in which order."""
        named = [[item.id, item.query] for item in self._demonstrations]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()

    def task(self) -> Example | None:
        """The one demonstration that shows the task (paper, Section Experimental Setup).

        If possible, this is a plan of at least two calls after its first call, so that the example
        shows what a history looks like. A random one may be any step, the end of plan included.
        """
        if self.choice == "random" and self._demonstrations:
            item = self._demonstrations[0]
            step = random.Random(self._seed).randrange(len(item.plan) + 1)
            call = item.plan.calls[step] if step < len(item.plan) else None
            return Example(item.query, item.plan.calls[:step], call)
        for item in self._demonstrations:
            if len(item.plan) > 1:
                return Example(item.query, item.plan.calls[:1], item.plan.calls[1])
        if not self._demonstrations:
            return None
        item = self._demonstrations[0]
        return Example(item.query, (), item.plan.calls[0])

    def with_tools(self, tools: Sequence[str], limit: int = 5) -> list[Demonstration]:
        """Demonstrations whose plans use most of the tools, up to a limit.

        Equal ones are in random order, as in the paper. The end of plan counts as a tool of every
        plan.
        """
        used: dict[int, int] = defaultdict(int)
        for tool in tools:
            for position in self._with_tool.get(tool, ()):
                used[position] += 1
        best = heapq.nsmallest(limit, used, key=lambda position: (-used[position], position))
        return [self._demonstrations[position] for position in best]

    def example_for(
        self, tool: str, *, query: str = "", before: Sequence[str] = ()
    ) -> Example | None:
        """The most similar step at which the tool was called, with arguments if possible.

        A random one is the first call of the tool in a random demonstration.

        Small models copy from their example, even the numbers of outputs. So the example is a step
        before which the same tools were called at the same places; of several, one whose query
        shares words.

        Args:
            tool: its name.
            query: what the user asked for.
            before: names of the tools called so far.
        """
        if self.choice == "random":
            for position in self._with_tool.get(tool, ()):  # which are in random order
                item = self._demonstrations[position]
                index = item.plan.tools.index(tool)
                return Example(item.query, item.plan.calls[:index], item.plan.calls[index])
        best: Example | None = None
        similarity: tuple[bool, float, float] = (False, -1.0, -1.0)
        words = _words(query)
        for position in self._with_tool.get(tool, ())[:_MOST_COMPARED]:
            item = self._demonstrations[position]
            calls, tools = item.plan.calls, item.plan.tools
            for index, call in enumerate(calls):
                if call.tool != tool:
                    continue
                places = bool(call.arguments), _similarity(tools[:index], before)
                if places < similarity[:2]:
                    continue  # words decide among equals only, and cost the most to compare
                candidate = (*places, _word_overlap(words, _words(item.query)))
                if candidate > similarity:
                    best, similarity = Example(item.query, calls[:index], call), candidate
        return best


def _similarity(left: Sequence[str], right: Sequence[str]) -> float:
    """Share of the places at which two sequences have the same tool; 1 if they are equal."""
    if not left and not right:
        return 1.0
    same = sum(entry == other for entry, other in zip(left, right, strict=False))
    return 2 * same / (len(left) + len(right))


def _word_overlap(left: frozenset[str], right: frozenset[str]) -> float:
    """Share of the words of two texts that both have."""
    return len(left & right) / max(1, len(left | right))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())
