"""What a server answers, typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from dtdr.errors import DtdrError, InputError
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.plans.prediction import PlanPrediction


class ServerError(DtdrError):
    """A server refused, failed, or was not reached.

    Attributes:
        status: of the HTTP response; 0 without one.
        kind: what went wrong, such as ``not_found``.
        request_id: names the request in the server's log.
    """

    def __init__(
        self, message: str, *, status: int = 0, kind: str = "", request_id: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.request_id = status, kind, request_id


class InvalidRequestError(ServerError, InputError):
    """A server refused the content of a request."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class RemoteRanking:
    """The tools that a server sent, best first; reads like ``dtdr.Ranking``.

    Attributes:
        tools: names, best first, never empty.
        probabilities: of ``tools``, over all tools of the model; they may sum to less than 1.
        confidence: how likely the best tool is an acceptable one.
        is_familiar: whether the query is like the demonstrations.
        is_none_of_these: whether no tool seems wanted.
        unknown_tools: names in the history that the model never saw.
        model: name of the model.
        generation: grows whenever the model is reloaded or learns.
    """

    tools: tuple[str, ...]
    probabilities: tuple[float, ...]
    confidence: float
    is_familiar: bool
    is_none_of_these: bool
    unknown_tools: tuple[str, ...]
    model: str
    generation: int

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """A ranking from the server's JSON."""
        return cls(
            tuple(item["tool"] for item in answer["tools"]),
            tuple(float(item["probability"]) for item in answer["tools"]),
            float(answer["confidence"]),
            bool(answer["familiar"]),
            bool(answer["none_of_these"]),
            tuple(answer["unknown_tools"]),
            str(answer["model"]),
            int(answer["generation"]),
        )

    @property
    def best(self) -> str:
        """The most probable next tool."""
        return self.tools[0]

    def top(self, k: int) -> list[tuple[str, float]]:
        """The k most probable tools with their probabilities, of those that were sent."""
        return list(zip(self.tools[:k], self.probabilities[:k], strict=True))

    def probability(self, tool: str) -> float:
        """Probability of a tool; 0 for one that was not sent."""
        return dict(self).get(tool, 0.0)

    def __len__(self) -> int:
        return len(self.tools)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(zip(self.tools, self.probabilities, strict=True))


def read_search(answer: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The tools that a search found, with their shares."""
    return [(str(item["tool"]), float(item["score"])) for item in answer["tools"]]


def read_calls(answer: Mapping[str, Any]) -> list[CallPrediction]:
    """Predicted calls."""
    return list(map(CallPrediction.from_dict, answer["calls"]))


def read_plans(answer: Mapping[str, Any]) -> list[PlanPrediction]:
    """Predicted plans."""
    return list(map(PlanPrediction.from_dict, answer["plans"]))
