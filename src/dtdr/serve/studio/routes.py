"""The endpoints of the studio."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from math import inf
from typing import Any

import msgspec
from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr.agents import ToolPolicy
from dtdr.data.calls import renumber_calls
from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.predict.model import Model
from dtdr.rankers.selection import count_tokens
from dtdr.serve.server.endpoints import Endpoint, read_step
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.service import Call, Service
from dtdr.serve.studio import schemas
from dtdr.serve.studio.dropped_log import DroppedLog, LearnedLog
from dtdr.serve.studio.graph import new_node
from dtdr.serve.studio.pages import lead_to_studio, pages
from dtdr.serve.studio.runs import Runs, RunSelection
from dtdr.serve.studio.scores import RunScore, Scorer, Scores
from dtdr.serve.studio.steps import select_shown

_GROUPS = 200
_UNCALLED = 200
_TOOLS_OF_LINE = 12
_FAILED = "The model learned from this run, or the run failed, so it is not judged."


def in_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    """An endpoint that works in a thread of its model, or of the first one."""

    @wraps(method)
    async def endpoint(studio: Studio, call: Call, *body: Any) -> Any:
        models = call.service.models
        chosen = getattr(body[0], "filter", None) if body else None
        if chosen is not None and chosen.regex and _has_rank_key(call):
            # A pattern can take hours, and blocks all other requests.
            raise HTTPException(403, "a regular expression needs a key with the role admin")
        name = getattr(body[0], "model", None) if body else None
        model = models.find(name) if name else next(iter(models.values()))
        return await model.current.run(method, studio, call, *body)

    return endpoint


class Studio:
    """The runs of a file, and how the served models rank them.

    Args:
        runs: of the file; None shows the plans that a model kept.
        name: of the file.
        takes_logs: whether a log may be dropped on the page.
    """

    def __init__(
        self, runs: Runs | None = None, name: str = "", *, takes_logs: bool = False
    ) -> None:
        self._runs = runs
        self._name = name
        self._scorer = None if runs is None else Scorer(runs.demonstrations)
        self._takes_logs = takes_logs
        self._dropped: DroppedLog | None = None
        self._learned = ""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints that the studio adds to a server."""
        log = (
            Endpoint("POST", "/v1/studio/log", self.receive_log),
            Endpoint("GET", "/v1/studio/log", self.log),
        )
        return (
            *pages(),
            Endpoint("GET", "/", lead_to_studio, is_described=False, role=None),
            Endpoint("GET", "/v1/studio", self.about),
            Endpoint("POST", "/v1/studio/graph", self.graph),
            Endpoint("POST", "/v1/studio/tool", self.tool),
            Endpoint("POST", "/v1/studio/runs", self.runs),
            Endpoint("GET", "/v1/studio/runs/{position}", self.run),
            Endpoint("POST", "/v1/studio/steps", self.steps),
            Endpoint("POST", "/v1/studio/misses", self.misses),
            Endpoint("POST", "/v1/studio/tools", self.tools),
            Endpoint("POST", "/v1/studio/shown", self.shown),
            *(log if self._takes_logs else ()),
        )

    # -- runs ----------------------------------------------------------------------------------

    async def about(self, call: Call) -> schemas.StudioAbout:
        """The models and runs of the studio."""
        service = call.service
        runs = self._runs
        return schemas.StudioAbout(
            models=[
                _describe(name, item.current.retriever) for name, item in service.models.items()
            ],
            data=self._name,
            runs=0 if runs is None else len(runs.demonstrations),
            groups=[] if runs is None else runs.groups[:_GROUPS],
            may_learn=not service.settings.read_only and not _has_rank_key(call),
            takes_logs=self._takes_logs,
        )

    @in_thread
    def graph(self, call: Call, body: schemas.GraphRequest) -> schemas.GraphResponse:
        """The tools of the runs as a graph: counts, order, dependencies, loops, failures."""
        model = call.service.models.find(body.model)
        graph = self._of(model).graph(body.filter)
        if body.tool is not None:
            try:
                nodes, edges = graph.around(body.tool, body.limit)
            except KeyError:
                raise _no_run_calls(body.tool) from None
        else:
            nodes, edges = graph.flow(body.limit)
        called = set(graph.names[2:])
        known = model.current.retriever.vocabulary[:-1]
        return schemas.GraphResponse(
            nodes=nodes,
            edges=edges,
            loops=graph.loops(),
            runs=graph.runs,
            tools=len(called),
            uncalled=[name for name in known if name not in called][:_UNCALLED],
        )

    @in_thread
    def tool(self, call: Call, body: schemas.ToolRequest) -> schemas.ToolResponse:
        """The statistics of a tool: what comes before and after, arguments, examples."""
        model = call.service.models.find(body.model)
        chosen, runs = body.filter, self._of(model)
        retriever = model.current.retriever
        index = retriever.index(body.tool)
        tool = retriever.tools_[index] if index >= 0 else Tool(body.tool)
        graph = runs.graph(chosen)
        try:
            node = graph.nodes[graph.find(body.tool)]
            before, after = runs.neighbours(body.tool, chosen)
        except KeyError:
            if index < 0:
                raise _no_run_calls(body.tool) from None
            node, before, after = new_node(body.tool), [], []
        return schemas.ToolResponse(
            tool=tool.name,
            description=tool.description,
            tokens=count_tokens(tool.to_dict()),
            calls=node.calls,
            runs=node.runs,
            before=before,
            after=after,
            arguments=runs.arguments(body.tool, chosen),
        )

    @in_thread
    def runs(self, call: Call, body: schemas.RunsRequest) -> schemas.RunsResponse:
        """The runs that match a filter, a page at a time."""
        model = call.service.models.find(body.model)
        runs, (scores, scoring, working) = self._of(model), self._scores(model)
        by_id = {} if scores is None else scores.by_id
        items = runs.demonstrations
        positions = runs.find_matching(body.filter)

        def misses(at: int) -> int:
            score = by_id.get(items[at].id)
            return 0 if score is None else score.steps - score.right

        def lowest(at: int) -> float:
            score = by_id.get(items[at].id)
            return 0 if score is None else inf if score.lowest is None else score.lowest

        if body.misses:
            positions = [at for at in positions if misses(at)]
        if body.sort == "rank":
            positions.sort(key=lambda at: (-lowest(at), -misses(at), at))
        elif body.sort == "calls":
            positions.sort(key=lambda at: (-len(items[at].plan), at))
        elif body.sort == "time":
            positions.sort(key=lambda at: str(items[at].time or ""), reverse=True)
        page = positions[body.offset : body.offset + body.limit]
        lines = [_line(runs, at, by_id.get(items[at].id)) for at in page]
        return schemas.RunsResponse(
            total=len(positions), runs=lines, scoring=scoring, working=working
        )

    @in_thread
    def misses(self, call: Call, body: schemas.ModelRequest) -> schemas.MissesResponse:
        """Where the model is wrong on the runs of the file."""
        scores, scoring, working = self._scores(call.service.models.find(body.model))
        if scores is None or self._runs is None:
            return schemas.MissesResponse(
                scoring=scoring,
                working=working,
                runs=0,
                steps=0,
                metrics={},
                causes={},
                mistakes=[],
                confusions=[],
            )
        return schemas.MissesResponse(
            scoring="",
            working=False,
            runs=len(scores.by_id),
            steps=len(scores.log),
            metrics=scores.metrics,
            causes=scores.causes,
            confusions=scores.confusions,
            mistakes=[
                schemas.MissedStep(
                    position=self._runs.positions[item.id],
                    query=item.query,
                    history=list(item.history),
                    predicted=item.predicted,
                    probability=item.probability,
                    confidence=item.confidence,
                    called=item.called,
                )
                for item in scores.mistakes
            ],
        )

    @in_thread
    def steps(self, call: Call, body: schemas.StepsRequest) -> schemas.StepsResponse:
        """The steps of a run: what it called, and what the model predicts."""
        run = None if self._runs is None else _find_run(self._runs, body.position)
        scores, scoring, working = self._scores(call.service.models.find(body.model))
        if scores is None or run is None:
            return schemas.StepsResponse(scoring=scoring, steps=[], working=working)
        steps = scores.steps(run.id)
        return schemas.StepsResponse(scoring="" if steps else _FAILED, steps=steps, working=False)

    @in_thread
    def tools(self, call: Call, body: schemas.ModelRequest) -> schemas.ToolsResponse:
        """All tools: calls, failures, followers and tokens."""
        model = call.service.models.find(body.model)
        known = {tool.name: tool for tool in model.current.retriever.tools_[:-1]}
        graph = self._of(model).graph(RunSelection())
        follows = graph.followers()
        lines = []
        for name in dict.fromkeys([*graph.names[2:], *known]):
            tool = known.get(name, Tool(name))
            node = graph.nodes[graph.find(name)] if name in follows else new_node(name)
            after, share = follows.get(name, (None, 0.0))
            lines.append(
                schemas.ToolLine(
                    tool=name,
                    description=tool.description,
                    calls=node.calls,
                    runs=node.runs,
                    errors=node.errors,
                    tokens=count_tokens(tool.to_dict()),
                    next=after,
                    share=share,
                )
            )
        lines.sort(key=lambda line: (-line.calls, line.tool))
        return schemas.ToolsResponse(tools=lines)

    def _scores(self, model: ServedModel) -> tuple[Scores | None, str, bool]:
        """The scores of the runs, or why there are none, and whether a thread computes them."""
        if self._scorer is None:
            return None, "Start the studio with --data FILE to see how runs are ranked.", False
        scores = self._scorer.of(model.current.retriever)
        if isinstance(scores, Scores):
            return scores, "", False
        if isinstance(scores, str):
            return None, scores, False
        return None, f"The model is ranking these runs: {scores:.0%} done.", True

    @in_thread
    def run(self, call: Call) -> schemas.RunResponse:
        """One run of the file, to be stepped through."""
        position = call.parameters["position"]
        runs = self._runs
        if runs is None:
            raise HTTPException(404, "no file of runs is shown; start with --data FILE")
        if not position.isascii() or not position.isdigit() or len(position) > 12:
            raise HTTPException(422, "position: expected a whole number from 0")
        item = _find_run(runs, int(position))
        return schemas.RunResponse(
            position=int(position),
            id=item.id,
            query=item.query,
            before=Run(item.query, item.before).to_dict().get("before", []),
            calls=[call.to_dict() for call in renumber_calls(item.plan.calls)],
            outcome=item.outcome,
            group=item.group,
        )

    def _of(self, model: ServedModel) -> Runs:
        return self._runs or _read_kept_plans(model.current.retriever)

    # -- a log that is dropped on the page -----------------------------------------------------

    async def receive_log(self, call: Call, body: schemas.LogPart) -> schemas.LogState:
        """Take a part of a log; the last part starts importing and learning."""
        if self._dropped is None:
            self._dropped = DroppedLog(partial(self._show, call.service))
        receive = partial(self._dropped.receive, is_last=body.is_last)
        await to_thread.run_sync(receive, body.name, body.content, body.offset)
        return await self.log(call)

    async def log(self, call: Call) -> schemas.LogState:
        """The progress with the log."""
        dropped = self._dropped
        return schemas.LogState(
            stage="" if dropped is None else dropped.stage,
            working=dropped is not None and dropped.is_working,
            model=self._learned,
        )

    def _show(self, service: Service, learned: LearnedLog) -> None:
        """Serve the model of a log, show its runs, and score the held-out ones."""
        models = service.models
        models[learned.name] = ServedModel(learned.name, learned.model, service.settings.limits)
        self._runs, self._name = Runs(learned.runs), learned.name
        self._scorer = Scorer(learned.held_out) if learned.held_out else None
        self._learned = learned.name

    # -- a step --------------------------------------------------------------------------------

    @in_thread
    def shown(self, call: Call, body: schemas.ShownRequest) -> schemas.ShownResponse:
        """Which tools a policy shows along a run, and what they cost."""
        step = read_step(call, body)
        policy = ToolPolicy(**msgspec.structs.asdict(body.policy))
        retriever = step.model.current.retriever
        return select_shown(retriever, step.read(), policy)


