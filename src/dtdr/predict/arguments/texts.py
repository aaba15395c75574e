"""A text as tokens, the spans of it that may be an argument, and their features."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Message
from dtdr.data.outputs import read_part
from dtdr.predict.arguments.hashing import Hashes, Rows, feature, features
from dtdr.predict.arguments.prediction import Source
from dtdr.predict.arguments.values import canonical, letters_of

MAX_TOKENS = 400
"""Of one text; a longer one is read from its start."""
MAX_SPAN = 9
"""Tokens of a span that is not a whole quotation."""
MAX_QUOTATION = 60

_TOKEN = re.compile(
    r"(?:[/~#](?=\w)|(?<![\w)])-(?=\d))?\w+(?:[.@\-_/:&+]\w+|['’](?!s\b)\w+)*|['’]s\b|\S"
)
"""Words with what joins their parts, paths, numbers with a minus sign, and single marks."""
_OPENING = {'"': '"', "“": "”", "'": "'", "‘": "’", "`": "`"}
_NEVER_LAST = frozenset(
    ["and", "or", "the", "a", "an", "of", "to", "in", "with", ",", ".", ";", ":", "!", "?", "("]
)
_FUNCTION_STEMS = frozenset(
    ("the", "and", "for", "with", "that", "this", "you", "your", "are", "not")
)
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedText:
    """Tokens and spans of a text.

    Attributes:
        text: as it was given.
        tokens: n of them.
        lower: the tokens in lower case.
        is_quoted: whether each token is between quotation marks; shape (n,).
        start_features: features of each token as the first of a span; shape (n, k).
        end_features: features of each token as the last of a span; shape (n, l).
        first, last: tokens of each of the m spans; shape (m,).
        span_type: of each span, its row of ``type_features``; shape (m,).
        type_features: features of spans of a type; shape (types, 3).
        values: the spans as written.
        canonical: the spans as they are compared.
        starts, ends: first and last (exclusive) character of each token.
        stands_out: whether a span is a whole quotation, a whole run of names, or an address.
        is_named: whether it is conspicuous, or has nothing but names and numbers.
    """

    text: str
    tokens: tuple[str, ...]
    lower: tuple[str, ...]
    is_quoted: npt.NDArray[np.bool_]
    start_features: Hashes
    end_features: Hashes
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    span_type: npt.NDArray[np.int32]
    type_features: Hashes
    values: tuple[str, ...]
    canonical: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    stands_out: npt.NDArray[np.bool_]
    is_named: npt.NDArray[np.bool_]

    def word(self, index: int) -> str:
        """The token there in lower case; ``^`` before the first and ``$`` after the last."""
        if index < 0:
            return "^"
        return self.lower[index] if index < len(self.lower) else "$"


@lru_cache(maxsize=64)
def tokenize(text: str) -> TokenizedText:
    """Read a text; the last few texts are remembered."""
    text = read_part(text)
    matches = list(islice(_TOKEN.finditer(text), MAX_TOKENS))
    tokens = tuple(match.group() for match in matches)
    lower = tuple(token.casefold() for token in tokens)
    starts = [match.start() for match in matches]
    ends = [match.end() for match in matches]
    quotation, quotations = _quotations(tokens, starts, ends)
    spans = list(_iter_spans(tokens, lower, quotation, quotations))
    kinds = list(dict.fromkeys(span.kind for span in spans))
    row_of = {kind: row for row, kind in enumerate(kinds)}
    values = tuple(text[starts[span.first] : ends[span.last]] for span in spans)
    start_features, end_features = _token_features(lower, tuple(map(_shape, tokens)), quotation)
    return TokenizedText(
        text,
        tokens,
        lower,
        np.array([number >= 0 for number in quotation], np.bool_),
        start_features,
        end_features,
        np.array([span.first for span in spans], np.int32),
        np.array([span.last for span in spans], np.int32),
        np.array([row_of[span.kind] for span in spans], np.int32),
        features([name for kind in kinds for name in _kind_features(*kind)]).reshape(-1, 3),
        values,
        tuple(map(canonical, values)),
        tuple(starts),
        tuple(ends),
        np.array([span.stands_out for span in spans], np.bool_),
        np.array([span.is_named for span in spans], np.bool_),
    )


def read_stems(text: str) -> list[str]:
    """The stems that ``tokenize`` gives, alone."""
    return [stem(match.group()) for match in islice(_TOKEN.finditer(text), MAX_TOKENS)]


def stem(word: str) -> str:
    """A word without most of its endings, so that ``files`` and ``file`` agree."""
    word = word.casefold()
    if len(word) > 5:
        return word[:5]
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


@lru_cache(maxsize=1 << 14)
def telling_words(value: Any) -> frozenset[str]:
    """What a value says: the stems of its words of three letters and more, and its number."""
    if not isinstance(value, str):
        return frozenset([canonical(value)])
    words = {one for one in read_stems(value) if len(one) > 2 and one[0].isalpha()}
    if value[:1].isdigit() and len(value) < 20:
        words.add(canonical(value))
    return frozenset(words - _FUNCTION_STEMS)


@lru_cache(maxsize=4096)
def name_stems(name: str) -> frozenset[str]:
    """Stems of the words in a name: ``userEmail_address`` has user, email, addre."""
    return frozenset(stem(word) for word in _CAMEL.findall(name) if len(word) > 1)


def _quotations(
    tokens: tuple[str, ...], starts: list[int], ends: list[int]
) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Number of the quotation each token is in (-1: none, -2: a mark), and first -> last tokens.

    A quotation that ends with a full stop may be meant with it or without.
    """
    count = len(tokens)
    number = [-1] * count
    spans: dict[int, tuple[int, ...]] = {}
    index = 0
    while index < count:
        close = _OPENING.get(tokens[index])
        opens = close is not None and (
            tokens[index] not in "'‘" or index == 0 or ends[index - 1] < starts[index]
        )
        end = _find_closing(tokens, starts, ends, index, close) if opens and close else -1
        if end > index + 1:
            inside: tuple[int, ...] = (end - 1,)
            if tokens[end - 1] in ",." and end > index + 2:
                # American style: "the title,"
                inside = (end - 2,) if tokens[end - 1] == "," else (end - 2, end - 1)
            for token in range(index + 1, end):
                number[token] = len(spans)
            number[index] = number[end] = -2
            spans[index + 1] = inside
            index = end
        index += 1
    return number, spans


