"""Requests and responses of steps and sessions, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from dtdr.predict.arguments.prediction import SourceKind
from dtdr.predict.search import SEARCH_LIMIT
from dtdr.rankers.explanation import Explanation
from dtdr.serve.server.fields import (
    Before,
    CallMade,
    Coverage,
    Fallback,
    History,
    ModelAnswer,
    ModelName,
    Object,
    Query,
    Request,
    Response,
    Step,
    StepRequest,
    Threshold,
    TokenBudget,
    ToolName,
    TopK,
    UnknownTools,
)

DEFAULT_TOP_K = 10
"""Tools in a response when nothing says how many; recall@10 of dtdr-l is .995 on TinyAgent and .98
on UltraTool."""


# -- ranking -----------------------------------------------------------------------------------


class Selection(Request, kw_only=True):
    """Which tools of a ranking to send back; the best one is always among them."""

    top_k: Annotated[
        TopK, Meta(description=f"At most this many; {DEFAULT_TOP_K} when no other bound is given.")
    ] = None
    threshold: Annotated[Threshold, Meta(description="Only tools above this probability.")] = None
    coverage: Annotated[
        Coverage,
        Meta(
            description="The fewest tools that hold an acceptable one this often; for models that "
            "calibrate themselves (dtdr-f)."
        ),
    ] = None
    token_budget: Annotated[
        TokenBudget, Meta(description="As many tools as fit into this many tokens.")
    ] = None
    fallback: Fallback = True
    offered: Annotated[
        list[ToolName] | None,
        Meta(description="Names of the tools that can be called, to rank among; else all."),
    ] = None


class RankRequest(Selection, kw_only=True):
    """One step to rank."""

    query: Query
    history: History = field(default_factory=list)
    before: Before = field(default_factory=list)
    model: ModelName = None


class RankedTool(Response, kw_only=True):
    """One tool and how likely it is the next one, over all tools that can be called."""

    tool: str
    probability: float


class RankResponse(ModelAnswer, kw_only=True):
    """A ranking."""

    tools: Annotated[list[RankedTool], Meta(description="Best first, never empty.")]
    confidence: Annotated[float, Meta(description="How likely the best tool is a right one.")]
    familiar: Annotated[
        bool, Meta(description="False for a query unlike the demonstrations: show more tools.")
    ]
    none_of_these: Annotated[
        bool,
        Meta(description="Whether no tool seems wanted: show none, or a search."),
    ]
    unknown_tools: UnknownTools


class BatchStep(Step, kw_only=True):
    """One step of a batch."""


class BatchRequest(Selection, kw_only=True):
    """Many steps to rank with one model."""

    steps: Annotated[list[BatchStep], Meta(min_length=1)]
    model: ModelName = None


class BatchResponse(Response, kw_only=True):
    """Rankings in the order of the steps."""

    rankings: list[RankResponse]


class ExplainRequest(StepRequest, kw_only=True):
    """One step, and the tool that is explained."""

    tool: Annotated[ToolName | None, Meta(description="The best one, unless given.")] = None
    against: Annotated[ToolName | None, Meta(description="The best other one, unless given.")] = (
        None
    )


class ExplainResponse(ModelAnswer, kw_only=True):
    """Why a tool has its probability."""

    explanation: Explanation


# -- search ------------------------------------------------------------------------------------

MAX_SEARCH = 100
"""Tools that a search returns at most."""


class SearchBounds(Request, kw_only=True):
    """What an agent searches for."""

    text: Annotated[
        str, Meta(min_length=1, description="What the agent wants to do, in its words.")
    ]
    top_k: Annotated[int, Meta(ge=1, le=MAX_SEARCH)] = SEARCH_LIMIT
    among: Annotated[
        list[ToolName] | None,
        Meta(description="Names that may be returned, such as those that are hidden; else all."),
    ] = None


class SearchRequest(SearchBounds, kw_only=True):
    """A search, and the run in which it is made, as far as it is known."""

    query: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="What the user asked for.")
    ] = None
    history: History = field(default_factory=list)
    before: Before = field(default_factory=list)
    model: ModelName = None


class FoundTool(Response, kw_only=True):
    """One tool, and its share of all scores, which is not calibrated."""

    tool: str
    score: float


class SearchResponse(ModelAnswer, kw_only=True):
    """What a search brought up."""

    tools: Annotated[list[FoundTool], Meta(description="Best first; empty where none matches.")]
    unknown_tools: UnknownTools


# -- odd calls ---------------------------------------------------------------------------------


class SurpriseBounds(Request, kw_only=True):
    """The call that is judged, before it is made."""

    call: CallMade | ToolName


class SurpriseRequest(SurpriseBounds, kw_only=True):
    """A call, and the run before it."""

    query: Query
    history: History = field(default_factory=list)
    before: Before = field(default_factory=list)
    model: ModelName = None


class JudgedArgument(Response, kw_only=True):
    """How odd the origin of an argument's value is."""

    p_value: float
    origin: Annotated[str, Meta(description="user, output of TOOL, argument or other.")]


