"""Knowledge of slots from demonstrations: shared values, fields, types, paths."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall, find_references, is_reference
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.predict.arguments.state import ITEM, is_whole
from dtdr.predict.arguments.values import canonical, output_leaves, says, short_hash, type_of

Parameter = tuple[str, str]
"""A tool and one of its slots."""

MAX_CONSTANTS = 12
"""Values kept of one slot, most frequent first."""
MAX_CONSTANT_LENGTH = 200
"""Characters of a constant as JSON; longer values repeat by chance only."""
_LEAST_SHARE = 0.3
"""Share of a slot's runs that took its constants: an enumeration, a unit or a default covers many,
names that several runs happen to share do not."""
_EMPTY: tuple[Any, ...] = ("", [], {}, None)
"""Values that say nothing of anybody, whatever their share."""
MAX_ITEMS = 20
"""Longest list whose values are counted, or that is put together; others are unknown."""
MAX_DEPTH = 4
"""Depth of objects and lists whose parts are learned and put together."""

ANY_TOOL = ""
"""In place of a tool where the values of all slots of a name are counted."""
_ANY = "\x00any"
"""In place of a value where all that a slot took are counted."""
_TOOK = "\x00took"
"""Suffix of a slot whose values are counted wherever they come from."""
_FIELD = "\x00field "
"""Prefix of the names of fields, which are counted together with values."""
_SPACE, _WORD = re.compile(r"\s"), re.compile(r"[^\W_]+")
_ENOUGH = 10
"""Times that a slot is seen before what it never takes is left out."""
_COUNT = re.compile(r"\d{1,2}")
"""Small numbers occur everywhere by chance."""

_SEVERAL = -1
"""In place of the hash of a group."""


@dataclass
class SeenValues:
    """In how many runs each value of each slot occurred, by hashes.

    Attributes:
        min_runs: what makes a value frequent, in two groups; 0 counts nothing.
        counts: by the hash of a value, its runs, and the hash of their group, ``_SEVERAL`` if they
            are not of one group.
    """

    min_runs: int
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, values: Iterable[int], group: int) -> None:
        """Count one more run, by the hashes of its values and its group."""
        for value in values if self.min_runs else ():
            runs, before = self.counts.get(value, (0, group))
            self.counts[value] = runs + 1, before if before == group else _SEVERAL

    def runs(self, key: Parameter, form: str) -> int:
        """The runs in which a slot took a value, by its canonical form."""
        return self.counts.get(_value_hash(key, form), (0, 0))[0]

    def most_frequent(
        self, key: Parameter, forms: Iterable[str], known: Collection[str] = ()
    ) -> list[str]:
        """Those that occurred in enough runs and groups, or are known, the most frequent first.

        Args:
            key: their slot.
            forms: canonical.
            known: of the forms, those that were frequent before.
        """
        frequent = []
        for form in forms:
            runs, group = self.counts.get(_value_hash(key, form), (0, 0))
            if form in known or (runs >= self.min_runs and group == _SEVERAL):
                frequent.append((-runs, form))
        return [form for _, form in sorted(frequent)]

    def array(self) -> npt.NDArray[np.int64]:
        """Values with their runs and groups, which ``Constants.restore`` reads; shape (n, 3)."""
        rows = [(value, *counted) for value, counted in sorted(self.counts.items())]
        return np.array(rows, np.int64).reshape(-1, 3)


def _value_hash(key: Parameter, form: str) -> int:
    return _slot_hash(key) ^ short_hash(form)


@lru_cache(maxsize=1 << 12)
def _slot_hash(key: Parameter) -> int:
    return short_hash(f"{key[0]}\x00{key[1]}")


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
        seen: how often each value occurred in which slot.
    """

    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slots: Mapping[Parameter, SlotInfo] = field(default_factory=dict)
    seen: SeenValues = field(default_factory=lambda: SeenValues(0))

    def slot(self, tool: str, name: str) -> SlotInfo:
        """The knowledge of a slot."""
        return self.slots.get((tool, name), _UNSEEN)

    def is_taken(
        self, tool: str, name: str, hashes: npt.NDArray[np.int64], group: int | None
    ) -> npt.NDArray[np.bool_]:
        """Which of m values a slot took in other groups than one, by their hashes; shape (m,)."""
        wanted = (hashes ^ _slot_hash((tool, name + _TOOK))).tolist()
        counts = self.seen.counts
        return np.array(
            [entry in counts and counts[entry][1] != group for entry in wanted], np.bool_
        )

    @classmethod
    def fit(cls, demonstrations: Sequence[Demonstration], *, min_runs: int = 3) -> Constants:
        """Count values; ``min_runs`` 0 keeps none."""
        return cls(seen=SeenValues(min_runs)).update(demonstrations)

    def update(self, demonstrations: Sequence[Demonstration]) -> Constants:
        """The slots and values of further demonstrations too."""
        seen = replace(self.seen, counts=dict(self.seen.counts))
        counts = _Counts(seen)
        for item in demonstrations:
            counts.add(item)
        parameters = {
            tool: tuple(dict.fromkeys((*self.parameters.get(tool, ()), *counts.given[tool])))
            for tool in (*self.parameters, *counts.given)
        }
        tools = Counter(name for names in parameters.values() for name in names)
        slots = dict(self.slots)
        for key, counted in counts.slots.items():
            if key[0] != ANY_TOOL or (seen.min_runs and tools[key[1]] > 1):
                slots[key] = counted.merge(key, self.slots.get(key), seen)
        return Constants(parameters, slots, seen)

    def without(self, tools: Collection[str]) -> Constants:
        """Nothing of some tools."""
        # Which tools gave a value of all slots of a name is not kept.
        shared = {(ANY_TOOL, name) for tool in tools for name in self.parameters.get(tool, ())}
        left = {tool: names for tool, names in self.parameters.items() if tool not in tools}
        kept = [key for key in self.slots if key[0] not in tools and key not in shared]
        return Constants(left, {key: self.slots[key] for key in kept}, self.seen)

    def config(self) -> dict[str, Any]:
        """A JSON object that ``restore`` reads back, without what was seen rarely."""
        tools: dict[str, dict[str, Any]] = {tool: {} for tool in self.parameters}
        for (tool, name), slot in self.slots.items():
            values = [value for _, value in slot.values]
            tools.setdefault(tool, {})[name] = asdict(slot) | {"values": values}
        return {
            "constants": tools,
            "parameters": {tool: list(names) for tool, names in self.parameters.items()},
            "min_runs": self.seen.min_runs,
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], seen: npt.NDArray[Any]) -> Constants:
        """Rebuild from the output of ``config`` and ``SeenValues.array``.

        Raises:
            ValueError, TypeError, KeyError, ValidationError: they are damaged.
        """
        slots = {}
        for tool, names in config["constants"].items():
            for name, slot in names.items():
                values = [(canonical(value), value) for value in slot["values"]]
                slots[tool, name] = msgspec.convert(slot | {"values": values}, SlotInfo)
        names = msgspec.convert(config["parameters"], dict[str, tuple[str, ...]])
        counts = {value: (runs, group) for value, runs, group in seen.tolist()}
        return cls(names, slots, SeenValues(int(config["min_runs"]), counts))


