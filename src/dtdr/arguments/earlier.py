"""What earlier calls offer to a parameter: their outputs, parts of these, and their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.arguments.features import MAX_OUTPUTS, LeafKind, argument_features, leaf_features
from dtdr.arguments.hashing import Hashes
from dtdr.arguments.sources import Source
from dtdr.arguments.state import MAX_LEAVES, Leaf, RunState
from dtdr.arguments.values import canonical
from dtdr.calls import iter_references

MAX_ARGUMENTS = 40
"""Earlier arguments that may be repeated, those of the last calls."""


class EarlierValues:
    """The values that the calls of a run offer, whatever the tool and parameter.

    Of an output that is not known, the parts that arguments often are are offered as references.

    Args:
        state: what is known before the call.
        paths: of each tool, JSON Pointers to the parts of its outputs that arguments often are.

    Attributes:
        values, sources, forms: first whole outputs, then arguments, then parts of outputs; forms
            are canonical.
        outputs: how many whole outputs.
        given: for each tool and parameter, the forms of the values that it took so far.
    """

    def __init__(self, state: RunState, paths: Mapping[str, Sequence[str]]) -> None:
        self.values: list[Any] = []
        self.sources: list[Source] = []
        self.forms: list[str] = []
        calls = state.calls
        for past in calls[-MAX_OUTPUTS:]:
            reference = {"$ref": past.call.id}
            self._add(reference, canonical(reference), Source("output", past.call.id))
        self.outputs = len(self.values)
        self.given: dict[tuple[str, str], list[str]] = {}
        self._calls_of: dict[str, int] = {}
        ranks = []
        used: set[str] = set()
        for past in calls:
            tool = past.call.tool
            ranks.append(self._calls_of.get(tool, 0))
            self._calls_of[tool] = ranks[-1] + 1
            for name, form in past.forms.items():
                self.given.setdefault((tool, name), []).append(form)
                if not isinstance(past.arguments[name], (list, Mapping)):
                    used.add(form)
        self._add_arguments(state, ranks)
        self._add_leaves(state, used, paths)

    def _add(self, value: Any, form: str, source: Source) -> None:
        self.values.append(value)
        self.forms.append(form)
        self.sources.append(source)

    def _add_arguments(self, state: RunState, ranks: list[int]) -> None:
        """Arguments of earlier calls, the last ones first, each value once."""
        self._repeatable: list[tuple[str, str, str, int, int]] = []
        seen: set[str] = set()
        calls = state.calls
        for place in range(len(calls) - 1, -1, -1):
            past = calls[place]
            ago = min(len(calls) - place, 4) + 5 * past.is_earlier
            for name, value in past.arguments.items():
                form = past.forms[name]
                if form in seen or value is None or value == "" or isinstance(value, bool):
                    continue
                if _refers(value):
                    continue
                seen.add(form)
                self._add(value, form, Source("argument", past.call.id, name))
                self._repeatable.append((past.call.tool, name, form, ago, ranks[place]))
                if len(self._repeatable) >= MAX_ARGUMENTS:
                    return

    def _add_leaves(
        self, state: RunState, used: set[str], paths: Mapping[str, Sequence[str]]
    ) -> None:
        """Parts of outputs, those of the last calls first, each value once."""
        said = state.texts.said
        place_of: dict[str, int] = {}
        kinds: dict[LeafKind, int] = {}
        groups: dict[tuple[int, str], int] = {}
        kind_of: list[int] = []
        group_of: list[int] = []
        for back, past in enumerate(reversed(state.calls), 1):
            tool, identifier, ago = past.call.tool, past.call.id, min(back, 4)
            leaves = past.leaves
            if past.call.output is None:
                leaves = tuple(
                    Leaf.of(path, {"$ref": identifier, "path": path})
                    for path in paths.get(tool, ())
                )
            is_large = len(leaves) > 20
            for leaf in leaves:
                form = leaf.form
                if form in place_of:
                    continue
                place_of[form] = len(place_of)
                kind = LeafKind(
                    tool,
                    leaf.pattern,
                    leaf.key,
                    leaf.position,
                    ago,
                    said.get(form, "no"),
                    form in used,
                    is_large,
                )
                kind_of.append(kinds.setdefault(kind, len(kinds)))
                group_of.append(groups.setdefault((back, leaf.pattern), len(groups)))
                self._add(leaf.value, form, Source("output", identifier, leaf.pointer))
                if len(place_of) >= MAX_LEAVES:
                    break
            if len(place_of) >= MAX_LEAVES:
                break
        self._leaf_place = place_of
        self._leaf_kinds = list(kinds)
        self._leaf_groups = len(groups)
        self._leaf_kind = np.array(kind_of, np.int64)
        self._leaf_group = np.array(group_of, np.int64)

    def arguments(self, tool: str, parameter: str) -> list[Hashes]:
        """The features of each earlier argument as seen from a parameter."""
        given = self.given.get((tool, parameter), ())
        calls = self._calls_of.get(tool, 0)
        rows = []
        for name, other, form, ago, rank in self._repeatable:
            lag = rank - calls if abs(rank - calls) < 4 else 9
            uses = min(given.count(form), 2) if given else 0
            rows.append(argument_features(name, other, ago, lag, uses, name == tool, parameter))
        return rows

    def leaves(self, tool: str, parameter: str) -> tuple[list[Hashes], npt.NDArray[np.int64]]:
        """The parts of outputs as seen from a parameter.

        Returns:
            The features of what is told apart, and for each of n parts which of them it has,
            shape (n,).
        """
        count = len(self._leaf_kind)
        if not count:
            return [], np.zeros(0, np.int64)
        is_given = np.zeros(count, np.int64)
        for form in self.given.get((tool, parameter), ()):
            if form in self._leaf_place:
                is_given[self._leaf_place[form]] = 1
        left = np.flatnonzero(is_given == 0)
        # The next of a list that is gone through item by item.
        following = np.full(self._leaf_groups, -1)
        following[self._leaf_group[left[::-1]]] = left[::-1]
        is_next = following[self._leaf_group] == np.arange(count)
        codes = 4 * self._leaf_kind + 2 * is_given + is_next
        distinct, row = np.unique(codes, return_inverse=True)
        rows = [
            leaf_features(self._leaf_kinds[code >> 2], parameter, bool(code & 2), bool(code & 1))
            for code in distinct.tolist()
        ]
        return rows, row


def _refers(value: Any) -> bool:
    if isinstance(value, Mapping) and "$join" in value:
        return True
    return next(iter_references(value), None) is not None
