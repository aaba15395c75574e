"""``qts``, ``tgr``, ``less-is-more``: cosine similarity of a text and each tool's description.

The query-tool similarity baselines of the paper (Appendix I.3, Algorithm 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import DtdrError, InputError
from dtdr.rankers.base import Arrays
from dtdr.rankers.calibration import Floats
from dtdr.rankers.markov import MarkovChains, flatten
from dtdr.rankers.name_ranker import Recipe, StaticRanker, check_recipe
from dtdr.rankers.remembered import Remembered
from dtdr.rankers.vectors import dense, fit_encoder, product, rows, softmax, unit
from dtdr.text import encoders
from dtdr.text.encoders.base import MAX_CHARACTERS, Encoder
from dtdr.text.words import name_words

TEMPERATURE = 0.15
"""Softmax temperature of cosines: those of words want a lower one, those of sentences a higher."""

PROMPT = """\
A user asks an assistant for something. Imagine the assistant could be given any software tools
it wants. Which tools would be ideal for this request? Describe each of them in one short
sentence that says what it does, in the order in which they would be used, one a line. Write only
these sentences: no names, no numbering, no answer to the request.

Request: {query}

Ideal tools:
"""

CACHED_ANSWERS = 10_000
"""LLM answers held in memory, the last used ones: about 10 MB of text, so that the steps of a plan
and a repeated evaluation ask once a query."""


class QueryToolSimilarity(StaticRanker):
    """Vanilla query-tool similarity (paper, Appendix I.3, Algorithm 7).

    Probabilities are a softmax of the cosines, and a threshold is about them. ``recipe="paper"``
    has each tool's share of the cosines, and its threshold α is about the cosine itself, as in
    Algorithm 7; it ranks alike, but tools of cosine 0 or less have no order, and the shares are
    nearly uniform.

    Args:
        recipe: ``"default"`` or ``"paper"``.
        encoder: its name, or the encoder.
        threshold: the paper's α, used by ``Ranking.select()``.
        seed: not used; every ranker has one.
    """

    name = "qts"
    needs_descriptions = True
    needs_demonstrations = False
    uses_encoder = True
    SHAPES: ClassVar = {"tool_vectors_": ("tools", "dimension")}

    encoder: Encoder
    tool_vectors_: npt.NDArray[np.float32]
    """Shape (tools, dimension), rows of length 1."""

    def __init__(
        self,
        *,
        recipe: Recipe = "default",
        encoder: str | Encoder = encoders.DEFAULT,
        threshold: float | None = None,
        seed: int = 0,
    ) -> None:
        check_recipe(recipe)
        self.recipe = recipe
        self.encoder = encoders.as_encoder(encoder)
        self.threshold = threshold
        self.seed = seed

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        texts = [tool.description.strip() or name_words(tool.name) for tool in self.tools_]
        queries = [demonstration.query for demonstration in demonstrations]
        self.encoder = fit_encoder(self.encoder, [*texts, *queries])
        vectors = self._adapt(dense(self.encoder.encode(texts)), demonstrations)
        self._set_vectors(unit(vectors))

    def _adapt(
        self, vectors: npt.NDArray[np.float32], demonstrations: Sequence[Demonstration]
    ) -> npt.NDArray[np.float32]:
        """Adapt the description vectors before they are compared; unchanged here."""
        return vectors

    def _set_vectors(self, vectors: npt.NDArray[np.float32]) -> None:
        self.tool_vectors_ = vectors
        self._columns = np.ascontiguousarray(vectors.T)

    def _texts(self, queries: Sequence[str]) -> Sequence[str]:
        """The texts to encode, one per query; here the query."""
        return queries

    def _prepare(self, queries: Sequence[str]) -> Sequence[Floats]:
        vectors = self.encoder.encode(self._texts(queries))
        cosines = [product(row, self._columns).astype(np.float64) for row in rows(vectors)]
        if self.recipe == "paper":
            return [row.clip(0.0) for row in cosines]
        return [softmax(row / TEMPERATURE) for row in cosines]

    @property
    def cuts_by_score(self) -> bool:
        """See ``Ranker.cuts_by_score``."""
        return self.recipe == "paper"

    def _restore(self, arrays: Arrays) -> None:
        self._set_vectors(arrays["tool_vectors_"])


class LessIsMore(QueryToolSimilarity):
    """Less-is-More, search level 1 (Paramanayakam et al., 2025; paper, Appendix I.3, Algorithm 7).

    The LLM is asked once a query and its answer is cached. An empty answer counts as the query.

    Args:
        llm: any callable from a prompt to an answer. It is not saved in the model folder; give
            it again: ``dtdr.load(folder, llm=...)``.
        recipe, encoder, threshold, seed: as for ``QueryToolSimilarity``.

    Raises:
        InputError: there is no LLM.
    """

    name = "less-is-more"
    not_saved: ClassVar[frozenset[str]] = frozenset({"encoder", "llm"})

    def __init__(
        self,
        *,
        llm: Callable[[str], str] | None = None,
        recipe: Recipe = "default",
        encoder: str | Encoder = encoders.DEFAULT,
        threshold: float | None = None,
        seed: int = 0,
    ) -> None:
        if not callable(llm):
            raise InputError(
                f"ranker {self.name!r} needs an LLM that describes the ideal tools; pass llm=, "
                "a function from a prompt to an answer (also when loading a model)"
            )
        super().__init__(recipe=recipe, encoder=encoder, threshold=threshold, seed=seed)
        self.llm = llm
        self._ask = Remembered(self._ideal_tools, CACHED_ANSWERS)

    def _ideal_tools(self, query: str) -> str:
        answer = self.llm(PROMPT.format(query=query))
        if not isinstance(answer, str):
            raise DtdrError(
                f"the LLM of {self.name!r} answered with {type(answer).__name__}, expected text"
            )
        return answer.strip() or query

    def _texts(self, queries: Sequence[str]) -> Sequence[str]:
        return [self._ask(query[:MAX_CHARACTERS]) for query in queries]


class ToolGraphRetriever(QueryToolSimilarity):
    """Description vectors smoothed over the tool graph (Gao et al., 2025; paper, Appendix I.3).

    The graph is the first-order chain of the demonstrations (Algorithm 3 with N = 1, one cluster),
    as the paper builds it for a fair comparison; one graph convolution ``D^-½ (A + I) D^-½`` mixes
    each tool's vector with those of the tools called before and after it. The parameters are those
    of ``QueryToolSimilarity``.
    """

    name = "tgr"
    needs_demonstrations = True

    def _adapt(
        self, vectors: npt.NDArray[np.float32], demonstrations: Sequence[Demonstration]
    ) -> npt.NDArray[np.float32]:
        calls = flatten(self.plans(demonstrations), len(self.tools_))
        chain = MarkovChains(calls, 1, len(self.tools_))
        graph = np.stack([chain.lookup(0, [tool]) for tool in range(len(self.tools_))])
        mixed: npt.NDArray[np.float32] = convolution(graph) @ vectors
        return mixed


def convolution(graph: Floats) -> npt.NDArray[np.float32]:
    """``D^-½ (A + I) D^-½`` with A the graph without directions (Kipf and Welling, 2017).

    Args:
        graph: shape (tools, tools), weights at least 0; either direction of an edge counts half.
    """
    linked = (graph + graph.T) / 2 + np.eye(len(graph))
    scale = 1 / np.sqrt(linked.sum(axis=1))
    result: npt.NDArray[np.float32] = (linked * scale[:, None] * scale).astype(np.float32)
    return result
