"""What every route of one server shares."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request, Response

from dtdr.ranking import Ranking
from dtdr.server import schemas
from dtdr.server.answers import RefusedError
from dtdr.server.keys import ApiKey, KeyFile
from dtdr.server.metrics import Metrics
from dtdr.server.models import ServedModel, Shelf, Snapshot
from dtdr.server.sessions import SessionStore
from dtdr.server.settings import Settings
from dtdr.server.spans import Spans

_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass
class State:
    """Settings, models, sessions, keys and metrics of one server."""

    settings: Settings
    shelf: Shelf
    sessions: SessionStore
    metrics: Metrics
    spans: Spans
    keys: KeyFile | None = None
    stopping: bool = False
    feedback_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def rank(
        self,
        model: ServedModel,
        query: str,
        history: Sequence[str],
        selection: schemas.Selection,
    ) -> dict[str, Any]:
        """Rank one step of one query; the JSON of a ``RankResponse``."""
        snapshot = model.current
        with self.spans.ranking(model.name, snapshot.retriever.name) as span:
            started = time.perf_counter()
            ranking = await snapshot.run(snapshot.rank, query, history)
            self.count(model, ranking, time.perf_counter() - started)
            response = self.response(model, snapshot, history, ranking, selection)
            span.done(query, len(history), ranking, response["tools"])
        return response

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
    ) -> dict[str, Any]:
        """A ranking as it is sent; probabilities are those over all tools.

        Built as plain JSON: models of pydantic took a tenth of the server's own time.
        """
        index = snapshot.retriever.index
        unknown = list(dict.fromkeys(name for name in history if index(name) < 0))
        tools = [
            {"tool": tool, "probability": round(probability, 6)}
            for tool, probability in ranking.top(chosen(ranking, selection))
        ]
        return {
            "model": model.name,
            "generation": snapshot.generation,
            "tools": tools,
            "confidence": round(ranking.confidence, 6),
            "familiar": bool(ranking.is_familiar),
            "unknown_tools": unknown,
        }

    def log_fields(
        self, request: Request, model: ServedModel, query: str | None = None, **fields: int
    ) -> None:
        """What the request's line in the log says; the query only where that is allowed."""
        shown = {"query": query} if query is not None and self.settings.log_queries else {}
        request.scope["dtdr.log"] = {"model": model.name, **fields, **shown}

    def check_history(self, history: Sequence[str]) -> None:
        """Refuse a history that is too long."""
        limit = self.settings.limits.history
        if len(history) > limit:
            raise RefusedError(422, f"the history holds {len(history)} calls; the limit is {limit}")

    def check_query(self, query: str) -> None:
        """Refuse a query that is blank or too long."""
        if not query.strip():
            raise RefusedError(422, "the query is empty; say what the user asked for")
        limit = self.settings.limits.query_characters
        if len(query) > limit:
            raise RefusedError(422, f"the query has {len(query)} characters; the limit is {limit}")


def chosen(ranking: Ranking, selection: schemas.Selection) -> int:
    """How many of the best tools a selection keeps, at least one.

    Raises:
        InputError: the model is not calibrated for what was asked.
    """
    bounds = (selection.threshold, selection.coverage, selection.token_budget)
    if all(bound is None for bound in bounds):
        return selection.top_k or schemas.DEFAULT_TOP_K
    return len(
        ranking.select(
            top_k=selection.top_k,
            threshold=selection.threshold,
            coverage=selection.coverage,
            token_budget=selection.token_budget,
        )
    )


def reply(body: Mapping[str, Any], status: int = 200) -> Response:
    """A response of JSON; ASCII, so that no text can be unfit for UTF-8.

    Raises:
        RefusedError: a number is not finite, which only a client can have brought in.
    """
    try:
        content = _ENCODE(body)
    except ValueError as error:
        raise RefusedError(422, "numbers in a request must be finite") from error
    return Response(content, status, media_type="application/json")


def state_of(request: Request) -> State:
    """The state of the server that a request came to."""
    state: State = request.app.state.dtdr
    return state


def key_of(request: Request) -> ApiKey | None:
    """The key that a request was made with; None where no key is asked for."""
    key: ApiKey | None = request.scope.get("dtdr.key")
    return key


def owner_of(request: Request) -> str:
    """Who a session belongs to."""
    key = key_of(request)
    return "" if key is None else key.id


def require_admin(request: Request) -> None:
    """Refuse a key that may only rank.

    Raises:
        RefusedError: the key has another role.
    """
    key = key_of(request)
    if key is not None and key.role != "admin":
        raise RefusedError(
            403, "this key may only rank; make one with: dtdr keys create FILE --role admin"
        )
