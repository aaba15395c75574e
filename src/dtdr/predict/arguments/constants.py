"""What demonstrations show of slots: values that many runs share, fields, types, paths."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall, find_references, is_reference
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.errors import ModelError
from dtdr.predict.arguments.state import ITEM, iter_parts
from dtdr.predict.arguments.values import canonical, output_leaves, says, type_of

Parameter = tuple[str, str]
"""A tool and one of its slots."""

MAX_CONSTANTS = 12
"""Of one slot, the most frequent."""
MAX_PATHS = 40
"""Of one tool's outputs, the parts that arguments were most often."""
MAX_CONSTANT_LENGTH = 200
"""Characters of a constant as JSON; longer values repeat by chance only."""
_LEAST_SHARE = 0.3
"""Of a slot's runs, those that took its constants: an enumeration, a unit or a default covers many,
names that several runs happen to share do not."""
_MOST_ITEMS = 20
"""Of a list whose values are counted."""
_MAX_DEPTH = 4
"""Of objects in objects whose fields are learned."""

ANY_TOOL = ""
"""In place of a tool where the values of all slots of a name are counted."""
_PATH = "\x00path"
"""In place of a slot where parts of outputs are counted: names in them may be values too."""
_ANY = "\x00any"
"""In place of a value where all that a slot took are counted."""
_FIELD = "\x00field "
"""Prefix of the names of fields, which are counted together with values."""
_SPACE, _WORD = re.compile(r"\s"), re.compile(r"[^\W_]+")
_ENOUGH = 10
"""Times that a slot is seen before what it never takes is left out."""
_COUNT = re.compile(r"\d{1,2}")
"""Small numbers occur everywhere by chance."""
_DAMAGED = "its record of parameters is damaged; fit it again"

Note = Callable[[Parameter, str], None]
"""Counts that a run has a value, by its slot and canonical form, once a run."""


@dataclass
class SeenValues:
    """In how many runs and groups each value of each slot occurred, by hashes.

    Attributes:
        min_runs, min_groups: what makes a value frequent.
        counts: by the hash of a value, its runs.
        groups: by the hash of a value, hashes of its groups, as many as are needed.
    """

    min_runs: int
    min_groups: int
    counts: dict[int, int] = field(default_factory=dict)
    groups: dict[int, frozenset[int]] = field(default_factory=dict)

    def copy(self) -> SeenValues:
        """The same counts, which can be added to."""
        return replace(self, counts=dict(self.counts), groups=dict(self.groups))

    def of_run(self, item: Demonstration) -> Note:
        """Takes the values of one more run."""
        group = _hash(item.group or f"\x00{item.id}\x00{item.query}")
        added: set[int] = set()

        def note(key: Parameter, form: str) -> None:
            value = _value_hash(key, form)
            if value not in added:
                added.add(value)
                self.counts[value] = self.counts.get(value, 0) + 1
                known = self.groups.get(value, frozenset())
                if len(known) < self.min_groups:
                    self.groups[value] = known | {group}

        return note

    def runs(self, key: Parameter, form: str) -> int:
        """The runs in which a slot took a value, by its canonical form."""
        return self.counts.get(_value_hash(key, form), 0)

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
            value = _value_hash(key, form)
            runs, groups = self.counts.get(value, 0), self.groups.get(value, ())
            is_enough = runs >= self.min_runs and len(groups) >= self.min_groups
            if is_enough or form in known:
                frequent.append((-runs, form))
        return [form for _, form in sorted(frequent)]

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """Arrays that ``from_arrays`` reads back."""
        pairs = [(value, group) for value, by in self.groups.items() for group in sorted(by)]
        return {
            "counts": np.array(sorted(self.counts.items()), np.int64).reshape(-1, 2),
            "groups": np.array(sorted(pairs), np.int64).reshape(-1, 2),
        }

    @classmethod
    def from_arrays(
        cls,
        min_runs: int,
        min_groups: int,
        counts: npt.NDArray[np.int64],
        groups: npt.NDArray[np.int64],
    ) -> SeenValues:
        """What ``arrays`` gave.

        Raises:
            ModelError: they have another shape.
        """
        if any(part.ndim != 2 or part.shape[1] != 2 for part in (counts, groups)):
            raise ModelError("its record of values is damaged; fit it again")
        by_value: dict[int, set[int]] = defaultdict(set)
        for value, group in groups.tolist():
            by_value[value].add(group)
        frozen = {value: frozenset(by) for value, by in by_value.items()}
        return cls(min_runs, min_groups, dict(counts.tolist()), frozen)


