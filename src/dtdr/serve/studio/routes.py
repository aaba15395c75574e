"""The endpoints of the studio."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any

import msgspec
from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr.agents import ToolMask, ToolPolicy
from dtdr.data.calls import renumber_calls
from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.logs import open_demonstrations
from dtdr.predict.model import Model
from dtdr.rankers.base import IncrementalRanker
from dtdr.rankers.selection import count_tokens
from dtdr.serve.server.endpoints import Endpoint
from dtdr.serve.server.models import AskedStep, ServedModel
from dtdr.serve.server.runs import read_run
from dtdr.serve.server.service import RequestContext, Service
from dtdr.serve.studio import schemas
from dtdr.serve.studio.dropped_log import DroppedLog, LearnedLog
from dtdr.serve.studio.graph import ToolGraph, new_node
from dtdr.serve.studio.pages import lead_to_studio, pages
from dtdr.serve.studio.runs import Runs, RunSelection
from dtdr.serve.studio.scores import RunScore, Scorer, Scores

_GROUPS = 200
_UNCALLED = 200
_TOOLS_OF_LINE = 12
_NOT_SCORED = "The model learned from this run, or the run failed, so it is not scored."
_UNKNOWN = RunScore(0, 0, 0)


def of_model(method: Callable[..., Any]) -> Callable[..., Any]:
    """An endpoint that asks a model, in a thread of that model."""

    @wraps(method)
    async def endpoint(studio: Studio, context: RequestContext, body: Any) -> Any:
        served = context.service.models.find(body.model).current
        return await served.run(method, studio, served.model, body)

    return endpoint


class Studio:
    """The runs of a file, and how the served models rank them.

    Args:
        data: demonstrations, or a log of any known format; None shows the plans that a model kept.

    Raises:
        InputError: the runs cannot be read, or there is none.
    """

    def __init__(self, data: Path | None = None) -> None:
        self._name = "" if data is None else data.name
        self._runs: Runs | None = None
        self._scorer: Scorer | None = None
        if data is not None:
            self._runs = Runs(open_demonstrations([data]))
            if not self._runs.demonstrations:
                raise InputError(f"{data} has no run to show; give at least one demonstration")
            self._scorer = Scorer(self._runs.demonstrations)
        self._dropped: DroppedLog | None = None
        self._learned = ""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints that the studio adds to a server."""
        return (
            *pages(),
            Endpoint("GET", "/", lead_to_studio, is_described=False, role=None),
            Endpoint("GET", "/v1/studio", self.about),
            Endpoint("POST", "/v1/studio/graph", self.graph),
            Endpoint("POST", "/v1/studio/tool", self.tool),
            Endpoint("POST", "/v1/studio/tools", self.tools),
            Endpoint("POST", "/v1/studio/runs", self.runs),
            Endpoint("POST", "/v1/studio/run", self.run),
            Endpoint("POST", "/v1/studio/misses", self.misses),
            Endpoint("POST", "/v1/studio/shown", self.shown),
            Endpoint("POST", "/v1/studio/log", self.receive_log),
            Endpoint("GET", "/v1/studio/log", self.log),
        )

    # -- tools ---------------------------------------------------------------------------------

    async def about(self, context: RequestContext) -> schemas.StudioAbout:
        """The models and runs of the studio."""
        service, runs = context.service, self._runs
        return schemas.StudioAbout(
            models=[
                schemas.StudioModel(
                    name=name,
                    retriever=model.name,
                    tools=len(model.vocabulary) - 1,
                    demonstrations=model.training_.demonstrations,
                    has_arguments=model.arguments_ is not None,
                )
                for name, served in service.models.items()
                for model in (served.current.model,)
            ],
            data=self._name,
            runs=0 if runs is None else len(runs.demonstrations),
            groups=[] if runs is None else runs.groups[:_GROUPS],
            may_learn=not service.settings.read_only,
        )

    @of_model
    def graph(self, model: Model, body: schemas.GraphRequest) -> schemas.GraphResponse:
        """The tools of the runs as a graph: counts, order, dependencies, failures."""
        graph = self._runs_of(model).graph(body.filter)
        if body.tool is None:
            nodes, edges = graph.main_part(body.limit)
        else:
            try:
                nodes, edges = graph.around(body.tool, body.limit)
            except KeyError:
                raise _no_run_calls(body.tool) from None
        called = set(graph.names[2:])
        uncalled = [name for name in model.vocabulary[:-1] if name not in called]
        return schemas.GraphResponse(
            nodes=nodes,
            edges=edges,
            runs=graph.runs,
            tools=len(called),
            uncalled=uncalled[:_UNCALLED],
        )

    @of_model
    def tool(self, model: Model, body: schemas.ToolRequest) -> schemas.ToolResponse:
        """The statistics of a tool: what comes before and after, and its arguments."""
        runs = self._runs_of(model)
        graph = runs.graph(body.filter)
        known = {tool.name: tool for tool in model.tools_[:-1]}
        if body.tool not in known and body.tool not in graph.names[2:]:
            raise _no_run_calls(body.tool)
        before, after = runs.neighbours(body.tool, body.filter)
        return schemas.ToolResponse(
            **_describe_tool(known.get(body.tool, Tool(body.tool)), graph),
            before=before,
            after=after,
            arguments=runs.arguments(body.tool, body.filter),
        )

    @of_model
    def tools(self, model: Model, body: schemas.ModelRequest) -> schemas.ToolsResponse:
        """All tools: calls, failures, followers and tokens."""
        known = {tool.name: tool for tool in model.tools_[:-1]}
        graph = self._runs_of(model).graph(RunSelection())
        lines = [
            schemas.ToolLine(**_describe_tool(known.get(name, Tool(name)), graph))
            for name in dict.fromkeys([*graph.names[2:], *known])
        ]
        lines.sort(key=lambda line: (-line.calls, line.tool))
        return schemas.ToolsResponse(tools=lines)

    # -- runs ----------------------------------------------------------------------------------

    @of_model
    def runs(self, model: Model, body: schemas.RunsRequest) -> schemas.RunsResponse:
        """The runs that match a filter, a page at a time."""
        runs, (scores, scoring, working) = self._runs_of(model), self._scores(model)
        items = runs.demonstrations
        positions = runs.find_matching(body.filter)
        score = {} if scores is None else scores.by_id
        of = {at: score.get(items[at].id, _UNKNOWN) for at in positions}
        if body.misses:
            positions = [at for at in positions if of[at].right < of[at].steps]
        if body.sort == "rank":
            # Runs that lack a step's tools come first.
            has_rank = {at: of[at].lowest is not None for at in positions}
            missed = {at: of[at].right - of[at].steps for at in positions}
            positions.sort(key=lambda at: (has_rank[at], -(of[at].lowest or 0), missed[at], at))
        elif body.sort == "calls":
            positions.sort(key=lambda at: (-len(items[at].plan), at))
        elif body.sort == "time":
            positions.sort(key=lambda at: str(items[at].time or ""), reverse=True)
        page = positions[body.offset : body.offset + body.limit]
        return schemas.RunsResponse(
            total=len(positions),
            runs=[_line(at, items[at], score.get(items[at].id)) for at in page],
            scoring=scoring,
            working=working,
        )

    @of_model
    def run(self, model: Model, body: schemas.RunRequest) -> schemas.RunResponse:
        """One run of the file: what it called, and what the model predicts at each step."""
        runs = self._runs or Runs(())
        position = runs.positions.get(body.id, -1) if body.id is not None else body.position
        if position is None or not 0 <= position < len(runs.demonstrations):
            raise HTTPException(404, f"there is no such run among {len(runs.demonstrations)}")
        item = runs.demonstrations[position]
        scores, scoring, working = self._scores(model)
        steps = [] if scores is None else scores.steps(item.id)
        return schemas.RunResponse(
            position=position,
            id=item.id,
            query=item.query,
            before=Run(item.query, item.before).to_dict().get("before", []),
            calls=[call.to_dict() for call in renumber_calls(item.plan.calls)],
            outcome=item.outcome,
            group=item.group,
            steps=steps,
            scoring=scoring if scores is None or steps else _NOT_SCORED,
            working=working,
        )

    @of_model
    def misses(self, model: Model, body: schemas.ModelRequest) -> schemas.MissesResponse:
        """Where the model is wrong on the runs of the file."""
        scores, scoring, working = self._scores(model)
        figures: dict[str, Any] = {"runs": 0, "steps": 0, "metrics": {}, "causes": {}}
        figures |= {"mistakes": [], "positions": [], "confusions": [], "branches": []}
        if scores is not None and self._runs is not None:
            figures = {
                "runs": len(scores.by_id),
                "steps": len(scores.log),
                "metrics": scores.metrics,
                "causes": scores.causes,
                "mistakes": scores.mistakes,
                "positions": [self._runs.positions[item.id] for item in scores.mistakes],
                "confusions": scores.confusions,
                "branches": scores.branches,
            }
        return schemas.MissesResponse(scoring=scoring, working=working, **figures)

    def _scores(self, model: Model) -> tuple[Scores | None, str, bool]:
        """The scores of the runs, or why there are none, and whether a thread computes them."""
        if self._scorer is None:
            return None, "Start the studio with --data FILE to see how runs are ranked.", False
        scores = self._scorer.of(model)
        if isinstance(scores, Scores):
            return scores, "", False
        if isinstance(scores, str):
            return None, scores, False
        return None, f"The model is ranking these runs: {scores:.0%} done.", True

    def _runs_of(self, model: Model) -> Runs:
        return self._runs or _read_kept_plans(model)

    # -- a log that is dropped on the page -----------------------------------------------------

    async def receive_log(self, context: RequestContext, body: schemas.LogPart) -> schemas.LogState:
        """Take a part of a log; the last part starts importing and learning."""
        if self._dropped is None:
            self._dropped = DroppedLog(partial(self._show, context.service))
        receive = partial(self._dropped.receive, is_last=body.is_last)
        await to_thread.run_sync(receive, body.name, body.content, body.offset)
        return await self.log(context)

    async def log(self, context: RequestContext) -> schemas.LogState:
        """The progress with the log."""
        dropped = self._dropped
        return schemas.LogState(
            stage="" if dropped is None else dropped.stage,
            working=dropped is not None and dropped.is_working,
            model=self._learned,
        )

    def _show(self, service: Service, learned: LearnedLog) -> None:
        """Serve the model of a log, show its runs, and score the held-out ones."""
        models, name = service.models, learned.name
        models.pop(self._learned, None)
        if name in models:
            name += "-log"
        models[name] = ServedModel(name, learned.model, service.settings.limits)
        self._runs, self._name = Runs(learned.runs), learned.name
        self._scorer = Scorer(learned.held_out) if learned.held_out else None
        self._learned = name

    # -- a step --------------------------------------------------------------------------------

    async def shown(
        self, context: RequestContext, step: AskedStep, body: schemas.ShownBounds
    ) -> schemas.ShownResponse:
        """Which tools a policy shows along a run, and what they cost."""
        policy = ToolPolicy(**msgspec.structs.asdict(body.policy))
        served = step.model.current
        run = read_run(step.query, step.calls, step.before)
        return await served.run(select_shown, served.model, run, policy)


