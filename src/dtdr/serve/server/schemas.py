"""Requests and responses, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from dtdr.data.calls import Status
from dtdr.predict.arguments.prediction import CallPrediction, Source
from dtdr.predict.search import SEARCH_LIMIT
from dtdr.rankers.explanation import Explanation

Object: TypeAlias = dict[str, Any]


def says(description: str, **bounds: Any) -> Meta:
    """What the document says of a field, and the bounds of its value."""
    return Meta(description=description, **bounds)


ToolName = Annotated[str, Meta(min_length=1, max_length=512)]
CallId = Annotated[str, Meta(min_length=1, max_length=256)]
Query = Annotated[str, says("What the user asked for.", min_length=1)]
ModelName = Annotated[
    Annotated[str, Meta(min_length=1, max_length=256)] | None,
    says("May be left out where one model is served only."),
]
TopK = Annotated[int, Meta(ge=1, le=1_000_000)] | None
Threshold = Annotated[float, Meta(ge=0, lt=1)] | None
Coverage = Annotated[float, Meta(gt=0, lt=1)] | None
TokenBudget = Annotated[int, Meta(ge=1, le=1_000_000_000)] | None
Fallback = Annotated[
    bool, says("For a query unlike the demonstrations, threshold and coverage are set aside.")
]


Generation = Annotated[int, says("Grows by one whenever the model is reloaded or learned.")]


class Request(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of requests: a misspelt field is an error, not something that is ignored."""


class Response(Struct, kw_only=True):
    """Base of responses."""


class CallMade(Request, kw_only=True):
    """A call and what came of it; of a long output, 2,000 characters are read."""

    tool: ToolName
    id: Annotated[
        CallId | None, says("How arguments refer to it; without one, its place, from 1, if free.")
    ] = None
    arguments: Object = {}
    output: Annotated[Any, says("What it returned: JSON or text.")] = None
    status: Annotated[Status | None, says("Without it, the output says whether it is empty.")] = (
        None
    )
    step: Annotated[
        Annotated[int, Meta(ge=0)] | None, says("Number of the agent's message that made the call.")
    ] = None


History = Annotated[
    list[CallMade | ToolName],
    says(
        "Calls made so far, oldest first, or the names of their tools; unknown names are allowed."
    ),
]
Before = Annotated[
    list[Object],
    says(
        "The conversation before the query, oldest first, as in demonstrations.jsonl: "
        '{"role": "user" | "assistant", "content"} and {"role": "call", "id", "tool", …}.'
    ),
]
UnknownTools = Annotated[list[str], says("Names in the history that the model never saw.")]


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
    generation: Generation


DEFAULT_TOP_K = 10
"""Tools in a response when nothing says how many; recall@10 of dtdr-l is .995 on TinyAgent and .98
on UltraTool."""


class Selection(Request, kw_only=True):
    """Which tools of a ranking to send back; the best one is always among them."""

    top_k: Annotated[
        TopK, says(f"At most this many; {DEFAULT_TOP_K} when no other bound is given.")
    ] = None
    threshold: Annotated[Threshold, says("Only tools above this probability.")] = None
    coverage: Annotated[
        Coverage,
        says(
            "The fewest tools that include an acceptable one this often; for models that "
            "calibrate themselves (dtdr-f)."
        ),
    ] = None
    token_budget: Annotated[TokenBudget, says("As many tools as fit into this many tokens.")] = None
    fallback: Fallback = True
    offered: Annotated[
        list[ToolName] | None,
        says("Names of the tools that can be called, to rank among; else all."),
    ] = None


class RankRequest(Selection, kw_only=True):
    """One step to rank."""

    query: Query
    history: History = []
    before: Before = []
    model: ModelName = None


class RankedTool(Response, kw_only=True):
    """One tool and how likely it is the next one, over all tools that can be called."""

    tool: str
    probability: float


class RankResponse(ModelAnswer, kw_only=True):
    """A ranking."""

    tools: Annotated[list[RankedTool], says("Best first, never empty.")]
    confidence: Annotated[float, says("How likely the best tool is a right one.")]
    familiar: Annotated[bool, says("False for a query unlike the demonstrations: show more tools.")]
    none_of_these: Annotated[bool, says("Whether no tool seems wanted: show none, or a search.")]
    unknown_tools: UnknownTools