def _value_hash(key: Parameter, form: str) -> int:
    return _hash(f"{key[0]}\x00{key[1]}\x00{form}")


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True, eq=False)
class Constants:
    """Values that a slot took in several runs, whatever the query, and the forms of its values.

    A value is kept only if it occurs in ``min_runs`` runs of ``min_groups`` groups (a run
    without a group is a group of its own), so that nothing said by a single user is in a model.
    Of other values only a hash is kept, with the runs and groups that it occurred in, so that they
    can become constants in an update.

    Attributes:
        parameters: the parameters of each tool, in the order in which calls give them.
        values: of each tool and slot, ``(canonical form, value)``, most frequent first; of
            ``ANY_TOOL`` and a name, those that the slots of this name took in any tool.
        types: of each tool and slot, the JSON-schema type that its values had most often.
        lists: the tools and slots that took a list.
        composed: those that took a text or object with outputs in it.
        fields: of each tool and slot that took an object, the names in it.
        paths: of each tool, JSON Pointers to the parts of its outputs that arguments were, the most
            frequent first.
        seen: how often each value occurred in which slot; None if no values are kept.
        without_spans: the tools and slots that never take what a text says.
        without_outputs: those that never take, or include, a whole output.
    """

    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[Parameter, tuple[tuple[str, Any], ...]] = field(default_factory=dict)
    types: Mapping[Parameter, str] = field(default_factory=dict)
    lists: frozenset[Parameter] = frozenset()
    composed: frozenset[Parameter] = frozenset()
    fields: Mapping[Parameter, tuple[str, ...]] = field(default_factory=dict)
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seen: SeenValues | None = None
    without_spans: frozenset[Parameter] = frozenset()
    without_outputs: frozenset[Parameter] = frozenset()

    @classmethod
    def fit(
        cls, demonstrations: Sequence[Demonstration], *, min_runs: int = 3, min_groups: int = 2
    ) -> Constants:
        """Count values; ``min_runs`` 0 keeps none."""
        none = SeenValues(min_runs, min_groups) if min_runs else None
        return cls(seen=none).update(demonstrations)

    def update(self, demonstrations: Sequence[Demonstration]) -> Constants:
        """The slots and values of further demonstrations too."""
        seen = self.seen.copy() if self.seen is not None else SeenValues(0, 0)
        counts = _Counts(seen)
        for item in demonstrations:
            counts.add(item)
        common = {
            key: max(sorted(kinds), key=kinds.__getitem__) for key, kinds in counts.types.items()
        }
        parameters = {
            tool: tuple(dict.fromkeys((*self.parameters.get(tool, ()), *counts.parameters(tool))))
            for tool in (*self.parameters, *counts.given)
        }
        often = {key for key, times in counts.times.items() if times >= _ENOUGH}
        often -= set(self.types)  # an update forgets nothing about a slot
        result = replace(
            self,
            parameters=parameters,
            types=common | dict(self.types),
            lists=self.lists | counts.lists,
            composed=self.composed | counts.composed,
            without_spans=(self.without_spans | often) - counts.said,
            without_outputs=(self.without_outputs | often) - counts.referred,
        )
        if self.seen is None:
            return result
        tools = Counter(name for names in parameters.values() for name in names)
        values = dict(self.values)
        for key, raw in counts.raw.items():
            if key[0] == ANY_TOOL and tools[key[1]] < 2:
                continue
            known = dict(self.values.get(key, ()))
            merged = {**raw, **known}
            forms = seen.most_frequent(key, merged, known)[:MAX_CONSTANTS]
            covered = sum(seen.runs(key, form) for form in forms)
            if not known and covered < _LEAST_SHARE * seen.runs(key, _ANY):
                forms = []
            values[key] = tuple((form, merged[form]) for form in forms)
        paths = dict(self.paths)
        for tool, pointers in counts.paths.items():
            kept = self.paths.get(tool, ())
            every = sorted(pointers.union(kept))
            paths[tool] = tuple(seen.most_frequent((tool, _PATH), every, kept)[:MAX_PATHS])
        fields = dict(self.fields)
        for key, names in counts.fields.items():
            kept = self.fields.get(key, ())
            known_names = [_FIELD + name for name in kept]
            named = dict.fromkeys([*known_names, *(_FIELD + name for name in names)])
            kept_names = seen.most_frequent(key, named, known_names)
            fields[key] = tuple(name.removeprefix(_FIELD) for name in named if name in kept_names)
        return replace(
            result,
            values=values,
            paths=paths,
            fields={key: names for key, names in fields.items() if names},
            seen=seen,
        )

    def without(self, tools: Collection[str]) -> Constants:
        """Nothing of some tools."""
        # Which tools gave a value of all slots of a name is not kept.
        shared = {(ANY_TOOL, name) for tool in tools for name in self.parameters.get(tool, ())}

        def rest(items: Mapping[Parameter, Any]) -> dict[Parameter, Any]:
            return {
                key: item
                for key, item in items.items()
                if key[0] not in tools and key not in shared
            }

        return Constants(
            {tool: names for tool, names in self.parameters.items() if tool not in tools},
            rest(self.values),
            rest(self.types),
            frozenset(key for key in self.lists if key[0] not in tools),
            frozenset(key for key in self.composed if key[0] not in tools),
            rest(self.fields),
            {tool: paths for tool, paths in self.paths.items() if tool not in tools},
            self.seen,
            self.without_spans,
            self.without_outputs,
        )

    def _slots(self, tool: str) -> list[str]:
        """The parameters of a tool, each followed by the slots in it."""
        slots: list[str] = []
        pending = list(self.parameters.get(tool, ()))[::-1]
        while pending:
            name = pending.pop()
            slots.append(name)
            if (tool, name) in self.lists:
                pending.append(f"{name}/{ITEM}")
            pending += [f"{name}/{part}" for part in self.fields.get((tool, name), ())[::-1]]
        return slots

    def to_dict(self) -> dict[str, Any]:
        """A JSON object that ``from_dict`` reads back; paths are not in it."""
        slots = {tool: self._slots(tool) for tool in self.parameters}
        slots[ANY_TOOL] = [name for tool, name in self.values if tool == ANY_TOOL]
        return {
            tool: {
                name: {
                    "values": [value for _, value in self.values.get((tool, name), ())],
                    "list": (tool, name) in self.lists,
                    "composed": (tool, name) in self.composed,
                    "type": self.types.get((tool, name), ""),
                    "fields": list(self.fields.get((tool, name), ())),
                    "texts": (tool, name) not in self.without_spans,
                    "outputs": (tool, name) not in self.without_outputs,
                    "inside": name not in self.parameters.get(tool, ()),
                }
                for name in names
            }
            for tool, names in slots.items()
        }

    @classmethod
    def from_dict(
        cls, record: object, seen: SeenValues | None, paths: Mapping[str, tuple[str, ...]]
    ) -> Constants:
        """Rebuild from the output of ``to_dict``, the counts and the paths.

        Raises:
            ModelError: it has another form.
        """
        try:
            tools: dict[str, dict[str, Any]] = dict(record)  # type: ignore[call-overload]
            slots = {
                (tool, name): item for tool, names in tools.items() for name, item in names.items()
            }

            def read(name: str, convert: Callable[[Any], Any]) -> dict[Parameter, Any]:
                return {
                    key: tuple(map(convert, item[name]))
                    for key, item in slots.items()
                    if item[name]
                }

            return cls(
                {
                    tool: tuple(name for name, item in names.items() if not item["inside"])
                    for tool, names in tools.items()
                    if tool != ANY_TOOL
                },
                read("values", lambda value: (canonical(value), value)),
                {key: str(item["type"]) for key, item in slots.items() if item["type"]},
                frozenset(key for key, item in slots.items() if item["list"]),
                frozenset(key for key, item in slots.items() if item["composed"]),
                read("fields", str),
                paths,
                seen,
                frozenset(key for key, item in slots.items() if not item.get("texts", True)),
                frozenset(key for key, item in slots.items() if not item.get("outputs", True)),
            )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ModelError(_DAMAGED) from error


