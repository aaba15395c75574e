"""A text as tokens, the spans of it that may be an argument, and their features."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.data.outputs import READ_LENGTH
from dtdr.predict.arguments.value_ranker import Hashes, Rows, features
from dtdr.predict.arguments.values import canonical
from dtdr.text.words import prefix_stem

MAX_TOKENS = 400
"""Tokens of one text; a longer one is read from its start."""
MAX_SPAN = 9
"""Tokens of a span that is not a whole quotation."""

_TOKEN = re.compile(
    r"(?:[/~#](?=\w)|(?<![\w)])-(?=\d))?\w+(?:[.@\-_/:&+]\w+|['’](?!s\b)\w+)*|['’]s\b|\S"
)
"""Words with what joins their parts, paths, numbers with a minus sign, and single marks."""
_QUOTATION = re.compile(
    r"""["][^"]{1,500}["]|“[^”]{1,500}”|`[^`]{1,500}`"""
    r"""|(?<!\S)'.{1,500}?'(?!\w)|(?<!\S)‘.{1,500}?’(?!\w)""",
    re.DOTALL,
)
_NEVER_LAST = frozenset(
    ["and", "or", "the", "a", "an", "of", "to", "in", "with", ",", ".", ";", ":", "!", "?", "("]
)
_CLAUSE_ENDS = frozenset([".", "?", "!", ";", ",", "and", "then"])
_FUNCTION_STEMS = frozenset(
    ("the", "and", "for", "with", "that", "this", "you", "your", "are", "not")
)
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedText:
    """Tokens and spans of a text.

    Attributes:
        lower: the n tokens in lower case.
        starts, ends: first and last (exclusive) character of each token.
        rows: features of tokens as the first of a span and as the last of one, of the types of
            spans, and of clauses: one table for each row of ``spans``.
        spans: first and last token, type and clause of each of the m spans; shape (4, m).
        values: the spans as written.
        canonical: the spans as they are compared.
        is_named: whether a span is a quotation or an address, or has only names and numbers.
        words: stems of the words, and canonical forms of the numbers.
        clauses: stems of the words of each clause.
    """

    lower: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    rows: tuple[Rows, ...]
    spans: npt.NDArray[np.int64]
    values: tuple[str, ...]
    canonical: tuple[str, ...]
    is_named: npt.NDArray[np.bool_]
    words: frozenset[str]
    clauses: tuple[frozenset[str], ...]


@lru_cache(maxsize=64)
def tokenize(text: str) -> TokenizedText:
    """Read a text; the last few texts are remembered."""
    text = text[:READ_LENGTH]
    matches = list(islice(_TOKEN.finditer(text), MAX_TOKENS))
    tokens = tuple(match.group() for match in matches)
    lower = tuple(token.casefold() for token in tokens)
    starts = tuple(match.start() for match in matches)
    ends = tuple(match.end() for match in matches)
    quotation, quotations = _quotations(text[: ends[-1] if ends else 0], tokens, starts)
    spans = list(_iter_spans(tokens, lower, quotation, quotations))
    kinds = list(dict.fromkeys(kind for _, _, kind, _ in spans))
    row_of = {kind: row for row, kind in enumerate(kinds)}
    clause, words = _clauses(lower, quotation)
    columns = [(first, last, row_of[kind], clause[first]) for first, last, kind, _ in spans]
    values = tuple(text[starts[first] : ends[last]] for first, last, *_ in spans)
    first_features, last_features = _token_features(lower, tuple(map(_shape, tokens)), quotation)
    of_types = features([name for kind in kinds for name in _kind_features(*kind)])
    tables = first_features, last_features, of_types.reshape(-1, 3)
    of_clauses = Rows.of(
        [features([f"g {word}" for word in clause_words]) for clause_words in words]
    )
    return TokenizedText(
        lower,
        starts,
        ends,
        (*map(Rows.of, tables), of_clauses),
        np.array(columns, np.int64).reshape(-1, 4).T,
        values,
        tuple(map(canonical, values)),
        np.array([is_named for *_, is_named in spans], np.bool_),
        frozenset().union(*map(content_stems, tokens)),
        tuple(frozenset(map(prefix_stem, clause_words)) for clause_words in words),
    )


@lru_cache(maxsize=1 << 14)
def content_stems(value: Any) -> frozenset[str]:
    """Stems of a value's words of three letters and more, but function words, and its number."""
    if not isinstance(value, str):
        return frozenset([canonical(value)])
    tokens = (match.group() for match in islice(_TOKEN.finditer(value), MAX_TOKENS))
    words = {entry for entry in map(prefix_stem, tokens) if len(entry) > 2 and entry[0].isalpha()}
    if value[:1].isdigit() and len(value) < 20:
        words.add(canonical(value))
    return frozenset(words - _FUNCTION_STEMS)


@lru_cache(maxsize=4096)
def name_stems(name: str) -> frozenset[str]:
    """Stems of the words in a name: ``userEmail_address`` has user, email, addre."""
    return frozenset(prefix_stem(word) for word in _CAMEL.findall(name) if len(word) > 1)


