"""Demonstrations read into numbers: the columns of their queries, their plans and their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.outputs import TEXT_LENGTH
from dtdr.rankers.dtdr_f.observations import RunReader, is_parallel, read_context
from dtdr.rankers.dtdr_f.outcomes import NO_WORDS
from dtdr.rankers.dtdr_f.ragged import Ragged
from dtdr.rankers.dtdr_f.text import QueryText, stems_of
from dtdr.rankers.dtdr_f.values import NO_VALUES, Values, read_query
from dtdr.rankers.nn import Matrix
from dtdr.rankers.vectors import dense
from dtdr.text.encoders.base import Encoder
from dtdr.text.words import hash_word

QUERY_COLUMNS = {
    **dict.fromkeys(("words", "stems", "others"), np.uint32),
    "flags": np.uint8,
    # Rounded as it is saved, so that a loaded model learns alike to the last bit.
    "surface": np.float16,
}
"""Arrays of ``QueryText``, one entry per query."""
RUN_COLUMNS = {
    **dict.fromkeys(("calls", "edges", "before", "said", "output_words", "facts"), np.int32),
    **dict.fromkeys(("value_keys", "earlier_keys", "asked_keys"), np.int32),
    **dict.fromkeys(("values", "earlier_values", "asked_values"), np.float32),
    **dict.fromkeys(("word_counts", "fact_counts", "value_counts", "earlier_counts"), np.uint16),
    "text_words": np.uint32,
    "text_counts": np.uint16,
    **dict.fromkeys(("parallel", "absent", "status", "left", "id"), np.uint8),
    **dict.fromkeys(("group", "order"), np.uint32),
    "said_weights": np.float16,
}
"""Further arrays of each demonstration that a model keeps."""


def encode_texts(texts: Sequence[str], encoder: Encoder | None = None) -> dict[str, Ragged]:
    """Texts as ``QueryText`` reads them, by the names of its attributes."""
    read = list(map(QueryText.of, texts))
    rows: dict[str, list[Any]] = {
        name: [getattr(text, name) for text in read] for name in QUERY_COLUMNS
    }
    if encoder is not None:
        vectors = dense(encoder.encode(list(texts)))
        rows["surface"] = list(map(np.concatenate, zip(rows["surface"], vectors, strict=True)))
    return {name: Ragged.of(values, QUERY_COLUMNS[name]) for name, values in rows.items()}


def encode_run(item: Demonstration, index: Mapping[str, int]) -> dict[str, Any]:
    """The arrays of ``RUN_COLUMNS`` for one demonstration."""
    recorded = item.plan.calls
    step = list(accumulate(not is_parallel(*pair) for pair in pairwise([None, *recorded])))
    # Parallel calls by their tools: the order that they were made in must not change a ranking.
    order = sorted(range(len(recorded)), key=lambda at: (step[at], index[recorded[at].tool]))
    position = {at: sorted_at for sorted_at, at in enumerate(order)}
    calls = [recorded[at] for at in order]
    edges = sorted(
        (position[later], position[source])
        for later, sources in enumerate(item.plan.prerequisites)
        for source in sources
    )
    reader = RunReader(item.before, item.query)
    context, asked = read_context(item.before, index, reader.earlier), read_query(item.query)
    outcomes = [reader.read(call) for call in calls]
    texts = read_texts(_texts_of_steps(calls))
    return {
        "calls": [index[call.tool] for call in calls],
        "parallel": [is_parallel(*pair) for pair in pairwise([None, *calls])],
        "edges": [position for edge in edges for position in edge],
        "group": [hash_word(item.group) if item.group else 0],
        "id": list(item.id.encode("utf-8", "replace")),
        "order": order,
        "absent": _pack_absent(item.offered, index),
        "before": [part for call in context.calls for part in call],
        "said": context.words,
        "said_weights": context.weights,
        "status": [outcome.status for outcome in outcomes],
        "left": [outcome.left for outcome in outcomes],
        "word_counts": [len(outcome.words) for outcome in outcomes],
        "output_words": np.concatenate([NO_WORDS, *(outcome.words for outcome in outcomes)]),
        "fact_counts": [len(outcome.facts) for outcome in outcomes],
        "facts": np.concatenate([NO_WORDS, *(outcome.facts for outcome in outcomes)]),
        **_join_values("value_keys", "values", "value_counts", [each.values for each in outcomes]),
        **_join_values("earlier_keys", "earlier_values", "earlier_counts", context.values),
        "text_words": texts.values,
        "text_counts": texts.sizes,
        "asked_keys": asked.keys,
        "asked_values": asked.values,
    }


def text_of(columns: Mapping[str, Ragged], row: int) -> QueryText:
    """One of the texts that ``encode_texts`` encoded."""
    values = {name: columns[name][row] for name in QUERY_COLUMNS}
    return QueryText(**{**values, "surface": values["surface"].astype(np.float32)})


def surface_of(columns: Mapping[str, Ragged]) -> Matrix:
    """The surface features of all texts; shape (texts, surface features)."""
    surface = columns["surface"]
    return surface.values.reshape(len(surface), -1).astype(np.float32)


def read_texts(texts: Sequence[str | None]) -> Ragged:
    """Hashed stems of what the agent wrote before calls; none where nothing is known."""
    return stems_of([(text or "")[-TEXT_LENGTH:] for text in texts])


def _texts_of_steps(calls: Sequence[ToolCall]) -> list[str | None]:
    """The text of each step, at its first call in the order of tools."""
    texts: list[str | None] = []
    first = 0
    for at, call in enumerate(calls):
        texts.append(None)
        if not at or not is_parallel(calls[at - 1], call):
            first = at
        texts[first] = texts[first] or call.text
    return texts


def _join_values(keys: str, values: str, counts: str, many: Sequence[Values]) -> dict[str, Any]:
    """The columns for the values of several calls, by their names."""
    all_values = [NO_VALUES, *many]
    return {
        keys: np.concatenate([each.keys for each in all_values]),
        values: np.concatenate([each.values for each in all_values]),
        counts: [len(each.keys) for each in many],
    }


def _pack_absent(
    offered: frozenset[str] | None, index: Mapping[str, int]
) -> npt.NDArray[np.uint8] | tuple[()]:
    """One bit per tool; empty if every tool was offered, or if the log has no list of tools."""
    absent = [offered is not None and name not in offered for name in index]
    absent[-1] = False  # the end of plan can always follow
    return np.packbits(absent) if any(absent) else ()
