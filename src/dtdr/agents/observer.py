"""Finds the runs in the conversations that a mask sees, and records each when it has ended."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Iterator, Sequence

from dtdr.agents.run_folder import RunFolder
from dtdr.agents.search import SEARCH_CALLS
from dtdr.agents.transcript import Transcript, Turn
from dtdr.conversation.events import AssistantMessage, Event, LoggedCall, UserMessage
from dtdr.data.calls import ToolCall

logger = logging.getLogger("dtdr.agents")

IDLE_SECONDS = 120.0
"""After its last step, a run has ended."""

MOST_WAITING = 1_000
"""Runs under way; the one without a step for the longest time ends first."""


class RunObserver:
    """Takes the conversation of each step; a few microseconds, since all else is in a thread.

    A run has ended when its conversation goes on with another message of the user, when another
    run begins with the same one, after ``IDLE_SECONDS``, or when the process ends.

    Args:
        runs: where they are recorded.
    """

    def __init__(self, runs: RunFolder) -> None:
        self._runs = runs
        self._waiting: dict[tuple[str, ...], tuple[Transcript, float]] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        atexit.register(self.flush)

    def see(self, transcript: Transcript) -> None:
        """Take a conversation before its next step."""
        turns = transcript.turns
        key = tuple(turn.query for turn in turns)
        with self._lock:
            for length in range(1, len(key)):  # an earlier turn, which is complete here
                if self._waiting.pop(key[:length], None) is not None:
                    self._record(turns[:length])
            former = self._waiting.pop(key, None)
            if former is not None:
                before, now = _names(former[0].turns), _names(turns)
                if before[: len(now)] == now:  # an earlier step, asked for once more
                    transcript = former[0]
                elif now[: len(before)] != before:
                    self._record(former[0].turns)
            self._waiting[key] = transcript, time.monotonic()
            self._collect(MOST_WAITING)
            if self._timer is None:
                self._start_timer()

    def flush(self) -> None:
        """Record every run under way, as if it had ended."""
        with self._lock:
            self._collect(0)

    def _collect(self, most: int) -> None:
        """Record the runs that were idle for long; beyond ``most`` runs, the longest idle first."""
        horizon = time.monotonic() - IDLE_SECONDS
        for key, (transcript, seen) in list(self._waiting.items()):
            if seen > horizon and len(self._waiting) <= most:
                break
            del self._waiting[key]
            self._record(transcript.turns)

    def _start_timer(self) -> None:
        def act() -> None:
            with self._lock:
                self._timer = None
                self._collect(MOST_WAITING)
                if self._waiting:
                    self._start_timer()

        self._timer = threading.Timer(IDLE_SECONDS, act)
        self._timer.daemon = True
        self._timer.start()

    def _record(self, turns: Sequence[Turn]) -> None:
        *before, last = turns
        calls = [event for event in _events(last, 0) if isinstance(event, LoggedCall)]
        if not last.query or not calls:
            return
        earlier = [event for index, turn in enumerate(before) for event in _events(turn, index)]
        try:
            self._runs.add([last.query], calls, earlier)
        except RuntimeError as error:  # the interpreter is shutting down
            logger.debug("a run was not recorded: %s", error)


def _names(turns: Sequence[Turn]) -> list[str]:
    return [call.tool for call in turns[-1].calls] if turns else []


def _events(turn: Turn, turn_index: int) -> Iterator[Event]:
    """The events of a turn, as a log has them; ``place`` makes ids differ between turns."""
    if turn.query:
        yield UserMessage(turn.query)
    for position, event in enumerate(turn.events):
        if not isinstance(event, ToolCall):
            yield AssistantMessage(event.content)
        elif event.tool not in SEARCH_CALLS:
            has_ended = event.status != "unknown" or event.output is not None
            yield LoggedCall(
                event.tool,
                event.arguments,
                position,
                position + 0.5 if has_ended else None,
                id=f"{turn_index}-{event.id}",
                output=event.output,
                failed=event.status == "error",
                step=event.step,
            )
