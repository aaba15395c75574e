"""The choices that are made when a log becomes demonstrations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.logs.injected import INJECTED_TAGS
from dtdr.logs.references import ReferenceRules


class Turns(StrEnum):
    """How a conversation of several user messages is cut."""

    SPLIT = "split"
    CONTEXT = "context"
    WHOLE_QUERY = "whole-query"


class Failed(StrEnum):
    """What becomes of calls that returned an error."""

    KEEP = "keep"
    MARK_RUN = "mark-run"


class Outputs(StrEnum):
    """What is kept of the calls' outputs."""

    TEXT = "text"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CutOptions:
    """Choices made when a trace becomes demonstrations.

    Attributes:
        turns: ``split`` gives one demonstration a user message, with that message as its query
            and everything that came before it as ``before``; ``context`` also writes the
            conversation's earlier user messages into the query; ``whole-query`` gives one
            demonstration a conversation, its query all user messages.
        failed: ``keep`` takes failed calls as any other, with their status; ``mark-run`` also
            gives a run in which a tool failed and did not succeed later the outcome ``failure``.
        empty: keep turns that needed no tool, as plans without calls.
        query: stands in where a log holds no query; empty drops such runs.
        references: what counts as a reference to an earlier output.
        outputs: ``text`` keeps what calls returned, ``none`` only whether they failed.
        output_length: characters kept of an output, and of a message before the query.
        leave_out: tags of the blocks that are taken out of users' messages, since a program put
            them there.
        nested: whether what ran inside a call, such as a sub-agent, becomes a demonstration.
    """

    turns: Turns = Turns.SPLIT
    failed: Failed = Failed.KEEP
    empty: bool = False
    query: str = ""
    references: ReferenceRules = field(default_factory=ReferenceRules)
    outputs: Outputs = Outputs.TEXT
    output_length: int = OUTPUT_LENGTH
    leave_out: tuple[str, ...] = INJECTED_TAGS
    nested: bool = True