class SurpriseResponse(ModelAnswer, kw_only=True):
    """How odd a call is. Advice, not a permission."""

    tool: str
    p_value: Annotated[
        float | None, Meta(description="Of the call as a whole; null where nothing can be said.")
    ]
    tool_p_value: float | None
    arguments: dict[str, JudgedArgument]
    note: Annotated[str, Meta(description="Why nothing is said; empty else.")]


# -- whole calls -------------------------------------------------------------------------------

MAX_CALLS = 20
"""Calls that are predicted by one request; each takes some milliseconds."""


class CallBounds(Request, kw_only=True):
    """Which calls to predict."""

    top_k: Annotated[int, Meta(ge=1, le=MAX_CALLS, description="Those of the best tools.")] = 3
    tool: Annotated[
        ToolName | None, Meta(description="Given, the call of this tool alone is predicted.")
    ] = None


class CallsRequest(CallBounds, kw_only=True):
    """One step whose calls are predicted."""

    query: Query
    history: History = field(default_factory=list)
    before: Before = field(default_factory=list)
    model: ModelName = None


class ArgumentSource(Response, kw_only=True, omit_defaults=True):
    """Where a value comes from."""

    kind: SourceKind
    call: Annotated[str, Meta(description="The earlier call, of output and argument.")] = ""
    path: Annotated[
        str, Meta(description="JSON Pointer into the output, or the name of the argument.")
    ] = ""
    span: Annotated[
        list[int] | None,
        Meta(description="First and last character (exclusive) in the query or message."),
    ] = None


class PredictedCall(Response, kw_only=True):
    """A call with its arguments."""

    tool: str
    arguments: Annotated[
        Object, Meta(description='A whole output is {"$ref": id of the earlier call}.')
    ]
    sources: Annotated[
        dict[str, list[ArgumentSource]],
        Meta(description="By argument; one a part of a value that is put together."),
    ]
    probability: Annotated[
        float,
        Meta(
            description="Of the tool, times that of all arguments being right; given the tool, "
            "of the arguments alone."
        ),
    ]
    probabilities: Annotated[
        dict[str, float], Meta(description="Of each value among all candidates, not calibrated.")
    ]
    unknown: Annotated[list[str], Meta(description="Parameters that have to be written.")]
    contains: Annotated[
        dict[str, list[ArgumentSource]],
        Meta(description="Of unknown parameters, the outputs that what is written has to hold."),
    ] = field(default_factory=dict)


class CallsResponse(ModelAnswer, kw_only=True):
    """The next calls, in the order of their tools' probabilities."""

    calls: Annotated[list[PredictedCall], Meta(description="The end of plan may be one of them.")]
    unknown_tools: UnknownTools


# -- whole plans -------------------------------------------------------------------------------

MAX_PLANS = 20
"""Plans of one request; predicting one takes as long as predicting all."""


class PlanBounds(Request, kw_only=True):
    """How many plans to predict."""

    top_k: Annotated[int, Meta(ge=1, le=MAX_PLANS)] = 5


class PlansRequest(PlanBounds, kw_only=True):
    """A query, or a run, whose plan is predicted."""

    query: Query
    history: History = field(default_factory=list)
    before: Before = field(default_factory=list)
    model: ModelName = None


class PlannedCall(Response, kw_only=True):
    """A call of a plan; all but its id and tool only where the model knows arguments."""

    id: Annotated[str, Meta(description="What references of later calls name.")]
    tool: str
    arguments: Object | UnsetType = UNSET
    sources: dict[str, list[ArgumentSource]] | UnsetType = UNSET
    probability: Annotated[
        float | UnsetType, Meta(description="Of the arguments, given the tool.")
    ] = UNSET
    probabilities: dict[str, float] | UnsetType = UNSET
    unknown: list[str] | UnsetType = UNSET
    contains: dict[str, list[ArgumentSource]] | UnsetType = UNSET


class PredictedPlan(Response, kw_only=True):
    """What is left to do."""

    calls: list[PlannedCall]
    links: Annotated[
        list[list[str]], Meta(description="Pairs of ids: the later call depends on the earlier.")
    ]
    probability: Annotated[
        float, Meta(description="How likely exactly these tools are called exactly so often.")
    ]


class PlansResponse(ModelAnswer, kw_only=True):
    """Plans that differ in which tools are called how often, most probable first."""

    plans: Annotated[list[PredictedPlan], Meta(description="Empty where no plan comes to an end.")]
    unknown_tools: UnknownTools


# -- sessions ----------------------------------------------------------------------------------

RankToo = Annotated[
    Selection | None, Meta(description="Given, the response holds a ranking as well.")
]


class SessionRequest(StepRequest, kw_only=True):
    """A query, to be encoded once."""

    rank: RankToo = None


class CallRequest(Request, kw_only=True):
    """Tools that the agent called."""

    tools: Annotated[
        list[CallMade | ToolName],
        Meta(min_length=1, description="Names, or calls with what came of them."),
    ]
    rank: RankToo = None
    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | None,
        Meta(description="A new random text; sent again with the same one, nothing is added."),
    ] = None


class SessionResponse(Response, kw_only=True):
    """An open session."""

    session: str
    model: str
    history: list[str]
    expires_in: Annotated[float, Meta(description="Seconds, counted anew by every request.")]
    ranking: RankResponse | None = None
