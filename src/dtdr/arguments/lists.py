"""Lists that are put together: which outputs, parts of outputs and names belong to one."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.arguments.batch import MemberRows
from dtdr.arguments.candidates import Candidates, span_source
from dtdr.arguments.features import USAGE
from dtdr.arguments.hashing import Hashes, feature, features
from dtdr.arguments.sources import Source
from dtdr.arguments.state import RunState, is_plain_reference, pattern_of

_SALT = np.uint32(feature("member of a list"))
_PAD = feature("pad")
_WIDTH = 64
_MAX_PARTS = 100
"""Of outputs that may belong to a list, those of the last calls."""
_NOWHERE = (1 << 30, 0)
_JOINING = frozenset(",&\"'“”‘’") | {"and", "or", "the"}


@dataclass(slots=True, eq=False)
class ListMembers:
    """What a list may hold: outputs tool by tool, parts of outputs, then spans as texts say them.

    Whether something belongs to a list depends on whether the one before it does: names that are
    joined by commas and ``and`` belong together.

    Attributes:
        rows: what a ranker sees of them.
        forms, values, sources: of each.
        is_joined: whether commas and ``and`` alone stand between it and the one before it.
        order: the place of each among all, as the texts say them; what they do not say is last.
    """

    rows: MemberRows
    forms: list[str]
    values: list[Any]
    sources: list[Source]
    is_joined: npt.NDArray[np.bool_]
    order: list[int]

    @classmethod
    def find(cls, candidates: Candidates, state: RunState) -> ListMembers:
        """Whole outputs, parts of outputs, and spans that stand out."""
        described, texts = candidates.features, candidates.texts
        calls = {past.call.id: past for past in state.calls}
        members: list[tuple[str, tuple[int, int] | None, Hashes, str, Any, Source]] = []
        own_rows = described.rows()
        parts = 0
        for place, value in enumerate(candidates.values):
            source = candidates.sources[place]
            if source.kind == "output" and is_plain_reference(value):
                past = calls[source.call]
                produced = np.uint32(feature(f"for {past.call.tool}"))
                row = np.concatenate(
                    [own_rows[described.other_row[place]], candidates.window ^ produced]
                )
                form = candidates.forms[place]
                members.append((f"output {past.call.tool}", past.anchor, row, form, value, source))
            elif source.kind == "output" and source.path and parts < _MAX_PARTS:
                parts += 1
                tool = calls[source.call].call.tool
                name = f"part {tool} {pattern_of(source.path)} {source.call}"
                row = own_rows[described.other_row[place]]
                members.append((name, None, row, candidates.forms[place], value, source))
        tokens = described.token_rows()
        for place in np.flatnonzero(texts.stands_out).tolist():
            first, last = int(texts.first[place]), int(texts.last[place])
            row = np.concatenate(
                [
                    texts.start_features[first],
                    tokens[first],
                    texts.end_features[last],
                    texts.type_features[texts.span_type[place]],
                    USAGE[described.usage[place]],
                ]
            )
            form, value = texts.span_canonical[place], texts.span_values[place]
            members.append(
                ("span", (first, last), row, form, value, span_source(candidates, place))
            )
        # A chain a tool, and one of spans: an output stands where the name in its call does.
        positions = sorted(
            range(len(members)),
            key=lambda place: (members[place][0], members[place][1] or _NOWHERE, place),
        )
        table = np.full((len(members), _WIDTH), _PAD, np.uint32)
        links: list[str] = []
        is_joined = np.zeros(len(members), np.bool_)
        chain: str | None = None
        before: tuple[int, int] | None = None
        for number, place in enumerate(positions):
            name, anchor, own = members[place][:3]
            table[number, : len(own)] = own
            # Which call returned a part tells nothing of others.
            kind = name.rpartition(" ")[0] if name.startswith("part ") else name
            link = f"{kind} {_link(candidates, before, anchor)}" if name == chain else "first"
            is_joined[number] = link.endswith("joined")
            links += [f"after no {link}", f"after yes {link}"]
            chain, before = name, anchor
        said = sorted(
            range(len(members)), key=lambda row: (members[positions[row]][1] or _NOWHERE, row)
        )
        order = np.empty(len(members), np.int64)
        order[said] = np.arange(len(members))
        rows = MemberRows(
            table ^ _SALT, features(links).reshape(len(members), 2) ^ _SALT, described.view.keys
        )
        return cls(
            rows,
            [members[place][3] for place in positions],
            [members[place][4] for place in positions],
            [members[place][5] for place in positions],
            is_joined,
            order.tolist(),
        )

    def labels(self, forms: Set[str]) -> npt.NDArray[np.bool_]:
        """Which of the n members a demonstrated list holds; shape (n,)."""
        return np.array([form in forms for form in self.forms], np.bool_)


def _link(
    candidates: Candidates, before: tuple[int, int] | None, anchor: tuple[int, int] | None
) -> str:
    """How something stands to the one before it in the texts."""
    if before is None or anchor is None:
        return "unknown"
    if anchor[0] <= before[1]:
        return "overlaps"
    texts = candidates.texts
    between = [texts.word_at(token) for token in range(before[1] + 1, anchor[0])]
    if all(word in _JOINING for word in between):
        return "joined"
    return "near" if len(between) < 6 else "far"


class MemberChoice(NamedTuple):
    """Which rows belong to a list that holds something.

    Attributes:
        members: their positions; empty where there are no rows.
        share: how probable this choice is among all.
        empty: how probable it is that nothing belongs.
    """

    members: list[int]
    share: float
    empty: float


def most_probable_members(
    after_no: npt.NDArray[np.float64],
    after_yes: npt.NDArray[np.float64],
    is_joined: npt.NDArray[np.bool_],
) -> MemberChoice:
    """The most probable choice of members, at least one (Viterbi 1967).

    Args:
        after_no: how likely each belongs where the one before it does not; shape (n,).
        after_yes: the same where the one before it does.
        is_joined: whether it belongs if and only if the one before it does.
    """
    # The last one does not belong and none before does, or some do; or it belongs.
    best, total = [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]
    steps: list[tuple[int, int]] = []
    for no, yes, joined in zip(
        after_no.tolist(), after_yes.tolist(), is_joined.tolist(), strict=True
    ):
        stay = [part * (1 - no) for part in best[:2]]
        leave, enter, remain = best[2] * (1 - yes), [part * no for part in best[:2]], best[2] * yes
        sums = [
            total[0] * (1 - no),
            total[1] * (1 - no) + (0 if joined else total[2] * (1 - yes)),
            total[2] * yes + (0 if joined else (total[0] + total[1]) * no),
        ]
        if joined:
            leave, enter = 0.0, [0.0, 0.0]
        outside = [stay[1], leave]
        inside = [*enter, remain]
        steps.append(
            (1 + outside.index(max(outside)), inside.index(max(inside)) if max(inside) else 2)
        )
        best, total = [stay[0], max(outside), max(inside)], sums
    every = sum(total)
    if not best[1] + best[2]:
        return MemberChoice([], 0.0, 1.0)
    state = 1 if best[1] > best[2] else 2
    members: list[int] = []
    share = best[state] / every
    for place in range(len(steps) - 1, -1, -1):
        if state == 0:
            break
        if state == 2:
            members.append(place)
        state = steps[place][state - 1]
    return MemberChoice(members[::-1], share, total[0] / every)
