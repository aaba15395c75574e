"""Selecting the next function: by the LLM or by the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dtdr.errors import check_choice
from dtdr.llm.backends import LLM, PromptTooLongError
from dtdr.llm.prompting import Prompt, SelectionPrompts
from dtdr.llm.prompting.choice import read_choice
from dtdr.rankers.ranking import Ranking

METHODS = ("greedy", "constrained", "retriever", "plan")
"""Selection methods by the names that users type."""

DEFAULT = "constrained"

Outcome = Literal[
    "exact",
    "cleaned",
    "embedded",
    "unlisted",
    "invalid",
    "empty",
    "single",
    "retriever",
    "plan",
    "too long",
]
"""How a selection came about: how clearly the LLM named a tool (see ``prompting.choice``), a single
candidate, the model or its whole plan, or a prompt that exceeded the context."""


@dataclass(frozen=True, slots=True)
class Selected:
    """One selection.

    Attributes:
        tool: the selected tool, end of plan included; None if the answer is unusable.
        outcome: how it came about.
        answer: what the LLM wrote, or an empty text.
        candidates: names it could choose from.
        llm_calls: requests to the LLM: 0 or 1.
        prompt_tokens: tokens of the prompt as the backend counts them; None if it does not, or if
            the LLM was not asked.
    """

    tool: str | None
    outcome: Outcome
    answer: str = ""
    candidates: tuple[str, ...] = ()
    llm_calls: int = 0
    prompt_tokens: int | None = None


class Selector:
    """Selects the next function with one of the methods.

    - ``greedy`` (the paper): the LLM writes freely, up to the length of the longest name of all
      tools, shown or not; an unlisted name is wrong.
    - ``constrained``: the answer is always a listed tool.
    - ``retriever``: the best of the ranking; the LLM is not asked.
    - ``plan``: the calls of the most probable whole plan, one after the other (the planner follows
      it); like ``retriever`` at single steps.

    If there is only one candidate, only ``greedy`` asks the LLM.

    Args:
        method: its name.

    Raises:
        InputError: there is no such method.
    """

    def __init__(self, method: str = DEFAULT) -> None:
        check_choice("selection method", method, METHODS)
        self.method = method
        self._tokens: dict[str, int] = {}

    @property
    def asks(self) -> bool:
        """Whether the LLM selects."""
        return self.method not in ("retriever", "plan")

    def select(
        self,
        llm: LLM | None,
        prompts: SelectionPrompts,
        prompt: Prompt,
        ranking: Ranking,
        shown: Ranking,
    ) -> Selected:
        """Select the next function.

        Args:
            llm: None if the method does not ask it.
            prompts: the writer of the prompt, for its names.
            prompt: for the LLM.
            ranking: every tool.
            shown: the tools that the prompt shows as retrieved.

        Raises:
            LLMError: the LLM gave no usable answer.
        """
        if not self.asks:
            return Selected(ranking.best, "retriever", candidates=shown.tools)
        assert llm is not None  # the planner sees to it
        choices = prompts.choices(shown)
        known = [prompts.names.show(tool.name) for tool in prompts.tools]
        candidates = tuple(map(prompts.names.name, choices))
        if len(candidates) == 1 and self.method != "greedy":
            return Selected(candidates[0], "single", "", candidates)
        try:
            if self.method == "greedy":
                # The longest name of the data set, not of those shown, which would be a hint.
                longest = self._longest(llm, known)
                answer = llm.complete(prompt, max_tokens=longest, stop=["\n"])
            else:
                longest = self._longest(llm, choices)
                answer = llm.complete(prompt, max_tokens=longest, choices=choices)
        except PromptTooLongError:
            return Selected(None, "too long", candidates=candidates, llm_calls=1)
        choice = read_choice(answer.text, choices, known)
        name = None if choice.name is None else prompts.names.name(choice.name)
        return Selected(name, choice.clarity, answer.text, candidates, 1, answer.prompt_tokens)

    def _longest(self, llm: LLM, names: Sequence[str]) -> int:
        """Tokens of the longest name, and one more for the end or a leading space."""
        for name in names:
            if name not in self._tokens:
                self._tokens[name] = llm.count_tokens(name)
        return max(self._tokens[name] for name in names) + 1
