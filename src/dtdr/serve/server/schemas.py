"""Requests and responses, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, defstruct

from dtdr.data.calls import Status
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.search import SEARCH_LIMIT
from dtdr.rankers.explanation import Explanation

Object: TypeAlias = dict[str, Any]


def says(description: str, **bounds: Any) -> Meta:
    """The description and the bounds of a field, for the OpenAPI document."""
    return Meta(description=description, **bounds)


ToolName = Annotated[str, Meta(min_length=1, max_length=512)]
CallId = Annotated[str, Meta(min_length=1, max_length=256)]
Query = Annotated[str, says("What the user asked for.", min_length=1)]
ModelName = Annotated[
    Annotated[str, Meta(min_length=1, max_length=256)] | None, says("Optional for a single model.")
]
TopK = Annotated[int, Meta(ge=1, le=1_000_000)] | None
Threshold = Annotated[float, Meta(ge=0, lt=1)] | None
Coverage = Annotated[float, Meta(gt=0, lt=1)] | None
TokenBudget = Annotated[int, Meta(ge=1, le=1_000_000_000)] | None
Generation = Annotated[int, says("Grows by one whenever the model is reloaded or learns.")]


class RequestBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of requests: a misspelt field is an error, not something that is ignored."""


class ResponseBody(Struct, kw_only=True):
    """Base of responses."""


class CallMade(RequestBody, kw_only=True):
    """A call and its result; of a long output, 2,000 characters are read."""

    tool: ToolName
    id: Annotated[CallId | None, says("For references; default: its position, from 1.")] = None
    arguments: Object = {}
    output: Annotated[Any, says("JSON or text.")] = None
    status: Annotated[Status | None, says("Default: ok or empty, by the output.")] = None
    step: Annotated[
        Annotated[int, Meta(ge=0)] | None, says("Number of the agent's message that made the call.")
    ] = None
    output_length: Annotated[
        Annotated[int, Meta(ge=0)] | None, says("Characters of the whole output, if it was cut.")
    ] = None
    text: Annotated[
        str | None, says("What the agent wrote in the message that made the call; 500 characters.")
    ] = None


History = Annotated[
    list[CallMade | ToolName],
    says("Calls so far, oldest first, or the names of their tools; names may be unknown."),
]
Before = Annotated[
    list[Object],
    says(
        "The conversation before the query, oldest first, as in demonstrations.jsonl: "
        '{"role": "user" | "assistant", "content"} and {"role": "call", "id", "tool", …}.'
    ),
]
UnknownTools = Annotated[list[str], says("Names in the history that the model never saw.")]


StepText = Annotated[
    str | None,
    says("What the agent wrote before its next call, if that is known; 500 characters are read."),
]


class StepBody(RequestBody, kw_only=True):
    """The query, what came before it, and the calls so far."""

    query: Query
    history: History = []
    before: Before = []
    text: StepText = None


def with_step(name: str, bounds: type[RequestBody], *, needs_query: bool) -> type[Struct]:
    """The request with the fields of a step in addition to these."""
    return defstruct(
        name,
        [
            ("query", Query) if needs_query else ("query", Query | None, None),
            ("history", History, []),
            ("before", Before, []),
            # A search has a text already.
            *([] if "text" in bounds.__struct_fields__ else [("text", StepText, None)]),
            ("model", ModelName, None),
        ],
        bases=(bounds,),
        namespace={"__doc__": f"A step. {bounds.__doc__}"},
        kw_only=True,
        forbid_unknown_fields=True,
    )


class ModelAnswer(ResponseBody, kw_only=True):
    """Base of what a model answers."""

    model: str
    generation: Generation


class SelectionBounds(RequestBody, kw_only=True):
    """How many of the best tools to take; see ``dtdr.rankers.selection.Selection``."""

    top_k: Annotated[TopK, says("At most this many.")] = None
    threshold: Annotated[Threshold, says("Only tools above this probability.")] = None
    coverage: Annotated[
        Coverage,
        says("As many tools as needed to show a right one at this share of the steps (dtdr-f)."),
    ] = None
    token_budget: Annotated[TokenBudget, says("As many tools as fit into this many tokens.")] = None
    fallback: Annotated[
        bool, says("For a query unlike the demonstrations, ignore threshold and coverage.")
    ] = True