def _find_closing(
    tokens: tuple[str, ...], starts: list[int], ends: list[int], opening: int, mark: str
) -> int:
    for index in range(opening + 1, min(len(tokens), opening + MAX_QUOTATION)):
        if tokens[index] == mark:
            apart = index + 1 == len(tokens) or starts[index + 1] > ends[index]
            if mark not in "'’" or apart or not tokens[index + 1][0].isalnum():
                return index
    return -1


def _shape(token: str) -> str:
    return f"d{min(len(token), 5)}" if token.isdigit() else letters_of(token[:24])


def _token_features(
    lower: tuple[str, ...], shapes: tuple[str, ...], quotation: list[int]
) -> tuple[Hashes, Hashes]:
    """Features of each token as the first of a span, and as the last of one."""
    count = len(lower)
    words = [*"^^^^", *lower, *"$$$$"]
    kinds = [*"----", *shapes, *"----"]

    def edge(index: int, beside: int) -> str:
        """Whether the token is the edge of a quotation, inside one, or in none."""
        if quotation[index] < 0:
            return "none"
        inside = 0 <= beside < count and quotation[beside] == quotation[index]
        return "inside" if inside else "edge"

    starts, ends = [], []
    for index, (own, shape) in enumerate(zip(lower, shapes, strict=True)):
        here = index + 4
        at, until = edge(index, index - 1), edge(index, index + 1)
        left = here - (at == "edge")  # the words before the quotation mark
        three, two, one = words[left - 3 : left]
        starts += [
            *(f"s0 {at}", f"s1 {shape} {at}", f"s2 {one} {at}", f"s3 {two} {one}", f"s4 {two}"),
            *(f"s5 {three}", f"s6 {own}", f"s8 {kinds[here - 1]} {shape}", f"s9 {one} {shape}"),
            *(f"s10 {min(index, 3)}", f"s11 {three} {two} {one}", f"s12 {10 * index // count}"),
            f"s13 {words[here + 1]}",
        ]
        right = here + (until == "edge")
        after, then = words[right + 1 : right + 3]
        ends += [
            *(f"e0 {until}", f"e1 {shape} {until}", f"e2 {after} {until}", f"e3 {after} {then}"),
            *(f"e4 {then}", f"e6 {own}", f"e8 {shape} {kinds[here + 1]}", f"e9 {after} {shape}"),
            *(f"e10 {min(count - index, 3)}", f"e11 {words[here - 1]}", f"e12 {own[-4:]}"),
        ]
    return features(starts).reshape(count, 13), features(ends).reshape(count, 11)


