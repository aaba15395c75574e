"""Values that parameters take in many runs, and how often each was seen."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dtdr.arguments.seen_values import Parameter, RunValues, SeenValues
from dtdr.arguments.state import ITEM
from dtdr.arguments.templates import Template, find_templates, split_join, template_form
from dtdr.arguments.values import canonical, output_leaves, type_of
from dtdr.calls import ToolCall, find_references, is_reference
from dtdr.demonstrations import Demonstration, Message
from dtdr.errors import ModelError

MAX_CONSTANTS = 12
"""Of one parameter, the most frequent."""
MAX_PATHS = 40
"""Of one tool's outputs, the parts that arguments were most often."""
MAX_TEMPLATES = 8
"""Of one parameter, the most frequent."""
_TEMPLATE_TIMES = 2
"""So many more runs have words around values than a constant: with those of three, 7 of 80 calls of
an inner fold of TinyAgent that were given such a text were exact."""
MAX_CONSTANT_LENGTH = 200
"""Characters of a constant as JSON; longer values repeat by chance only."""

ANY_TOOL = ""
"""In place of a tool where the values of all parameters of a name are counted."""
_PATH = "\x00path"
"""In place of a parameter where parts of outputs are counted: names in them may be values too."""
_FIELD, _TEMPLATE = "\x00field ", "\x00template "
"""Before what is counted of a parameter besides its values."""
_MAX_DEPTH = 4
"""Of objects in objects whose fields are learned."""