class BatchRequest(Selection, kw_only=True):
    """Many steps to rank with one model."""

    steps: Annotated[list[Step], Meta(min_length=1)]
    model: ModelName = None


class BatchResponse(Response, kw_only=True):
    """Rankings in the order of the steps."""

    rankings: list[RankResponse]


class ExplainRequest(StepRequest, kw_only=True):
    """One step, and the tool that is explained."""

    tool: Annotated[ToolName | None, says("The best one, unless given.")] = None
    against: Annotated[ToolName | None, says("The best other one, unless given.")] = None


class ExplainResponse(ModelAnswer, kw_only=True):
    """Why a tool has its probability."""

    explanation: Explanation


MAX_SEARCH = 100
"""Tools that a search returns at most."""


class SearchBounds(Request, kw_only=True):
    """What an agent searches for."""

    text: Annotated[str, says("What the agent wants to do, in its words.", min_length=1)]
    top_k: Annotated[int, Meta(ge=1, le=MAX_SEARCH)] = SEARCH_LIMIT
    among: Annotated[
        list[ToolName] | None,
        says("Names that may be returned, such as those that are hidden; else all."),
    ] = None


class SearchRequest(SearchBounds, kw_only=True):
    """A search, and the run in which it is made, as far as it is known."""

    query: Annotated[
        Annotated[str, Meta(min_length=1)] | None, says("What the user asked for.")
    ] = None
    history: History = []
    before: Before = []
    model: ModelName = None


class FoundTool(Response, kw_only=True):
    """One tool, and its share of all scores, which is not calibrated."""

    tool: str
    score: float


class SearchResponse(ModelAnswer, kw_only=True):
    """What a search brought up."""

    tools: Annotated[list[FoundTool], says("Best first; empty where none matches.")]
    unknown_tools: UnknownTools


MAX_CALLS = 20
"""Calls that are predicted by one request; each takes some milliseconds."""


class CallBounds(Request, kw_only=True):
    """Which calls to predict."""

    top_k: Annotated[int, says("Those of the best tools.", ge=1, le=MAX_CALLS)] = 3
    tool: Annotated[ToolName | None, says("Given, the call of this tool alone is predicted.")] = (
        None
    )


class CallsRequest(CallBounds, kw_only=True):
    """One step whose calls are predicted."""

    query: Query
    history: History = []
    before: Before = []
    model: ModelName = None


class CallsResponse(ModelAnswer, kw_only=True):
    """The next calls, in the order of their tools' probabilities."""

    calls: Annotated[list[CallPrediction], says("The end of plan may be one of them.")]
    unknown_tools: UnknownTools


MAX_PLANS = 20
"""Plans of one request; predicting one takes as long as predicting all."""


class PlanBounds(Request, kw_only=True):
    """How many plans to predict."""

    top_k: Annotated[int, Meta(ge=1, le=MAX_PLANS)] = 5


class PlansRequest(PlanBounds, kw_only=True):
    """A query, or a run, whose plan is predicted."""

    query: Query
    history: History = []
    before: Before = []
    model: ModelName = None


class PlannedCall(Response, kw_only=True):
    """A call of a plan; all but its id and tool only where the model knows arguments."""

    id: Annotated[str, says("What references of later calls name.")]
    tool: str
    arguments: Object | UnsetType = UNSET
    sources: dict[str, tuple[Source, ...]] | UnsetType = UNSET
    probability: Annotated[float | UnsetType, says("Of the arguments, given the tool.")] = UNSET
    probabilities: dict[str, float] | UnsetType = UNSET
    unknown: list[str] | UnsetType = UNSET
    contains: dict[str, tuple[Source, ...]] | UnsetType = UNSET


class PredictedPlan(Response, kw_only=True):
    """What is left to do."""

    calls: list[PlannedCall]
    links: Annotated[list[list[str]], says("Pairs of ids: the later call depends on the earlier.")]
    probability: Annotated[
        float, says("How likely exactly these tools are called, each as often as here.")
    ]


