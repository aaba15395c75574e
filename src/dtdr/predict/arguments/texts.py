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
from dtdr.predict.arguments.hashing import Block, Hashes, Rows, features
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
        rows: features of tokens as the first of a span, as the last of one, and of types of spans.
        first, last, span_type: of each of the m spans the rows there; shape (m,).
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
    rows: tuple[Rows, ...]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    span_type: npt.NDArray[np.int64]
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
    columns = [(span.first, span.last, row_of[span.kind]) for span in spans]
    first, last, span_type = np.array(columns, np.int64).reshape(-1, 3).T
    values = tuple(text[starts[span.first] : ends[span.last]] for span in spans)
    start_features, end_features = _token_features(lower, tuple(map(_shape, tokens)), quotation)
    of_types = features([name for kind in kinds for name in _kind_features(*kind)])
    return TokenizedText(
        text,
        tokens,
        lower,
        np.array([number >= 0 for number in quotation], np.bool_),
        tuple(map(Rows.of_table, (start_features, end_features, of_types.reshape(-1, 3)))),
        first,
        last,
        span_type,
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
        blocks: rows of features of the m spans.
        first, last: tokens of each span; shape (m,).
        span_part: the part of each span; shape (m,).
        parts: the texts; those of earlier messages are newest first.
        offsets: the first token of each part; shape (parts + 1,).
        span_values, span_canonical: the spans as written and as they are compared.
        is_quoted: whether each token is between quotation marks.
        places: the spans that say a value, by its canonical form.
        said: who says a value, by its canonical form.
        word_features: the words of the query, each once.
        stem_set: of the words.
        part_words: of each part, the stems of its words and the canonical forms of its numbers.
    """

    blocks: tuple[Block, ...]
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
    blocks: list[Block] = []
    tokens: list[npt.NDArray[np.int64]] = []
    values: list[str] = []
    compared: list[str] = []
    span_part: list[int] = []
    for number, (part, role) in enumerate(zip(parts, roles, strict=True)):
        keep = np.arange(len(part.values))
        if number:
            keep = np.flatnonzero((part.last - part.first < MAX_EARLIER_SPAN) & part.is_named)
        at, name = len(values), f"{role} {min(number, 3)}" if number else "query"
        # Most tokens of earlier messages neither begin nor end a span that is kept.
        columns = part.first, part.last, part.span_type
        for rows, codes in zip(part.rows, columns, strict=True):
            used, renumbered = rows.take(codes[keep])
            blocks.append(Block(used, at, renumbered))
        of_role = Rows.of([features([f"role {name}", f"role of end {name}"])])
        blocks.append(Block(of_role, at, np.zeros(len(keep), np.int64)))
        tokens.append(np.stack(columns[:2])[:, keep] + offsets[number])
        values += [part.values[place] for place in keep.tolist()]
        compared += [part.canonical[place] for place in keep.tolist()]
        span_part += [number] * len(keep)
    first, last = np.concatenate(tokens, axis=1)
    places: dict[str, list[int]] = defaultdict(list)
    said: dict[str, str] = {}
    for place, (form, number) in enumerate(zip(compared, span_part, strict=True)):
        places[form].append(place)
        said.setdefault(form, roles[number] if number < 3 else f"{roles[number]} earlier")
    words = dict.fromkeys(word for word in parts[0].lower if word[0].isalnum())
    return RunTexts(
        tuple(blocks),
        first,
        last,
        np.array(span_part, np.int64),
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
