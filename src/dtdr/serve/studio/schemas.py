"""Requests and responses of the studio's endpoints, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from dtdr.data.demonstrations import Outcome
from dtdr.evaluate.branches import Branch
from dtdr.evaluate.next_calls import Mistake
from dtdr.serve.server.masks import MaskPolicy
from dtdr.serve.server.schemas import ModelName, Object, RequestBody, ResponseBody, ToolName, says
from dtdr.serve.studio.graph import Edge, Node
from dtdr.serve.studio.runs import ArgumentUse, Neighbour, RunSelection
from dtdr.serve.studio.scores import Confusion, RunScore, StepScore


class StudioModel(ResponseBody, kw_only=True):
    """A served model."""

    name: str
    retriever: str
    tools: Annotated[int, says("End of plan not counted.")]
    demonstrations: int
    has_arguments: Annotated[bool, says("Whether it predicts arguments.")]


class StudioAbout(ResponseBody, kw_only=True):
    """The models and runs of the studio."""

    models: list[StudioModel]
    data: Annotated[str, says("Name of the file of runs; empty without one.")]
    runs: int
    groups: Annotated[list[str], says("Of the runs, the largest first.")]
    may_learn: Annotated[bool, says("Whether a model may be changed from here.")]


Filter = Annotated[RunSelection, says("Which runs are looked at.")]


class GraphRequest(RequestBody, kw_only=True):
    """A part of the graph to draw."""

    filter: Filter = field(default_factory=RunSelection)
    tool: Annotated[ToolName | None, says("Draw its neighbours; default: the main tools.")] = None
    limit: Annotated[int, says("Of tools.", ge=1, le=200)] = 60
    model: ModelName = None


class GraphResponse(ResponseBody, kw_only=True):
    """A graph to draw, and what it leaves out."""

    nodes: list[Node]
    edges: list[Edge]
    runs: Annotated[int, says("That match the filter.")]
    tools: Annotated[int, says("That these runs call.")]
    uncalled: Annotated[list[str], says("By these runs, of the model's tools; 200 at most.")]


class ToolRequest(RequestBody, kw_only=True):
    """A tool to describe."""

    tool: ToolName
    filter: Filter = field(default_factory=RunSelection)
    model: ModelName = None


class ScoredResponse(ResponseBody, kw_only=True):
    """Base of answers with scores, which a thread computes."""

    scoring: Annotated[str, says("Why there are no scores; else empty.")]
    working: Annotated[bool, says("Whether there will be some soon.")]


class RunLine(ResponseBody, kw_only=True):
    """A run in a list."""

    position: int
    id: str
    query: str
    tools: Annotated[list[str], says("That it calls, in order; the first twelve.")]
    calls: int
    outcome: Outcome
    group: str
    time: Annotated[str | None, says("When the user asked.")]
    score: Annotated[RunScore | None, says("Of its steps; null while that is unknown.")]


class ToolLine(ResponseBody, kw_only=True):
    """A tool in a list."""

    tool: str
    description: str
    calls: int
    runs: int
    errors: int
    tokens: Annotated[int, says("Of its definition in a prompt.")]
    next: Annotated[str | None, says("What mostly follows; null for the end.")]
    share: Annotated[float, says("How often that follows, of all that does.")]


class ToolResponse(ToolLine, kw_only=True):
    """The statistics of a tool."""

    before: list[Neighbour]
    after: list[Neighbour]
    arguments: list[ArgumentUse]


class RunsRequest(RequestBody, kw_only=True):
    """A page of the runs that match."""

    filter: Filter = field(default_factory=RunSelection)
    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    sort: Annotated[
        Literal["file", "rank", "calls", "time"], says("Lowest, most or latest first.")
    ] = "file"
    misses: Annotated[bool, says("Only runs with a step that was ranked wrong.")] = False
    model: ModelName = None


class RunsResponse(ScoredResponse, kw_only=True):
    """A page of runs."""

    total: int
    runs: list[RunLine]


class RunRequest(RequestBody, kw_only=True):
    """A run of the file, by its position or its id."""

    position: Annotated[int, Meta(ge=0)] | None = None
    id: Annotated[str, Meta(max_length=10_000)] | None = None
    model: ModelName = None


class RunResponse(ScoredResponse, kw_only=True):
    """One run, to be stepped through, and how a model ranks its steps."""

    position: int
    id: str
    query: str
    before: list[Object]
    calls: Annotated[list[Object], says("With ids from 1, which references name.")]
    outcome: Outcome
    group: str
    steps: Annotated[list[StepScore], says("The end included; empty without scores.")]


class ShownBounds(RequestBody, kw_only=True):
    """Which tools to show."""

    policy: MaskPolicy = field(default_factory=MaskPolicy)


class ShownTool(ResponseBody, kw_only=True):
    """A tool that the LLM is shown."""

    tool: str
    reason: Annotated[str, says("ranked, called, kept, always, unknown or open.")]
    tokens: int


class ShownStep(ResponseBody, kw_only=True):
    """The tools that are shown at one step of the run."""

    called: Annotated[str, says("The call before it; empty for the first step.")]
    shown: int
    tokens: int
    changed: Annotated[bool, says("Whether another set was shown before.")]


class ShownResponse(ResponseBody, kw_only=True):
    """The tools that a policy shows at a step, and their cost."""

    shown: list[ShownTool]
    hidden: int
    tokens: Annotated[int, says("Of the tools that are shown.")]
    all_tokens: Annotated[int, says("Of all tools.")]
    steps: Annotated[list[ShownStep], says("From the first one to this one.")]
    failure: str


class ModelRequest(RequestBody, kw_only=True):
    """A model to ask about."""

    model: ModelName = None


class MissesResponse(ScoredResponse, kw_only=True):
    """Where a model is wrong on the runs: the figures of ``dtdr evaluate --model``."""

    runs: int
    steps: int
    metrics: Annotated[dict[str, float], says("Means over all steps.")]
    causes: Annotated[dict[str, int], says("Steps by why the next call of the log was not first.")]
    mistakes: Annotated[list[Mistake], says("Most confident first; 50.")]
    positions: Annotated[list[int], says("Of the mistakes' runs.")]
    confusions: Annotated[list[Confusion], says("Most frequent first; 20.")]
    branches: Annotated[list[Branch], says("Conditions on outputs, ranked worst first; 50.")]


class ToolsResponse(ResponseBody, kw_only=True):
    """All tools of the model and the runs, most calls first; never-called ones last."""

    tools: list[ToolLine]


class LogPart(RequestBody, kw_only=True):
    """A part of a log that is dropped on the page."""

    name: Annotated[str, says("Of the file.", min_length=1, max_length=255)]
    content: Annotated[bytes, says("In base64.")]
    offset: Annotated[int, says("Bytes of the log before this part.", ge=0)]
    is_last: bool


class LogState(ResponseBody, kw_only=True):
    """The progress of reading a log."""

    stage: Annotated[str, says("One sentence; empty before the first log.")]
    working: bool
    model: Annotated[str, says("Learned from the last log; empty before.")]
