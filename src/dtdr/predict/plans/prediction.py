"""A predicted plan, and the writer of its calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from typing import Any, TypeAlias

from dtdr.data.calls import ToolCall, find_references
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.arguments.state import RunState
from dtdr.predict.plans.best_first import MOST_CALLS

Written: TypeAlias = tuple[tuple[CallPrediction, ...], tuple[tuple[int, int], ...]]
"""The calls of a plan, and pairs (earlier, later) of dependent calls."""


@dataclass(frozen=True, eq=False, repr=False)
class PlanPrediction:
    """A predicted plan, or the rest of it after the calls already made.

    Arguments are filled when you first read them, for all plans of the query that begin with the
    same calls.

    Attributes:
        tools: names of the tools, in the order of the calls.
        ids: of the calls, for references from later calls.
        probability: that exactly these tools are called, each this often; calibrated on held-out
            plans.
        write: returns the calls, and pairs (earlier, later) of dependent calls.
        has_arguments: whether the model learned arguments; otherwise those of the calls are empty.
    """

    tools: tuple[str, ...]
    ids: tuple[str, ...]
    probability: float
    write: Callable[[], Written]
    has_arguments: bool = True

    @cached_property
    def _written(self) -> Written:
        return self.write()

    @property
    def calls(self) -> tuple[CallPrediction, ...]:
        """The remaining calls in order; their probabilities are those of their arguments."""
        return self._written[0]

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Pairs (earlier, later) of dependent calls, references included."""
        return self._written[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanPrediction) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        return f"PlanPrediction({', '.join(self.tools)}; probability {self.probability:.3f})"

    @property
    def unknown(self) -> tuple[tuple[str, str], ...]:
        """Arguments that you have to write: ids of calls and names of parameters, in order."""
        return tuple(
            (id, name)
            for id, call in zip(self.ids, self.calls, strict=True)
            for name in call.unknown
        )

    @property
    def is_complete(self) -> bool:
        """Whether every argument is known."""
        return self.has_arguments and not self.unknown

    @property
    def exact_probability(self) -> float | None:
        """The probability that every argument is right, too; None without learned arguments.

        It is the product of the probabilities of the tools and of each call; 0 if an argument is
        unknown.
        """
        if not self.has_arguments:
            return None
        calls = math.prod(call.probability for call in self.calls)
        return self.probability * calls if self.is_complete else 0.0

    def to_plan(self) -> Plan:
        """The calls as a ``Plan``.

        It has no unknown arguments and no references to calls already made.
        """
        calls = []
        for id, call in zip(self.ids, self.calls, strict=True):
            arguments = {
                name: value
                for name, value in call.arguments.items()
                if all(item.call in self.ids for item in find_references(value))
            }
            calls.append(ToolCall(id, call.tool, arguments))
        links = [(self.ids[earlier], self.ids[later]) for earlier, later in self.links]
        return Plan(tuple(calls), tuple(links))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PlanPrediction:
        """A prediction from its ``to_dict``."""
        ids = tuple(str(call["id"]) for call in record["calls"])
        position = {id: index for index, id in enumerate(ids)}
        has_arguments = all("arguments" in call for call in record["calls"])
        calls = tuple(
            CallPrediction.from_dict(call)
            if has_arguments
            else CallPrediction(call["tool"], {}, {}, 1.0)
            for call in record["calls"]
        )
        links = tuple((position[earlier], position[later]) for earlier, later in record["links"])
        return cls(
            tuple(call.tool for call in calls),
            ids,
            float(record["probability"]),
            lambda: (calls, links),
            has_arguments=has_arguments,
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON object for ``from_dict``."""
        return {
            "calls": [
                {"id": id} | (call.to_dict() if self.has_arguments else {"tool": call.tool})
                for id, call in zip(self.ids, self.calls, strict=True)
            ],
            "links": [[self.ids[earlier], self.ids[later]] for earlier, later in self.links],
            "probability": round(self.probability, 6),
        }


class PlanWriter:
    """Writes the calls of several plans of one run, and fills common first calls once.

    Args:
        run: the query and the calls made so far; it may change later.
        arguments: fills the calls; None leaves them empty.
        is_chain: whether each call depends on the one before it, references aside.
    """

    def __init__(self, run: Run, arguments: ArgumentModel | None, *, is_chain: bool) -> None:
        self._run, self._arguments, self._is_chain = run.copy(), arguments, is_chain
        taken = {call.id for call in (*run.earlier, *run.calls)}
        first = len(run.calls) + 1
        free = (str(index) for index in range(first, first + MOST_CALLS + len(taken) + 1))
        self._ids = tuple(id for id in free if id not in taken)
        self._start: RunState | None = None  # keeps what was computed from the query
        self._filled: dict[tuple[str, ...], tuple[CallPrediction, RunState]] = {}
        self._lock = Lock()  # plans may be read from several threads

    def predict(self, tools: Sequence[str], probability: float) -> PlanPrediction:
        """A plan of these tools, which are in their most probable order."""
        names = tuple(tools)
        return PlanPrediction(
            names,
            self._ids[: len(names)],
            probability,
            partial(self._write, names),
            has_arguments=self._arguments is not None,
        )

    def _write(self, names: tuple[str, ...]) -> Written:
        """The calls of a plan, and pairs of dependent calls."""
        links = {(later - 1, later) for later in range(1, len(names)) if self._is_chain}
        if self._arguments is None:
            calls = [CallPrediction(name, {}, {}, 1.0) for name in names]
        else:
            calls = self._fill(names, self._arguments)
            position = {id: index for index, id in enumerate(self._ids)}
            for later, call in enumerate(calls):
                links |= {(position[id], later) for id in call.outputs if id in position}
        return tuple(calls), tuple(sorted(links))

    def _fill(self, names: tuple[str, ...], arguments: ArgumentModel) -> list[CallPrediction]:
        calls: list[CallPrediction] = []
        with self._lock:
            if self._start is None:
                self._start = RunState.from_run(self._run)
            state = self._start
            for index, name in enumerate(names):
                key = names[: index + 1]
                if key not in self._filled:
                    call = arguments.fill(name, state)
                    after = state.copy()
                    after.add(ToolCall(self._ids[index], name, call.arguments))
                    self._filled[key] = call, after
                call, state = self._filled[key]
                calls.append(call)
        return calls
