"""A predicted call: its arguments, where they come from, and whether they are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtdr.arguments.sources import Source
from dtdr.arguments.state import RunState
from dtdr.arguments.values import canonical, resolve_references
from dtdr.calls import ToolCall


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
        contains: of some unknown parameters, the outputs that what is written has to hold.
    """

    tool: str
    arguments: Mapping[str, Any]
    sources: Mapping[str, tuple[Source, ...]]
    probability: float
    unknown: tuple[str, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    contains: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)

    @property
    def outputs(self) -> frozenset[str]:
        """Ids of the calls whose outputs the arguments use, those that are unknown included."""
        every = [*self.sources.values(), *self.contains.values()]
        return frozenset(
            source.call for sources in every for source in sources if source.kind == "output"
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> CallPrediction:
        """A prediction from the JSON object that ``to_dict`` gives."""
        return cls(
            record["tool"],
            record["arguments"],
            _read_sources(record["sources"]),
            float(record["probability"]),
            tuple(record["unknown"]),
            record["probabilities"],
            _read_sources(record.get("contains", {})),
        )

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


def _read_sources(
    record: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, tuple[Source, ...]]:
    return {name: tuple(map(Source.from_dict, items)) for name, items in record.items()}


def _write_sources(sources: Mapping[str, Sequence[Source]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [source.to_dict() for source in items] for name, items in sources.items()}


def is_exact(prediction: CallPrediction, call: ToolCall, state: RunState) -> bool:
    """Whether every argument of a predicted call is the demonstrated one.

    Case, spaces and the format of numbers do not count, nor the way by which a value is reached:
    a part of a known output may be given by reference or as it stands there.
    """
    if prediction.unknown:
        return False
    predicted = resolve_references(prediction.arguments, state.by_id)
    wanted = resolve_references(call.arguments, state.by_id)
    return canonical(predicted) == canonical(wanted)
