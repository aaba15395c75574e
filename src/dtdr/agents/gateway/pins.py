"""Refuses tools whose servers changed the definitions that were pinned."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dtdr.data.files import replace_file
from dtdr.errors import InputError, OutputError, cannot_read

logger = logging.getLogger("dtdr.mcp")


class Pins:
    """Digests of the tools' definitions as they were first seen, in a file.

    A tool with another definition is neither listed nor called until its entry is removed from the
    file.

    Args:
        path: JSON ``{server: {tool: digest}}``; created if it is missing. None pins nothing.

    Raises:
        InputError: the file cannot be read.
        OutputError: it cannot be created.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._digests: dict[str, dict[str, str]] = {}
        self._refused: set[tuple[str, str]] = set()
        if path is None:
            return
        try:
            self._digests = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]])
        except FileNotFoundError:
            self._save(path)
        except OSError as error:
            raise cannot_read(path, error) from error
        except ValueError as error:
            raise InputError(
                f'{path} must be JSON {{"server": {{"tool": "digest"}}}}; remove it to pin again'
            ) from error

    def iter_tools(self) -> Iterator[tuple[str, str]]:
        """``(server, tool)`` of every digest."""
        return ((upstream, tool) for upstream, tools in self._digests.items() for tool in tools)

    def accept(self, upstream: str, definitions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The definitions of a server that may be used; new ones are pinned."""
        if self._path is None:
            return list(definitions)
        known = self._digests.setdefault(upstream, {})
        accepted: list[dict[str, Any]] = []
        for definition in definitions:
            tool = upstream, definition["name"]
            digest = _digest(definition)
            if known.setdefault(tool[1], digest) == digest:
                self._refused.discard(tool)
                accepted.append(definition)
            elif tool not in self._refused:
                self._refused.add(tool)
                logger.warning(self.refusal(*tool))
        try:
            self._save(self._path)
        except OutputError as error:
            logger.warning("%s", error)
        return accepted

    def refusal(self, upstream: str, tool: str) -> str | None:
        """Why a tool cannot be called; None if it can."""
        if (upstream, tool) not in self._refused:
            return None
        return (
            f"the server {upstream!r} changed the definition of its tool {tool!r}, which differs "
            f"from the one pinned in {self._path}; no call is made"
        )

    def _save(self, path: Path) -> None:
        with replace_file(path) as stream:
            stream.write(json.dumps(self._digests, indent=1, sort_keys=True) + "\n")


def _digest(definition: dict[str, Any]) -> str:
    """A digest of everything that a model or a client sees of a tool."""
    shown = {key: value for key, value in definition.items() if key != "_meta"}
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
