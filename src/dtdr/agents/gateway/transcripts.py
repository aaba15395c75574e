"""Runs in the transcripts that coding agents keep: what a gateway without a model starts from."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from dtdr.conversation.events import LoggedCall
from dtdr.data.calls import ToolCall
from dtdr.data.jsonl import BadRecords
from dtdr.errors import DtdrError
from dtdr.logs import CutOptions, open_demonstrations

logger = logging.getLogger("dtdr.mcp")

MOST_RUNS = 1_000
"""The latest ones."""

PastRun = tuple[str, list[LoggedCall]]
"""A query, and the calls of the servers' tools."""

_PLACES = {
    "claude-code": (".claude/projects", ("mcp__{}__",)),
    "codex": (".codex/sessions", ("mcp__{}__", "{}__")),
    "opencode": (".local/share/opencode/storage", ("{}_",)),
}
"""By client: where its transcripts are, and what it writes before the names of a server's tools."""


def transcripts_of(client: str) -> Path:
    """The folder of a client's transcripts, which may not exist."""
    return Path.home() / _PLACES[client][0]


def read_past_runs(client: str, servers: Iterable[str]) -> list[PastRun]:
    """The runs of a client that called tools of these servers, without its calls of other tools.

    Args:
        client: ``claude-code``, ``codex`` or ``opencode``.
        servers: names, as the client knows them.

    Returns:
        At most ``MOST_RUNS``; none if there are no transcripts, or they cannot be read.
    """
    folder = transcripts_of(client)
    if not folder.is_dir():
        return []
    # A gateway that was set up before is a server, too.
    names = (*servers, "tools")
    prefixes = tuple(form.format(name) for form in _PLACES[client][1] for name in names)
    runs: deque[PastRun] = deque(maxlen=MOST_RUNS)
    try:
        options = CutOptions(references=False)
        for item in open_demonstrations([folder], options=options, bad=BadRecords()):
            calls = [
                _logged(call, position, name)
                for position, call in enumerate(item.plan.calls)
                if (name := _own_name(call.tool, prefixes))
            ]
            if calls:
                runs.append((item.query, calls))
    except DtdrError as error:
        logger.warning("the transcripts in %s cannot be read: %s", folder, error)
    return list(runs)


def _own_name(tool: str, prefixes: tuple[str, ...]) -> str:
    """The server's name of a tool; empty for a tool of something else."""
    prefix = next(filter(tool.startswith, prefixes), None)
    return "" if prefix is None else tool.removeprefix(prefix)


def _logged(call: ToolCall, position: int, name: str) -> LoggedCall:
    has_failed = call.status == "error"
    return LoggedCall(
        name,
        call.arguments,
        position,
        position + 0.5,
        id=call.id,
        output=call.output,
        failed=has_failed,
        step=call.step,
    )
