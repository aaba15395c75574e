"""What a server answers, typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from dtdr.arguments.prediction import CallPrediction
from dtdr.errors import DtdrError, InputError
from dtdr.plans.prediction import PlanPrediction
from dtdr.retrievers.surprise import Surprise


class ServerError(DtdrError):
    """A server refused, failed, or was not reached.

    Attributes:
        status: of the HTTP response; 0 when there was none.
        kind: the server's word for what went wrong, such as ``not_found``.
        request_id: names the request in the server's log.
    """

    def __init__(
        self, message: str, *, status: int = 0, kind: str = "", request_id: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.request_id = request_id


class InvalidRequestError(ServerError, InputError):
    """A server refused a request for what it holds."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class RemoteRanking:
    """The tools that a server sent, best first; reads like ``dtdr.Ranking``.

    Attributes:
        tools: names, best first, never empty.
        probabilities: of ``tools``, over all tools of the model, so that they may sum to less
            than 1.
        confidence: how likely the best tool is an acceptable one.
        is_familiar: whether the query is like the demonstrations.
        unknown_tools: names in the history that the model never saw.
        model: name of the model.
        generation: grows whenever the model is reloaded or learns.
    """

    tools: tuple[str, ...]
    probabilities: tuple[float, ...]
    confidence: float
    is_familiar: bool
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


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model of a server.

    Attributes:
        tools: size of the vocabulary, end of plan included.
        unsaved: demonstrations that it learned and that are not in its folder.
        reload_error: why the folder, as it is now, could not be loaded.
    """

    name: str
    retriever: str
    generation: int
    tools: int
    demonstrations: int
    can_learn: bool
    unsaved: int
    loaded_at: str
    reload_error: str | None = None

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """A model from the server's JSON; what a newer server says beside it is left out."""
        return cls(**{name: answer[name] for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class FeedbackResult:
    """What feedback did.

    Attributes:
        learned: demonstrations.
        logged: demonstrations that wait in a log, which ``dtdr learn`` applies.
        generation: of the model that learned them.
        unsaved: demonstrations that the model learned and that are not in its folder.
    """

    learned: int
    generation: int
    unsaved: int
    logged: int = 0

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """The server's JSON."""
        return cls(
            int(answer["learned"]),
            int(answer["generation"]),
            int(answer["unsaved"]),
            int(answer.get("logged", 0)),
        )


@dataclass(frozen=True, slots=True)
class Mask:
    """A request to an LLM, masked.

    Attributes:
        request: the whole request, to be sent to the provider.
        shown: names of the tools that are shown.
        hidden: names of those that are not.
        failure: why every tool is shown; empty when ranking did not fail.
    """

    request: dict[str, Any]
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    failure: str

    @classmethod
    def read(cls, request: Mapping[str, Any], answer: Mapping[str, Any]) -> Self:
        """The request with the server's changes."""
        return cls(
            {**request, **answer["changes"]},
            tuple(answer["shown"]),
            tuple(answer["hidden"]),
            str(answer["failure"]),
        )


def read_search(answer: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Tools that a search brought up, with their shares, from the server's JSON."""
    return [(str(item["tool"]), float(item["score"])) for item in answer["tools"]]


def read_surprise(answer: Mapping[str, Any]) -> Surprise:
    """How odd a call is, from the server's JSON."""
    return Surprise.from_dict(answer)


def read_calls(answer: Mapping[str, Any]) -> list[CallPrediction]:
    """Predicted calls from the server's JSON."""
    return [CallPrediction.from_dict(item) for item in answer["calls"]]


def read_plans(answer: Mapping[str, Any]) -> list[PlanPrediction]:
    """Predicted plans from the server's JSON."""
    return [PlanPrediction.from_dict(item) for item in answer["plans"]]