class _Span(NamedTuple):
    """A span, and what its features say: its length, quotation, names, and what joins them."""

    first: int
    last: int
    kind: tuple[int, bool, bool, bool, bool, str]
    stands_out: bool
    is_named: bool


def _iter_spans(
    tokens: tuple[str, ...],
    lower: tuple[str, ...],
    quotation: list[int],
    quotations: dict[int, tuple[int, ...]],
) -> Iterator[_Span]:
    count = len(tokens)
    is_name = [token[0].isupper() or token[:2].lstrip("-").isdigit() for token in tokens]

    def goes_on(neighbour: int, token: int) -> bool:
        """Whether the run of names that a token ends continues at its neighbour."""
        is_inside = 0 <= neighbour < count and is_name[neighbour]
        return is_inside and quotation[neighbour] == quotation[token]

    for start in range(count):
        opening = tokens[start]
        can_begin = opening[0].isalnum() or (opening[0] in "/~#-" and len(opening) > 1)
        if quotation[start] == -2 or not can_begin:
            continue
        whole_ends = quotations.get(start, ())
        ends = [*range(start, min(count, start + MAX_SPAN))]
        ends += [end for end in whole_ends if end >= start + MAX_SPAN]
        crosses, all_names, joined = False, True, "-"
        read = start
        for end in ends:
            if quotation[end] != quotation[start]:
                break
            for token in range(read, end + 1):
                all_names = all_names and is_name[token]
                joined = "a" if lower[token] == "and" else "," if tokens[token] == "," else joined
                crosses = crosses or tokens[token] in ".;?!"
            read = end + 1
            is_whole = end in whole_ends
            if crosses and not is_whole:
                if whole_ends:
                    continue
                break
            if lower[end] in _NEVER_LAST and end > start and not is_whole:
                continue
            is_run = all_names and not (goes_on(start - 1, start) or goes_on(end + 1, end))
            is_title = is_whole and end == whole_ends[0]
            stands_out = is_title or is_run or (start == end and "@" in tokens[start])
            is_named = stands_out or all(map(_is_named, tokens[start : end + 1]))
            kind = (end - start + 1, quotation[start] >= 0, is_whole, all_names, is_run, joined)
            yield _Span(start, end, kind, stands_out, is_named)


@lru_cache(maxsize=1 << 12)
def _is_named(token: str) -> bool:
    return token[0].isupper() or not token.isalpha()


def _kind_features(
    length: int, quoted: bool, is_whole: bool, all_names: bool, is_run: bool, joined: str
) -> tuple[str, str, str]:
    return (
        f"p0 {min(length, 6)} {is_whole} {all_names} {is_run} {joined}",
        f"p1 {length} {quoted} {is_whole}",
        f"p2 {is_run} {quoted} {joined}",
    )


MAX_MESSAGES = 6
"""Messages before the query whose spans may be arguments, the last ones."""
MAX_EARLIER_SPAN = 4
"""Tokens of a span in an earlier message: names, numbers and quotations, which are short."""


