"""A predicted call: its arguments and where they come from; the same of demonstrated ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from dtdr.data.calls import ToolCall, is_reference
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.outputs import iter_leaves

SourceKind = Literal["query", "message", "output", "argument", "constant", "omitted", "unknown"]
"""Where a value comes from; ``unknown`` has to be written."""


class ValueSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a value comes from.

    Attributes:
        kind: the query, a message before it, an output, an argument of an earlier call, a constant
            of the demonstrations, left out, or unknown.
        call: id of the earlier call, for ``output`` and ``argument``.
        path: JSON Pointer into the output, or path in the arguments, such as ``flights/0/date``.
        span: first and last character (exclusive) of the text, for ``query`` and ``message``.
    """

    kind: SourceKind
    call: str = ""
    path: str = ""
    span: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; keys only where they say something."""
        record: dict[str, Any] = msgspec.to_builtins(self)
        return record if self.span is None else record | {"span": list(self.span)}


@dataclass(frozen=True, slots=True)
class CallPrediction:
    """A predicted call.

    Attributes:
        tool: its name.
        arguments: values by parameter; omitted and unknown parameters are not among them.
        sources: where each value comes from, by parameter.
        probability: how likely every argument is exactly right, calibrated on held-out runs; times
            the tool's own probability where the tool is predicted too.
        unknown: parameters whose value has to be written by an LLM or a person.
        probabilities: of each value among all candidates of its parameter, not calibrated.
        contains: of some unknown parameters, the outputs that the written text has to include.
    """

    tool: str
    arguments: Mapping[str, Any]
    sources: Mapping[str, tuple[ValueSource, ...]]
    probability: float
    unknown: tuple[str, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    contains: Mapping[str, tuple[ValueSource, ...]] = field(default_factory=dict)

    @property
    def outputs(self) -> frozenset[str]:
        """Ids of the calls whose outputs the arguments use, those that are unknown included."""
        all_sources = [*self.sources.values(), *self.contains.values()]
        return frozenset(
            source.call for sources in all_sources for source in sources if source.kind == "output"
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> CallPrediction:
        """A prediction from the JSON object that ``to_dict`` gives."""
        return msgspec.convert(record, cls)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object, which ``from_dict`` reads back."""
        return {
            "tool": self.tool,
            "arguments": dict(self.arguments),
            "sources": _write_sources(self.sources),
            "probability": round(self.probability, 6),
            "probabilities": {name: round(share, 6) for name, share in self.probabilities.items()},
            "unknown": list(self.unknown),
            "contains": _write_sources(self.contains),
        }


def _write_sources(sources: Mapping[str, Sequence[ValueSource]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [source.to_dict() for source in items] for name, items in sources.items()}


def iter_sources(run: Demonstration) -> Iterator[tuple[ToolCall, str, str]]:
    """Where the value of each argument comes from, as far as the run shows it.

    A value counts as an output's only where the run refers to the output.

    Yields:
        The call, the name of the argument, and ``output``, ``query``, ``earlier message``,
        ``argument`` (of an earlier call) or ``other``; one for each value of a list or object.
    """
    before = "\n".join(item.content for item in run.before if isinstance(item, Message))
    earlier: set[str] = set()
    said = {
        "query": run.query.casefold(),
        "earlier message": before.casefold(),
        "argument": earlier,
    }
    for call in run.plan.calls:
        of_call: set[str] = set()
        for name, argument in call.arguments.items():
            for _, value in iter_leaves(argument, is_reference):
                source = "output" if is_reference(value) else "other"
                if source == "other" and value is not None and not isinstance(value, bool):
                    text = value if isinstance(value, str) else json.dumps(value, default=str)
                    text = text.strip().casefold()
                    of_call.add(text)
                    places = (
                        position for position, texts in said.items() if text and text in texts
                    )
                    source = next(places, "other")
                yield call, name, source
        earlier |= of_call