def _clauses(
    lower: Sequence[str], quotation: Sequence[int]
) -> tuple[list[int], list[dict[str, None]]]:
    """The clause that each token is in, and the words of each outside of quotations."""
    words: list[dict[str, None]] = [{"^": None}]
    clause: list[int] = []
    for word, index in zip(lower, quotation, strict=True):
        if index < 0 and word in _CLAUSE_ENDS and len(words[-1]) > 1:
            words.append({"^": None})
        elif index < 0 and word[0].isalnum():
            words[-1][word] = None
        clause.append(len(words) - 1)
    return clause, words


def _quotations(
    text: str, tokens: Sequence[str], starts: Sequence[int]
) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Number of the quotation each token is in (-1: none, -2: a mark), and first -> last tokens.

    A quotation that ends with a full stop may be meant with it or without.
    """
    quotation_of = [-1] * len(tokens)
    spans: dict[int, tuple[int, ...]] = {}
    for match in _QUOTATION.finditer(text):
        first = bisect_left(starts, match.start() + 1)
        close = bisect_left(starts, match.end() - 1)
        if first < close < len(tokens):
            last = close - 1
            # American style: "the title,"
            is_point = tokens[last] == "." and last > first
            without = last - (is_point or (tokens[last] == "," and last > first))
            quotation_of[first:close] = [len(spans)] * (close - first)
            quotation_of[first - 1] = quotation_of[close] = -2
            spans[first] = (without, last) if is_point else (without,)
    return quotation_of, spans


@lru_cache(maxsize=1 << 12)
def _shape(token: str) -> str:
    """The kinds of letters, digits and marks of a token, each run of one kind once."""
    if token.isdigit():
        return f"d{min(len(token), 5)}"
    kinds = (
        "X" if entry.isupper() else "x" if entry.islower() else "d" if entry.isdigit() else entry
        for entry in token[:24]
    )
    return "".join(kind for kind, _ in groupby(kinds))


def _token_features(
    lower: tuple[str, ...], shapes: tuple[str, ...], quotation: Sequence[int]
) -> tuple[Hashes, Hashes]:
    """Features of each token as the first of a span, and as the last of one."""
    count = len(lower)
    # Three marks on each side, so that the neighbours of every token are at an index.
    words, shape = features([*"^^^", *lower, *"$$$"]), features(shapes)
    token, index = words[3:-3], np.arange(3, count + 3)
    # Whether the token is in no quotation (0), inside one (1), or its first or last token (2).
    within = np.array([-1, *quotation, -1])
    opens, closes = ((2 - (within[1:-1] == other)) for other in (within[:-2], within[2:]))
    opens, closes = (
        np.where(within[1:-1] < 0, 0, edge).astype(np.uint32) for edge in (opens, closes)
    )
    # Neighbours of a quotation are the words outside of its marks.
    left, right = index - (opens == 2), index + (closes == 2)
    before, second_before = words[left - 1], words[left - 2]
    after, second_after = words[right + 1], words[right + 2]
    endings = features([word[-4:] for word in lower])
    # From here on the order of features is part of what is saved.
    starts = (
        (opens,),
        (shape, opens),
        (before, opens),
        (second_before, before),
        (second_before,),
        (token,),
        (np.minimum(index, 6),),
    )
    ends = (
        (closes,),
        (shape, closes),
        (after, closes),
        (after, second_after),
        (second_after,),
        (token,),
        (endings,),
    )
    return _join("start", starts, count), _join("end", ends, count)


def _join(name: str, columns: Sequence[Sequence[npt.NDArray[Any]]], count: int) -> Hashes:
    """Hashes of features, each of which joins one or two columns; shape (count, features)."""
    table = np.zeros((2, len(columns), count), np.uint32)
    for position, joined in enumerate(columns):
        table[: len(joined), position] = joined
    names = features([f"{name} {position}" for position in range(len(columns))])
    result = names[:, None] * np.uint32(0x85EBCA6B)  # CRCs of similar names differ in few ways
    for column in table:
        result = (result ^ column) * np.uint32(0x9E3779B1)
        result ^= result >> np.uint32(15)
    return result.T


def _iter_spans(
    tokens: tuple[str, ...],
    lower: tuple[str, ...],
    quotation: list[int],
    quotations: dict[int, tuple[int, ...]],
) -> Iterator[tuple[int, int, tuple[int, bool, bool, bool, bool, str], bool]]:
    """The first and last token of each span, what ``_kind_features`` takes, and ``is_named``."""
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
            parts = tokens[start : end + 1]
            is_named = is_title or all(entry[0].isupper() or not entry.isalpha() for entry in parts)
            kind = (end - start + 1, quotation[start] >= 0, is_whole, all_names, is_run, joined)
            yield start, end, kind, is_named


def _kind_features(
    length: int, quoted: bool, is_whole: bool, all_names: bool, is_run: bool, joined: str
) -> tuple[str, str, str]:
    return (
        f"p0 {min(length, 6)} {is_whole} {all_names} {is_run} {joined}",
        f"p1 {length} {quoted} {is_whole}",
        f"p2 {is_run} {quoted} {joined}",
    )
