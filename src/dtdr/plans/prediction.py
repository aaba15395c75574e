"""A predicted plan, and how its calls are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdr.arguments.model import ArgumentModel, CallPrediction
from dtdr.arguments.state import RunState
from dtdr.plan import Plan, ToolCall
from dtdr.plans.beam import MOST_CALLS
from dtdr.run import Run


@dataclass(frozen=True, slots=True)
class PlanPrediction:
    """A predicted plan, or what is left of it after the calls already made.

    Attributes:
        calls: still to be made, in order; their probabilities are those of their arguments.
        ids: of the calls, which references of later calls name.
        links: (earlier, later) places of calls that depend on one another, references included.
        probability: how likely exactly these tools are called exactly so often, calibrated on
            held-out plans.
        has_arguments: whether the model knows arguments; where it does not, those of the calls are
            empty.
    """

    calls: tuple[CallPrediction, ...]
    ids: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    probability: float
    has_arguments: bool = True

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools, in the order of the calls."""
        return tuple(call.tool for call in self.calls)

    @property
    def unknown(self) -> tuple[tuple[str, str], ...]:
        """What has to be written: the id of a call and the name of a parameter, in their order."""
        return tuple(
            (id, name)
            for id, call in zip(self.ids, self.calls, strict=True)
            for name in call.unknown
        )

    @property
    def is_complete(self) -> bool:
        """Whether every argument is known: nothing has to be written."""
        return self.has_arguments and not self.unknown

    def to_plan(self) -> Plan:
        """The calls as a ``Plan``.

        Arguments that are unknown, and references to calls already made, are left out.
        """
        known = {*self.ids}
        calls = [
            ToolCall(
                id,
                call.tool,
                {
                    name: value
                    for name, value in call.arguments.items()
                    if {*ToolCall(id, call.tool, {name: value}).references()} <= known
                },
            )
            for id, call in zip(self.ids, self.calls, strict=True)
        ]
        links = [(self.ids[earlier], self.ids[later]) for earlier, later in self.links]
        return Plan(tuple(calls), tuple(links))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PlanPrediction:
        """A prediction from the JSON object that ``to_dict`` gives."""
        ids = tuple(str(call["id"]) for call in record["calls"])
        place = {id: number for number, id in enumerate(ids)}
        has_arguments = all("arguments" in call for call in record["calls"])
        return cls(
            tuple(
                CallPrediction.from_dict(call)
                if has_arguments
                else CallPrediction(call["tool"], {}, {}, 1.0)
                for call in record["calls"]
            ),
            ids,
            tuple((place[earlier], place[later]) for earlier, later in record["links"]),
            float(record["probability"]),
            has_arguments,
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON object, which ``from_dict`` reads back."""
        return {
            "calls": [
                {"id": id, **call.to_dict()} for id, call in zip(self.ids, self.calls, strict=True)
            ]
            if self.has_arguments
            else [
                {"id": id, "tool": call.tool} for id, call in zip(self.ids, self.calls, strict=True)
            ],
            "links": [[self.ids[earlier], self.ids[later]] for earlier, later in self.links],
            "probability": round(self.probability, 6),
        }


@dataclass(frozen=True, slots=True)
class PlanTemplate:
    """A demonstrated plan, its slots filled for another query.

    Attributes:
        plan: the calls. An argument is a slot: filled with a value of this query, of an earlier
            call or of demonstrations, or named in ``plan.unknown``.
        similarity: cosine of the query with the most similar demonstrated query of this plan, by
            words and pairs of words; in (0, 1].
        demonstrations: how many of the eight nearest have this plan.
    """

    plan: PlanPrediction
    similarity: float
    demonstrations: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            **self.plan.to_dict(),
            "similarity": round(self.similarity, 6),
            "demonstrations": self.demonstrations,
        }


class PlanWriter:
    """Writes the calls of several plans of one run; calls that begin two plans are filled once.

    Args:
        run: the query and the calls made so far.
        arguments: fills the calls; None leaves them empty.
    """

    def __init__(self, run: Run, arguments: ArgumentModel | None) -> None:
        self._arguments = arguments
        taken = {call.id for call in (*run.earlier, *run.calls)}
        first = len(run.calls) + 1
        free = (str(number) for number in range(first, first + MOST_CALLS + len(taken) + 1))
        self.ids = tuple(id for id in free if id not in taken)
        self._filled: dict[tuple[str, ...], tuple[CallPrediction, RunState]] = {}
        self._start = None if arguments is None else RunState.from_run(run)

    def write(
        self, names: Sequence[str]
    ) -> tuple[tuple[CallPrediction, ...], set[tuple[int, int]]]:
        """The calls of a plan, and which of them refer to which: (earlier, later) places."""
        if self._arguments is None or self._start is None:
            return tuple(CallPrediction(name, {}, {}, 1.0) for name in names), set()
        calls: list[CallPrediction] = []
        links: set[tuple[int, int]] = set()
        place = {id: number for number, id in enumerate(self.ids)}
        state = self._start
        for number, name in enumerate(names):
            key = tuple(names[: number + 1])
            if key not in self._filled:
                call = self._arguments.fill(name, state)
                after = state.copy()
                after.add(ToolCall(self.ids[number], name, call.arguments))
                self._filled[key] = call, after
            call, state = self._filled[key]
            made = ToolCall(self.ids[number], name, call.arguments)
            links |= {(place[one], number) for one in made.references() if one in place}
            calls.append(call)
        return tuple(calls), links
