"""Features of spans, constants, outputs, parts of outputs and earlier arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from dtdr.predict.arguments.run_texts import match_clauses
from dtdr.predict.arguments.state import PartKind, RunState
from dtdr.predict.arguments.texts import name_stems
from dtdr.predict.arguments.value_ranker import CandidateBlock, Hashes, Rows, features

LAST_USED = Rows.of([features([f"last used {code}"]) for code in range(10)])
"""Distance of a span from the span used last: 1 to 4 before it, 5 to 9 after, else 0."""
USAGE = Rows.of(
    [features([f"used {code[:1]}", f"used by length {code}"]) for code in np.ndindex(16, 10)]
)
"""Length of a span, plus 10 where any argument used it, plus 20 where one of this slot's
name did, plus 40 where it was this tool's, plus 80 where this call took it."""
CLAUSES = Rows.of(
    [
        features([f"clause {mention}", f"clause after {gap}", f"clause after {gap} {mention}"])
        for gap, mention in np.ndindex(9, 3)
    ]
)
"""Clauses between a span and the span used last (0 to 7 for -3 to 4, 8 without
one), times 3, plus ``match_clauses``."""
TAKEN = Rows.of(
    [
        features([f"taken {by_slot}", f"taken by any {by_slot} {by_any}"])
        for by_slot, by_any in np.ndindex(2, 2)
    ]
)
"""Whether the slot took a span's value in other groups, times 2, plus whether any slot of
that name did."""
_DISTANCES = np.array([-7, -3, -1, 0, 1, 2, 4, 8])


def span_blocks(
    state: RunState, tool: str, slot: str, spans: Sequence[tuple[int, int]], last: int
) -> list[CandidateBlock]:
    """Features of the m spans of the texts that change with each decision.

    Args:
        state: what is known before the call.
        tool: that is called.
        slot: to be filled.
        spans: that the call took already.
        last: the last token of the span used last, -1 where none was.
    """
    texts = state.texts
    gaps, distances = np.full_like(texts.clause, 8), np.zeros_like(texts.first)
    if last >= 0:
        position = min(int(np.searchsorted(texts.first, last)), len(texts.clause) - 1)
        gaps = np.minimum(np.maximum(texts.clause - texts.clause[position], -3), 4) + 3
        distances = 1 + np.searchsorted(_DISTANCES, texts.first - last, side="right")
    clauses = 3 * gaps + match_clauses(texts, tool)
    used = np.zeros((4, len(texts.lower) + 1), np.int32)
    earlier = [state.spans.get(key, ()) for key in (("", ""), ("", slot), (tool, slot))]
    for row, taken in enumerate((*earlier, spans)):
        for first, last in taken:
            used[row, first : last + 1] = 1
    sums = np.zeros_like(used)
    sums[:, 1:] = np.cumsum(used[:, :-1], axis=1)
    overlaps = sums[:, texts.last + 1] > sums[:, texts.first]
    code = overlaps[0] + 2 * overlaps[1] + 4 * overlaps[2] + 8 * overlaps[3]
    usage = 10 * code + np.minimum(texts.last - texts.first, 9)
    return [
        CandidateBlock(USAGE, 0, usage),
        CandidateBlock(CLAUSES, 0, clauses),
        CandidateBlock(LAST_USED, 0, distances),
    ]


@lru_cache(maxsize=1 << 14)
def constant_features(said: str, rank: int, is_own: bool, times: int) -> Hashes:
    """Features of a constant; shape (features,).

    Args:
        said: whether the texts say it ``whole``, in ``part``, or ``no``.
        rank: among the parameter's constants, at most 4.
        is_own: whether this tool took it in enough runs, not only others.
        times: how often this parameter took it in this run, at most 2.
    """
    # ``c0`` to ``c5`` keep the hashes of combinations apart, and are saved with the weights.
    return features(
        ["c", f"c0 {is_own} {rank}", f"c1 {said} {is_own}", f"c4 {said}", f"c5 {times} {said}"]
    )


@lru_cache(maxsize=1 << 15)
def part_features(kind: PartKind, ago: int, is_used: bool, tool: str, slot: str) -> Hashes:
    """Features of a part of an earlier call that no decision changes; shape (features,).

    Args:
        kind: of the part.
        ago: calls since then, at most 4.
        is_used: whether any argument took it.
        tool: to be called.
        slot: to be filled.
    """
    called, pattern, key, said = kind
    name = slot.removesuffix("/*").rpartition("/")[2]
    shares = name_stems(key) & name_stems(name)
    by_name = "same" if key == name else "part" if shares else "other"
    by_name += f" {pattern.partition(' ')[0] if called == tool and ' ' in pattern else ''}"
    where = f"{called} {pattern}"
    names = [f"l0 {where}", f"l1 {pattern}", f"l2 {by_name}", f"l3 {by_name} {said}", f"l4 {said}"]
    names += [f"l5 {key} {said}", f"l6 {ago}", f"l7 {by_name} {ago}", f"l8 {where} {ago}"]
    names += [f"l9 {is_used} {said}", f"la {where} {said}", f"lb {key}", f"lc {where} {is_used}"]
    return features(names)


def _flag_features(code: int) -> Hashes:
    is_taken, first, follows = bool(code & 1), bool(code & 2), bool(code & 4)
    late, times = code // 8 % 3, code // 24
    names = [f"f0 {is_taken}", f"f1 {is_taken} {first}", f"f2 {follows}", f"f3 {late}"]
    names += [
        f"f4 {late} {times} {is_taken}",
        f"f5 {is_taken} {first} {follows}",
        f"f6 {times} {late}",
    ]
    return features(names)


FLAGS = Rows.of([*map(_flag_features, range(8 * 9))])
"""Features of a part of an earlier call in its list and record.

By a code: 1 where the slot took it, plus 2 where it is the first of its list that the slot did not
take, plus 4 where it follows the one taken last, plus 8 times its mentions: how much the query and
the last message say of its record, plus 3 times how much all texts do; 2 where no other record has
more, 1 for some, 0 for none.
"""


@lru_cache(maxsize=1 << 10)
def relation_rows(names: tuple[str, ...]) -> Rows:
    """How a value relates to the records of those decided last.

    Args:
        names: of the slots decided last, at least one.

    Returns:
        A row for each code, which has a digit to the base 3 for each slot, the last one first: 0
        where its value comes from another call, 1 from the same one, 2 from the same record.
    """
    rows = []
    for digits in product(range(3), repeat=len(names)):
        pairs = [f"t3 {name} {digit}" for name, digit in zip(names, digits, strict=True)]
        highest = max(digits)
        whole = [f"t0 {highest} {min(digits)}", f"t1 {digits[0]}", f"t2 {highest}"]
        rows.append(features([*whole, *pairs]))
    return Rows.of(rows)
