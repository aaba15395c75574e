"""The step that a model is asked about: a run up to now, from a request or a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import asdict

from dtdr.data.run import Run, as_run
from dtdr.rankers.ranking import Ranking
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.schemas import CallMade, Object
from dtdr.serve.server.snapshots import Snapshot

Result = TypeVar("Result")


@dataclass(frozen=True)
class AskedStep:
    """A run up to now, and the model that is asked about it.

    Attributes:
        history: names of the tools called for the query, oldest first.
        has_details: whether the run has more than the query and these names.
        read: returns the run, with ids; slow if there are details.
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
        """Compute an answer, in a thread unless this ranks a short step.

        Raises:
            HTTPException: it took too long.
        """
        snapshot = self.model.current
        size = len(self.query) + sum(map(len, self.history))
        if ranks and not self.has_details and snapshot.is_quick(size):
            return answer(snapshot)
        return await snapshot.run(answer, snapshot)


def are_names(calls: Sequence[CallMade | str]) -> bool:
    """Whether the calls are names of tools."""
    return all(isinstance(item, str) for item in calls)


def names_of(calls: Sequence[CallMade | str]) -> list[str]:
    """The names of the tools that were called."""
    return [item if isinstance(item, str) else item.tool for item in calls]


def record_of(call: CallMade) -> Object:
    """A call as the library takes it."""
    return {name: value for name, value in asdict(call).items() if value is not None}


def unknown_names(snapshot: Snapshot, history: Sequence[str]) -> list[str]:
    """Names in a history that the model never saw, each once."""
    index = snapshot.retriever.index
    return list(dict.fromkeys(name for name in history if index(name) < 0))


def read_run(query: str, calls: Sequence[CallMade | str], before: Sequence[Object] = ()) -> Run:
    """The run of a request; long outputs are cut.

    Raises:
        InputError: something is not a call or a message, or two calls share an id.
    """
    return add_calls(as_run(query, (), before), calls)


def add_calls(run: Run, calls: Sequence[CallMade | str]) -> Run:
    """A run with further calls; one without an id gets its position, or the next free one.

    Raises:
        InputError: something is not a call, or two calls share an id.
    """
    return run.with_calls(item if isinstance(item, str) else record_of(item) for item in calls)
