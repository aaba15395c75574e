"""Requests and responses of the studio's endpoints, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from dtdr.data.demonstrations import Outcome
from dtdr.serve.server.masks import MaskPolicy
from dtdr.serve.server.schemas import ModelName, Object, Request, Response, StepRequest, ToolName
from dtdr.serve.studio.graph import Edge, Loop, Node
from dtdr.serve.studio.lab import LabRun, LabSection, Metrics, StepOfRun
from dtdr.serve.studio.runs import ArgumentUse, Neighbour, RunSelection


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
    has_lab: bool
    may_learn: Annotated[bool, Meta(description="Whether a model may be changed from here.")]
    icl_methods: Annotated[dict[str, str], Meta(description="Ways to write a prompt.")]


Filter = Annotated[RunSelection, Meta(description="Which runs are looked at.")]


class GraphRequest(Request, kw_only=True):
    """Which part of the graph to draw."""

    filter: Filter = field(default_factory=RunSelection)
    tool: Annotated[
        ToolName | None, Meta(description="Draw its neighbours; without it, the main tools.")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=200, description="Most tools that are drawn.")] = 60
    whole: Annotated[bool, Meta(description="Draw all tools, as a map.")] = False
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


class ParameterOfTool(Response, kw_only=True):
    """One parameter of a tool."""

    name: str
    type: str
    description: str
    required: bool


class ToolResponse(Response, kw_only=True):
    """The statistics of a tool."""

    tool: str
    description: str
    parameters: list[ParameterOfTool]
    tokens: Annotated[int, Meta(description="Of its definition in a prompt.")]
    calls: int
    runs: int
    before: list[Neighbour]
    after: list[Neighbour]
    arguments: list[ArgumentUse]
    examples: list[RunLine]


class RunsRequest(Request, kw_only=True):
    """A page of the runs that match."""

    filter: Filter = field(default_factory=RunSelection)
    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    model: ModelName = None


class RunsResponse(Response, kw_only=True):
    """A page of runs."""

    total: int
    runs: list[RunLine]


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


class PromptRequest(StepRequest, kw_only=True):
    """A step of a run, and how its prompt is written."""

    icl: str = "hard"
    policy: MaskPolicy = field(default_factory=MaskPolicy)


class PromptText(Response, kw_only=True):
    """A prompt."""

    text: str
    constant: Annotated[int, Meta(description="Characters that every step begins with.")]
    tokens: int


class PromptResponse(Response, kw_only=True):
    """The prompt of a step, and that of the step before."""

    prompt: PromptText
    previous: PromptText | None
    cached: Annotated[int, Meta(description="Characters that both begin with.")]
    cached_tokens: int
    choices: Annotated[list[str], Meta(description="Names that the LLM may answer with.")]


class LabRequest(Request, kw_only=True):
    """A lab."""

    lab: Annotated[str | None, Meta(description="The one that was run last, unless given.")] = None


class LabResponse(Response, kw_only=True):
    """The runs of a lab."""

    labs: Annotated[list[str], Meta(description="The last one first.")]
    lab: str
    runs: list[LabRun]


class ReportResponse(Response, kw_only=True):
    """The report of a lab as text and tables."""

    title: str
    sections: list[LabSection]


class CompareRequest(LabRequest, kw_only=True):
    """Two runs of a lab, or one alone."""

    first: Annotated[str, Meta(max_length=128, description="Key of a run.")]
    second: Annotated[str, Meta(max_length=128)] | None = None
    metric: Literal["mrr", "f1", "top1", "recall@5", "log_mrr"] = "mrr"


class LabDifference(Response, kw_only=True):
    """How the second run differs from the first, by plans."""

    difference: float
    low: Annotated[float, Meta(description="Of the 95 % bootstrap interval.")]
    high: float
    p_value: Annotated[float, Meta(description="Two-sided, paired permutation test.")]
    plans: int


class CompareResponse(Response, kw_only=True):
    """Two runs side by side."""

    first: Metrics
    second: Metrics | None
    difference: LabDifference | None
    reason: Annotated[str, Meta(description="Why there is no difference; else empty.")]
    worst: Annotated[
        list[StepOfRun],
        Meta(description="Steps that the last named run ranks worst, or where it loses most."),
    ]
