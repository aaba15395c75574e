"""Knowledge of slots from demonstrations: shared values, fields, types, paths."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall, find_references, is_reference
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.predict.arguments.slot_statistics import RunEntries, Slot, SlotStatistics, entry_of
from dtdr.predict.arguments.state import ITEM, is_whole
from dtdr.predict.arguments.values import canonical, output_leaves, says, short_hash, type_of

MAX_CONSTANTS = 12
"""Values kept of one slot, most frequent first."""
MAX_CONSTANT_LENGTH = 200
"""Characters of a constant as JSON; longer values repeat by chance only."""
_LEAST_SHARE = 0.3
"""Share of a slot's runs that took its constants: an enumeration, a unit or a default covers many,
names that several runs happen to share do not."""
_EMPTY: tuple[Any, ...] = ("", [], {}, None)
"""Values that identify no user; they are kept whatever their share."""
MAX_ITEMS = 20
"""Longest list whose values are counted, or that is put together; others are unknown."""
MAX_DEPTH = 4
"""Depth of objects and lists whose parts are learned and put together."""

ANY_TOOL = ""
"""In place of a tool where the values of all slots of a name are counted."""
_SPACE, _WORD = re.compile(r"\s"), re.compile(r"[^\W_]+")
_LEAST_TIMES = 10
"""Times that a slot is seen before what it never takes is left out."""
_SMALL_NUMBER = re.compile(r"\d{1,2}")
"""Small numbers occur everywhere by chance."""


def group_hash(item: Demonstration) -> int:
    """The group of a run; one without a group is a group."""
    return short_hash(item.group or f"\x00{item.id}\x00{item.query}")


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """Knowledge of a slot from demonstrations.

    Attributes:
        values: ``(canonical form, value)`` of its constants, most frequent first.
        type: the JSON-schema type that its values had most often; empty where it is not known.
        is_list: whether it took a list.
        is_composed: whether it took a text or object with outputs in it.
        fields: the names in the objects that it took; of the slot ``""`` JSON Pointers to the parts
            of the tool's outputs that arguments were.
        has_texts: whether it may take what a text says.
    """

    values: tuple[tuple[str, Any], ...] = ()
    type: str = ""
    is_list: bool = False
    is_composed: bool = False
    fields: tuple[str, ...] = ()
    has_texts: bool = True


_UNSEEN = SlotInfo()


@dataclass(frozen=True, eq=False)
class Constants:
    """Values that a slot took in several runs, whatever the query, and the forms of its values.

    A value is kept only if it occurs in ``min_runs`` runs of two groups (a run without a group is
    a group), so that nothing said by a single user is in a model. Of other values only a hash is
    kept, with the number of their runs, so that they can become constants in an update.

    Attributes:
        parameters: the parameters of each tool, in the order in which calls first gave them.
        slots: by tool and slot; of ``ANY_TOOL`` and a name the values of all slots of this name.
        statistics: in how many runs each value occurred in which slot.
    """

    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slots: Mapping[Slot, SlotInfo] = field(default_factory=dict)
    statistics: SlotStatistics = field(default_factory=lambda: SlotStatistics(0))

    def slot(self, tool: str, name: str) -> SlotInfo:
        """The knowledge of a slot."""
        return self.slots.get((tool, name), _UNSEEN)

    def is_taken(
        self, tool: str, name: str, hashes: npt.NDArray[np.int64], group: int | None
    ) -> npt.NDArray[np.bool_]:
        """Which of m values a slot took in other groups than one, by their hashes; shape (m,)."""
        return self.statistics.values.is_in_other_groups((tool, name), hashes, group)

    @classmethod
    def fit(cls, demonstrations: Sequence[Demonstration], *, min_runs: int = 3) -> Constants:
        """Count values; ``min_runs`` 0 keeps none."""
        return cls(statistics=SlotStatistics(min_runs)).update(demonstrations)

    def update(self, demonstrations: Sequence[Demonstration]) -> Constants:
        """The slots and values of further demonstrations too."""
        statistics = self.statistics.copy()
        counts = _DemonstrationCounts()
        for item in demonstrations:
            statistics.add(counts.add(item), group_hash(item))
        parameters = {
            tool: tuple(dict.fromkeys((*self.parameters.get(tool, ()), *counts.parameters[tool])))
            for tool in (*self.parameters, *counts.parameters)
        }
        tools = Counter(name for names in parameters.values() for name in names)
        slots = dict(self.slots)
        for key, counted in counts.slots.items():
            if key[0] != ANY_TOOL or (statistics.min_runs and tools[key[1]] > 1):
                slots[key] = counted.merge(key, self.slots.get(key), statistics)
        return Constants(parameters, slots, statistics)

    def without(self, tools: Collection[str]) -> Constants:
        """The constants without those of some tools."""
        # Which tools gave a value of all slots of a name is not kept.
        shared = {(ANY_TOOL, name) for tool in tools for name in self.parameters.get(tool, ())}
        left = {tool: names for tool, names in self.parameters.items() if tool not in tools}
        kept = [key for key in self.slots if key[0] not in tools and key not in shared]
        return Constants(left, {key: self.slots[key] for key in kept}, self.statistics)

    def config(self) -> dict[str, Any]:
        """A JSON object that ``restore`` reads back, without rare values and the statistics."""
        tools: dict[str, dict[str, Any]] = {tool: {} for tool in self.parameters}
        for (tool, name), slot in self.slots.items():
            values = [value for _, value in slot.values]
            tools.setdefault(tool, {})[name] = asdict(slot) | {"values": values}
        return {
            "constants": tools,
            "parameters": {tool: list(names) for tool, names in self.parameters.items()},
            "min_runs": self.statistics.min_runs,
        }

    @classmethod
    def restore(
        cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Constants:
        """Rebuild from the output of ``config`` and ``SlotStatistics.arrays``.

        Raises:
            ValueError, TypeError, KeyError, ValidationError: they are damaged.
        """
        slots = {}
        for tool, names in config["constants"].items():
            for name, slot in names.items():
                values = [(canonical(value), value) for value in slot["values"]]
                slots[tool, name] = msgspec.convert(slot | {"values": values}, SlotInfo)
        names = msgspec.convert(config["parameters"], dict[str, tuple[str, ...]])
        return cls(names, slots, SlotStatistics.restore(int(config["min_runs"]), arrays))


@dataclass(slots=True)
class _SlotCounts:
    """The values of a slot in demonstrations.

    Attributes:
        times: how often it took a value.
        types: how often each JSON-schema type.
        free_values: by canonical form, the values that were not taken from the run itself.
        fields: names of the fields of its objects, in the order in which they were first seen.
        is_list, is_composed: see ``SlotInfo``.
        is_said: whether a text of the run said one of the values.
    """

    times: int = 0
    types: Counter[str] = field(default_factory=Counter)
    free_values: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, None] = field(default_factory=dict)
    is_list: bool = False
    is_composed: bool = False
    is_said: bool = False

    def merge(self, slot: Slot, known: SlotInfo | None, statistics: SlotStatistics) -> SlotInfo:
        """Merge with earlier knowledge of the slot; an update forgets nothing."""
        before = known or _UNSEEN
        common = max(sorted(self.types), key=self.types.__getitem__, default="")
        merged = replace(
            before,
            type=before.type or common,
            is_list=before.is_list or self.is_list,
            is_composed=before.is_composed or self.is_composed,
            has_texts=self.is_said or (before.has_texts if known else self.times < _LEAST_TIMES),
        )
        if not statistics.min_runs:
            return merged
        return replace(
            merged,
            values=self._constants(slot, dict(before.values), statistics),
            fields=self._frequent_fields(slot, before.fields, statistics),
        )

    def _constants(
        self, slot: Slot, kept: Mapping[str, Any], statistics: SlotStatistics
    ) -> tuple[tuple[str, Any], ...]:
        """The most frequent values with their forms; ``kept`` were constants before."""
        counts = statistics.free_values
        values = {**self.free_values, **kept}
        forms = statistics.most_frequent(counts, slot, values, kept)[:MAX_CONSTANTS]
        covered = sum(counts.of(slot, form).runs for form in forms)
        filled = statistics.filled.of(slot, "").runs
        if not kept and covered < _LEAST_SHARE * filled:
            forms = [form for form in forms if values[form] in _EMPTY]
        return tuple((form, values[form]) for form in forms)

    def _frequent_fields(
        self, slot: Slot, kept: Sequence[str], statistics: SlotStatistics
    ) -> tuple[str, ...]:
        """Names of fields of enough runs, in the order of the demonstrations."""
        names = dict.fromkeys((*kept, *self.fields))
        frequent = {*statistics.most_frequent(statistics.fields, slot, names, kept)}
        return tuple(name for name in names if name in frequent)


class _DemonstrationCounts:
    """The slots of demonstrations.

    Attributes:
        parameters: by tool, the parameters in the order in which calls first gave them.
        slots: their values, by tool and slot.
    """

    def __init__(self) -> None:
        self._entries = RunEntries()
        self.parameters: dict[str, dict[str, None]] = defaultdict(dict)
        self.slots: dict[Slot, _SlotCounts] = defaultdict(_SlotCounts)

    def add(self, item: Demonstration) -> RunEntries:
        """Read one more run; returns what ``SlotStatistics`` counts of it."""
        self._entries = RunEntries()
        tool_of = {call.id: call.tool for call in (*item.plan.earlier, *item.plan.calls)}
        content = _RunContent(item)
        for call in item.plan.calls:
            for reference in find_references(call.arguments):
                if reference.path and reference.call in tool_of:
                    self._note_field((tool_of[reference.call], ""), reference.path)
            for parameter, value in call.arguments.items():
                self.parameters[call.tool][parameter] = None
                self._add_value((call.tool, parameter), value, content)
            content.add(call)
        return self._entries

    def _note_field(self, slot: Slot, name: str) -> None:
        self.slots[slot].fields[name] = None
        self._entries.fields.add(entry_of(slot, name))

    def _add_value(self, slot: Slot, value: Any, content: _RunContent, depth: int = 0) -> None:
        """Count what a value is like, and so each of its parts, whose slot is below this one."""
        tool, name = slot
        about = self.slots[slot]
        about.times += 1
        about.is_said = about.is_said or _is_said(value, content.said)
        if not isinstance(value, Mapping):
            about.types[type_of(value)] += 1
        if isinstance(value, list) and value:
            about.is_list = True
        elif find_references(value) and not is_reference(value):
            about.is_composed = True
        if _is_plain(value):
            form = canonical(value)
            is_free = not content.has(value, form)
            last_name = name.removesuffix("/*").rpartition("/")[2]
            for counted in (slot, (ANY_TOOL, last_name)):
                self._note_plain(counted, value, form, is_free=is_free)
        if depth >= MAX_DEPTH:
            return
        parts: Iterable[tuple[str, Any]] = ()
        if is_filled_object(value):
            parts = value.items()
            for field_name in value:
                self._note_field(slot, field_name)
        elif isinstance(value, list):
            parts = [(ITEM, item) for item in value[:MAX_ITEMS]]
        for part_name, part in parts:
            self._add_value((tool, f"{name}/{part_name}"), part, content, depth + 1)

    def _note_plain(self, slot: Slot, value: Any, form: str, *, is_free: bool) -> None:
        """Note a value that could be a constant; it is free if it is not the run's own."""
        entries, entry = self._entries, entry_of(slot, form)
        entries.filled.add(entry_of(slot, ""))
        entries.values.add(entry)
        if is_free:
            self.slots[slot].free_values.setdefault(form, value)
            entries.free_values.add(entry)


