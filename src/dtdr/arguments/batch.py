"""Candidates of several parameters side by side, as a ranker is trained with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from dtdr.arguments.candidates import CandidateFeatures
from dtdr.arguments.features import COLUMNS, LAST_USED, USAGE
from dtdr.arguments.hashing import Buckets, Hashes, buckets

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]

LEVELS = 3
_KIND_LEVELS = 2
"""Kinds are joined with the tool's parameter and with the parameter's name, not with any."""


@dataclass(slots=True, eq=False)
class Example:
    """The candidates of one parameter, and which of them are right (positions)."""

    features: CandidateFeatures
    targets: Positions


@dataclass(slots=True, eq=False)
class MemberRows:
    """What may belong to a list.

    Attributes:
        hashes: shape (n, features).
        links: a further feature of each, where the one before it does not belong to the list and
            where it does; shape (n, 2).
        keys: what they are joined with; shape (3,).
    """

    hashes: Hashes
    links: Hashes
    keys: Hashes


@dataclass(slots=True, eq=False)
class MemberExample:
    """A list, and which of the rows belong to it; shape (n,)."""

    rows: MemberRows
    is_member: npt.NDArray[np.bool_]

    def hashes(self) -> Hashes:
        """The features of each row, where it is known what belongs to the list; shape (n, …)."""
        before = np.zeros(len(self.is_member), np.int64)
        before[1:] = self.is_member[:-1]
        link = np.take_along_axis(self.rows.links, before[:, None], axis=1)
        return np.concatenate([self.rows.hashes, link], axis=1)


class Batch:
    """The candidates of several parameters side by side, their features as buckets.

    Rows of features are the tokens as first ones, the tokens as last ones, the types of spans, how
    spans were used, the other candidates, and the kinds.

    Attributes:
        buckets: of all rows, one after the other.
        rows: where each row begins, and the end of the last; shape (rows + 1,).
        owner: the parameter of each candidate, spans of all parameters first.
    """

    def __init__(self, items: Sequence[CandidateFeatures]) -> None:
        views = [item.view for item in items]
        texts = [view.texts for view in views]
        tokens = [len(text.start_features) for text in texts]
        types = [len(text.type_features) for text in texts]
        spans = [len(text.first) for text in texts]
        others = [len(item.other_row) for item in items]
        kinds = [len(item.kinds) for item in items]
        contexts = [len(view.context) + len(item.context) for view, item in _pair(views, items)]
        keys = np.stack([view.keys for view in views])
        token_keys = np.repeat(keys, tokens, axis=0)
        starts = np.concatenate(
            [
                np.concatenate([text.start_features for text in texts]),
                COLUMNS[np.concatenate([view.columns for view in views])],
                LAST_USED[np.concatenate([item.last_used for item in items]), None],
            ],
            axis=1,
        )
        ends = np.concatenate([text.end_features for text in texts])
        used = np.stack([np.bincount(item.usage, minlength=len(USAGE)) > 0 for item in items])
        owner, usage = np.nonzero(used)
        used_row = np.cumsum(used).reshape(used.shape) - 1
        type_features = np.concatenate([text.type_features for text in texts])
        lengths = np.concatenate([item.row_lengths for item in items]).astype(np.int64)
        row_features = np.concatenate([part for item in items for part in item.row_parts])
        sums = [int(item.row_lengths.sum(dtype=np.int64)) for item in items]
        row_keys = np.repeat(keys, sums, axis=0)
        self.buckets: Buckets = np.concatenate(
            [
                join_keys(starts, token_keys).ravel(),
                join_keys(ends, token_keys).ravel(),
                join_keys(type_features, np.repeat(keys, types, axis=0)).ravel(),
                join_keys(USAGE[usage], keys[owner]).ravel(),
                join_keys(row_features[:, None], row_keys).ravel(),
                *(
                    cross_kinds(item.kinds, np.concatenate([view.context, item.context]), view.keys)
                    for view, item in _pair(views, items)
                ),
            ]
        )
        widths = [
            np.full(len(starts), starts.shape[1] * LEVELS),
            np.full(len(ends), ends.shape[1] * LEVELS),
            np.full(len(type_features), type_features.shape[1] * LEVELS),
            np.full(len(usage), USAGE.shape[1] * LEVELS),
            lengths * LEVELS,
            np.repeat(np.array(contexts) * _KIND_LEVELS, kinds),
        ]
        self.rows = np.zeros(sum(map(len, widths)) + 1, np.int64)
        np.cumsum(np.concatenate(widths), out=self.rows[1:])
        self.sizes = [len(part) for part in widths]
        first_token = np.repeat(_firsts(tokens), spans)
        self.first = np.concatenate([text.first for text in texts]) + first_token
        self.last = np.concatenate([text.last for text in texts]) + first_token
        self.type = np.concatenate([text.span_type for text in texts])
        self.type += np.repeat(_firsts(types), spans).astype(np.int32)
        self.usage = np.concatenate(
            [used_row[number, item.usage] for number, item in enumerate(items)]
        )
        first_row = _firsts([len(item.row_lengths) for item in items])
        self.other = np.concatenate([item.other_row for item in items]) + np.repeat(
            first_row, others
        )
        first_kind = _firsts(kinds)
        self.kind = np.concatenate(
            [
                *(span_kinds(item) + kind for item, kind in _pair(items, first_kind)),
                *(item.other_kind + kind for item, kind in _pair(items, first_kind)),
            ]
        )
        numbers = np.arange(len(items))
        self.owner = np.concatenate([np.repeat(numbers, spans), np.repeat(numbers, others)])
        self.count = len(items)
        first_other = sum(spans) + _firsts(others)
        self._places = list(zip(spans, _firsts(spans), first_other, strict=True))

    def targets(self, examples: Sequence[Example]) -> npt.NDArray[np.bool_]:
        """Which candidates are right."""
        result = np.zeros(len(self.owner), np.bool_)
        for example, (spans, first_span, first_other) in zip(examples, self._places, strict=True):
            wanted = example.targets
            result[np.where(wanted < spans, first_span + wanted, first_other + wanted - spans)] = 1
        return result

    def candidate_scores(self, scores: Floats) -> Floats:
        """Scores of the candidates, spans of all parameters first, from those of the rows."""
        starts, ends, types, usage, others, kinds = np.split(scores, np.cumsum(self.sizes[:-1]))
        spans = starts[self.first] + ends[self.last] + types[self.type] + usage[self.usage]
        result: Floats = np.concatenate([spans, others[self.other]]) + kinds[self.kind]
        return result

    def row_errors(self, errors: npt.NDArray[np.float64]) -> Floats:
        """The derivative by the scores of the rows, from that by the scores of candidates."""
        starts, ends, types, usage, others, kinds = self.sizes
        of_spans, of_others = np.split(errors, [len(self.first)])
        return np.concatenate(
            [
                np.bincount(self.first, of_spans, starts),
                np.bincount(self.last, of_spans, ends),
                np.bincount(self.type, of_spans, types),
                np.bincount(self.usage, of_spans, usage),
                np.bincount(self.other, of_others, others),
                np.bincount(self.kind, errors, kinds),
            ]
        ).astype(np.float32)


def span_kinds(item: CandidateFeatures) -> npt.NDArray[np.int64]:
    """The kind of each span; shape (m,)."""
    return np.where(item.view.texts.span_part > 0, item.message_kind, 1)


_pair = partial(zip, strict=True)


def _firsts(sizes: Sequence[int]) -> Positions:
    """Where each part begins in their concatenation."""
    return np.cumsum([0, *sizes[:-1]])


def join_keys(features: Hashes, keys: Hashes) -> Buckets:
    """Shape (rows, features * levels): every feature joined with each key of its row."""
    joined = buckets(features[:, :, None], keys[:, None, :])
    return joined.reshape(len(features), features.shape[1] * keys.shape[1])


def cross_kinds(kinds: Hashes, context: Hashes, keys: Hashes) -> Buckets:
    """Shape (kinds * context * levels,): every kind with what decides between kinds."""
    return buckets((kinds[:, None] ^ context)[:, :, None], keys[:_KIND_LEVELS]).ravel()


def member_arrays(
    members: Sequence[MemberExample],
) -> tuple[Hashes, Hashes, npt.NDArray[np.bool_]]:
    """Of the n rows of all lists: features and keys, shape (n, …), and members, shape (n,)."""
    keys = np.stack([item.rows.keys for item in members])
    return (
        np.concatenate([item.hashes() for item in members]),
        np.repeat(keys, [len(item.is_member) for item in members], axis=0),
        np.concatenate([item.is_member for item in members]),
    )
