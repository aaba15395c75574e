"""The texts of a run, the query and the messages before it, as one table of tokens and spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Message
from dtdr.predict.arguments.prediction import ValueSource
from dtdr.predict.arguments.texts import TokenizedText, name_stems, tokenize
from dtdr.predict.arguments.value_ranker import CandidateBlock, Hashes, Rows, features
from dtdr.predict.arguments.values import read_date, short_hash
from dtdr.text.words import prefix_stem

MAX_MESSAGES = 6
"""Messages before the query whose spans may be arguments, the last ones."""
MAX_EARLIER_SPAN = 4
"""Tokens of a span in an earlier message: names, numbers and quotations, which are short."""
_LONGEST_DATE = 40
"""Characters."""


@dataclass(frozen=True, slots=True, eq=False)
class RunTexts:
    """The query and the messages before it as one table of tokens, the query first.

    Attributes:
        blocks: rows of features of the m spans.
        first, last: tokens of each span; shape (m,).
        span_part: the part of each span; shape (m,).
        parts: the texts; those of earlier messages are newest first.
        offsets: the first token of each part; shape (parts,).
        lower: all tokens in lower case, with ``$`` after those of each part.
        values, forms: the spans as written and as they are compared.
        places: the spans that say a value, by its canonical form.
        said: who says a value, by its canonical form.
        word_features: the words of the query, each once.
        stems: of all words.
        clause: of each span; shape (m,).
        clauses: stems of the words of each.
    """

    blocks: tuple[CandidateBlock, ...]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    span_part: npt.NDArray[np.int64]
    parts: tuple[TokenizedText, ...]
    offsets: tuple[int, ...]
    lower: tuple[str, ...]
    values: tuple[str, ...]
    forms: tuple[str, ...]
    places: Mapping[str, Sequence[int]]
    said: Mapping[str, str]
    word_features: Hashes
    stems: frozenset[str]
    clause: npt.NDArray[np.int64]
    clauses: tuple[frozenset[str], ...]

    def span(self, span_index: int) -> tuple[int, int]:
        """The first and the last token of a span."""
        return int(self.first[span_index]), int(self.last[span_index])

    def source(self, span_index: int) -> ValueSource:
        """Where a span is."""
        text_index = int(self.span_part[span_index])
        text, (first, last) = self.parts[text_index], self.span(span_index)
        offset = self.offsets[text_index]
        characters = text.starts[first - offset], text.ends[last - offset]
        return ValueSource("message" if text_index else "query", span=characters)


def read_texts(query: str, before: Iterable[Message | ToolCall] = ()) -> RunTexts:
    """The texts of a run."""
    messages = [item for item in before if isinstance(item, Message)][-MAX_MESSAGES:][::-1]
    texts, roles = [item.content for item in messages], [item.role for item in messages]
    return combine_texts((query, *texts), ("query", *roles))


@lru_cache(maxsize=64)
def combine_texts(texts: tuple[str, ...], roles: tuple[str, ...]) -> RunTexts:
    """The texts of several roles, newest first; the last few are remembered."""
    parts = tuple(map(tokenize, texts))
    lengths = [len(part.lower) + 1 for part in parts]
    offsets = np.cumsum([0, *lengths[:-1]])
    blocks: list[CandidateBlock] = []
    tokens: list[npt.NDArray[np.int64]] = []
    values, forms, span_part = list[str](), list[str](), list[int]()
    clauses: list[frozenset[str]] = []
    for index, (part, role) in enumerate(zip(parts, roles, strict=True)):
        is_kept = np.ones(len(part.values), np.bool_)
        if index:
            is_kept = (part.spans[1] - part.spans[0] < MAX_EARLIER_SPAN) & part.is_named
        columns = part.spans[:, is_kept]
        for rows, codes in zip(part.rows, columns, strict=True):
            # Most tokens of earlier messages neither begin nor end a span that is kept.
            used, renumbered = rows.take(codes)
            blocks.append(CandidateBlock(used, len(values), renumbered))
        name = f"{role} {min(index, 3)}" if index else "query"
        of_role = Rows.of([features([f"role {name}", f"role of end {name}"])])
        blocks.append(CandidateBlock(of_role, len(values), np.zeros(columns.shape[1], np.int64)))
        origins = np.array([offsets[index], offsets[index], len(clauses)])
        tokens.append(columns[[0, 1, 3]] + origins[:, None])
        clauses += part.clauses
        values += compress(part.values, is_kept)
        forms += compress(part.canonical, is_kept)
        span_part += [index] * columns.shape[1]
    first, last, clause = np.concatenate(tokens, axis=1)
    places: dict[str, list[int]] = defaultdict(list)
    said: dict[str, str] = {}
    for position, (form, index) in enumerate(zip(forms, span_part, strict=True)):
        places[form].append(position)
        said.setdefault(form, roles[index] if index < 3 else f"{roles[index]} earlier")
    words = dict.fromkeys(word for word in parts[0].lower if word[0].isalnum())
    return RunTexts(
        tuple(blocks),
        first,
        last,
        np.array(span_part, np.int64),
        parts,
        tuple(offsets.tolist()),
        tuple(word for part in parts for word in (*part.lower, "$")),
        tuple(values),
        tuple(forms),
        dict(places),
        said,
        features([f"w {word}" for word in words]),
        frozenset(prefix_stem(word) for part in parts for word in part.lower),
        clause,
        tuple(clauses),
    )


@lru_cache(maxsize=256)
def match_clauses(texts: RunTexts, name: str) -> npt.NDArray[np.int64]:
    """2 for a span in a clause that has most words of a name, 1 with fewer, 0 with none; (m,)."""
    shared = np.array([len(name_stems(name) & clause_words) for clause_words in texts.clauses])
    most: npt.NDArray[np.int64] = (shared > 0) * 1 + ((shared > 0) & (shared == shared.max()))
    return most[texts.clause]


@lru_cache(maxsize=64)
def hash_spans(texts: RunTexts) -> npt.NDArray[np.int64]:
    """Hashes of the m spans as they are compared; shape (m,)."""
    return np.fromiter(map(short_hash, texts.forms), np.int64, len(texts.forms))


@lru_cache(maxsize=64)
def read_dates(texts: RunTexts) -> Mapping[int, str]:
    """The spans that say a date in words and nothing else, and the date."""
    dates: dict[int, str] = {}
    for position in np.argsort(texts.last - texts.first, kind="stable").tolist():
        value = texts.values[position]
        if len(value) < _LONGEST_DATE and (date := read_date(value)):
            first, last = texts.span(position)
            same = (texts.span(other) for other, said in dates.items() if said == date)
            if not any(first <= start and end <= last for start, end in same):
                dates[position] = date
    return dates
