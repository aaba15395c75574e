"""Values that parameters take in many runs, and how often each was seen."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.arguments.values import canonical, type_of
from dtdr.calls import find_references, is_reference
from dtdr.demonstrations import Demonstration
from dtdr.errors import ModelError

MAX_CONSTANTS = 12
"""Of one parameter, the most frequent."""
MAX_PATHS = 40
"""Of one tool's outputs, the parts that arguments were most often."""
MAX_CONSTANT_LENGTH = 200
"""Characters of a constant as JSON; longer values repeat by chance only."""

Parameter = tuple[str, str]
"""A tool and one of its parameters."""
_PATH = "\x00path"
"""In place of a parameter where parts of outputs are counted: names in them may be values too."""


class SeenValues:
    """In how many runs and groups each value of each parameter stood, by hashes.

    Args:
        min_runs, min_groups: what makes a value frequent.
        counts: by the hash of a value, its runs.
        groups: by the hash of a value, hashes of its groups, as many as are needed.
    """

    def __init__(
        self,
        min_runs: int,
        min_groups: int,
        counts: Mapping[int, int] | None = None,
        groups: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        self.min_runs = min_runs
        self.min_groups = min_groups
        self._counts = dict(counts or {})
        self._groups = dict(groups or {})

    def copy(self) -> SeenValues:
        """The same counts, which can be added to."""
        return SeenValues(self.min_runs, self.min_groups, self._counts, self._groups)

    def of_run(self, item: Demonstration) -> _RunValues:
        """Takes the values of one more run."""
        return _RunValues(self, _hash(item.group or f"\x00{item.id}\x00{item.query}"))

    def add(self, value: int, group: int) -> None:
        """One more run in which a value stood."""
        self._counts[value] = self._counts.get(value, 0) + 1
        known = self._groups.get(value, frozenset())
        if len(known) < self.min_groups:
            self._groups[value] = known | {group}

    def runs(self, key: Parameter, form: str) -> int:
        """The runs in which a parameter took a value, by its canonical form."""
        return self._counts.get(_value_hash(key, form), 0)

    def is_frequent(self, key: Parameter, form: str) -> bool:
        """Whether it stood in enough runs of enough groups."""
        value = _value_hash(key, form)
        runs, groups = self._counts.get(value, 0), self._groups.get(value, ())
        return runs >= self.min_runs and len(groups) >= self.min_groups

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """Arrays that ``from_arrays`` reads back."""
        pairs = [(value, group) for value, by in self._groups.items() for group in sorted(by)]
        return {
            "counts": np.array(sorted(self._counts.items()), np.int64).reshape(-1, 2),
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


class _RunValues:
    """Counts each value of one run once."""

    def __init__(self, seen: SeenValues, group: int) -> None:
        self._seen = seen
        self._group = group
        self._added: set[int] = set()

    def add(self, key: Parameter, form: str) -> None:
        value = _value_hash(key, form)
        if value not in self._added:
            self._added.add(value)
            self._seen.add(value, self._group)


def _value_hash(key: Parameter, form: str) -> int:
    return _hash(f"{key[0]}\x00{key[1]}\x00{form}")


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big")


class Constants:
    """Values that a parameter took in several runs, whatever the query.

    A value is kept only where it stands in ``min_runs`` runs of ``min_groups`` groups (a run
    without a group is a group of its own), so that nothing said by a single user is in a model.
    Of other values only a hash is kept, with the runs and groups that it stood in, so that they can
    become constants in an update.

    Args:
        parameters: the parameters of each tool, the one given most often first.
        values: of each tool and parameter, ``(canonical form, value)``, most frequent first.
        lists: the tools and parameters that took a list.
        composed: those that took a text or object with outputs in it.
        paths: of each tool, JSON Pointers to the parts of its outputs that arguments were, the most
            frequent first.
        types: of each tool and parameter, the JSON-schema type that its values had most often.
        seen: how often each value stood where; None where no values are kept.
    """

    def __init__(
        self,
        parameters: Mapping[str, Sequence[str]],
        values: Mapping[Parameter, Sequence[tuple[str, Any]]],
        lists: Iterable[Parameter] = (),
        types: Mapping[Parameter, str] | None = None,
        seen: SeenValues | None = None,
        composed: Iterable[Parameter] = (),
        paths: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.parameters = {tool: tuple(names) for tool, names in parameters.items()}
        self.values = {key: tuple(items) for key, items in values.items()}
        self.lists = frozenset(lists)
        self.composed = frozenset(composed)
        self.paths = {tool: tuple(items) for tool, items in (paths or {}).items()}
        self.types = dict(types or {})
        self.seen = seen

    @classmethod
    def fit(
        cls, demonstrations: Sequence[Demonstration], *, min_runs: int = 3, min_groups: int = 2
    ) -> Constants:
        """Count values; ``min_runs`` 0 keeps none."""
        none = SeenValues(min_runs, min_groups) if min_runs else None
        return cls({}, {}, seen=none).update(demonstrations)

    def update(self, demonstrations: Sequence[Demonstration]) -> Constants:
        """The parameters and values of further demonstrations too."""
        given: dict[str, Counter[str]] = defaultdict(Counter)
        lists: set[Parameter] = set()
        composed: set[Parameter] = set()
        paths: dict[str, set[str]] = defaultdict(set)
        types: dict[Parameter, Counter[str]] = defaultdict(Counter)
        raw: dict[Parameter, dict[str, Any]] = defaultdict(dict)
        seen = self.seen.copy() if self.seen is not None else SeenValues(0, 0)
        for item in demonstrations:
            values = seen.of_run(item)
            tool_of = {call.id: call.tool for call in (*item.plan.earlier, *item.plan.calls)}
            for call in item.plan.calls:
                for one in find_references(call.arguments):
                    if one.path and one.call in tool_of:
                        paths[tool_of[one.call]].add(one.path)
                        values.add((tool_of[one.call], _PATH), one.path)
                for parameter, value in call.arguments.items():
                    given[call.tool][parameter] += 1
                    key = (call.tool, parameter)
                    if not isinstance(value, Mapping):
                        types[key][type_of(value)] += 1
                    if isinstance(value, list) and value:
                        lists.add(key)
                    elif find_references(value) and not is_reference(value):
                        composed.add(key)
                    if _is_plain(value):
                        compared = canonical(value)
                        raw[key].setdefault(compared, value)
                        values.add(key, compared)
        parameters = {
            tool: [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
            for tool, counts in given.items()
        }
        common = {key: max(sorted(counts), key=counts.__getitem__) for key, counts in types.items()}
        kept: dict[Parameter, Sequence[tuple[str, Any]]] = dict(self.values)
        if self.seen is not None:
            for key, forms in raw.items():
                known = dict(self.values.get(key, ()))
                frequent = [
                    (-seen.runs(key, form), form)
                    for form in {**known, **forms}
                    if form in known or seen.is_frequent(key, form)
                ]
                kept[key] = [
                    (form, known.get(form, forms.get(form)))
                    for _, form in sorted(frequent)[:MAX_CONSTANTS]
                ]
        kept_paths: dict[str, Sequence[str]] = dict(self.paths)
        for tool, pointers in paths.items() if self.seen is not None else ():
            known_paths = self.paths.get(tool, ())
            often = [
                (-seen.runs((tool, _PATH), path), path)
                for path in pointers.union(known_paths)
                if path in known_paths or seen.is_frequent((tool, _PATH), path)
            ]
            kept_paths[tool] = [path for _, path in sorted(often)[:MAX_PATHS]]
        merged = {
            tool: tuple(dict.fromkeys((*self.parameters.get(tool, ()), *parameters.get(tool, ()))))
            for tool in (*self.parameters, *parameters)
        }
        known_seen = None if self.seen is None else seen
        return Constants(
            merged,
            kept,
            self.lists | lists,
            common | self.types,
            known_seen,
            self.composed | composed,
            kept_paths,
        )

    def without(self, tools: Collection[str]) -> Constants:
        """Nothing of some tools."""
        if not tools:
            return self
        return Constants(
            {tool: names for tool, names in self.parameters.items() if tool not in tools},
            {key: items for key, items in self.values.items() if key[0] not in tools},
            (key for key in self.lists if key[0] not in tools),
            {key: kind for key, kind in self.types.items() if key[0] not in tools},
            self.seen,
            (key for key in self.composed if key[0] not in tools),
            {tool: paths for tool, paths in self.paths.items() if tool not in tools},
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON object that ``from_dict`` reads back."""
        return {
            tool: {
                name: {
                    "values": [value for _, value in self.values.get((tool, name), ())],
                    "list": (tool, name) in self.lists,
                    "composed": (tool, name) in self.composed,
                    "type": self.types.get((tool, name), ""),
                }
                for name in names
            }
            for tool, names in self.parameters.items()
        }

    @classmethod
    def from_dict(
        cls,
        record: object,
        seen: SeenValues | None = None,
        paths: Mapping[str, Sequence[str]] | None = None,
    ) -> Constants:
        """What ``to_dict`` gave, and the counts and paths beside it.

        Raises:
            ModelError: it has another form.
        """
        try:
            tools: dict[str, dict[str, Any]] = dict(record)  # type: ignore[call-overload]
            parameters = {tool: list(names) for tool, names in tools.items()}
            values = {
                (tool, name): [(canonical(value), value) for value in item["values"]]
                for tool, names in tools.items()
                for name, item in names.items()
            }
            lists = [
                (tool, name)
                for tool, names in tools.items()
                for name, item in names.items()
                if item["list"]
            ]
            composed = [
                (tool, name)
                for tool, names in tools.items()
                for name, item in names.items()
                if item.get("composed")
            ]
            types = {
                (tool, name): str(item["type"])
                for tool, names in tools.items()
                for name, item in names.items()
                if item["type"]
            }
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ModelError("its record of parameters is damaged; fit it again") from error
        return cls(parameters, values, lists, types, seen, composed, paths)


def _is_plain(value: Any) -> bool:
    """Whether a value can be a constant: no reference, no filled list or object, not long."""
    if is_reference(value) or (isinstance(value, (Mapping, list)) and value):
        return False
    return not isinstance(value, str) or len(json.dumps(value)) <= MAX_CONSTANT_LENGTH