def select_shown(model: Model, run: Run, policy: ToolPolicy) -> schemas.ShownResponse:
    """Which tools a policy shows at each step of a run, and what they cost."""
    tools = model.tools_[:-1]
    names = [tool.name for tool in tools]
    costs = {tool.name: count_tokens(tool.to_dict()) for tool in tools}
    masked = ToolMask(model, policy).run(run.query, before=run.before)
    steps: list[schemas.ShownStep] = []
    selection = masked.select(names, costs=costs)
    for call in (None, *run.calls):
        former = selection.shown
        if call is not None:
            masked.call(
                call.tool,
                call.arguments,
                output=call.output,
                status=call.status,
                step=call.step,
                id=call.id,
            )
            selection = masked.select(names, costs=costs)
        steps.append(
            schemas.ShownStep(
                called="" if call is None else call.tool,
                shown=len(selection.shown),
                tokens=sum(costs[name] for name in selection.shown),
                changed=set(selection.shown) != set(former),
            )
        )
    ordered = sorted(selection.shown, key=lambda name: -selection.weights.get(name, 0.0))
    return schemas.ShownResponse(
        shown=[
            schemas.ShownTool(tool=name, reason=selection.reasons[name], tokens=costs[name])
            for name in ordered
        ],
        hidden=len(selection.hidden),
        tokens=steps[-1].tokens,
        all_tokens=sum(costs.values()),
        steps=steps,
        failure=selection.failure,
    )


