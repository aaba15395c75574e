"""Requests and responses, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ToolName = Annotated[str, Field(min_length=1, max_length=512)]
"""The bound also makes pydantic refuse half surrogate pairs, which no response could hold."""

Query = Annotated[str, Field(min_length=1, description="What the user asked for.")]
History = Annotated[
    list[ToolName],
    Field(description="Tools called so far, oldest first; unknown names are allowed."),
]
ModelName = Annotated[
    str | None,
    Field(
        min_length=1, max_length=256, description="May be left out where one model is served only."
    ),
]

DEFAULT_TOP_K = 10
"""Tools in a response when nothing says how many; recall@10 of dtdr-l is .995 on TinyAgent and .98
on UltraTool."""


class Request(BaseModel):
    """Base of requests: a misspelt field is an error, not something that is ignored."""

    model_config = ConfigDict(extra="forbid")


class Selection(Request):
    """Which tools of a ranking to send back; the best one is always among them."""

    top_k: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000_000,
            description=f"At most so many; {DEFAULT_TOP_K} when no other bound is given.",
        ),
    ] = None
    threshold: Annotated[
        float | None, Field(ge=0, lt=1, description="Only tools above this probability.")
    ] = None
    coverage: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="The fewest tools that hold an acceptable one this often; for models that "
            "calibrate themselves (dtdr-f).",
        ),
    ] = None
    token_budget: Annotated[
        int | None,
        Field(ge=1, le=1_000_000_000, description="As many tools as fit into so many tokens."),
    ] = None


class RankRequest(Selection):
    """One step to rank."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"query": "Mail Ann the summary of q3.pdf", "history": ["open_file"], "top_k": 3}
            ]
        },
    )

    query: Query
    history: History = []
    model: ModelName = None


class RankedTool(BaseModel):
    """One tool and how likely it is the next one, over all tools of the model."""

    tool: str
    probability: float


class RankResponse(BaseModel):
    """A ranking."""

    model: str
    generation: Annotated[
        int, Field(description="Grows by one whenever the model is reloaded or learned.")
    ]
    tools: Annotated[list[RankedTool], Field(description="Best first, never empty.")]
    confidence: Annotated[float, Field(description="How likely the best tool is a right one.")]
    familiar: Annotated[
        bool, Field(description="False for a query unlike the demonstrations: show more tools.")
    ]
    unknown_tools: Annotated[
        list[str], Field(description="Names in the history that the model never saw.")
    ]


class BatchStep(Request):
    """One step of a batch."""

    query: Query
    history: History = []


class BatchRequest(Selection):
    """Many steps to rank with one model."""

    steps: Annotated[list[BatchStep], Field(min_length=1)]
    model: ModelName = None


class BatchResponse(BaseModel):
    """Rankings in the order of the steps."""

    rankings: list[RankResponse]


class SessionRequest(Request):
    """A query, to be encoded once."""

    query: Query
    history: History = []
    model: ModelName = None
    rank: Annotated[
        Selection | None, Field(description="Given, the response holds a ranking as well.")
    ] = None


class CallRequest(Request):
    """Tools that the agent called."""

    tools: Annotated[list[ToolName], Field(min_length=1)]
    rank: Annotated[
        Selection | None, Field(description="Given, the response holds a ranking as well.")
    ] = None


class SessionResponse(BaseModel):
    """An open session."""

    session: str
    model: str
    history: list[str]
    expires_in: Annotated[float, Field(description="Seconds, counted anew by every request.")]
    ranking: RankResponse | None = None


class CallOfPlan(Request):
    """One call of a demonstration."""

    id: Annotated[str, Field(min_length=1, max_length=256)]
    tool: ToolName
    arguments: dict[str, Any] = {}


class FeedbackDemonstration(Request):
    """A query and the calls that answered it, as in ``demonstrations.jsonl``."""

    query: Query
    calls: Annotated[
        list[CallOfPlan | ToolName],
        Field(description="In order; a tool's name alone is a call whose arguments are not known."),
    ]
    id: Annotated[str, Field(max_length=256)] = ""
    links: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = []
    outcome: Literal["success", "failure", "unknown"] = "success"


class FeedbackRequest(Request):
    """Demonstrations to learn from."""

    demonstrations: Annotated[list[FeedbackDemonstration], Field(min_length=1)]
    model: ModelName = None


class FeedbackResponse(BaseModel):
    """What was learned."""

    model: str
    learned: Annotated[int, Field(description="Demonstrations; failures are left out.")]
    generation: int
    unsaved: Annotated[
        int, Field(description="Demonstrations that were learned and not saved to the folder yet.")
    ]


class ModelResponse(BaseModel):
    """A served model."""

    name: str
    retriever: str
    generation: int
    tools: Annotated[int, Field(description="Size of the vocabulary, end of plan included.")]
    demonstrations: int
    can_learn: bool
    unsaved: int
    loaded_at: str
    reload_error: str | None = None


class ModelsResponse(BaseModel):
    """Every served model."""

    models: list[ModelResponse]


class ModelDetail(ModelResponse):
    """A served model and its tool vocabulary."""

    vocabulary: Annotated[list[str], Field(description="End of plan last.")]


class Health(BaseModel):
    """Whether the server is there, or ready."""

    status: Literal["ok", "stopping"]
    models: dict[str, int] = {}
    version: str


class ErrorBody(BaseModel):
    """What went wrong."""

    type: str
    message: Annotated[str, Field(description="One sentence: what, what was expected, the remedy.")]
    request_id: str


class ErrorResponse(BaseModel):
    """The body of every response that is no success."""

    error: ErrorBody
