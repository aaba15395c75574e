"""The base of formats that are an envelope around messages: lines, a list, or an object."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dtdr.conversation.assembly import assemble, positioned
from dtdr.conversation.events import LoggedRun
from dtdr.conversation.messages import items_of
from dtdr.conversation.values import first_of
from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.log_format import LogFormat

NO_QUERY = "(no query in the log)"
"""Query of a run in a format that does not record what the user wrote."""


@dataclass(slots=True)
class Talk:
    """The messages of one conversation, in the form of any API, and what its envelope says.

    Attributes:
        messages: in order; ``items_of`` reads them.
        id: the log's name of the conversation; unique in the log, or empty.
        group: conversations that belong together, such as trials of one task.
        failed: whether the run as a whole is marked as a failure.
        tools: definitions of the tools that the agent could call.
        system: instructions outside the messages.
        at: when it began, in nanoseconds since 1970; 0 if unknown.
        default_query: query if no message is the user's.
        replays: it may begin with turns that another log of its group has, too.
    """

    messages: Iterable[Any]
    id: str = ""
    group: str = ""
    failed: bool = False
    tools: Any = None
    system: Any = None
    at: int = 0
    default_query: str = ""
    replays: bool = False


class Envelope(LogFormat):
    """A format that says only where messages are; the rest is the same for all."""

    spans_files: ClassVar[str] = ""
    whole_keys: ClassVar[tuple[str, ...] | None] = None
    """Keys under which a whole conversation has a list or object; records without are joined by
    ``key``. None if every record is whole."""

    @classmethod
    def whole(cls, record: Any) -> bool:
        """Whether a record is a whole conversation."""
        if cls.whole_keys is None:
            return True
        return isinstance(first_of(record, *cls.whole_keys), (list, dict))

    def key(self, record: Any, origin: tuple[int, int]) -> str:
        """The conversation of a record that is a part of one; empty to skip the record."""
        return str(origin[0])

    @abstractmethod
    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The conversations in a whole record, which is the only one, or in all records of a key.

        Raises:
            InputError: the records cannot be used.
        """

    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """File a record; see ``LogFormat.add``."""
        if not isinstance(record, (dict, list)):
            raise InputError(f"not a record of {self.name}: it is not a JSON object")
        if type(self).whole(record):
            key = f"{origin[0]}/{origin[1]}"
            self.window.put(key, [raw], origin)
            self.window.finish(key)
        elif key := self.key(record, origin):
            self.window.append(key, raw, origin)

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The runs of a finished group; see ``LogFormat.runs``."""
        for talk in self.talks([json_codec.loads(payload) for payload in payloads]):
            items = (items_of(message, self.unknown) for message in talk.messages)
            run = assemble(positioned(items), talk.system)
            run.id, run.group, run.failed, run.at = talk.id, talk.group, talk.failed, talk.at
            run.offered = self.tools.add(talk.tools)
            run.default_query, run.replays = talk.default_query, talk.replays
            yield run


def call_message(
    calls: Iterable[tuple[str, str, Any]], text: str = "", role: str = "assistant"
) -> dict[str, Any]:
    """An assistant's message with calls, each ``(id, tool, arguments)``."""
    listed = [{"id": i, "name": tool, "arguments": arguments} for i, tool, arguments in calls]
    return {"role": role, "content": text, "tool_calls": listed}


def result_message(identifier: str, output: Any, *, failed: bool | None = False) -> dict[str, Any]:
    """A message with the result of a call; ``failed`` is None if the log does not mark failures."""
    mark = {} if failed is None else {"is_error": failed}
    return {"role": "tool", "tool_call_id": identifier, "content": output, **mark}
