"""What a model is asked about: a run up to now, as a request or an open session has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from msgspec.structs import asdict
from starlette.exceptions import HTTPException

from dtdr.data.run import NO_CALLS, Run, as_run
from dtdr.rankers.ranking import Ranking
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.schemas import CallMade, Object, SearchRequest, StepRequest
from dtdr.serve.server.service import Call
from dtdr.serve.server.snapshots import Snapshot

Result = TypeVar("Result")


@dataclass(frozen=True)
class Step:
    """A run up to now, and the model that is asked about it.

    Attributes:
        history: names of the tools called for the query, oldest first.
        has_details: whether more is known than the query and these names.
        read: gives the run, with its ids; takes long where there are details.
    """

    model: ServedModel
    query: str
    history: Sequence[str]
    has_details: bool
    read: Callable[[], Run] = field(repr=False)

    def rank(self, snapshot: Snapshot) -> Ranking:
        """The ranking of the next step."""
        if self.has_details:
            return snapshot.retriever.rank(self.read())
        return snapshot.rank(self.query, self.history)

    async def ask(self, answer: Callable[[Snapshot], Result], *, ranks: bool = False) -> Result:
        """What is answered, in a thread unless this ranks a short step.

        Raises:
            HTTPException: it took too long.
        """
        snapshot = self.model.current
        is_plain = ranks and not self.has_details
        size = len(self.query) + sum(map(len, self.history)) if is_plain else None
        return await snapshot.run(answer, snapshot, size=size)


def read_step(call: Call, body: StepRequest | SearchRequest) -> Step:
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
    has_details = bool(body.before) or not are_names(body.history)
    read = partial(read_run, query, body.history, body.before)
    return Step(model, query, names_of(body.history), has_details, read)


def are_names(calls: Sequence[CallMade | str]) -> bool:
    """Whether nothing but the tools of the calls is known."""
    return all(isinstance(item, str) for item in calls)


def names_of(calls: Sequence[CallMade | str]) -> list[str]:
    """The names of the tools that were called."""
    return [item if isinstance(item, str) else item.tool for item in calls]


def unknown_names(snapshot: Snapshot, history: Sequence[str]) -> list[str]:
    """Names in a history that the model never saw, each once."""
    index = snapshot.retriever.index
    return list(dict.fromkeys(name for name in history if index(name) < 0))


def read_run(query: str, calls: Sequence[CallMade | str], before: Sequence[Object] = ()) -> Run:
    """The run that a request tells; long outputs are cut.

    Raises:
        InputError: something is not a call or a message, or two calls share an id.
    """
    return add_calls(as_run(query, (), before), calls)


def add_calls(run: Run, calls: Sequence[CallMade | str]) -> Run:
    """A run with further calls; one without an id gets its place, or the next that is free.

    Raises:
        InputError: something is not a call, or two calls share an id.
    """
    records = [
        {"tool": item}
        if isinstance(item, str)
        else {name: value for name, value in asdict(item).items() if value is not None}
        for item in calls
        if item not in NO_CALLS
    ]
    taken = {call.id for call in (*run.earlier, *run.calls)}
    taken.update(record["id"] for record in records if "id" in record)
    for place, record in enumerate(records, start=len(run.calls) + 1):
        if "id" not in record:
            while str(place) in taken:
                place += 1
            record["id"] = str(place)
            taken.add(record["id"])
    return run.with_calls(records)