def _describe(name: str, model: Model) -> schemas.StudioModel:
    return schemas.StudioModel(
        name=name,
        retriever=model.name,
        tools=len(model.vocabulary) - 1,
        demonstrations=model.training_.demonstrations,
        has_arguments=model.arguments_ is not None,
    )


@lru_cache(4)
def _read_kept_plans(retriever: Model) -> Runs:
    """The plans that a model kept, as runs without queries."""
    plans = retriever.demonstrated_plans() or ()
    return Runs([Demonstration(str(number), "", plan) for number, plan in enumerate(plans, 1)])


def _has_rank_key(call: Call) -> bool:
    return call.key is not None and call.key.role != "admin"


def _find_run(runs: Runs, position: int) -> Demonstration:
    if position >= len(runs.demonstrations):
        raise HTTPException(404, f"there are {len(runs.demonstrations)} runs, from 0")
    return runs.demonstrations[position]


def _no_run_calls(tool: str) -> HTTPException:
    return HTTPException(404, f"none of these runs calls {tool[:80]!r}")


def _line(runs: Runs, at: int, score: RunScore | None = None) -> schemas.RunLine:
    item = runs.demonstrations[at]
    tools = item.plan.tools
    return schemas.RunLine(
        position=at,
        id=item.id,
        query=item.query,
        tools=list(tools[:_TOOLS_OF_LINE]),
        calls=len(tools),
        outcome=item.outcome,
        group=item.group,
        time=None if item.time is None else item.time.isoformat(timespec="seconds"),
        score=score,
    )
