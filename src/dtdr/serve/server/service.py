"""What every endpoint of one server shares, and what is done with it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any

import msgspec
from starlette.exceptions import HTTPException

from dtdr.errors import DtdrError, ModelError, OutputError
from dtdr.net.server_logs import log
from dtdr.predict.anomaly import Surprise
from dtdr.predict.session import Session
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection
from dtdr.serve.feedback import FeedbackLog
from dtdr.serve.server import schemas
from dtdr.serve.server.asked import Asked, call_record
from dtdr.serve.server.keys import KeyFile
from dtdr.serve.server.models import ModelRegistry, ServedModel
from dtdr.serve.server.schemas import CallMade
from dtdr.serve.server.server_metrics import Metrics
from dtdr.serve.server.sessions import Sessions
from dtdr.serve.server.settings import Settings
from dtdr.serve.server.snapshots import Snapshot
from dtdr.serve.server.tracing import Tracing


@dataclass
class Service:
    """Settings, models, sessions, keys and metrics of one server."""

    settings: Settings
    models: ModelRegistry
    sessions: Sessions
    metrics: Metrics
    tracing: Tracing
    keys: KeyFile | None = None
    is_stopping: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    """What is looked after and fails, such as ``model mail`` or ``keys``, with the reason."""
    feedback_logs: dict[str, FeedbackLog] = field(default_factory=dict)
    """By model, where feedback is logged for ``dtdr learn``."""
    open_paths: frozenset[str] = frozenset()
    """Paths that need no key."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The OpenAPI document of what is answered."""

    def stop(self) -> None:
        """Take no more work that takes long, and give up soon what is under way."""
        self.is_stopping = True
        for model in self.models.values():
            model.workers.stop()

    # -- ranking -------------------------------------------------------------------------------

    async def rank(self, asked: Asked, selection: schemas.Selection) -> schemas.RankResponse:
        """Rank the next step; count it, trace it, and select from it what is sent."""
        model = asked.model
        history = asked.history

        def answer(snapshot: Snapshot, ranking: Ranking) -> schemas.RankResponse:
            return rank_response(model, snapshot, history, ranking, selection)

        with self.tracing.trace_ranking(model.name, model.current.retriever.name) as note:
            started = time.perf_counter()
            response = await asked.rank(answer)
            seconds = time.perf_counter() - started
            self.metrics.count_ranking(model.name, seconds, familiar=response.familiar)
            note(asked.query, len(history), response)
        return response

    async def search(
        self, asked: Asked, bounds: schemas.SearchBounds, *, in_run: bool = True
    ) -> schemas.SearchResponse:
        """Search for tools, in the run of a step, or in none."""
        model = asked.model
        history = asked.history

        def answer(snapshot: Snapshot, session: Session | None = None) -> schemas.SearchResponse:
            find = snapshot.retriever.search if session is None else session.search
            tools = find(bounds.text, k=bounds.top_k, among=bounds.among)
            return schemas.SearchResponse(
                model=model.name,
                generation=snapshot.generation,
                tools=[
                    schemas.FoundTool(tool=tool, score=round(score, 6)) for tool, score in tools
                ],
                unknown_tools=_unknown(snapshot, history),
            )

        with self.metrics.search_seconds.labels(model.name).time():
            snapshot = model.current
            return await (asked.ask(answer) if in_run else snapshot.run(answer, snapshot))

    async def judge(self, asked: Asked, call: CallMade | str) -> schemas.SurpriseResponse:
        """Say how odd a call is, and count what was said.

        Raises:
            HTTPException: the model does not know.
        """
        model = asked.model
        _require(
            model, model.current.retriever.surprise_, "does not know how odd a call is", "plans"
        )

        def answer(snapshot: Snapshot, session: Session) -> tuple[int, Surprise]:
            return snapshot.generation, session.surprise(call_record(call))

        generation, surprise = await asked.ask(answer)
        self.metrics.odd_calls.labels(model.name, surprise.judgement).inc()
        return schemas.SurpriseResponse(
            model=model.name, generation=generation, **surprise.to_dict()
        )

    async def predict(self, asked: Asked, bounds: schemas.CallBounds) -> schemas.CallsResponse:
        """Predict the next calls, or the call of one tool, and count them.

        Raises:
            HTTPException: the model knows no arguments, or not the tool.
        """
        model = asked.model
        retriever = model.current.retriever
        _require(model, retriever.arguments_, "knows no arguments", "arguments")
        if bounds.tool is not None and retriever.index(bounds.tool) < 0:
            raise HTTPException(
                422, f"tool: is not known to model {model.name!r}; see /v1/models/{model.name}"
            )
        history = asked.history

        def answer(snapshot: Snapshot, session: Session) -> schemas.CallsResponse:
            tool = bounds.tool
            calls = session.next_calls(bounds.top_k) if tool is None else [session.fill(tool)]
            return schemas.CallsResponse(
                model=model.name,
                generation=snapshot.generation,
                calls=[msgspec.convert(call.to_dict(), schemas.PredictedCall) for call in calls],
                unknown_tools=_unknown(snapshot, history),
            )

        with self.metrics.call_seconds.labels(model.name).time():
            response = await asked.ask(answer)
        for call in response.calls:
            self.metrics.calls.labels(model.name, "no" if call.unknown else "yes").inc()
        return response

    async def predict_plans(
        self, asked: Asked, bounds: schemas.PlanBounds
    ) -> schemas.PlansResponse:
        """Predict the most probable plans of what is left to do, with all their arguments.

        Raises:
            HTTPException: the model knows no plans.
        """
        model = asked.model
        _require(model, model.current.retriever.plans_, "knows no whole plans", "plans")
        history = asked.history

        def answer(snapshot: Snapshot, session: Session) -> schemas.PlansResponse:
            # Written here: a plan fills its arguments when they are looked at first.
            plans = [plan.to_dict() for plan in session.plans(bounds.top_k)]
            return schemas.PlansResponse(
                model=model.name,
                generation=snapshot.generation,
                plans=[msgspec.convert(plan, schemas.PredictedPlan) for plan in plans],
                unknown_tools=_unknown(snapshot, history),
            )

        with self.metrics.plan_seconds.labels(model.name).time():
            return await asked.ask(answer)

    def check_step(
        self, query: str, history: Sequence[object], before: Sequence[object] = ()
    ) -> None:
        """Refuse a step that is too long, or whose query is blank.

        Raises:
            HTTPException: it is.
        """
        limits = self.settings.limits
        if not query.strip():
            raise HTTPException(422, "the query is empty; say what the user asked for")
        if len(query) > limits.query_characters:
            raise HTTPException(
                422,
                f"the query has {len(query)} characters; the limit is {limits.query_characters}",
            )
        for count, what in (
            (len(history), f"the history holds {len(history)} calls"),
            (len(before), f"'before' holds {len(before)} messages and calls"),
        ):
            if count > limits.history:
                raise HTTPException(422, f"{what}; the limit is {limits.history}")

    # -- models --------------------------------------------------------------------------------

    async def reload(self, model: ServedModel) -> None:
        """Load a model's folder again.

        Raises:
            DtdrError: the folder cannot be used; the model stays as it was.
        """
        dropped = model.unsaved
        try:
            snapshot = await model.reload()
        except DtdrError as error:
            self.metrics.reloads.labels(model.name, "failed").inc()
            self.show_failure(f"model {model.name}", str(error))
            raise
        self.show_failure(f"model {model.name}", None)
        self.metrics.reloads.labels(model.name, "done").inc()
        self.show_generation(model)
        log(
            "reloaded",
            model=model.name,
            generation=snapshot.generation,
            dropped_demonstrations=dropped,
        )

    async def save(self, model: ServedModel) -> None:
        """Write what was learned to a model's folder.

        Raises:
            HTTPException: another process changed the folder.
            DtdrError: it cannot be written.
        """
        with self.showing_failure(f"save {model.name}"):
            saved = await model.save()
        self.show_generation(model)
        log("saved", model=model.name, demonstrations=saved)

    @contextlib.contextmanager
    def showing_failure(self, task: str) -> Iterator[None]:
        """Show whether what is written can be: a full disk, say."""
        try:
            yield
        except OutputError as error:
            self.show_failure(task, str(error))
            raise
        self.show_failure(task, None)

    def show_failure(self, task: str, reason: str | None) -> None:
        """Show in log, metrics and ``/readyz`` that something fails, or no longer does."""
        if self.failures.get(task) == reason:
            return
        self.metrics.failing.labels(task).set(reason is not None)
        if reason is None:
            del self.failures[task]
            log("works again", task=task)
        else:
            self.failures[task] = reason
            log("failing", level=logging.ERROR, task=task, reason=reason)

    def show_generation(self, model: ServedModel) -> None:
        """Show the snapshot that is served in the metrics."""
        self.metrics.generation.labels(model.name).set(model.current.generation)
        self.metrics.unsaved.labels(model.name).set(model.unsaved)
        self.metrics.written.labels(model.name).set(model.written)


