"""Requests and responses of the studio's endpoints, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from dtdr.data.demonstrations import Outcome
from dtdr.serve.server.masks import MaskPolicy
from dtdr.serve.server.schemas import ModelName, Object, Request, Response, StepRequest, ToolName
from dtdr.serve.studio.graph import Edge, Loop, Node
from dtdr.serve.studio.runs import ArgumentUse, Neighbour, RunSelection
from dtdr.serve.studio.scores import Confusion, RunScore, StepScore


class StudioModel(Response, kw_only=True):
    """A served model."""

    name: str
    retriever: str
    tools: Annotated[int, Meta(description="End of plan not counted.")]
    demonstrations: int
    has_arguments: Annotated[bool, Meta(description="Whether it predicts arguments.")]
    can_learn: bool


class StudioAbout(Response, kw_only=True):
    """What the studio shows."""

    version: str
    models: list[StudioModel]
    data: Annotated[str, Meta(description="Name of the file of runs; empty without one.")]
    runs: int
    groups: Annotated[list[str], Meta(description="Of the runs, the largest first.")]
    may_learn: Annotated[bool, Meta(description="Whether a model may be changed from here.")]
    takes_logs: Annotated[bool, Meta(description="Whether a log may be dropped on the page.")]


Filter = Annotated[RunSelection, Meta(description="Which runs are looked at.")]


class GraphRequest(Request, kw_only=True):
    """Which part of the graph to draw."""

    filter: Filter = field(default_factory=RunSelection)
    tool: Annotated[
        ToolName | None, Meta(description="Draw its neighbours; without it, the main tools.")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=200, description="Most tools that are drawn.")] = 60
    model: ModelName = None


class GraphResponse(Response, kw_only=True):
    """A graph to draw, and what it leaves out."""

    nodes: list[Node]
    edges: list[Edge]
    loops: Annotated[list[Loop], Meta(description="Most frequent first.")]
    runs: Annotated[int, Meta(description="That match the filter.")]
    tools: Annotated[int, Meta(description="That these runs call.")]
    uncalled: Annotated[
        list[str],
        Meta(description="Tools of the model that none of these runs calls; 200 at most."),
    ]


class ToolRequest(Request, kw_only=True):
    """A tool to tell about."""

    tool: ToolName
    filter: Filter = field(default_factory=RunSelection)
    model: ModelName = None


class RunLine(Response, kw_only=True):
    """A run in a list."""

    position: int
    id: str
    query: str
    tools: Annotated[list[str], Meta(description="That it calls, in order; the first twelve.")]
    calls: int
    outcome: Outcome
    group: str
    time: Annotated[str | None, Meta(description="When the user asked.")]
    score: Annotated[
        RunScore | None, Meta(description="How its steps were ranked; null while that is unknown.")
    ]


class ToolResponse(Response, kw_only=True):
    """The statistics of a tool."""

    tool: str
    description: str
    tokens: Annotated[int, Meta(description="Of its definition in a prompt.")]
    calls: int
    runs: int
    before: list[Neighbour]
    after: list[Neighbour]
    arguments: list[ArgumentUse]


class RunsRequest(Request, kw_only=True):
    """A page of the runs that match."""

    filter: Filter = field(default_factory=RunSelection)
    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    sort: Annotated[
        Literal["file", "rank", "calls", "time"],
        Meta(description="Lowest rank first, most calls first, or latest first."),
    ] = "file"
    misses: Annotated[bool, Meta(description="Only runs with a step that was ranked wrong.")] = (
        False
    )
    model: ModelName = None


class RunsResponse(Response, kw_only=True):
    """A page of runs."""

    total: int
    runs: list[RunLine]
    scoring: Annotated[str, Meta(description="Why runs have no score; else empty.")]
    working: Annotated[bool, Meta(description="Whether they will have one soon.")]


class RunResponse(Response, kw_only=True):
    """One run, to be stepped through."""

    position: int
    id: str
    query: str
    before: list[Object]
    calls: Annotated[list[Object], Meta(description="With ids from 1, which references name.")]
    outcome: Outcome
    group: str


class ShownRequest(StepRequest, kw_only=True):
    """A step of a run, and a policy."""

    policy: MaskPolicy = field(default_factory=MaskPolicy)


class ShownTool(Response, kw_only=True):
    """A tool that the LLM is shown."""

    tool: str
    reason: Annotated[str, Meta(description="ranked, called, kept, always, unknown or open.")]
    tokens: int


class ShownStep(Response, kw_only=True):
    """What one step of the run shows."""

    called: Annotated[str, Meta(description="The call before it; empty for the first step.")]
    shown: int
    tokens: int
    changed: Annotated[bool, Meta(description="Whether another set was shown before.")]


class ShownResponse(Response, kw_only=True):
    """What a policy shows at a step, and what that costs."""

    shown: list[ShownTool]
    hidden: int
    tokens: Annotated[int, Meta(description="Of the tools that are shown.")]
    all_tokens: Annotated[int, Meta(description="Of all tools.")]
    steps: Annotated[list[ShownStep], Meta(description="From the first one to this one.")]
    failure: str


class ModelRequest(Request, kw_only=True):
    """A model to ask about."""

    model: ModelName = None


class MissedStep(Response, kw_only=True):
    """A step whose best tool was not right."""

    position: Annotated[int, Meta(description="Of the run.")]
    query: str
    history: list[str]
    predicted: str
    probability: float
    confidence: float
    called: str


class MissesResponse(Response, kw_only=True):
    """Where a model is wrong on the runs: the figures of ``dtdr evaluate --model``."""

    scoring: Annotated[str, Meta(description="Why there are no figures; else empty.")]
    working: Annotated[bool, Meta(description="Whether there will be some soon.")]
    runs: int
    steps: int
    metrics: Annotated[dict[str, float], Meta(description="Means over all steps.")]
    causes: Annotated[
        dict[str, int], Meta(description="Steps by why the next call of the log was not first.")
    ]
    mistakes: Annotated[list[MissedStep], Meta(description="Most confident first; 50.")]
    confusions: Annotated[list[Confusion], Meta(description="Most frequent first; 20.")]


class StepsRequest(Request, kw_only=True):
    """A run whose steps are compared with what a model predicts."""

    position: Annotated[int, Meta(ge=0)]
    model: ModelName = None


class StepsResponse(Response, kw_only=True):
    """The steps of a run, the end included."""

    scoring: Annotated[str, Meta(description="Why there are no steps; else empty.")]
    working: Annotated[bool, Meta(description="Whether there will be some soon.")]
    steps: list[StepScore]


class ToolLine(Response, kw_only=True):
    """A tool in a list."""

    tool: str
    description: str
    calls: int
    runs: int
    errors: int
    tokens: Annotated[int, Meta(description="Of its definition in a prompt.")]
    next: Annotated[str | None, Meta(description="What mostly follows; null for the end.")]
    share: Annotated[float, Meta(description="How often that follows, of all that does.")]


class ToolsResponse(Response, kw_only=True):
    """All tools of the model and the runs, most calls first; never-called ones last."""

    tools: list[ToolLine]


class LogPart(Request, kw_only=True):
    """A part of a log that is dropped on the page."""

    name: Annotated[str, Meta(min_length=1, max_length=255, description="Of the file.")]
    content: Annotated[bytes, Meta(description="In base64.")]
    offset: Annotated[int, Meta(ge=0, description="Bytes of the log before this part.")]
    is_last: bool


class LogState(Response, kw_only=True):
    """What is being done with a log."""

    stage: Annotated[str, Meta(description="One sentence; empty before the first log.")]
    working: bool
    model: Annotated[str, Meta(description="Learned from the last log; empty before.")]