class Constants:
    """Values that a parameter took in several runs, whatever the query.

    A value is kept only where it stands in ``min_runs`` runs of ``min_groups`` groups (a run
    without a group is a group of its own), so that nothing said by a single user is in a model.
    Of other values only a hash is kept, with the runs and groups that it stood in, so that they can
    become constants in an update.

    Args:
        parameters: the parameters of each tool, the one given most often first.
        values: of each tool and parameter, ``(canonical form, value)``, most frequent first; of
            ``ANY_TOOL`` and a name, those that the parameters of this name took in any tool.
        lists: the tools and parameters that took a list.
        composed: those that took a text or object with outputs in it.
        paths: of each tool, JSON Pointers to the parts of its outputs that arguments were, the most
            frequent first.
        types: of each tool and parameter, the JSON-schema type that its values had most often.
        seen: how often each value stood where; None where no values are kept.
        fields: of each tool and parameter that took an object, the names in it; those of the
            objects of a list stand under the parameter's name and ``/*``.
        templates: of each tool and parameter, words around values, the most frequent first.
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
        fields: Mapping[Parameter, Sequence[str]] | None = None,
        templates: Mapping[Parameter, Sequence[Template]] | None = None,
    ) -> None:
        self.parameters = {tool: tuple(names) for tool, names in parameters.items()}
        self.values = {key: tuple(items) for key, items in values.items()}
        self.lists = frozenset(lists)
        self.composed = frozenset(composed)
        self.paths = {tool: tuple(items) for tool, items in (paths or {}).items()}
        self.types = dict(types or {})
        self.seen = seen
        self.fields = {key: tuple(names) for key, names in (fields or {}).items()}
        self.templates = {key: tuple(items) for key, items in (templates or {}).items()}

    @classmethod
    def fit(
        cls, demonstrations: Sequence[Demonstration], *, min_runs: int = 3, min_groups: int = 2
    ) -> Constants:
        """Count values; ``min_runs`` 0 keeps none."""
        none = SeenValues(min_runs, min_groups) if min_runs else None
        return cls({}, {}, seen=none).update(demonstrations)

    def update(self, demonstrations: Sequence[Demonstration]) -> Constants:
        """The parameters and values of further demonstrations too."""
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
        tools = Counter(name for names in parameters.values() for name in names)
        values: dict[Parameter, Sequence[tuple[str, Any]]] = dict(self.values)
        paths: dict[str, Sequence[str]] = dict(self.paths)
        fields: dict[Parameter, Sequence[str]] = dict(self.fields)
        templates: dict[Parameter, Sequence[Template]] = dict(self.templates)
        if self.seen is not None:
            for key, raw in counts.raw.items():
                if key[0] == ANY_TOOL and tools[key[1]] < 2:
                    continue
                known = dict(self.values.get(key, ()))
                merged = {**raw, **known}
                forms = seen.most_frequent(key, merged, known)[:MAX_CONSTANTS]
                values[key] = [(form, merged[form]) for form in forms]
            for tool, pointers in counts.paths.items():
                kept = self.paths.get(tool, ())
                every = dict.fromkeys(sorted(pointers.union(kept)))
                paths[tool] = seen.most_frequent((tool, _PATH), every, kept)[:MAX_PATHS]
            for key, names in counts.fields.items():
                kept = self.fields.get(key, ())
                named = {_FIELD + name: name for name in (*kept, *names)}
                often = seen.most_frequent(key, named, {_FIELD + name for name in kept})
                fields[key] = [named[form] for form in often]
            for key, made in counts.templates(values).items():
                before = {_template_key(one): one for one in self.templates.get(key, ())}
                every_template = {**made, **before}
                often = seen.most_frequent(key, every_template, before, _TEMPLATE_TIMES)
                templates[key] = [every_template[form] for form in often[:MAX_TEMPLATES]]
        return Constants(
            parameters,
            values,
            self.lists | counts.lists,
            common | self.types,
            None if self.seen is None else seen,
            self.composed | counts.composed,
            paths,
            {key: names for key, names in fields.items() if names},
            {key: items for key, items in templates.items() if items},
        )

    def without(self, tools: Collection[str]) -> Constants:
        """Nothing of some tools."""
        if not tools:
            return self
        # Which tools gave a value of all parameters of a name is not kept.
        shared = {name for tool in tools for name in self.parameters.get(tool, ())}
        return Constants(
            {tool: names for tool, names in self.parameters.items() if tool not in tools},
            {
                key: items
                for key, items in self.values.items()
                if key[0] not in tools and not (key[0] == ANY_TOOL and key[1] in shared)
            },
            (key for key in self.lists if key[0] not in tools),
            {key: kind for key, kind in self.types.items() if key[0] not in tools},
            self.seen,
            (key for key in self.composed if key[0] not in tools),
            {tool: paths for tool, paths in self.paths.items() if tool not in tools},
            {key: names for key, names in self.fields.items() if key[0] not in tools},
            {key: items for key, items in self.templates.items() if key[0] not in tools},
        )

    def _slots(self, tool: str) -> list[str]:
        """The parameters of a tool, each followed by the fields of objects in it."""
        slots: list[str] = []
        pending = list(self.parameters.get(tool, ()))[::-1]
        while pending:
            name = pending.pop()
            slots.append(name)
            if (tool, f"{name}/{ITEM}") in self.fields:
                pending.append(f"{name}/{ITEM}")
            pending += [f"{name}/{part}" for part in self.fields.get((tool, name), ())[::-1]]
        return slots

    def to_dict(self) -> dict[str, Any]:
        """A JSON object that ``from_dict`` reads back."""
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
                    "templates": [list(one) for one in self.templates.get((tool, name), ())],
                    "inside": name not in self.parameters.get(tool, ()),
                }
                for name in names
            }
            for tool, names in slots.items()
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
            slots = {
                (tool, name): one for tool, names in tools.items() for name, one in names.items()
            }
            parameters = {
                tool: [name for name, one in names.items() if not one.get("inside")]
                for tool, names in tools.items()
                if tool != ANY_TOOL
            }
            values = {
                key: [(canonical(value), value) for value in item["values"]]
                for key, item in slots.items()
            }
            lists = [key for key, item in slots.items() if item["list"]]
            composed = [key for key, item in slots.items() if item.get("composed")]
            types = {key: str(item["type"]) for key, item in slots.items() if item["type"]}
            fields = {
                key: [str(name) for name in item["fields"]]
                for key, item in slots.items()
                if item.get("fields")
            }
            templates = {
                key: [tuple(map(str, one)) for one in item["templates"]]
                for key, item in slots.items()
                if item.get("templates")
            }
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ModelError("its record of parameters is damaged; fit it again") from error
        if any(len(one) < 2 for items in templates.values() for one in items):
            raise ModelError("its record of parameters is damaged; fit it again")
        return cls(parameters, values, lists, types, seen, composed, paths, fields, templates)


class _Counts:
    """What demonstrations give to parameters, counted by runs and groups."""

    def __init__(self, seen: SeenValues) -> None:
        self._seen = seen
        self.given: dict[str, Counter[str]] = defaultdict(Counter)
        self.lists: set[Parameter] = set()
        self.composed: set[Parameter] = set()
        self.paths: dict[str, set[str]] = defaultdict(set)
        self.types: dict[Parameter, Counter[str]] = defaultdict(Counter)
        self.raw: dict[Parameter, dict[str, Any]] = defaultdict(dict)
        self.fields: dict[Parameter, dict[str, None]] = defaultdict(dict)
        self._texts: list[tuple[RunValues, Parameter, Any, str]] = []

    def parameters(self, tool: str) -> list[str]:
        """Names, the one given most often first."""
        counts = self.given.get(tool, Counter())
        return [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]

    def add(self, item: Demonstration) -> None:
        """One more run."""
        values = self._seen.of_run(item)
        tool_of = {call.id: call.tool for call in (*item.plan.earlier, *item.plan.calls)}
        said = "\n".join(_iter_texts(item.query, item.before))
        for call in item.plan.calls:
            for one in find_references(call.arguments):
                if one.path and one.call in tool_of:
                    self.paths[tool_of[one.call]].add(one.path)
                    values.add((tool_of[one.call], _PATH), one.path)
            for parameter, value in call.arguments.items():
                self.given[call.tool][parameter] += 1
                self._add_value(values, (call.tool, parameter), value, said)
            said = "\n".join((said, *_iter_output_texts(call)))

    def _add_value(
        self, values: RunValues, key: Parameter, value: Any, said: str, depth: int = 0
    ) -> None:
        if not isinstance(value, Mapping):
            self.types[key][type_of(value)] += 1
        if isinstance(value, list) and value:
            self.lists.add(key)
        elif find_references(value) and not is_reference(value):
            self.composed.add(key)
        if _is_plain(value):
            compared = canonical(value)
            for one in (key, (ANY_TOOL, key[1].rpartition("/")[2])):
                self.raw[one].setdefault(compared, value)
                values.add(one, compared)
        if isinstance(value, str) or (isinstance(value, Mapping) and split_join(value)):
            self._texts.append((values, key, value, said))
        elif is_filled_object(value) and depth < _MAX_DEPTH:
            for name, part in value.items():
                self.fields[key][name] = None
                values.add(key, _FIELD + name)
                self._add_value(values, (key[0], f"{key[1]}/{name}"), part, said, depth + 1)
        elif isinstance(value, list):
            for item in value:
                if is_filled_object(item):
                    inner = (key[0], f"{key[1]}/{ITEM}")
                    self._add_value(values, inner, item, said, depth + 1)

    def templates(
        self, kept: Mapping[Parameter, Sequence[tuple[str, Any]]]
    ) -> dict[Parameter, dict[str, Template]]:
        """The templates of texts that are neither constants nor said as they are."""
        by_parameter: dict[Parameter, dict[str, Template]] = defaultdict(dict)
        constants = {key: {form for form, _ in items} for key, items in kept.items()}
        for values, key, value, said in self._texts:
            if isinstance(value, str):
                if canonical(value) in constants.get(key, ()):
                    continue
                made = find_templates(value, said)
            else:
                parts = split_join(value)
                made = [] if parts is None else [parts[0]]
            for template in made:
                form = _template_key(template)
                by_parameter[key].setdefault(form, template)
                values.add(key, form)
        return by_parameter


def _template_key(template: Template) -> str:
    return _TEMPLATE + template_form(template)


def _iter_texts(query: str, before: Sequence[Message | ToolCall]) -> Iterator[str]:
    """What stands in a run before its first call, casefolded."""
    yield query.casefold()
    for one in before:
        if isinstance(one, Message):
            yield one.content.casefold()
        else:
            yield from _iter_output_texts(one)


def _iter_output_texts(call: ToolCall) -> Iterator[str]:
    """The texts that a call returned, casefolded."""
    if call.output is not None:
        for _, leaf in output_leaves(call.output):
            if isinstance(leaf, str):
                yield leaf.casefold()


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
