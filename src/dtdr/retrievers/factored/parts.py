"""The parts of dtdr-f that are fitted on plans: two networks, a kernel, alignment, relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.demonstrations import Tool
from dtdr.encoders.base import Encoder
from dtdr.encoders.lexical import LexicalEncoder
from dtdr.retrievers.descriptions import name_words
from dtdr.retrievers.factored.alignment import DENSE_VALUES, Alignment, learn_weights
from dtdr.retrievers.factored.examples import (
    Encoders,
    Memory,
    QueryText,
    Texts,
    examples_of,
    need_examples,
    read_all,
    read_one,
)
from dtdr.retrievers.factored.history import HistoryWeights
from dtdr.retrievers.factored.kernel import KernelMarkov
from dtdr.retrievers.factored.network import PARAMETERS, QUERY_PARAMETERS, Network
from dtdr.retrievers.factored.plans import FORGOTTEN, PlanLog
from dtdr.retrievers.factored.relations import Relations
from dtdr.retrievers.factored.text import ShapeEncoder, StemEncoder

Array = npt.NDArray[Any]

_NEED_WIDTH = 64
_EPOCHS = 40
_FULL_EPOCHS = 1_300
"""Plans up to which all epochs are made; more plans need fewer passes."""
MEMORY = 2_000
"""Demonstrations that are kept to learn from again: .7 MB for 1,000 queries of 30 words."""


@dataclass(frozen=True)
class Switches:
    """Which parts are used."""

    alignment: bool = True
    kernel: bool = False
    need: bool = True
    descriptions: bool = True


def epochs_for(plans: int) -> int:
    """Passes over so many plans: 40, and fewer above 1,300."""
    return (
        _EPOCHS if plans <= _FULL_EPOCHS else max(3, int(_EPOCHS * (_FULL_EPOCHS / plans) ** 0.6))
    )


def _need_epochs(epochs: int) -> int:
    return max(3, epochs * 3 // 4)


def passes_over(plans: int, switches: Switches) -> int:
    """Epochs of both networks."""
    epochs = epochs_for(plans)
    return epochs + (_need_epochs(epochs) if switches.need else 0)


class Parts:
    """Everything learned from plans, but for how to weigh it.

    Args:
        tools: the vocabulary, end of plan last.
        switches: which parts are used.
        encoders: words, shapes and stems.
        encoder: a further encoder, trained already, whose vectors stand beside the words; or None.
        seen: the tools that demonstrations call, rising, and the end of plan: what the networks
            and the alignment know.
        next_tool: the network on query and history; one output a seen tool.
        need: the network on the query; ``NEED_LEVELS`` outputs a seen tool.
        weights: what the alignment learned; shape (words, seen tools).
        queries: shape (plans, words); empty without the kernel.
        log: the plans.
        memory: some of the demonstrations.
        pending: how many of the last plans the networks have not learned yet.
        reference: for ``Relations``.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        switches: Switches,
        *,
        encoders: Encoders,
        encoder: Encoder | None,
        seen: Array,
        next_tool: Network,
        need: Network,
        weights: Array,
        queries: csr_array,
        log: PlanLog,
        memory: Memory,
        pending: int = 0,
        reference: float = 0.0,
    ) -> None:
        self.reference = reference
        self.memory = memory
        self.pending = pending
        self.switches = switches
        self.encoders = encoders
        self.encoder = encoder
        self.seen = seen
        self.next_tool = next_tool
        self.need = need
        self.weights = weights
        self.queries = queries
        self.log = log
        self.vocabulary = tuple(tools)
        self.tools = len(tools)
        self.complete = len(seen) == len(tools)
        self.slots: list[int] = np.full(self.tools, -1).tolist()
        for slot, tool in enumerate(seen.tolist()):
            self.slots[tool] = slot
        self.history = HistoryWeights(next_tool.parameters["history"], len(seen))
        self.documents = encoders[2].encode(documents_of(tools))
        dense = self.documents.shape[1] * self.tools <= DENSE_VALUES
        self._by_stem = self.documents.T.toarray() if dense else None
        names = [name_words(tool.name) for tool in tools[:-1]]
        self.relations = Relations(
            log, self.documents, StemEncoder(min_df=1).fit(names).encode(names), reference
        )
        self.kernel = KernelMarkov(log, queries) if switches.kernel else None
        self.alignment = (
            Alignment(
                encoders[0],
                weights,
                seen,
                encoders[2],
                self.documents if switches.descriptions else None,
                self.relations.frequency,
            )
            if switches.alignment
            else None
        )

    @classmethod
    def fit(
        cls,
        tools: Sequence[Tool],
        switches: Switches,
        texts: Sequence[str],
        log: PlanLog,
        *,
        encoder: Encoder | None,
        width: int,
        reference: float,
        seed: int,
        advance: Callable[[], None],
    ) -> Parts:
        """Learn from queries and their plans; ``advance`` is called ``passes_over`` times."""
        plans = len(texts)
        # Rare terms only add noise once there are enough plans to see the others.
        rare = 3 if plans >= 500 else 2
        words = LexicalEncoder(min_df=rare).fit(texts)
        shapes = ShapeEncoder(min_df=rare).fit(texts)
        stem_encoder = StemEncoder(min_df=1).fit([*documents_of(tools), *texts])
        encoders = (words, shapes, stem_encoder)
        called = {tool for calls in log.calls for tool in calls} - {FORGOTTEN}
        seen = np.array([*sorted(called), len(tools) - 1], np.intp)
        read = read_all(encoders, encoder, texts)
        examples, queries = examples_of(read, seen, log), read.words(words.dimension)
        epochs, batch = epochs_for(plans), 64 if plans <= 3_000 else 256
        next_tool = Network.initial(examples, width, None, seed).train(
            examples, "softmax", epochs, batch, seed, advance=advance
        )
        examples = need_examples(examples, queries, seen, log)
        share = np.asarray(examples.targets.mean(axis=0)).ravel().clip(1e-4, 1 - 1e-4)
        need = Network.initial(examples, _NEED_WIDTH, np.log(share / (1 - share)), seed)
        if switches.need:
            need.train(examples, "sigmoid", _need_epochs(epochs), batch, seed, advance=advance)
        used = examples.targets[:, : len(seen)].toarray().astype(np.float64)
        return cls(
            tools,
            switches,
            encoders=encoders,
            encoder=encoder,
            seen=seen,
            next_tool=next_tool,
            need=need,
            weights=learn_weights(queries, used, np.array(log.weights), seed),
            queries=queries if switches.kernel else queries[:0],
            log=log,
            memory=Memory(np.arange(plans), read).chosen(np.random.default_rng(seed), MEMORY),
            reference=reference,
        )

    def read(self, text: str) -> QueryText:
        """What a query says to the encoders."""
        return read_one(self.encoders, self.encoder, text)

    def likeness(self, read: QueryText) -> Array:
        """Cosine of a query and each tool's description; shape (tools - 1,)."""
        stem_encoder = self.encoders[2]
        others = stem_encoder.columns(read.reading.parts())
        columns, values = stem_encoder.row(read.stems + others)
        if self._by_stem is not None:
            near: Array = values @ self._by_stem[columns]
            return near
        dense = np.zeros(self.encoders[2].dimension, np.float32)
        dense[columns] = values
        result: Array = self.documents @ dense
        return result

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        """The arrays to save."""
        found = self.log.state("plans.")
        for name, encoder in zip(_ENCODERS, self.encoders, strict=True):
            found |= {f"{name}.{key}": array for key, array in encoder.arrays().items()}
        found |= self.next_tool.state("next.") | self.need.state("need.")
        found["seen"] = self.seen.astype(np.int32)
        found["alignment.weights"] = self.weights
        rows = self.memory.texts.rows
        narrow = np.uint16 if rows.shape[1] <= 1 << 16 else np.int32
        found["relations.reference"] = np.array([self.reference], np.float64)
        found["memory.pending"] = np.array([self.pending], np.int32)
        found["memory.plans"] = self.memory.plans.astype(np.int32)
        found["memory.columns"] = rows.indices.astype(narrow)
        found["memory.starts"] = rows.indptr.astype(np.int32)
        found["memory.values"] = rows.data.astype(np.float16)
        found["memory.cues"] = self.memory.texts.cues.astype(np.float16)
        if self.switches.kernel:
            found["queries.columns"] = self.queries.indices.astype(np.int32)
            found["queries.starts"] = self.queries.indptr.astype(np.int64)
            found["queries.values"] = self.queries.data.astype(np.float16)
        return found

    @classmethod
    def restore(
        cls,
        tools: Sequence[Tool],
        switches: Switches,
        encoder: Encoder | None,
        get: Callable[[str], Array],
    ) -> Parts:
        """The parts that ``state`` gave."""
        log = PlanLog.restore({name: get(name) for name in PLAN_ARRAYS}, "plans.", len(tools))

        def arrays(name: str) -> dict[str, Array]:
            return {key: get(f"{name}.{key}") for key in ("idf", "vocabulary")}

        words = LexicalEncoder.restore({}, arrays("words"))
        shapes = ShapeEncoder.restore({}, arrays("shapes"))
        queries = csr_array((0, words.dimension), dtype=np.float32)
        if switches.kernel:
            queries = _rows(get, "queries.", words.dimension)
        texts = Texts(
            _rows(get, "memory.", words.dimension + shapes.dimension),
            get("memory.cues").astype(np.float32),
        )
        return cls(
            tools,
            switches,
            encoders=(
                words,
                shapes,
                StemEncoder.restore({}, arrays("stems")),
            ),
            encoder=encoder,
            seen=get("seen").astype(np.intp),
            next_tool=Network.restore(get, "next.", PARAMETERS),
            need=Network.restore(get, "need.", QUERY_PARAMETERS),
            weights=get("alignment.weights"),
            queries=queries,
            log=log,
            memory=Memory(get("memory.plans").astype(np.intp), texts),
            pending=int(get("memory.pending")[0]),
            reference=float(get("relations.reference")[0]),
        )


def _rows(get: Callable[[str], Array], prefix: str, columns: int) -> csr_array:
    starts = get(prefix + "starts").astype(np.int32)
    values, places = get(prefix + "values"), get(prefix + "columns")
    return csr_array(
        (values.astype(np.float32), places.astype(np.int32), starts),
        shape=(len(starts) - 1, columns),
    )


_ENCODERS = ("words", "shapes", "stems")
PLAN_ARRAYS = ("plans.calls", "plans.lengths", "plans.edges", "plans.weights")
MEMORY_ARRAYS = tuple(
    f"memory.{name}" for name in ("pending", "plans", "columns", "starts", "values", "cues")
)


def documents_of(tools: Sequence[Tool]) -> list[str]:
    """Names twice, descriptions, and names of parameters, without the end of plan."""
    return [
        " ".join(
            (
                name_words(tool.name),
                name_words(tool.name),
                tool.description,
                *(parameter.name for parameter in tool.parameters),
            )
        )
        for tool in tools[:-1]
    ]