@dataclass(slots=True)
class _SlotCounts:
    """Counts of a slot in demonstrations."""

    times: int = 0
    types: Counter[str] = field(default_factory=Counter)
    raw: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, None] = field(default_factory=dict)
    is_list: bool = False
    is_composed: bool = False
    is_said: bool = False

    def merge(self, key: Parameter, known: SlotInfo | None, seen: SeenValues) -> SlotInfo:
        """Merge with earlier knowledge of the slot; an update forgets nothing."""
        before = known or _UNSEEN
        common = max(sorted(self.types), key=self.types.__getitem__, default="")
        merged = replace(
            before,
            type=before.type or common,
            is_list=before.is_list or self.is_list,
            is_composed=before.is_composed or self.is_composed,
            has_texts=self.is_said or (before.has_texts if known else self.times < _ENOUGH),
        )
        if not seen.min_runs:
            return merged
        kept = dict(before.values)
        values = {**self.raw, **kept}
        forms = seen.most_frequent(key, values, kept)[:MAX_CONSTANTS]
        covered = sum(seen.runs(key, form) for form in forms)
        if not kept and covered < _LEAST_SHARE * seen.runs(key, _ANY):
            forms = [form for form in forms if values[form] in _EMPTY]
        named = [_FIELD + name for name in dict.fromkeys((*before.fields, *self.fields))]
        enough = seen.most_frequent(key, named, [_FIELD + name for name in before.fields])
        return replace(
            merged,
            values=tuple((form, values[form]) for form in forms),
            fields=tuple(name.removeprefix(_FIELD) for name in named if name in enough),
        )


class _Counts:
    """Counts of parameters in demonstrations, by runs and groups."""

    def __init__(self, seen: SeenValues) -> None:
        self._seen = seen
        self._values: dict[int, None] = {}
        self.given: dict[str, dict[str, None]] = defaultdict(dict)
        self.slots: dict[Parameter, _SlotCounts] = defaultdict(_SlotCounts)

    def add(self, item: Demonstration) -> None:
        """One more run."""
        self._values.clear()
        tool_of = {call.id: call.tool for call in (*item.plan.earlier, *item.plan.calls)}
        content = _RunContent(item)
        for call in item.plan.calls:
            for entry in find_references(call.arguments):
                if entry.path and entry.call in tool_of:
                    self._note_field((tool_of[entry.call], ""), entry.path)
            for parameter, value in call.arguments.items():
                self.given[call.tool][parameter] = None
                self._add_value((call.tool, parameter), value, content)
            content.add(call)
        self._seen.add(self._values, group_hash(item))

    def _note(self, key: Parameter, form: str) -> None:
        """The run gives a value to a slot."""
        self._values[_value_hash(key, form)] = None

    def _note_field(self, key: Parameter, name: str) -> None:
        self.slots[key].fields[name] = None
        self._note(key, _FIELD + name)

    def _add_value(self, key: Parameter, value: Any, content: _RunContent, depth: int = 0) -> None:
        slot = self.slots[key]
        slot.times += 1
        slot.is_said = slot.is_said or _is_said(value, content.said)
        if not isinstance(value, Mapping):
            slot.types[type_of(value)] += 1
        if isinstance(value, list) and value:
            slot.is_list = True
        elif find_references(value) and not is_reference(value):
            slot.is_composed = True
        if _is_plain(value):
            compared = canonical(value)
            is_bound = content.has(value, compared)
            for entry in (key, (ANY_TOOL, key[1].removesuffix("/*").rpartition("/")[2])):
                self._note(entry, _ANY)
                self._note((entry[0], entry[1] + _TOOK), compared)
                if not is_bound:
                    self.slots[entry].raw.setdefault(compared, value)
                    self._note(entry, compared)
        if depth >= MAX_DEPTH:
            return
        inner: Iterable[tuple[str, Any]] = ()
        if is_filled_object(value):
            inner = value.items()
            for name in value:
                self._note_field(key, name)
        elif isinstance(value, list):
            inner = [(ITEM, item) for item in value[:MAX_ITEMS]]
        for name, part in inner:
            self._add_value((key[0], f"{key[1]}/{name}"), part, content, depth + 1)


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
        if isinstance(value, bool) or value is None or _COUNT.fullmatch(str(value)):
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
