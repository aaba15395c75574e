"""What every endpoint of one server shares, and what is done with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any

import msgspec
from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr.arguments.prediction import CallPrediction
from dtdr.errors import DtdrError, InputError, ModelError
from dtdr.feedback import FeedbackLog
from dtdr.plans.prediction import PlanPrediction
from dtdr.ranking import Ranking
from dtdr.retrievers.surprise import Surprise
from dtdr.run import CallLike, Run, as_run
from dtdr.selection import Selection
from dtdr.server import schemas
from dtdr.server.fields import CallMade, Object
from dtdr.server.keys import KeyFile
from dtdr.server.logs import log
from dtdr.server.metrics import Metrics
from dtdr.server.models import ModelRegistry, ServedModel
from dtdr.server.sessions import SessionStore
from dtdr.server.settings import Settings
from dtdr.server.snapshots import Snapshot
from dtdr.server.tracing import Tracing


@dataclass
class Service:
    """Settings, models, sessions, keys and metrics of one server."""

    settings: Settings
    models: ModelRegistry
    sessions: SessionStore
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

    async def rank(
        self,
        model: ServedModel,
        query: str,
        history: Sequence[str],
        selection: schemas.Selection,
        ranking: Awaitable[tuple[Snapshot, Ranking]],
    ) -> schemas.RankResponse:
        """Wait for a ranking; count it, trace it, and select from it what is sent."""
        with self.tracing.trace_ranking(model.name, model.current.retriever.name) as span:
            started = time.perf_counter()
            snapshot, result = await ranking
            self.count(model, result, time.perf_counter() - started)
            response = self.response(model, snapshot, history, result, selection)
            span.record(query, len(history), response)
        return response

    async def search(
        self,
        model: ServedModel,
        history: Sequence[str],
        searching: Callable[[], Awaitable[tuple[Snapshot, Sequence[tuple[str, float]]]]],
    ) -> schemas.SearchResponse:
        """Wait for a search, count it, and write its tools as they are sent."""
        started = time.perf_counter()
        snapshot, tools = await searching()
        self.metrics.search_seconds.labels(model.name).observe(time.perf_counter() - started)
        return schemas.SearchResponse(
            model=model.name,
            generation=snapshot.generation,
            tools=[schemas.FoundTool(tool=tool, score=round(score, 6)) for tool, score in tools],
            unknown_tools=_unknown(snapshot, history),
        )

    async def judge(
        self,
        model: ServedModel,
        judging: Callable[[], Awaitable[tuple[Snapshot, Surprise]]],
    ) -> schemas.SurpriseResponse:
        """Wait for how odd a call is, count it, and write it as it is sent.

        Raises:
            HTTPException: the model does not know.
        """
        _require(
            model, model.current.retriever.surprise_, "does not know how odd a call is", "plans"
        )
        snapshot, surprise = await judging()
        self.metrics.odd_calls.labels(model.name, surprise.judgement).inc()
        return schemas.SurpriseResponse(
            model=model.name, generation=snapshot.generation, **surprise.to_dict()
        )

    async def predict(
        self,
        model: ServedModel,
        history: Sequence[str],
        bounds: schemas.CallBounds,
        predicting: Callable[[], Awaitable[tuple[Snapshot, Sequence[CallPrediction]]]],
    ) -> schemas.CallsResponse:
        """Wait for predicted calls, count them, and write them as they are sent.

        Raises:
            HTTPException: the model knows no arguments, or not the tool.
        """
        retriever = model.current.retriever
        _require(model, retriever.arguments_, "knows no arguments", "arguments")
        if bounds.tool is not None and retriever.index(bounds.tool) < 0:
            raise HTTPException(
                422, f"tool: is not known to model {model.name!r}; see /v1/models/{model.name}"
            )
        started = time.perf_counter()
        snapshot, calls = await predicting()
        self.metrics.count_calls(model.name, time.perf_counter() - started, calls)
        return schemas.CallsResponse(
            model=model.name,
            generation=snapshot.generation,
            calls=[msgspec.convert(call.to_dict(), schemas.PredictedCall) for call in calls],
            unknown_tools=_unknown(snapshot, history),
        )

    async def predict_plans(
        self,
        model: ServedModel,
        history: Sequence[str],
        predicting: Callable[[], Awaitable[tuple[Snapshot, Sequence[PlanPrediction]]]],
    ) -> schemas.PlansResponse:
        """Wait for predicted plans, count them, and write them as they are sent.

        Raises:
            HTTPException: the model knows no plans.
        """
        _require(model, model.current.retriever.plans_, "knows no whole plans", "plans")
        started = time.perf_counter()
        snapshot, plans = await predicting()
        self.metrics.plan_seconds.labels(model.name).observe(time.perf_counter() - started)
        return schemas.PlansResponse(
            model=model.name,
            generation=snapshot.generation,
            plans=[msgspec.convert(plan.to_dict(), schemas.PredictedPlan) for plan in plans],
            unknown_tools=_unknown(snapshot, history),
        )

    def count(self, model: ServedModel, ranking: Ranking, seconds: float) -> None:
        """Count a ranking."""
        self.metrics.count_ranking(model.name, seconds, familiar=ranking.is_familiar)

    def response(
        self,
        model: ServedModel,
        snapshot: Snapshot,
        history: Sequence[str],
        ranking: Ranking,
        selection: schemas.Selection,
    ) -> schemas.RankResponse:
        """A ranking as it is sent; probabilities are those over all tools.

        Raises:
            ModelError: the model gives no probabilities.
            InputError: the model is not calibrated for what was selected.
        """
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
            unknown_tools=_unknown(snapshot, history),
        )

    def check_history(self, history: Sequence[object]) -> None:
        """Refuse a history that is too long.

        Raises:
            HTTPException: it is.
        """
        limit = self.settings.limits.history
        if len(history) > limit:
            raise HTTPException(
                422, f"the history holds {len(history)} calls; the limit is {limit}"
            )

    async def read_run(
        self,
        query: str,
        history: Sequence[CallMade | str],
        before: Sequence[Object] = (),
        *,
        taken: Collection[str] = (),
        first: int = 1,
    ) -> Run | None:
        """What was called and what came before; None where names alone are known.

        Args:
            query: what the user asked for.
            history: the calls.
            before: messages and calls before the query.
            taken: ids that calls before these have.
            first: number of the first call in its run, its id where that is free.

        Raises:
            HTTPException: the query, the history or ``before`` is too long, or does not hold calls
                and messages.
        """
        self.check_query(query)
        self.check_history(history)
        limit = self.settings.limits.history
        if len(before) > limit:
            raise HTTPException(
                422, f"'before' holds {len(before)} messages and calls; the limit is {limit}"
            )
        if not before and all(isinstance(item, str) for item in history):
            return None
        try:
            read = partial(_read_run, query, history, before, taken=taken, first=first)
            return await to_thread.run_sync(read)
        except InputError as error:
            raise HTTPException(422, str(error)) from error
        except RecursionError as error:
            raise HTTPException(422, "a call or message is nested too deeply") from error

    def check_query(self, query: str) -> None:
        """Refuse a query that is blank or too long.

        Raises:
            HTTPException: it is.
        """
        if not query.strip():
            raise HTTPException(422, "the query is empty; say what the user asked for")
        limit = self.settings.limits.query_characters
        if len(query) > limit:
            raise HTTPException(422, f"the query has {len(query)} characters; the limit is {limit}")

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
        saved = await model.save()
        self.show_generation(model)
        log("saved", model=model.name, demonstrations=saved)

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


def call_record(call: CallMade | str) -> CallLike:
    """A call of a request as the library takes it."""
    if isinstance(call, str):
        return call
    return {"tool": call.tool, "arguments": call.arguments}


def names_of(history: Sequence[CallMade | str]) -> list[str]:
    """The names of the tools that were called."""
    return [item if isinstance(item, str) else item.tool for item in history]


def _read_run(
    query: str,
    history: Sequence[CallMade | str],
    before: Sequence[Object],
    *,
    taken: Collection[str],
    first: int,
) -> Run:
    run = as_run(query, (), before)
    given = {item.id for item in history if isinstance(item, CallMade) and item.id}
    if both := sorted(given.intersection(taken)):
        raise InputError(f"two calls share the id {both[0]!r}; ids must be unique in a run")
    used = {*given, *taken, *(call.id for call in run.earlier)}
    for number, item in enumerate(history, start=first):
        identifier = None if isinstance(item, str) else item.id
        if identifier is None:
            while str(number) in used:
                number += 1  # the next that is free
            identifier = str(number)
            used.add(identifier)
        if isinstance(item, str):
            run.call(item, id=identifier)
        else:
            run.call(
                item.tool,
                item.arguments,
                output=item.output,
                status=item.status,
                step=item.step,
                id=identifier,
            )
    return run


def _size(ranking: Ranking, selection: schemas.Selection) -> int:
    """How many of the best tools a selection keeps, at least one.

    Raises:
        InputError: the model is not calibrated for what was asked.
    """
    bounds = (selection.threshold, selection.coverage, selection.token_budget)
    if all(bound is None for bound in bounds):
        return selection.top_k or schemas.DEFAULT_TOP_K
    chosen = Selection(
        top_k=selection.top_k,
        threshold=selection.threshold,
        coverage=selection.coverage,
        token_budget=selection.token_budget,
        fallback=selection.fallback,
    )
    return len(chosen.positions(ranking))
