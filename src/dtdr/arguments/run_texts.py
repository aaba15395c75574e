"""The query and the messages before it as one table of tokens and spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.arguments.folding import FoldedText
from dtdr.arguments.hashing import Hashes, feature, features
from dtdr.arguments.texts import TokenizedText, tokenize
from dtdr.calls import ToolCall
from dtdr.demonstrations import Message

MAX_MESSAGES = 6
"""Messages before the query whose spans may be arguments, the last ones."""
MAX_EARLIER_SPAN = 4
"""Tokens of a span in an earlier message; names and numbers are short, and there are many."""


@dataclass(frozen=True, slots=True, eq=False)
class TextFeatures:
    """What a ranker sees of the texts of a run: n tokens, and m spans of them.

    Attributes:
        start_features, end_features: shape (n, …), with the part's role as a last column.
        first, last: tokens of each span; shape (m,).
        span_type: of each span, its row of ``type_features``; shape (m,).
        type_features: shape (types, 3).
        span_part: the part of each span; shape (m,).
    """

    start_features: Hashes
    end_features: Hashes
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    span_type: npt.NDArray[np.int32]
    type_features: Hashes
    span_part: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class RunTexts(TextFeatures):
    """The query and the messages before it as one table of tokens, the query first.

    Attributes:
        parts: the texts; those of earlier messages are newest first.
        roles: of each part: ``query``, ``user`` or ``assistant``.
        offsets: the first token of each part; shape (parts + 1,).
        places: the spans that say a value, by its canonical form.
        said: who says a value, by its canonical form.
        word_features: the words of the query, each once.
        near_features: each token as a word near another; shape (n,).
        folded: finds what the texts say in another form.
        stem_set: of ``stems``.
    """

    parts: tuple[TokenizedText, ...]
    roles: tuple[str, ...]
    offsets: tuple[int, ...]
    span_values: tuple[str, ...]
    span_canonical: tuple[str, ...]
    stems: tuple[str, ...]
    is_quoted: npt.NDArray[np.bool_]
    stands_out: npt.NDArray[np.bool_]
    places: Mapping[str, Sequence[int]]
    said: Mapping[str, str]
    word_features: Hashes
    near_features: Hashes
    folded: FoldedText
    stem_set: frozenset[str]

    def features(self) -> TextFeatures:
        """The arrays without the texts, which training would keep in memory otherwise."""
        return TextFeatures(
            self.start_features,
            self.end_features,
            self.first,
            self.last,
            self.span_type,
            self.type_features,
            self.span_part,
        )

    @property
    def query(self) -> TokenizedText:
        """The query's own tokens."""
        return self.parts[0]

    def neighbour(self, token: int, distance: int) -> str:
        """The word so many tokens from a token, in its own text."""
        part = 0
        while self.offsets[part + 1] <= token:
            part += 1
        return self.parts[part].word(token - self.offsets[part] + distance)

    def word_at(self, token: int) -> str:
        """A token in lower case."""
        return self.neighbour(token, 0)

    def head(self, token: int) -> str:
        """The verb, or other word that is not a name, before a token."""
        part = 0
        while self.offsets[part + 1] <= token:
            part += 1
        return self.parts[part].heads[token - self.offsets[part]]


def read_texts(query: str, before: Iterable[Message | ToolCall] = ()) -> RunTexts:
    """The texts of a run."""
    messages = [item for item in before if isinstance(item, Message)][-MAX_MESSAGES:]
    return _read_texts(
        (query, *(item.content for item in reversed(messages))),
        ("query", *(item.role for item in reversed(messages))),
    )


@lru_cache(maxsize=64)
def _read_texts(texts: tuple[str, ...], roles: tuple[str, ...]) -> RunTexts:
    parts = tuple(map(tokenize, texts))
    offsets = np.cumsum([0, *(len(part.tokens) for part in parts)])
    columns: list[list[Any]] = [[] for _ in range(8)]
    types = 0
    values: list[str] = []
    compared: list[str] = []
    for number, (part, role) in enumerate(zip(parts, roles, strict=True)):
        name = "query" if number == 0 else f"{role} {min(number, 3)}"
        role_column = np.full((len(part.tokens), 1), feature(f"role {name}"), np.uint32)
        keep = np.ones(len(part.first), np.bool_)
        if number:
            keep = part.last - part.first < MAX_EARLIER_SPAN
        columns[0].append(np.concatenate([part.start_features, role_column], axis=1))
        columns[1].append(np.concatenate([part.end_features, role_column ^ np.uint32(1)], axis=1))
        columns[2].append(part.first[keep] + np.int32(offsets[number]))
        columns[3].append(part.last[keep] + np.int32(offsets[number]))
        columns[4].append(part.span_type[keep] + np.int32(types))
        columns[5].append(part.type_features)
        columns[6].append(np.full(int(keep.sum()), number, np.int32))
        columns[7].append(part.stands_out[keep])
        types += len(part.type_features)
        kept = np.flatnonzero(keep).tolist()
        values += [part.values[index] for index in kept]
        compared += [part.canonical[index] for index in kept]
    start, end, first, last, span_type, type_features, span_part, stands_out = map(
        np.concatenate, columns
    )
    places: dict[str, list[int]] = defaultdict(list)
    said: dict[str, str] = {}
    for place, (form, number) in enumerate(zip(compared, span_part.tolist(), strict=True)):
        places[form].append(place)
        said.setdefault(form, roles[number] if number < 3 else f"{roles[number]} earlier")
    stems = tuple(stem for part in parts for stem in part.stems)
    words = dict.fromkeys(word for word in parts[0].lower if word[0].isalnum())
    return RunTexts(
        start,
        end,
        first,
        last,
        span_type,
        type_features,
        span_part,
        parts,
        roles,
        tuple(offsets.tolist()),
        tuple(values),
        tuple(compared),
        stems,
        np.concatenate([part.is_quoted for part in parts]),
        stands_out,
        dict(places),
        said,
        features([f"w {word}" for word in words]),
        features([f"near {stem}" for stem in stems]),
        FoldedText(token for part in parts for token in part.tokens),
        frozenset(stems),
    )


def forget_texts() -> None:
    """Forget the texts that were read last, so that the next one is read anew."""
    tokenize.cache_clear()
    _read_texts.cache_clear()
