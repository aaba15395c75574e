"""The choices that are made when a log becomes demonstrations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.logs.injected import INJECTED_TAGS
from dtdr.logs.log_format import DEFAULT_BYTES


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
        failed: ``keep`` keeps failed calls with their status; ``mark-run`` also sets the outcome
            ``failure`` if a tool failed and did not succeed later.
        empty: keep turns that needed no tool, as plans without calls.
        query: query of runs whose log has none; if empty, such runs are dropped.
        references: whether arguments that were outputs of earlier calls become references.
        reference_length: characters that a text needs to become a reference.
        outputs: ``text`` keeps what calls returned, ``none`` only whether they failed.
        output_length: characters kept of an output, and of a message before the query.
        leave_out: tags of blocks that a program put into users' messages, which are removed.
        nested: whether what ran inside a call, such as a sub-agent, becomes a demonstration.
        window_bytes: memory for records of conversations and traces that may continue.
        idle_gap: seconds of pause that end a run in formats without users.
    """

    turns: Turns = Turns.SPLIT
    failed: Failed = Failed.KEEP
    empty: bool = False
    query: str = ""
    references: bool = True
    reference_length: int = 4
    outputs: Outputs = Outputs.TEXT
    output_length: int = OUTPUT_LENGTH
    leave_out: tuple[str, ...] = INJECTED_TAGS
    nested: bool = True
    window_bytes: int = DEFAULT_BYTES
    idle_gap: float = 300.0