@dataclass(frozen=True, slots=True, eq=False)
class RunTexts:
    """The query and the messages before it as one table of tokens, the query first.

    Attributes:
        starts: features of tokens that begin one of the m spans, and of their part.
        ends: of tokens that end one.
        types: of spans.
        start_row, end_row, span_type: of each span, its rows of these; shape (m,).
        first, last: tokens of each span; shape (m,).
        span_part: the part of each span; shape (m,).
        parts: the texts; those of earlier messages are newest first.
        offsets: the first token of each part; shape (parts + 1,).
        places: the spans that say a value, by its canonical form.
        said: who says a value, by its canonical form.
        word_features: the words of the query, each once.
        stem_set: of the words.
        part_words: of each part, the stems of its words and the canonical forms of its numbers.
    """

    starts: Rows
    ends: Rows
    types: Rows
    start_row: npt.NDArray[np.int64]
    end_row: npt.NDArray[np.int64]
    span_type: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    span_part: npt.NDArray[np.int64]
    parts: tuple[TokenizedText, ...]
    offsets: tuple[int, ...]
    span_values: tuple[str, ...]
    span_canonical: tuple[str, ...]
    is_quoted: npt.NDArray[np.bool_]
    places: Mapping[str, Sequence[int]]
    said: Mapping[str, str]
    word_features: Hashes
    stem_set: frozenset[str]
    part_words: tuple[frozenset[str], ...]

    def neighbour(self, token: int, distance: int) -> str:
        """The word this many tokens from a token, in its own text."""
        part = 0
        while self.offsets[part + 1] <= token:
            part += 1
        return self.parts[part].word(token - self.offsets[part] + distance)

    def source(self, place: int) -> Source:
        """Where a span is."""
        number = int(self.span_part[place])
        text, offset = self.parts[number], self.offsets[number]
        first, last = int(self.first[place]) - offset, int(self.last[place]) - offset
        return Source("message" if number else "query", span=(text.starts[first], text.ends[last]))


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
    columns: list[list[Any]] = [[] for _ in range(7)]
    types = 0
    values: list[str] = []
    compared: list[str] = []
    for number, (part, role) in enumerate(zip(parts, roles, strict=True)):
        name = "query" if number == 0 else f"{role} {min(number, 3)}"
        role_column = np.full((len(part.tokens), 1), feature(f"role {name}"), np.uint32)
        keep = np.ones(len(part.first), np.bool_)
        if number:
            keep = (part.last - part.first < MAX_EARLIER_SPAN) & part.is_named
        kept = np.flatnonzero(keep)
        own = (
            np.concatenate([part.start_features, role_column], axis=1),
            np.concatenate([part.end_features, role_column ^ np.uint32(1)], axis=1),
            part.type_features,
            part.first[keep] + offsets[number],
            part.last[keep] + offsets[number],
            part.span_type[keep].astype(np.int64) + types,
            np.full(len(kept), number),
        )
        for column, one in zip(columns, own, strict=True):
            column.append(one)
        types += len(part.type_features)
        values += [part.values[index] for index in kept.tolist()]
        compared += [part.canonical[index] for index in kept.tolist()]
    start, end, of_types, first, last, span_type, span_part = map(np.concatenate, columns)
    # Most tokens of earlier messages neither begin nor end a span that is kept.
    start_tokens, start_row = np.unique(first, return_inverse=True)
    end_tokens, end_row = np.unique(last, return_inverse=True)
    places: dict[str, list[int]] = defaultdict(list)
    said: dict[str, str] = {}
    for place, (form, number) in enumerate(zip(compared, span_part.tolist(), strict=True)):
        places[form].append(place)
        said.setdefault(form, roles[number] if number < 3 else f"{roles[number]} earlier")
    words = dict.fromkeys(word for word in parts[0].lower if word[0].isalnum())
    return RunTexts(
        Rows.of_table(start[start_tokens]),
        Rows.of_table(end[end_tokens]),
        Rows.of_table(of_types),
        start_row,
        end_row,
        span_type,
        first,
        last,
        span_part,
        parts,
        tuple(offsets.tolist()),
        tuple(values),
        tuple(compared),
        np.concatenate([part.is_quoted for part in parts]),
        dict(places),
        said,
        features([f"w {word}" for word in words]),
        frozenset(stem(word) for part in parts for word in part.lower),
        tuple(frozenset().union(*map(telling_words, part.tokens)) for part in parts),
    )


def forget_texts() -> None:
    """Forget the texts that were read last, so that the next one is read again."""
    tokenize.cache_clear()
    _read_texts.cache_clear()