def _require(model: ServedModel, learned: object | None, lack: str, option: str) -> None:
    """Refuse what a model was not fitted for.

    Raises:
        HTTPException: nothing was learned.
    """
    if learned is None:
        raise HTTPException(
            409,
            f"model {model.name!r} {lack}; fit it again with dtdr fit, without --no-{option}, and "
            "reload it",
        )


def _unknown(snapshot: Snapshot, history: Sequence[str]) -> list[str]:
    """Names in a history that the model never saw, each once."""
    index = snapshot.retriever.index
    return list(dict.fromkeys(name for name in history if index(name) < 0))


def rank_response(
    model: ServedModel,
    snapshot: Snapshot,
    history: Sequence[str],
    ranking: Ranking,
    selection: schemas.Selection,
) -> schemas.RankResponse:
    """A ranking as it is sent; probabilities are those over all tools that can be called.

    Raises:
        ModelError: the model gives no probabilities.
        InputError: the model is not calibrated for what was selected.
    """
    offered = selection.offered
    ranking = ranking.among(None if offered is None else frozenset(offered))
    confidence = ranking.confidence
    if not isfinite(confidence):
        raise ModelError(f"model {model.name!r} gives probabilities that are not numbers")
    return schemas.RankResponse(
        model=model.name,
        generation=snapshot.generation,
        tools=[
            schemas.RankedTool(tool=tool, probability=round(float(probability), 6))
            for tool, probability in ranking.top(_size(ranking, selection))
        ],
        confidence=round(confidence, 6),
        familiar=bool(ranking.is_familiar),
        none_of_these=bool(ranking.is_none_of_these),
        unknown_tools=_unknown(snapshot, history),
    )


def _size(ranking: Ranking, selection: schemas.Selection) -> int:
    """How many of the best tools a selection keeps, at least one.

    Raises:
        InputError: the model is not calibrated for what was asked.
    """
    names = (field.name for field in fields(Selection))
    bounds = {name: getattr(selection, name) for name in names}
    if bounds["threshold"] is bounds["coverage"] is bounds["token_budget"] is None:
        return selection.top_k or schemas.DEFAULT_TOP_K
    return len(Selection(**bounds).positions(ranking))
