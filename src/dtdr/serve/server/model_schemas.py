"""Requests and responses about models, feedback and the server itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from dtdr.data.calls import Status
from dtdr.serve.server.fields import (
    Before,
    CallId,
    ModelName,
    Object,
    Query,
    Request,
    Response,
    ToolName,
)

# -- feedback ----------------------------------------------------------------------------------


class CallOfPlan(Request, kw_only=True):
    """One call of a demonstration."""

    id: CallId
    tool: ToolName
    arguments: Object = field(default_factory=dict)
    output: Any = None
    output_length: Annotated[int, Meta(ge=0)] | None = None
    status: Status = "unknown"
    step: Annotated[int, Meta(ge=0)] | None = None


class FeedbackDemonstration(Request, kw_only=True):
    """A query and the calls that answered it, as in ``demonstrations.jsonl``."""

    query: Query
    calls: Annotated[
        list[CallOfPlan | ToolName],
        Meta(description="In order; a tool's name alone is a call whose arguments are not known."),
    ]
    id: Annotated[str, Meta(max_length=256)] = ""
    links: list[Annotated[list[str], Meta(min_length=2, max_length=2)]] = field(
        default_factory=list
    )
    before: Before = field(default_factory=list)
    outcome: Literal["success", "failure", "unknown"] = "success"
    source: Annotated[
        str, Meta(max_length=256, description="Where the demonstration comes from.")
    ] = "feedback"
    group: Annotated[
        str,
        Meta(max_length=256, description="What must stay together in a split, such as a user."),
    ] = ""
    parent: Annotated[
        Object | None,
        Meta(description='Of a nested run: {"id", "call"} of the call that started it.'),
    ] = None
    time: Annotated[
        str | None,
        Meta(description="When the query was asked (RFC 3339); without it, the time of arrival."),
    ] = None


class FeedbackRequest(Request, kw_only=True):
    """Demonstrations to learn from."""

    demonstrations: Annotated[list[FeedbackDemonstration], Meta(min_length=1)]
    model: ModelName = None


class FeedbackResponse(Response, kw_only=True):
    """What was learned, or logged."""

    model: str
    learned: Annotated[int, Meta(description="Demonstrations; failures are left out.")]
    logged: Annotated[
        int, Meta(description="Demonstrations that wait in the log of feedback for dtdr learn.")
    ] = 0
    generation: int
    unsaved: Annotated[
        int, Meta(description="Demonstrations that were learned and not saved to the folder yet.")
    ]


# -- models and operation ----------------------------------------------------------------------


class ModelResponse(Response, kw_only=True):
    """A served model."""

    name: str
    retriever: str
    generation: Annotated[
        int, Meta(description="Grows by one whenever the model is reloaded or learned.")
    ]
    tools: Annotated[int, Meta(description="Size of the vocabulary, end of plan included.")]
    demonstrations: int
    can_learn: bool
    unsaved: Annotated[
        int, Meta(description="Demonstrations that it learned and that are not in its folder.")
    ]
    loaded_at: str
    reload_error: Annotated[
        str | None, Meta(description="Why the folder, as it is now, could not be loaded.")
    ] = None


class ModelsResponse(Response, kw_only=True):
    """Every served model."""

    models: list[ModelResponse]


class ModelDetail(ModelResponse, kw_only=True):
    """A served model and its tool vocabulary."""

    vocabulary: Annotated[list[str], Meta(description="End of plan last.")]


class Health(Response, kw_only=True):
    """Whether the server is there, or ready."""

    status: Literal["ok", "stopping"]
    version: str
    failing: Annotated[
        int,
        Meta(
            description="How many folders, key files and saves failed the last time; the server "
            "goes on with what it has, and /metrics and the log say which."
        ),
    ] = 0


class ErrorBody(Response, kw_only=True):
    """What went wrong."""

    type: str
    message: Annotated[str, Meta(description="One sentence: what, what was expected, the remedy.")]
    request_id: str


class ErrorResponse(Response, kw_only=True):
    """The body of every error response."""

    error: ErrorBody