class SelectionBody(SelectionBounds, kw_only=True):
    """Which tools of a ranking to return: without bounds, ten. The best one always is."""

    offered: Annotated[list[ToolName] | None, says("Tools to rank among; default: all.")] = None


class RankedTool(ResponseBody, kw_only=True):
    """A tool and its probability among all tools that can be called."""

    tool: str
    probability: float


class RankResponse(ModelAnswer, kw_only=True):
    """A ranking."""

    tools: Annotated[list[RankedTool], says("Best first, never empty.")]
    confidence: Annotated[float, says("How likely the best tool is a right one.")]
    familiar: Annotated[bool, says("False for a query unlike the demonstrations: show more tools.")]
    none_of_these: Annotated[bool, says("Whether no tool seems wanted: show none, or a search.")]
    unknown_tools: UnknownTools


class BatchRequest(SelectionBody, kw_only=True):
    """Many steps to rank with one model."""

    steps: Annotated[list[StepBody], Meta(min_length=1)]
    model: ModelName = None


class BatchResponse(ResponseBody, kw_only=True):
    """Rankings in the order of the steps."""

    rankings: list[RankResponse]


class ExplainBounds(RequestBody, kw_only=True):
    """The tool to explain."""

    tool: Annotated[ToolName | None, says("Default: the best.")] = None
    against: Annotated[ToolName | None, says("Default: the best other one.")] = None


class ExplainResponse(ModelAnswer, kw_only=True):
    """Why a tool has its probability."""

    explanation: Explanation


MAX_SEARCH = 100
"""Tools that a search returns."""


class SearchBounds(RequestBody, kw_only=True):
    """A search for tools."""

    text: Annotated[str, says("What the agent wants to do, in its words.", min_length=1)]
    top_k: Annotated[int, Meta(ge=1, le=MAX_SEARCH)] = SEARCH_LIMIT
    offered: Annotated[list[ToolName] | None, says("Tools to search; default: all.")] = None
    among: Annotated[list[ToolName] | None, says("Deprecated name of ``offered``.")] = None


class FoundTool(ResponseBody, kw_only=True):
    """A tool, and its share of all scores, which is not calibrated."""

    tool: str
    score: float


class SearchResponse(ModelAnswer, kw_only=True):
    """The tools that a search found."""

    tools: Annotated[list[FoundTool], says("Best first; empty if none matches.")]
    unknown_tools: UnknownTools


MAX_CALLS = 20
"""Calls that one request predicts; each takes some milliseconds."""


class CallBounds(RequestBody, kw_only=True):
    """Which calls to predict."""

    top_k: Annotated[int, says("Those of the best tools.", ge=1, le=MAX_CALLS)] = 3
    tool: Annotated[ToolName | None, says("Predict the call of this tool only.")] = None


class CallsResponse(ModelAnswer, kw_only=True):
    """The next calls, in the order of their tools' probabilities."""

    calls: Annotated[list[CallPrediction], says("The end of plan may be one of them.")]
    unknown_tools: UnknownTools


MAX_PLANS = 20
"""Plans of one request; one takes as long as all."""


class PlanBounds(RequestBody, kw_only=True):
    """How many plans to predict."""

    top_k: Annotated[int, Meta(ge=1, le=MAX_PLANS)] = 5


class PredictedPlan(ResponseBody, kw_only=True):
    """A predicted plan: the remaining calls."""

    calls: Annotated[
        list[Object], says("Each has an id and a tool; with arguments, also what /v1/calls gives.")
    ]
    links: Annotated[list[list[str]], says("Pairs of ids: the later call depends on the earlier.")]
    probability: Annotated[float, says("Of exactly these tools, each as often as here.")]


class PlansResponse(ModelAnswer, kw_only=True):
    """Plans with different tools, or numbers of calls, most probable first."""

    plans: Annotated[list[PredictedPlan], says("Empty if no plan comes to an end.")]
    unknown_tools: UnknownTools