class _Counts:
    """What demonstrations give to parameters, counted by runs and groups."""

    def __init__(self, seen: SeenValues) -> None:
        self._seen = seen
        self.given: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.lists: set[Parameter] = set()
        self.composed: set[Parameter] = set()
        self.paths: dict[str, set[str]] = defaultdict(set)
        self.types: dict[Parameter, Counter[str]] = defaultdict(Counter)
        self.raw: dict[Parameter, dict[str, Any]] = defaultdict(dict)
        self.fields: dict[Parameter, dict[str, None]] = defaultdict(dict)
        self.times: Counter[Parameter] = Counter()
        self.said: set[Parameter] = set()
        self.referred: set[Parameter] = set()

    def parameters(self, tool: str) -> list[str]:
        """Names, in the order in which calls give them; a value often follows from those before."""
        places = self.given.get(tool, {})
        return sorted(places, key=lambda name: (sum(places[name]) / len(places[name]), name))

    def add(self, item: Demonstration) -> None:
        """One more run."""
        note = self._seen.of_run(item)
        tool_of = {call.id: call.tool for call in (*item.plan.earlier, *item.plan.calls)}
        known = _Known(item)
        said = known.text
        for call in item.plan.calls:
            for one in find_references(call.arguments):
                if one.path and one.call in tool_of:
                    self.paths[tool_of[one.call]].add(one.path)
                    note((tool_of[one.call], _PATH), one.path)
            for place, (parameter, value) in enumerate(call.arguments.items()):
                self.given[call.tool][parameter].append(place)
                self._note_origins((call.tool, parameter), value, said)
                self._add_value(note, (call.tool, parameter), value, known)
            for slot, value in iter_parts(call.arguments):
                self._note_origins((call.tool, slot), value, said)
            known.add(call)

    def _note_origins(self, key: Parameter, value: Any, said: str) -> None:
        """Whether a slot took a whole output, or what a text says, at least once."""
        self.times[key] += 1
        if any(not one.path for one in find_references(value)):
            self.referred.add(key)
        if isinstance(value, (list, Mapping)) or key in self.said:
            return
        is_date = isinstance(value, str) and type_of(value) == "date"
        # A number may be written in another way.
        is_free = is_date or not isinstance(value, (str, bool))
        if is_free or says(said, str(value).strip().casefold()):
            self.said.add(key)

    def _add_value(
        self, note: Note, key: Parameter, value: Any, known: _Known, depth: int = 0
    ) -> None:
        if not isinstance(value, Mapping):
            self.types[key][type_of(value)] += 1
        if isinstance(value, list) and value:
            self.lists.add(key)
        elif find_references(value) and not is_reference(value):
            self.composed.add(key)
        if _is_plain(value):
            compared = canonical(value)
            is_bound = known.holds(value, compared)
            for one in (key, (ANY_TOOL, key[1].removesuffix("/*").rpartition("/")[2])):
                note(one, _ANY)
                if not is_bound:
                    self.raw[one].setdefault(compared, value)
                    note(one, compared)
        if is_filled_object(value) and depth < _MAX_DEPTH:
            for name, part in value.items():
                self.fields[key][name] = None
                note(key, _FIELD + name)
                self._add_value(note, (key[0], f"{key[1]}/{name}"), part, known, depth + 1)
        elif isinstance(value, list) and depth < _MAX_DEPTH:
            for item in value[:_MOST_ITEMS]:
                self._add_value(note, (key[0], f"{key[1]}/{ITEM}"), item, known, depth + 1)


class _Known:
    """The content of a run before a call.

    Attributes:
        text: the query, messages and outputs, casefolded.
    """

    def __init__(self, item: Demonstration) -> None:
        said = [item.query, *(one.content for one in item.before if isinstance(one, Message))]
        self.text = "\n".join(said).casefold()
        self._forms: set[str] = set()
        for one in item.plan.earlier:
            self.add(one)

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

    def holds(self, value: Any, form: str) -> bool:
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
    return (
        isinstance(value, Mapping)
        and bool(value)
        and not is_reference(value)
        and "$join" not in value
    )


def _is_plain(value: Any) -> bool:
    """Whether a value can be a constant: no reference, no filled list or object, not long."""
    if is_reference(value) or (isinstance(value, (Mapping, list)) and value):
        return False
    return not isinstance(value, str) or len(json.dumps(value)) <= MAX_CONSTANT_LENGTH
