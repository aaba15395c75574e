"""What requests and responses share: their bases, and fields with their bounds."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from dtdr.data.calls import Status

Object: TypeAlias = dict[str, Any]

ToolName = Annotated[str, Meta(min_length=1, max_length=512)]
CallId = Annotated[str, Meta(min_length=1, max_length=256)]
Query = Annotated[str, Meta(min_length=1, description="What the user asked for.")]
ModelName = Annotated[
    Annotated[str, Meta(min_length=1, max_length=256)] | None,
    Meta(description="May be left out where one model is served only."),
]
TopK = Annotated[int, Meta(ge=1, le=1_000_000)] | None
Threshold = Annotated[float, Meta(ge=0, lt=1)] | None
Coverage = Annotated[float, Meta(gt=0, lt=1)] | None
TokenBudget = Annotated[int, Meta(ge=1, le=1_000_000_000)] | None
Fallback = Annotated[
    bool,
    Meta(
        description="For a query unlike the demonstrations, threshold and coverage are set aside."
    ),
]


class Request(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of requests: a misspelt field is an error, not something that is ignored."""


class Response(Struct, kw_only=True):
    """Base of responses."""


class CallMade(Request, kw_only=True):
    """A call and what came of it; of a long output, 2,000 characters are read."""

    tool: ToolName
    id: Annotated[
        CallId | None,
        Meta(description="How arguments refer to it; without one, its place, from 1, if free."),
    ] = None
    arguments: Object = {}
    output: Annotated[Any, Meta(description="What it returned: JSON or text.")] = None
    status: Annotated[
        Status | None, Meta(description="Without it, the output says whether it is empty.")
    ] = None
    step: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Number of the agent's message that made the call."),
    ] = None


History = Annotated[
    list[CallMade | ToolName],
    Meta(
        description="Calls made so far, oldest first, or the names of their tools; unknown names "
        "are allowed."
    ),
]
Before = Annotated[
    list[Object],
    Meta(
        description="The conversation before the query, oldest first, as in demonstrations.jsonl: "
        '{"role": "user" | "assistant", "content"} and {"role": "call", "id", "tool", …}.'
    ),
]
UnknownTools = Annotated[
    list[str], Meta(description="Names in the history that the model never saw.")
]


class Step(Request, kw_only=True):
    """The query, what came before it, and the calls so far."""

    query: Query
    history: History = []
    before: Before = []


class StepRequest(Step, kw_only=True):
    """A step that a model is asked about."""

    model: ModelName = None


class ModelAnswer(Response, kw_only=True):
    """Base of what a model answers."""

    model: str
    generation: Annotated[
        int, Meta(description="Grows by one whenever the model is reloaded or learned.")
    ]
