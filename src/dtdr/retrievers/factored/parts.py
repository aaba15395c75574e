"""The parts of dtdr-f that are fitted on plans: two networks, a kernel, alignment, relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.demonstrations import Tool
from dtdr.encoders.lexical import LexicalEncoder
from dtdr.retrievers.descriptions import name_words
from dtdr.retrievers.factored.alignment import Alignment, Evidence, learn_weights
from dtdr.retrievers.factored.kernel import KernelMarkov, Weights
from dtdr.retrievers.factored.network import (
    PARAMETERS,
    QUERY_PARAMETERS,
    Examples,
    Network,
    history_features,
    history_width,
    sigmoid,
    stack_rows,
)
from dtdr.retrievers.factored.plans import PlanLog
from dtdr.retrievers.factored.relations import Relations
from dtdr.retrievers.factored.text import ShapeEncoder, StemEncoder, cues

Array = npt.NDArray[Any]
Row = tuple[Array, Array]

NEED_LEVELS = 4
"""The need network says how likely a plan calls a tool at least once, twice, … so many times."""
_NEED_WIDTH = 64
_EPOCHS = 40
_FULL_EPOCHS = 1_300
"""Plans up to which all epochs are made; more plans need fewer passes."""


@dataclass(frozen=True)
class Switches:
    """Which parts are used."""

    alignment: bool = True
    kernel: bool = True
    need: bool = True
    descriptions: bool = True


@dataclass(frozen=True)
class PreparedQuery:
    """All that is computed once a query.

    Attributes:
        hidden: shape (width,): the query part of the next-tool network.
        need: shape (NEED_LEVELS, tools): logits of being called at least 1, 2, … times.
        left: shape (NEED_LEVELS + 1, tools): expected calls beyond so many.
        kernel: weights of the demonstrations.
        evidence: which part of the query speaks for which tool.
        likeness: shape (tools,): cosine with the descriptions, 0 for the end.
    """

    hidden: Array
    need: Array
    left: Array
    kernel: Weights | None
    evidence: Evidence | None
    likeness: Array


def epochs_for(plans: int) -> int:
    """Passes over so many plans: 40, and fewer above 1,300."""
    return (
        _EPOCHS if plans <= _FULL_EPOCHS else max(3, int(_EPOCHS * (_FULL_EPOCHS / plans) ** 0.6))
    )


class Parts:
    """Everything learned from plans, but for how to weigh it.

    Args:
        tools: the vocabulary, end of plan last.
        switches: which parts are used.
        learned: encoders, networks, weights and the log, from ``fit`` or a model folder.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        switches: Switches,
        *,
        encoders: tuple[LexicalEncoder, ShapeEncoder, StemEncoder],
        next_tool: Network,
        need: Network,
        weights: Array,
        queries: csr_array,
        log: PlanLog,
    ) -> None:
        self.switches = switches
        self.encoders = encoders
        self.next_tool = next_tool
        self.need = need
        self.weights = weights
        self.queries = queries
        self.log = log
        self.documents = encoders[2].encode(_documents(tools))
        self.tools = len(tools)
        names = [name_words(tool.name) for tool in tools[:-1]]
        self.relations = Relations(
            log, self.documents, StemEncoder(min_df=1).fit(names).encode(names)
        )
        self.kernel = KernelMarkov(log, queries) if switches.kernel else None
        self.alignment = (
            Alignment(
                encoders[0],
                weights,
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
        width: int,
        seed: int,
    ) -> Parts:
        """Learn from queries and their plans."""
        plans = len(texts)
        # Rare terms only add noise once there are enough plans to see the others.
        rare = 3 if plans >= 500 else 2
        words = LexicalEncoder(min_df=rare).fit(texts)
        shapes = ShapeEncoder(min_df=rare).fit(texts)
        stem_encoder = StemEncoder(min_df=1).fit([*_documents(tools), *texts])
        queries = words.encode(texts)
        queries.data = queries.data.astype(np.float16).astype(np.float32)
        counted = np.stack([cues(text) for text in texts])
        epochs = epochs_for(plans)
        batch = 64 if plans <= 3_000 else 256
        steps = list(log.steps())
        targets = np.zeros((len(steps), len(tools)), np.float32)
        for row, step in zip(targets, steps, strict=True):
            # Label smoothing: a plan that was not recorded can be as good.
            row[:] = 0.02 / len(tools)
            row[list(step.acceptable)] += 0.98 / len(step.acceptable)
        examples = Examples(
            stack_rows(
                [_joined(words.encode_one(text), shapes.encode_one(text), words) for text in texts],
                words.dimension + shapes.dimension,
            ),
            counted,
            stack_rows(
                [_as_arrays(history_features(step.history, len(tools))) for step in steps],
                history_width(len(tools)),
            ),
            np.array([step.plan for step in steps], np.intp),
            targets,
        )
        next_tool = Network.initial(examples, width, None, seed).train(
            examples, "softmax", epochs, batch, seed
        )
        counts = log.counts()
        levels = np.concatenate([counts > level for level in range(NEED_LEVELS)], axis=1)
        share = levels.mean(axis=0).clip(1e-4, 1 - 1e-4)
        examples = Examples(queries, counted, None, np.arange(plans), levels.astype(np.float32))
        need = Network.initial(examples, _NEED_WIDTH, np.log(share / (1 - share)), seed)
        if switches.need:
            need.train(examples, "sigmoid", max(3, epochs * 3 // 4), batch, seed)
        return cls(
            tools,
            switches,
            encoders=(words, shapes, stem_encoder),
            next_tool=next_tool,
            need=need,
            weights=learn_weights(queries, np.minimum(counts, 1).astype(np.float64), seed),
            queries=queries,
            log=log,
        )

    def prepare(self, text: str) -> PreparedQuery:
        """Everything that depends on the query alone."""
        words, shapes, stem_encoder = self.encoders
        row = words.encode_one(text)
        counted = cues(text)
        hidden = self.next_tool.query(_joined(row, shapes.encode_one(text), words), counted)
        logits = self.need.outputs(self.need.query(row, counted), None)
        # Two calls are no likelier than one.
        need = np.minimum.accumulate(logits.reshape(NEED_LEVELS, self.tools).clip(-9, 9), axis=0)
        chances = sigmoid(need)
        chances[:, -1] = 0
        left = np.zeros((NEED_LEVELS + 1, self.tools), np.float32)
        left[:-1] = np.cumsum(chances[::-1], axis=0)[::-1]
        likeness = np.zeros(self.tools, np.float32)
        if self.switches.descriptions:
            columns, values = stem_encoder.encode_one(text)
            dense = np.zeros(stem_encoder.dimension, np.float32)
            dense[columns] = values
            likeness[:-1] = self.documents @ dense
        return PreparedQuery(
            hidden,
            need,
            left,
            self.kernel.weigh(row) if self.kernel else None,
            self.alignment.evidence(text) if self.alignment else None,
            likeness,
        )

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        """The arrays to save."""
        found = self.log.state("plans.")
        for name, encoder in zip(_ENCODERS, self.encoders, strict=True):
            found |= {f"{name}.{key}": array for key, array in encoder.arrays().items()}
        found |= self.next_tool.state("next.") | self.need.state("need.")
        found["alignment.weights"] = self.weights
        found["queries.columns"] = self.queries.indices.astype(np.int32)
        found["queries.starts"] = self.queries.indptr.astype(np.int64)
        found["queries.values"] = self.queries.data.astype(np.float16)
        return found

    @classmethod
    def restore(
        cls, tools: Sequence[Tool], switches: Switches, get: Callable[[str], Array]
    ) -> Parts:
        """The parts that ``state`` gave."""
        log = PlanLog.restore({name: get(name) for name in _PLAN_ARRAYS}, "plans.", len(tools))
        rare = 3 if len(log) >= 500 else 2

        def arrays(name: str) -> dict[str, Array]:
            return {key: get(f"{name}.{key}") for key in ("idf", "vocabulary")}

        words = LexicalEncoder.restore({"min_df": rare}, arrays("words"))
        shapes = ShapeEncoder.restore({"min_df": rare}, arrays("shapes"))
        stem_encoder = StemEncoder.restore({"min_df": 1}, arrays("stems"))
        queries = csr_array(
            (
                get("queries.values").astype(np.float32),
                get("queries.columns"),
                get("queries.starts").astype(np.int32),
            ),
            shape=(len(log), words.dimension),
        )
        return cls(
            tools,
            switches,
            encoders=(words, shapes, stem_encoder),
            next_tool=Network.restore(get, "next.", PARAMETERS),
            need=Network.restore(get, "need.", QUERY_PARAMETERS),
            weights=get("alignment.weights"),
            queries=queries,
            log=log,
        )


_ENCODERS = ("words", "shapes", "stems")
_PLAN_ARRAYS = ("plans.calls", "plans.lengths", "plans.edges")


def _documents(tools: Sequence[Tool]) -> list[str]:
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


def _joined(left: Row, right: Row, words: LexicalEncoder) -> Row:
    columns = np.concatenate([left[0], right[0] + words.dimension])
    return columns, np.concatenate([left[1], right[1]])


def _as_arrays(row: tuple[list[int], list[float]]) -> Row:
    return np.array(row[0], np.int32), np.array(row[1], np.float32)
