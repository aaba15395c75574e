"""The parts of earlier calls as candidates: which lists and records they are in, and who gave them.

Arrays are named by what they index: ``record_of[p]`` is the record that part p is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.constants import Constants
from dtdr.predict.arguments.state import WHOLE, RunState, ValuePart
from dtdr.predict.arguments.values import canonical

MAX_PARTS = 400
"""Parts of earlier calls that may be an argument, those of the last calls."""
_OLDEST = 4
"""Calls ago from which parts of earlier calls count as equally old."""
_RELATED = 3
"""Values decided last whose records a part of an output is compared with."""


class EarlierParts:
    """The n parts of earlier calls, whatever the tool and slot, in their order.

    Forms, lists and records are numbers that ``RunState.number`` gave.

    Attributes:
        parts: n of them.
        call_of: the position of the call that each is of; shape (n,).
        form_of: the form of each; shape (n,).
        list_of: the list that each is in; shape (n,).
        record_of: the record that each is in; shape (n,).
        form_before: the form of the part before each in its list, -1 for the first; shape (n,).
        mentions_of: a code of how much was said of the record of each, see ``FLAGS``; shape (n,).
        kinds: kinds of parts, each with a code of its age and use.
        kind_of: the kind of each, a position in ``kinds``; shape (n,).
        labels: names by which one decides between kinds of values.
        label_of: the label of each, a position in ``labels``; shape (n,).
        whole: the parts that are whole outputs; shape (w,).
    """

    def __init__(self, state: RunState, constants: Constants) -> None:
        taken, taken_forms = _take_parts(state, constants)
        self.parts = [part for _, part in taken]
        self.call_of = np.array([call for call, _ in taken])
        numbers = np.array([part.numbers for part in self.parts])
        self.form_of, part_kind_of, self.list_of, self.record_of, records_of = numbers.T
        used = taken_forms | {canonical({"$ref": call}) for call in state.used}
        is_used = np.array([part.form in used for part in self.parts])
        age_of = np.minimum(len(state.calls) - self.call_of, _OLDEST)
        # The decimal digits of a code: the kind, then twice the age plus the use.
        codes, self.kind_of = np.unique(
            10 * part_kind_of + 2 * age_of + is_used, return_inverse=True
        )
        known = list(state.kinds)
        self.kinds = [(known[code // 10], code % 10) for code in codes.tolist()]
        is_whole = np.array([kind.pattern == WHOLE for kind, _ in self.kinds])
        self.whole = np.flatnonzero(is_whole[self.kind_of])
        names = [
            f"output {kind.tool}" if kind.pattern == WHOLE else "part" for kind, _ in self.kinds
        ]
        self.labels = list(dict.fromkeys(names))
        self.label_of = np.array([self.labels.index(name) for name in names])[self.kind_of]
        self.form_before = _values_before(self.form_of, self.list_of)
        scores = np.array([part.mentions for part in self.parts])
        late, overall = (_rank_in_groups(column, records_of) for column in scores.T)
        self.mentions_of = late + 3 * overall

    def flags(self, state: RunState, forms: Sequence[str]) -> npt.NDArray[np.int64]:
        """Codes of ``FLAGS`` of each part; shape (n,).

        Args:
            state: before the call.
            forms: the forms that the slot took so far, the last one last.
        """
        numbers = [state.number(form) for form in forms]
        is_given = _is_among(self.form_of, numbers, len(state.numbers))
        follows_last = self.form_before == (numbers[-1] if numbers else -2)
        left = np.flatnonzero(~is_given)[::-1]
        first_left = np.full(len(state.numbers), -1)
        first_left[self.list_of[left]] = left  # the last one written is the first of its list
        is_first = first_left[self.list_of] == np.arange(len(is_given))
        return np.asarray(is_given + 2 * is_first + 4 * follows_last + 8 * self.mentions_of)

    def relations(
        self, state: RunState, values: Iterable[tuple[str, str]]
    ) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
        """How each part relates to the records of values that the call took.

        Args:
            state: before the call.
            values: slots and the forms that they took, those decided last first. Only those that
                parts have count, one of a slot, ``_RELATED`` at most.

        Returns:
            The slots that count, and a code for each part, see ``relation_rows``; shape (n,).
        """
        codes = np.zeros(len(self.parts), np.int64)
        names: list[str] = []
        for name, form in values:
            same = np.flatnonzero(self.form_of == state.number(form))
            if len(same) and name not in names and len(names) < _RELATED:
                of_call = _is_among(self.call_of, self.call_of[same], len(state.calls))
                of_record = _is_among(self.record_of, self.record_of[same], len(state.numbers))
                codes = 3 * codes + of_call + of_record
                names.append(name)
        return tuple(names), codes


def _take_parts(
    state: RunState, constants: Constants
) -> tuple[list[tuple[int, ValuePart]], set[str]]:
    """The last ``MAX_PARTS`` parts of earlier calls with their calls, and the forms of arguments.

    A value that was an argument several times is taken once, where it was given last.
    """
    taken: list[tuple[int, ValuePart]] = []
    room, taken_forms = MAX_PARTS, set[str]()
    for index, past in reversed([*enumerate(state.calls)]):
        parts, learned = past.parts, constants.slot(past.call.tool, "").fields
        if past.call.output is None and learned:
            parts = state.read_parts(past.call, past.arguments, learned)
        for part in reversed(parts[:room]):
            if part.source.kind == "argument":
                if part.form in taken_forms:
                    continue
                taken_forms.add(part.form)
            taken.append((index, part))
        room = max(0, room - len(parts))
    return taken[::-1], taken_forms


def _values_before(
    values: npt.NDArray[np.int64], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The value before each one of its group, -1 for the first of a group; shape (n,)."""
    order = np.argsort(groups, kind="stable")
    before = np.full(len(order), -1)
    follows = groups[order][1:] == groups[order][:-1]
    before[order[1:][follows]] = values[order[:-1][follows]]
    return before


def _is_among(
    numbers: npt.NDArray[np.int64], some: npt.NDArray[np.int64] | list[int], count: int
) -> npt.NDArray[np.bool_]:
    """Which of n numbers below a count are among some; shape (n,)."""
    table = np.zeros(count, np.bool_)
    table[some] = True
    return table[numbers]


def _rank_in_groups(
    scores: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """2 for the highest score of its group, 1 for a lower one, 0 for none; shape (n,)."""
    highest = np.zeros(int(groups.max()) + 1)
    np.maximum.at(highest, groups, scores)
    return (scores > 0) * 1 + ((scores > 0) & (scores >= highest[groups]))