class PlansResponse(ModelAnswer, kw_only=True):
    """Plans that differ in which tools are called how often, most probable first."""

    plans: Annotated[list[PredictedPlan], says("Empty where no plan comes to an end.")]
    unknown_tools: UnknownTools


RankToo = Annotated[Selection | None, says("Given, the response holds a ranking as well.")]


class SessionRequest(StepRequest, kw_only=True):
    """A query, to be encoded once."""

    rank: RankToo = None


class CallRequest(Request, kw_only=True):
    """Tools that the agent called."""

    tools: Annotated[
        list[CallMade | ToolName], says("Names, or calls with what came of them.", min_length=1)
    ]
    rank: RankToo = None
    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | None,
        says("A new random text; sent again with the same one, nothing is added."),
    ] = None


class SessionResponse(Response, kw_only=True):
    """An open session."""

    session: str
    model: str
    history: list[str]
    expires_in: Annotated[float, says("Seconds; every request restarts them.")]
    ranking: RankResponse | None = None


class CallOfPlan(Request, kw_only=True):
    """One call of a demonstration."""

    id: CallId
    tool: ToolName
    arguments: Object = {}
    output: Any = None
    output_length: Annotated[int, Meta(ge=0)] | None = None
    status: Status = "unknown"
    step: Annotated[int, Meta(ge=0)] | None = None


class FeedbackDemonstration(Request, kw_only=True):
    """A query and the calls that answered it, as in ``demonstrations.jsonl``."""

    query: Query
    calls: Annotated[
        list[CallOfPlan | ToolName],
        says("In order; a tool's name alone is a call whose arguments are not known."),
    ]
    id: Annotated[str, Meta(max_length=256)] = ""
    links: list[Annotated[list[str], Meta(min_length=2, max_length=2)]] = []
    before: Before = []
    outcome: Literal["success", "failure", "unknown"] = "success"
    source: Annotated[str, says("Where the demonstration comes from.", max_length=256)] = "feedback"
    group: Annotated[
        str, says("What must stay together in a split, such as a user.", max_length=256)
    ] = ""
    parent: Annotated[
        Object | None, says('Of a nested run: {"id", "call"} of the call that started it.')
    ] = None
    time: Annotated[
        str | None, says("When the query was asked (RFC 3339); without it, the time of arrival.")
    ] = None


class FeedbackRequest(Request, kw_only=True):
    """Demonstrations to learn from."""

    demonstrations: Annotated[list[FeedbackDemonstration], Meta(min_length=1)]
    model: ModelName = None


class FeedbackResponse(Response, kw_only=True):
    """What was learned, or logged."""

    model: str
    learned: Annotated[int, says("Demonstrations; failures are left out.")]
    logged: Annotated[
        int, says("Demonstrations that wait in the log of feedback for dtdr learn.")
    ] = 0
    generation: int
    unsaved: Annotated[
        int, says("Demonstrations that were learned and not saved to the folder yet.")
    ]


class ModelResponse(Response, kw_only=True):
    """A served model."""

    name: str
    retriever: str
    generation: Generation
    tools: Annotated[int, says("Size of the vocabulary, end of plan included.")]
    demonstrations: int
    can_learn: bool
    unsaved: Annotated[int, says("Demonstrations that it learned and that are not in its folder.")]
    loaded_at: str
    reload_error: Annotated[
        str | None, says("Why the folder, as it is now, could not be loaded.")
    ] = None


class ModelsResponse(Response, kw_only=True):
    """Every served model."""

    models: list[ModelResponse]


class ModelDetail(ModelResponse, kw_only=True):
    """A served model and its tool vocabulary."""

    vocabulary: Annotated[list[str], says("End of plan last.")]


class Health(Response, kw_only=True):
    """Whether the server is there, or ready."""

    status: Literal["ok", "stopping"]
    version: str
    failing: Annotated[
        int,
        says(
            "How many folders, key files and saves failed the last time; the server "
            "goes on with what it has, and /metrics and the log say which."
        ),
    ] = 0


class ErrorBody(Response, kw_only=True):
    """What went wrong."""

    type: str
    message: Annotated[str, says("One sentence: what, what was expected, the remedy.")]
    request_id: str


class ErrorResponse(Response, kw_only=True):
    """The body of every error response."""

    error: ErrorBody
