"""A demonstration in the making: its calls, the clauses of its query, the people in it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from dtdr.calls import ToolCall, find_references
from dtdr.datasets.synthetic import words
from dtdr.plan import Plan

Item = TypeVar("Item")
Output = dict[str, Any]
"""``{"$ref": id}``; the id is set when the calls are put in order."""

SHUFFLED = 0.3
"""Share of plans whose independent calls are made in random order rather than clause by clause."""


class Clause(NamedTuple):
    """A part of the query: an order (``mail Ann the draft``) or a statement of its own."""

    text: str
    is_order: bool


class Thing(NamedTuple):
    """Something that can be handed on: how the query calls it, its value, whether it is a file."""

    text: str
    value: Any
    is_file: bool = False


class Scene:
    """Collects calls and clauses; every random choice comes from one generator."""

    __slots__ = ("_calls", "_contacts", "bound", "labels", "people", "rng")

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.labels: list[str] = []
        self.people: list[str] = []
        """Whom the query named last, so that a later clause may say "them"."""
        self.bound = False
        """Whether a clause points back, so that clauses must keep their order."""
        self._calls: list[tuple[str, dict[str, Any], Output]] = []
        self._contacts: dict[tuple[str, str], Output] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[int(self.rng.random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self.rng.random() < probability

    def call(self, tool: str, **arguments: Any) -> Output:
        """Add a call; its output can be an argument of a later one."""
        output: Output = {"$ref": len(self._calls)}
        self._calls.append((tool, arguments, output))
        return output

    def tools(self) -> set[str]:
        """Names of the tools called so far."""
        return {tool for tool, _, _ in self._calls}

    def say(self, templates: Sequence[str], **slots: str) -> Clause:
        """A clause from one of the templates; a capital letter begins a statement."""
        template = self.pick(templates)
        if template.startswith("{who}") and slots.get("who") == "them":
            slots["who"] = "the same people"
        return Clause(template.format(**slots), not (template[0].isupper() or template[0] == "{"))

    def thing(
        self, tool: str, templates: Sequence[str], *, is_file: bool = False, **arguments: Any
    ) -> Thing:
        """What a call with these arguments returns, named by one of the templates."""
        text = self.pick(templates).format(*arguments.values())
        return Thing(text, self.call(tool, **arguments), is_file)

    def contact(self, tool: str, name: str) -> Output:
        """The output of looking a person up; each is looked up once."""
        known = self._contacts.get((tool, name))
        if known is None:
            known = self._contacts[tool, name] = self.call(tool, name=name)
        return known

    def recipients(self, tool: str, most: int = 3) -> tuple[str, list[Any]]:
        """Who gets something: how the query names them, and where to send it.

        A person who is named must be looked up first; an address or number that is given is not.
        """
        if self.people and self.chance(0.45):
            self.bound = True
            names = self.people
            text = self.pick(("them", "the same people")) if len(names) > 1 else names[0]
            return text, [self.contact(tool, name) for name in names]
        draw = self.rng.random()
        size = min(most, 1 if draw < 0.6 else 2 if draw < 0.87 else 3)
        texts: list[str] = []
        values: list[Any] = []
        self.people = []
        given = words.phone if tool == "find_phone_number" else words.address
        for _ in range(size):
            if self.chance(0.22):
                text = given(self.rng)
                value: Any = text
            else:
                text = words.person(self.rng)
                value = self.contact(tool, text)
                self.people.append(text)
            texts.append(text)
            values.append(value)
        return words.join_items(texts), values

    def plan(self) -> Plan:
        """The calls in order: clause by clause, or any other order that dependencies allow."""
        calls = self._calls
        if len(calls) > 2 and self.chance(SHUFFLED):
            calls = self._shuffle()
        for number, (_, _, output) in enumerate(calls, start=1):
            output["$ref"] = str(number)
        return Plan(
            tuple(ToolCall(output["$ref"], tool, arguments) for tool, arguments, output in calls)
        )

    def _shuffle(self) -> list[tuple[str, dict[str, Any], Output]]:
        needs = [
            {int(one.call) for one in find_references(arguments)} for _, arguments, _ in self._calls
        ]
        done: set[int] = set()
        order: list[tuple[str, dict[str, Any], Output]] = []
        while len(order) < len(self._calls):
            ready = [i for i, need in enumerate(needs) if i not in done and need <= done]
            chosen = self.pick(ready)
            done.add(chosen)
            order.append(self._calls[chosen])
        return order
