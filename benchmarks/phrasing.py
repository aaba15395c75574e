"""A demonstration in the making, and how clauses become its query: order, politeness, remarks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

import words
from dtdr.data.calls import ToolCall, find_references
from dtdr.data.plan import Plan

_OPENERS = (
    ("", "."),
    ("", "."),
    ("", "."),
    ("please ", "."),
    ("please ", "."),
    ("could you ", "?"),
    ("can you ", "?"),
    ("I'd like you to ", "."),
    ("I need you to ", "."),
    ("hi, ", "."),
    ("would you ", "?"),
    ("quick one: ", "."),
    ("when you have a minute, ", "."),
    ("help me out and ", "."),
    ("could you please ", "?"),
    ("for me, ", "."),
)
_JOINTS = (" and ", ", then ", ", and after that ", " and also ", "; ", ", and ", " plus ")
_CLOSERS = ("", "", "", "", " Thanks!", " Thank you.", " That would be great.", " Cheers.")
_BETWEEN = ("", "", "", "also, ", "then ", "after that, ", "and ", "next, ", "oh, and ")

# Remarks that need no tool, with the beginnings of tool names that would make them untrue.
_REMARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("I am in a hurry.", ()),
    ("My boss has been asking about the {topic} all week.", ()),
    ("No need to email anyone.", ("send_email", "forward", "reply")),
    (
        "Don't bother with the calendar.",
        ("create_event", "move_event", "cancel_event", "list_events"),
    ),
    ("The flights are already booked.", ("book_flight", "search_flights")),
    ("I already have a hotel in {city}.", ("book_hotel", "search_hotels")),
    ("The last taxi I took in {city} was dreadful.", ("order_taxi",)),
    ("It was raining in {city} when I left.", ("get_weather",)),
    ("{name} keeps sending me messages about the {topic}.", ("send_sms", "search_mail")),
    (
        "I could not find my notes anywhere, but that can wait.",
        ("search_notes", "create_note", "append"),
    ),
    ("The printer jammed again this morning.", ("print",)),
    ("{name} speaks no English, but that is fine.", ("translate",)),
    ("I will take care of the expenses myself.", ("log_expense", "expense_report", "scan")),
    ("I had a long call with {name} about the {topic} {kind}.", ()),
    ("The {topic} spreadsheet is a mess, leave it as it is.", ("append_row", "read_spreadsheet")),
    ("Yesterday I got lost on the way to {city}.", ("get_directions",)),
    ("I told {name} that I would do it by {day}.", ()),
    ("You set a reminder for that last week, so not again.", ("create_reminder",)),
    ("I am at the office in {city} until {day}.", ()),
    ("{name} is away until {day}.", ()),
    ("The trains were on strike when I was in {city}.", ("search_trains", "book_train")),
    ("We had a lovely dinner in {city} with {name}.", ("reserve_table", "search_places")),
    ("Sorry for asking so late.", ()),
    ("This is about the {topic} {kind}.", ()),
)


Item = TypeVar("Item")
Output = dict[str, Any]
"""``{"$ref": id}``; the id is set when the calls are put in order."""

SHUFFLED = 0.3
"""Share of plans whose independent calls are made in random order rather than clause by clause."""


class Scene:
    """Collects calls; every random choice comes from one generator."""

    __slots__ = ("_calls", "labels", "rng")

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.labels: list[str] = []
        self._calls: list[tuple[str, dict[str, Any], Output]] = []

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

    def plan(self, *, is_shuffled: bool = True) -> Plan:
        """The calls in order: clause by clause, or any other order that dependencies allow."""
        calls = self._calls
        if is_shuffled and len(calls) > 2 and self.chance(SHUFFLED):
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


def person(rng: Random) -> str:
    """A name, with a surname more often than not."""
    first = words.FIRST[int(rng.random() * len(words.FIRST))]
    if rng.random() < 0.35:
        return first
    return f"{first} {words.LAST[int(rng.random() * len(words.LAST))]}"


def day(rng: Random) -> str:
    """A day, as people say it."""
    draw = rng.random()
    if draw < 0.2:
        return "tomorrow"
    if draw < 0.5:
        return words.WEEKDAYS[int(rng.random() * 7)]
    if draw < 0.65:
        return f"next {words.WEEKDAYS[int(rng.random() * 7)]}"
    return f"{int(rng.random() * 28) + 1} {words.MONTHS[int(rng.random() * 12)]}"


def clock(rng: Random) -> str:
    """A time of day."""
    hour, quarter = int(rng.random() * 12) + 7, int(rng.random() * 12) * 5
    if rng.random() < 0.5:
        return f"{hour}:{quarter:02d}"
    return (
        f"{(hour - 1) % 12 + 1}{f':{quarter:02d}' if quarter else ''} {'am' if hour < 12 else 'pm'}"
    )


class Clause(NamedTuple):
    """A part of the query: an order (``mail Ann the draft``) or a separate statement."""

    text: str
    is_order: bool


def say(scene: Scene, templates: Sequence[str], **slots: str) -> Clause:
    """A clause from one of the templates; a capital letter begins a statement."""
    template = scene.pick(templates)
    return Clause(template.format(**slots), not (template[0].isupper() or template[0] == "{"))


def compose(scene: Scene, clauses: Sequence[Clause]) -> str:
    """A query from clauses that stand in the order of their calls, or in another where they may."""
    parts = list(clauses)
    if len(parts) > 1 and scene.chance(0.35):
        scene.rng.shuffle(parts)
    sentences = (_one_order if scene.chance(0.5) else _order_by_order)(scene, parts)
    draw = scene.rng.random()
    for _ in range(0 if draw < 0.4 else 1 if draw < 0.85 else 2):
        if remark := _remark(scene):
            sentences.insert(int(scene.rng.random() * (len(sentences) + 1)), remark)
    query = " ".join(sentences) + scene.pick(_CLOSERS)
    # Templates say "on {day}", and a day may be "tomorrow" or "next Monday".
    query = query.replace(" on tomorrow", " tomorrow").replace(" on next ", " next ")
    # Some people type in haste.
    return query.lower().rstrip(".") if scene.chance(0.08) else query


def _one_order(scene: Scene, parts: Sequence[Clause]) -> list[str]:
    orders = [part.text for part in parts if part.is_order]
    sentences = [_sentence(part.text) for part in parts if not part.is_order]
    if orders:
        opener, mark = scene.pick(_OPENERS)
        text = orders[0]
        for order in orders[1:]:
            text += scene.pick(_JOINTS) + order
        sentence = _sentence(opener + text, mark)
        sentences.insert(0 if parts[0].is_order else len(sentences), sentence)
    return sentences


def _order_by_order(scene: Scene, parts: Sequence[Clause]) -> list[str]:
    sentences = []
    for number, part in enumerate(parts):
        if not part.is_order:
            sentences.append(_sentence(part.text))
        elif number and scene.chance(0.6):
            sentences.append(_sentence(scene.pick(_BETWEEN) + part.text))
        else:
            opener, mark = scene.pick(_OPENERS)
            sentences.append(_sentence(opener + part.text, mark))
    return sentences


def _sentence(text: str, mark: str = ".") -> str:
    return f"{text[0].upper()}{text[1:]}{mark}"


def _remark(scene: Scene) -> str:
    text, untrue = scene.pick(_REMARKS)
    if untrue and any(tool.startswith(untrue) for tool in scene.tools()):
        return ""
    if "{" not in text:
        return text
    return text.format(
        name=person(scene.rng),
        city=scene.pick(words.CITIES),
        topic=scene.pick(words.TOPICS),
        kind=scene.pick(words.KINDS),
        day=day(scene.rng),
    )
