"""``less-is-more``: an LLM describes the ideal tools, and that text is compared with the tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar

from dtdr import encoders
from dtdr.encoders.base import MAX_CHARACTERS, Encoder
from dtdr.errors import DtdrError, InputError
from dtdr.retrievers.similarity import QueryToolSimilarity

PROMPT = """\
A user asks an assistant for something. Imagine the assistant could be given any software tools
it wants. Which tools would be ideal for this request? Describe each of them in one short
sentence that says what it does, in the order in which they would be used, one a line. Write only
these sentences: no names, no numbering, no answer to the request.

Request: {query}

Ideal tools:
"""

KEPT_ANSWERS = 10_000
"""LLM answers kept in memory, the last used ones: about 10 MB of text, so that the steps of a plan
and a repeated evaluation ask once a query."""


class LessIsMore(QueryToolSimilarity):
    """Less-is-More, search level 1 (Paramanayakam et al., 2025; paper, App. F.3, Alg. 7).

    The LLM is asked once a query and its answer is kept. An empty answer counts as the query.

    Args:
        llm: any callable from a prompt to an answer. It is not saved in the model folder; give
            it again: ``dtdr.load(folder, llm=...)``.
        encoder: its name, or the encoder.
        threshold: the paper's α, used by ``Ranking.select()``; on probabilities.
        seed: not used; every retriever has one.

    Raises:
        InputError: there is no LLM.
    """

    name = "less-is-more"
    not_saved: ClassVar[frozenset[str]] = frozenset({"encoder", "llm"})

    def __init__(
        self,
        *,
        llm: Callable[[str], str] | None = None,
        encoder: str | Encoder = encoders.DEFAULT,
        threshold: float | None = None,
        seed: int = 0,
    ) -> None:
        if not callable(llm):
            raise InputError(
                f"retriever {self.name!r} needs an LLM that describes the ideal tools; pass llm=, "
                "a function from a prompt to an answer (also when loading a model)"
            )
        super().__init__(encoder=encoder, threshold=threshold, seed=seed)
        self.llm = llm
        self._ask = lru_cache(KEPT_ANSWERS)(self._ideal_tools)

    def _ideal_tools(self, query: str) -> str:
        answer = self.llm(PROMPT.format(query=query))
        if not isinstance(answer, str):
            raise DtdrError(
                f"the LLM of {self.name!r} answered with {type(answer).__name__}, expected text"
            )
        return answer.strip() or query

    def _texts(self, queries: Sequence[str]) -> Sequence[str]:
        return [self._ask(query[:MAX_CHARACTERS]) for query in queries]
