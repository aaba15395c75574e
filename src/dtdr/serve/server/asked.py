"""What a model is asked about: a step that a request tells as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from msgspec.structs import asdict
from starlette.exceptions import HTTPException

from dtdr.data.run import Run, as_run
from dtdr.errors import InputError
from dtdr.predict.session import Session
from dtdr.rankers.ranking import Ranking
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.schemas import (
    CallMade,
    CallsRequest,
    Object,
    PlansRequest,
    RankRequest,
    SearchRequest,
    StepRequest,
)
from dtdr.serve.server.served_session import ServedSession
from dtdr.serve.server.service import Call
from dtdr.serve.server.snapshots import Snapshot

Result = TypeVar("Result")

_ID_LENGTH = 64


@dataclass(frozen=True)
class AskedStep:
    """A step that a request tells as a whole.

    Attributes:
        calls: made for the query so far.
        before: messages and calls before the query.
    """

    model: ServedModel
    query: str
    calls: Sequence[CallMade | str]
    before: Sequence[Object]

    @property
    def history(self) -> list[str]:
        """Names of the tools called, oldest first."""
        return names_of(self.calls)

    def read(self) -> Run:
        """The query, the calls and what came before, as the library has them.

        Raises:
            InputError: something is not a call or a message, or two calls share an id.
        """
        return read_run(self.query, self.calls, self.before)

    async def rank(self, answer: Callable[[Snapshot, Ranking], Result]) -> Result:
        """What is answered with the ranking of the next step; in a thread where that takes long.

        Raises:
            HTTPException: it took too long.
        """
        snapshot = self.model.current
        has_more = has_details(self.calls, self.before)

        def rank() -> Result:
            if has_more:
                return answer(snapshot, snapshot.retriever.rank(self.read()))
            return answer(snapshot, snapshot.rank(self.query, self.history))

        size = len(self.query) + sum(map(len, self.history))
        return await snapshot.run(rank, size=None if has_more else size)

    async def ask(self, answer: Callable[[Snapshot, Session], Result]) -> Result:
        """What is answered, in a thread, with a session that is at this step.

        Raises:
            HTTPException: it took too long.
        """
        snapshot = self.model.current
        return await snapshot.run(lambda: answer(snapshot, snapshot.retriever.session(self.read())))


Asked: TypeAlias = AskedStep | ServedSession
"""A step that a request tells as a whole, or that an open session is at."""


def read_step(
    call: Call,
    body: StepRequest | RankRequest | CallsRequest | PlansRequest | SearchRequest,
) -> AskedStep:
    """The step that a request tells; that of a search may be its text alone.

    Raises:
        HTTPException: there is no such model, or the step is too long.
    """
    service = call.service
    query = body.query or ""
    if isinstance(body, SearchRequest):
        service.check_step(body.text, ())
        if body.query is None and (body.history or body.before):
            raise HTTPException(422, "query: is missing; history and before are those of a query")
        query = query or body.text
    model = service.models.find(body.model)
    service.check_step(query, body.history, body.before)
    call.log(model.name, query, calls=len(body.history))
    return AskedStep(model, query, body.history, body.before)


async def find_session(call: Call, *, may_lack_calls: bool = False) -> ServedSession:
    """The session that a request's path names; see ``Sessions.find``.

    Raises:
        HTTPException: there is none of that id that belongs to the owner.
    """
    identifier = call.parameters["session"]
    if len(identifier) > _ID_LENGTH:
        raise HTTPException(422, f"session: expected at most {_ID_LENGTH} characters")
    session = await call.service.sessions.find(
        identifier, call.owner, may_lack_calls=may_lack_calls
    )
    call.log(session.model.name)
    return session


def has_details(calls: Sequence[CallMade | str], before: Sequence[Object] = ()) -> bool:
    """Whether more than the names of the calls is known."""
    return bool(before) or not all(isinstance(item, str) for item in calls)


def call_record(call: CallMade | str) -> Object:
    """A call of a request as the library takes it."""
    if isinstance(call, str):
        return {"tool": call}
    return {name: value for name, value in asdict(call).items() if value is not None}


def names_of(calls: Sequence[CallMade | str]) -> list[str]:
    """The names of the tools that were called."""
    return [item if isinstance(item, str) else item.tool for item in calls]


def read_run(
    query: str,
    calls: Sequence[CallMade | str],
    before: Sequence[Object] = (),
    *,
    taken: Collection[str] = (),
    first: int = 1,
) -> Run:
    """What was called and what came before it; long outputs are cut.

    Args:
        query: what the user asked for.
        calls: made for it.
        before: messages and calls before the query.
        taken: ids that calls before these have.
        first: number of the first call in its run, its id where that is free.

    Raises:
        InputError: something is not a call or a message, or two calls share an id.
    """
    if not has_details(calls, before):
        return as_run(query, names_of(calls))
    records = [call_record(item) for item in calls]
    given = {record["id"] for record in records if "id" in record}
    if both := sorted(given.intersection(taken)):
        raise InputError(f"two calls share the id {both[0]!r}; ids must be unique in a run")
    run = as_run(query, (), before)
    used = {*given, *taken, *(call.id for call in run.earlier)}
    for place, record in enumerate(records, start=first):
        if "id" not in record:
            while str(place) in used:
                place += 1  # the next that is free
            record["id"] = str(place)
            used.add(record["id"])
    return run.with_calls(records)