class FeedbackDemonstration(RequestBody, kw_only=True):
    """A query and the calls that answered it, as in ``demonstrations.jsonl``."""

    query: Query
    calls: Annotated[
        list[CallMade | ToolName], says("In order; a name is a call with unknown arguments.")
    ]
    id: Annotated[str, Meta(max_length=256)] = ""
    links: list[Annotated[list[str], Meta(min_length=2, max_length=2)]] = []
    before: Before = []
    outcome: Literal["success", "failure", "unknown"] = "success"
    source: Annotated[str, says("The origin of the demonstration.", max_length=256)] = "feedback"
    group: Annotated[str, says("Stays together in a split, such as a user.", max_length=256)] = ""
    parent: Annotated[
        Object | None, says('Of a nested run: {"id", "call"} of the call that started it.')
    ] = None
    time: Annotated[str | None, says("Of the query (RFC 3339); default: now.")] = None
    offered: Annotated[list[ToolName] | None, says("Tools that the run could call.")] = None


class FeedbackRequest(RequestBody, kw_only=True):
    """Demonstrations to learn from."""

    demonstrations: Annotated[list[FeedbackDemonstration], Meta(min_length=1)]
    model: ModelName = None


class PendingChange(ResponseBody, kw_only=True):
    """A change that a model has not learned yet."""

    demonstrations: int = 0
    added_tools: list[str] = []
    removed_tools: list[str] = []


class FeedbackResponse(ResponseBody, kw_only=True):
    """The accepted feedback."""

    model: str
    demonstrations: Annotated[int, says("That were accepted.")]
    new_tools: Annotated[list[str], says("Called, and not known to the model.")]
    logged: Annotated[bool, says("Whether they are in the log of dtdr learn.")]
    waiting: Annotated[PendingChange, says("Without the change that is being made.")]
    generation: Generation


class ToolChangeRequest(RequestBody, kw_only=True):
    """Tools to add to a model, and to remove."""

    add: Annotated[
        list[Object], says("Each with a name, a description and parameters, or as an LLM takes it.")
    ] = []
    remove: Annotated[list[ToolName], says("Names.")] = []


class ToolChangeResponse(ResponseBody, kw_only=True):
    """The accepted change of tools."""

    model: str
    waiting: Annotated[PendingChange, says("Without the change that is being made.")]
    generation: Generation


class ModelResponse(ResponseBody, kw_only=True):
    """A served model."""

    name: str
    ranker: str
    retriever: Annotated[str, says("Deprecated name of ``ranker``.")]
    generation: Generation
    tools: Annotated[int, says("Size of the vocabulary, end of plan included.")]
    demonstrations: int
    can_learn: bool
    unsaved: Annotated[int, says("Demonstrations that it learned, but are not in its folder.")]
    reload_error: Annotated[str | None, says("Why the folder cannot be loaded now.")] = None
    learning: Annotated[PendingChange | None, says("The change that is being made.")] = None
    learning_since: Annotated[str | None, says("When that began (RFC 3339).")] = None
    waiting: Annotated[PendingChange, says("Changes that come after it.")]
    learning_error: Annotated[str | None, says("Why the last change could not be made.")] = None


class ModelsResponse(ResponseBody, kw_only=True):
    """Every served model."""

    models: list[ModelResponse]


class ModelDetail(ModelResponse, kw_only=True):
    """A served model and its tool vocabulary."""

    vocabulary: Annotated[list[str], says("End of plan last.")]


class Health(ResponseBody, kw_only=True):
    """The server answers, or is ready."""

    status: Literal["ok"] = "ok"
    version: str
    failing: Annotated[
        int, says("Folders, key files and saves that failed; /metrics and the log name them.")
    ] = 0


class ErrorBody(ResponseBody, kw_only=True):
    """An error."""

    type: str
    message: Annotated[str, says("One sentence.")]
    request_id: str


class ErrorResponse(ResponseBody, kw_only=True):
    """The body of every error response."""

    error: ErrorBody
