"""What a ranker is told of spans, constants, outputs, parts of outputs and earlier arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.arguments.folding import fold_text
from dtdr.arguments.hashing import Hashes, feature_table, features
from dtdr.arguments.knowledge import Anchors, first_after, last_before
from dtdr.arguments.run_texts import RunTexts
from dtdr.arguments.state import RunState
from dtdr.arguments.texts import name_stems, stem
from dtdr.calls import ToolCall

LAST_USED = feature_table("last used", 10, 10).ravel()
"""Of a token, by how far it is from the span that the parameter used last, and any."""
USAGE = np.stack(
    [
        np.repeat(feature_table("used", 8), 10),
        feature_table("used by length", 8, 10).ravel(),
    ],
    axis=1,
)
"""Of a span, by whether it was used, times 10, plus its length; shape (80, 2)."""

_TABLES = (
    feature_table("anchor before", 14),
    feature_table("anchor after", 6),
    feature_table("named before", 2, 7, 2),
    feature_table("named after", 2, 5),
)
COLUMNS = np.concatenate([table.ravel() for table in _TABLES])
"""The features that ``token_columns`` gives the positions of."""
_OFFSETS = np.cumsum([0, *(table.size for table in _TABLES[:-1])])
MAX_OUTPUTS = 60
"""Calls whose whole output may be referred to, the last ones."""


def token_columns(
    texts: RunTexts, anchors: Anchors, stems: frozenset[str]
) -> tuple[npt.NDArray[np.uint8], bool]:
    """What is known of each of n tokens as seen from a parameter, whatever was called.

    Args:
        texts: n tokens.
        anchors: of the tool.
        stems: of the words in the parameter's name.

    Returns:
        Positions in ``COLUMNS``, shape (n, 4); and whether a word of the parameter's name stands
        in the texts.
    """
    count = len(texts.stems)
    tokens = np.arange(count)
    named = np.fromiter((stem in stems for stem in texts.stems), np.bool_, count)
    mentioned = int(named.any())
    back, ahead = np.full(count, 6), np.full(count, 4)
    if mentioned:
        before = last_before(named, tokens)
        before[1:] = before[:-1].copy()
        before[:1] = -1
        after = first_after(named, tokens)
        after[:-1] = after[1:].copy()
        after[-1:] = -1
        back = np.where(before < 0, 6, np.minimum(5, tokens - before))
        ahead = np.where(after < 0, 4, np.minimum(3, after - tokens))
    columns = np.stack(
        [
            anchors.before,
            anchors.after,
            (mentioned * 7 + back) * 2 + named,
            mentioned * 5 + ahead,
        ],
        axis=1,
    )
    return (columns + _OFFSETS).astype(np.uint8), bool(mentioned)


def last_used(count: int, last_own: int, last: int) -> npt.NDArray[np.uint8]:
    """Positions in ``LAST_USED``; shape (tokens,).

    Args:
        count: tokens.
        last_own: the last token of the span that the parameter took last, -1 where there is none.
        last: the same for any parameter.
    """
    if last_own < 0 and last < 0:
        return np.zeros(count, np.uint8)
    return 10 * _distances(count, last_own) + _distances(count, last)


_FAR = 16
_SIGNED = np.array(
    [5 + min(4, (-gap).bit_length()) for gap in range(-_FAR, 0)]
    + [1 + min(4, gap.bit_length()) for gap in range(_FAR)],
    np.uint8,
)


def _distances(count: int, origin: int) -> npt.NDArray[np.uint8]:
    """Rounded distances from an origin: 0 without one, 1 to 5 from there on, 6 to 9 before it."""
    if origin < 0:
        return np.zeros(count, np.uint8)
    return _SIGNED[np.clip(np.arange(count) - origin, -_FAR, _FAR - 1) + _FAR]


def span_usage(state: RunState, tool: str, parameter: str) -> tuple[npt.NDArray[np.uint8], bool]:
    """Which of m spans overlap with spans that were used.

    Returns:
        Positions in ``USAGE``, shape (m,): 1 where any argument used a span, plus 2 where one of
        this parameter's name did, plus 4 where it was this tool's; and whether a quotation is left
        that nothing used.
    """
    texts = state.texts
    length = np.minimum(texts.last - texts.first, 9)
    if not state.spans:
        return length.astype(np.uint8), bool(texts.is_quoted.any())
    used = np.zeros((3, len(texts.stems) + 1), np.int32)
    for row, key in enumerate((("", ""), ("", parameter), (tool, parameter))):
        for first, last in state.spans.get(key, ()):
            used[row, first : last + 1] = 1
    is_free = bool((texts.is_quoted & (used[0, :-1] == 0)).any())
    sums = np.zeros_like(used)
    sums[:, 1:] = np.cumsum(used[:, :-1], axis=1)
    overlaps = sums[:, texts.last + 1] > sums[:, texts.first]
    code = overlaps[0] + 2 * overlaps[1] + 4 * overlaps[2]
    return (10 * code + length).astype(np.uint8), is_free


class Mention(NamedTuple):
    """How the texts of a run say a constant.

    Attributes:
        said: ``whole``, ``part``, or ``no``.
        before, after: where it stands to the words that announce the tool, see ``Anchors``.
        is_used: whether an argument took this place.
    """

    said: str = "no"
    before: int = -1
    after: int = -1
    is_used: bool = False


@lru_cache(maxsize=1 << 14)
def _fold_constant(form: str) -> tuple[str, frozenset[str]]:
    """A canonical form as it is looked for in texts, and the stems of its words."""
    text = form.removesuffix(".0")
    words = re.findall(r"[^\W_]{3,}", text)
    return fold_text(text), frozenset(map(stem, words))


def find_mention(texts: RunTexts, anchors: Anchors, form: str, used: Collection[int]) -> Mention:
    """How the texts say a constant; of several places, the first that nothing used.

    Args:
        texts: of the run.
        anchors: of the tool.
        form: the constant's canonical form.
        used: tokens that arguments took.
    """
    folded, stems = _fold_constant(form)
    places = texts.folded.find(folded)
    if not places:
        is_part = not texts.stem_set.isdisjoint(stems)
        return Mention("part" if is_part else "no")
    first = next((place[0] for place in places if place[0] not in used), places[0][0])
    return Mention("whole", int(anchors.before[first]), int(anchors.after[first]), first in used)


@lru_cache(maxsize=1 << 14)
def constant_features(mention: Mention, rank: int, is_own: bool, given: int) -> Hashes:
    """What is known of a constant; shape (features,).

    Args:
        mention: how the texts say it.
        rank: among the parameter's constants, at most 4.
        is_own: whether this tool took it in enough runs, not only others.
        given: how often this parameter took it in this run, at most 2.
    """
    said, before, after, is_used = mention
    return features(
        [
            "c",
            f"c0 {is_own} {rank}",
            f"c1 {said} {is_own}",
            f"c2 {said} {before}",
            f"c3 {said} {after}",
            f"c4 {said} {is_used}",
            f"c5 {given} {said}",
            f"c6 {said} {before} {is_used} {given}",
        ]
    )


def output_features(
    state: RunState,
    tool: str,
    anchors: Anchors,
    strongest: Mapping[str, int],
    announced: Sequence[str],
) -> list[Hashes]:
    """What is known of the last calls, each of whose outputs may be the value, or in a list.

    Args:
        state: what is known before the call.
        tool: that is called.
        anchors: of the tool.
        strongest: of the tools called so far, the token that announces each, or -1.
        announced: the tool that each token announces, or nothing.

    Returns:
        One array of features a call, oldest first.
    """
    texts, calls = state.texts, state.calls
    by_tool: dict[str, list[str]] = {}
    for past in calls:
        by_tool.setdefault(past.call.tool, []).append(past.call.id)
    left = {name: [one for one in ids if not state.uses.get(one)] for name, ids in by_tool.items()}
    last_tool = calls[-1].call.tool if calls else ""
    rows: list[Hashes] = []
    for place in range(max(0, len(calls) - MAX_OUTPUTS), len(calls)):
        past = calls[place]
        call = past.call
        name = call.tool
        ago = len(calls) - place
        uses = min(state.uses.get(call.id, 0), 2)
        same, unused = by_tool[name], left[name]
        is_first = bool(unused) and unused[0] == call.id
        is_last = bool(unused) and unused[-1] == call.id
        names = [
            f"r0 {name}",
            f"r1 {name} {min(ago, 4)}",
            f"r2 {name} {uses}",
            f"r3 {min(ago, 6)}",
            f"r5 {name} {min(same.index(call.id), 3)} {min(len(same), 4)}",
            f"r6 {name} {min(len(unused), 4)} {bool(uses)}",
            f"r7 {name} {last_tool == name} {ago == 1}",
            f"r8 {name} {is_first} {is_last}",
        ]
        place = strongest[name]
        if place >= 0 and anchors.strongest >= 0:
            away = _round_distance(place - anchors.strongest)
            names += [f"rm {name} {away}", f"rn {away} {bool(uses)}"]
        if past.anchor is not None:
            place = past.anchor[0]
        if place >= 0:
            beside = [
                next((one for one in side if one not in ("", name)), "")
                for side in (reversed(announced[:place]), announced[place:])
            ]
            names += [
                f"rp {name} {beside[0]}",
                f"rq {name} {beside[1]}",
                f"rt {beside[0]} {bool(uses)}",
                f"ru {name} {tool == beside[0]} {tool == beside[1]} {bool(uses)}",
                f"rv {tool == beside[0]} {tool == beside[1]}",
            ]
        if past.anchor is None:
            names.append(f"rz {name}")
        else:
            first, last = past.anchor
            head = texts.head(first)
            one, two = texts.neighbour(first, -1), texts.neighbour(first, -2)
            names += [
                f"ra {name} {head}",
                f"rb {name} {one}",
                f"rc {name} {texts.neighbour(last, 1)}",
                f"rd {name} {one} {two}",
                f"re {one}",
                f"rf {head}",
                f"rg {name} {_round_distance(first - state.last_token)}",
                f"rh {name} {two}",
                f"ri {name} {texts.neighbour(first, -3)}",
                f"rj {name} {anchors.before[first]}",
                f"rk {anchors.before[first]}",
                f"rl {name} {anchors.after[first]}",
            ]
        rows.append(features(names))
    return rows


def use_features(
    state: RunState, call: ToolCall, tool: str, parameter: str, is_taken: bool
) -> Hashes:
    """How often an output was used, by this parameter, in this very call; shape (features,)."""
    by_same = call.id in state.uses_by.get((tool, parameter), ())
    return _use_features(call.tool, min(state.uses.get(call.id, 0), 2), by_same, is_taken)


@lru_cache(maxsize=1 << 12)
def _use_features(producer: str, uses: int, by_same: bool, is_taken: bool) -> Hashes:
    return features(
        [
            f"r4 {uses} {by_same} {is_taken}",
            f"r9 {producer} {uses} {by_same} {is_taken}",
            f"ry {producer} {is_taken}",
        ]
    )


def _round_distance(distance: int) -> str:
    sign = "0" if distance == 0 else "+" if distance > 0 else "-"
    return f"{sign}{min(4, abs(distance).bit_length())}"


@lru_cache(maxsize=1 << 14)
def argument_features(
    tool: str, name: str, ago: int, lag: int, uses: int, same_tool: bool, parameter: str
) -> Hashes:
    """What is known of an earlier argument; shape (features,).

    Args:
        tool: that it was given to.
        name: of the argument.
        ago: calls since then, at most 4; 5 more where it was for an earlier query.
        lag: how many more calls its tool had by then than the tool to be called has; 9 for many.
        uses: how often earlier calls of the tool to be called repeated it, at most 2.
        same_tool: whether the tool is the one to be called.
        parameter: to be filled.
    """
    place = f"{tool}.{name}"
    same = name == parameter
    return features(
        [
            f"a0 {place}",
            f"a1 {place} {ago}",
            f"a2 {place} {lag}",
            f"a3 {same} {same_tool} {uses}",
            f"a4 {place} {uses}",
            f"a5 {same} {ago}",
            f"a6 {same} {lag == 0}",
            f"a7 {place} {lag == 0} {uses > 0}",
            f"a8 {bool(name_stems(name) & name_stems(parameter))}",
        ]
    )


class LeafKind(NamedTuple):
    """What parts of outputs have in common that a ranker does not tell apart.

    Attributes:
        tool: whose output it is.
        pattern, key, position: see ``Leaf``.
        ago: calls since then, at most 4.
        said: who said the value, ``no`` where it was not said.
        is_used: whether any argument took it.
        is_large: whether the output has many parts.
    """

    tool: str
    pattern: str
    key: str
    position: int
    ago: int
    said: str
    is_used: bool
    is_large: bool


@lru_cache(maxsize=1 << 15)
def leaf_features(kind: LeafKind, parameter: str, is_given: bool, is_next: bool) -> Hashes:
    """What is known of a part of an output; shape (features,).

    Args:
        kind: of the part.
        parameter: to be filled.
        is_given: whether the parameter took it before.
        is_next: whether it is the first of its kind in the output that the parameter did not take.
    """
    tool, pattern, key, position, ago, said, is_used, is_large = kind
    shares = name_stems(key) & name_stems(parameter)
    by_name = "same" if key == parameter else "part" if shares else "other"
    return features(
        [
            f"l0 {tool} {pattern}",
            f"l1 {pattern} {position}",
            f"l2 {by_name}",
            f"l3 {by_name} {said}",
            f"l4 {said}",
            f"l5 {key} {said}",
            f"l6 {ago}",
            f"l7 {by_name} {ago}",
            f"l8 {is_given} {by_name}",
            f"l9 {is_used} {said}",
            f"la {tool} {pattern} {said}",
            f"lb {key}",
            f"lc {tool} {pattern} {is_given}",
            f"ld {position} {is_large}",
            f"le {tool} {pattern} {is_next}",
            f"lf {is_next} {by_name} {said}",
        ]
    )