def _describe_tool(tool: Tool, graph: ToolGraph) -> dict[str, Any]:
    """The fields of a ``ToolLine``."""
    is_called = tool.name in graph.names[2:]
    node = graph.nodes[graph.index[tool.name]] if is_called else new_node(tool.name)
    after, share = graph.followers.get(tool.name, (None, 0.0))
    return {
        "tool": tool.name,
        "description": tool.description,
        "calls": node.calls,
        "runs": node.runs,
        "errors": node.errors,
        "tokens": count_tokens(tool.to_dict()),
        "next": after,
        "share": share,
    }


@lru_cache(4)
def _read_kept_plans(model: Model) -> Runs:
    """The plans that a model kept, as runs without queries."""
    ranker = model.ranker
    plans = ranker.demonstrated_plans() if isinstance(ranker, IncrementalRanker) else ()
    return Runs(Demonstration(str(position), "", plan) for position, plan in enumerate(plans, 1))


def _no_run_calls(tool: str) -> HTTPException:
    return HTTPException(404, f"none of these runs calls {tool[:80]!r}")


def _line(position: int, item: Demonstration, score: RunScore | None) -> schemas.RunLine:
    tools = item.plan.tools
    return schemas.RunLine(
        position=position,
        id=item.id,
        query=item.query,
        tools=list(tools[:_TOOLS_OF_LINE]),
        calls=len(tools),
        outcome=item.outcome,
        group=item.group,
        time=None if item.time is None else item.time.isoformat(timespec="seconds"),
        score=score,
    )