def _is_said(value: Any, said: str) -> bool:
    """Whether a text may say a value; dates and numbers may be written in another way."""
    if (isinstance(value, str) and type_of(value) != "date") or isinstance(value, bool):
        return says(said, str(value).strip().casefold())
    return not isinstance(value, (list, Mapping))


class _RunContent:
    """The content of a run before a call.

    Attributes:
        text: the query, messages and outputs, casefolded.
        said: the same without outputs of this plan.
    """

    def __init__(self, item: Demonstration) -> None:
        said = [item.query, *(entry.content for entry in item.before if isinstance(entry, Message))]
        self.text = "\n".join(said).casefold()
        self._forms: set[str] = set()
        for entry in item.plan.earlier:
            self.add(entry)
        self.said = self.text

    def add(self, call: ToolCall) -> None:
        """Take note of what a call returned."""
        if call.output is None:
            return
        texts = [self.text]
        for _, leaf in output_leaves(call.output):
            self._forms.add(canonical(leaf))
            if isinstance(leaf, str):
                texts.append(leaf.casefold())
        self.text = "\n".join(texts)

    def has(self, value: Any, form: str) -> bool:
        """Whether a value is this run's own, so that it says nothing of other runs.

        An output returned it; it is a date; it is a number or an identifier that somebody said; or
        it is a text with a name or number in it that was said or returned.
        """
        if isinstance(value, bool) or value is None or _SMALL_NUMBER.fullmatch(str(value)):
            return False
        if form in self._forms or type_of(value) == "date":
            return True
        if not isinstance(value, str):
            return isinstance(value, (int, float)) and says(self.text, str(value))
        if not _SPACE.search(value):
            return any(map(str.isdigit, value)) and says(self.text, value.casefold())
        names = (word for word in _WORD.findall(value) if not word.isalpha() or word[0].isupper())
        return any(says(self.text, word.casefold()) for word in names)


def is_filled_object(value: Any) -> bool:
    """Whether a value is an object with fields, and not a reference or a text around some."""
    return isinstance(value, Mapping) and bool(value) and not is_whole(value)


def _is_plain(value: Any) -> bool:
    """Whether a value can be a constant: no reference, no filled list or object, not long."""
    if is_reference(value) or (isinstance(value, (Mapping, list)) and value):
        return False
    return not isinstance(value, str) or len(json.dumps(value)) <= MAX_CONSTANT_LENGTH
