"""Cuts outputs to a length and removes secrets before demonstrations are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dtdr.conversation.values import digest
from dtdr.data.calls import ToolCall, is_text, rename_call
from dtdr.data.demonstrations import Demonstration, Message, Parent
from dtdr.data.outputs import OUTPUT_LENGTH, bound_output, last_words
from dtdr.data.plan import Plan
from dtdr.logs.redaction import Redactor

AHEAD = 4000
"""Characters that are scrubbed beyond the kept length, so that no secret is cut in half."""


class Scrubber:
    """Rewrites what is kept of a log.

    Args:
        length: characters kept of an output; 0 keeps none.
        redactor: replaces secrets; None leaves them.
        counts: counts ``cut outputs``.
    """

    def __init__(
        self, length: int, redactor: Redactor | None, counts: Counter[str] | None = None
    ) -> None:
        self.length = length
        self.redactor = redactor
        self.counts: Counter[str] = Counter() if counts is None else counts

    def demonstration(self, demonstration: Demonstration) -> Demonstration:
        """A whole demonstration."""
        plan, parent = demonstration.plan, demonstration.parent
        ids = {call.id: self.identifier(call.id) for call in (*plan.earlier, *plan.calls)}
        before = tuple(
            self._call(item, ids) if isinstance(item, ToolCall) else self.message(item)
            for item in demonstration.before
        )
        earlier = tuple(item for item in before if isinstance(item, ToolCall))
        if parent is not None:
            parent = Parent(self.identifier(parent.id), self.identifier(parent.call))
        calls = tuple(self._call(call, ids) for call in plan.calls)
        links = tuple((ids[first], ids[second]) for first, second in plan.links)
        return replace(
            demonstration,
            id=self.identifier(demonstration.id),
            query=self.text(demonstration.query),
            plan=Plan(calls, links, earlier),
            source=self.text(demonstration.source),
            group=self.identifier(demonstration.group),
            before=before,
            parent=parent,
        )

    def identifier(self, name: str, turn: int = 0, mark: str = "") -> str:
        """The log's name with the number of the turn, or ``mark``, if the name has a secret.

        Args:
            name: may be empty.
            turn: its number, from 1; 0 without turns.
            mark: a digest; by default, that of the name.
        """
        if not name:
            return mark if turn else ""
        if self.text(name) != name or not is_text(name):
            return mark or digest([name])
        return f"{name}-{turn}" if turn else name

    def _call(self, call: ToolCall, ids: Mapping[str, str]) -> ToolCall:
        call = rename_call(call, ids)
        output, length = self.output(call.output)
        if output is not None and call.output_length is not None:
            length = call.output_length
        arguments = self.arguments(call.arguments)
        text = call.text and last_words(self.text(call.text))
        return replace(call, arguments=arguments, output=output, output_length=length, text=text)

    def arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A call's arguments without secrets."""
        scrubbed = arguments if self.redactor is None else self.redactor.value(arguments)
        return dict(scrubbed)

    def text(self, text: str) -> str:
        """A text without secrets, in full."""
        return text if self.redactor is None else self.redactor.text(text)

    def message(self, message: Message) -> Message:
        """A message before the query."""
        return Message(message.role, self.output(message.content, messages=True)[0])

    def output(self, output: Any, *, messages: bool = False) -> tuple[Any, int | None]:
        """An output as it is written, and its full length if it was cut.

        Args:
            output: JSON or text; None if there is none.
            messages: whether it is a message, which is always kept.
        """
        length, whole = self.length, None
        if output is None or (not length and not messages):
            return None, None
        length = length or OUTPUT_LENGTH
        if self.redactor is not None and isinstance(output, str):
            if len(output) > length + AHEAD:
                output, whole = output[: length + AHEAD], len(output)
            output = self.redactor.text(output)
        bounded, cut = bound_output(output, length)
        if self.redactor is not None and not isinstance(bounded, str):
            bounded = self.redactor.value(bounded)
        if whole is not None or cut is not None:
            self.counts["cut outputs"] += not messages
            whole = whole or cut
        return bounded, whole
