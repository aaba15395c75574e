"""Notices when a server changes a tool's definition, and refuses the change if it is pinned."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dtdr.data.files import replace_file
from dtdr.errors import InputError

logger = logging.getLogger("dtdr.mcp")

Definition = Mapping[str, Any]


class Pins:
    """Digests of the tools' definitions as they were first seen.

    Without a file they last as long as the gateway, and a changed definition is logged and
    accepted. With a file they outlast it, and a changed definition is refused: its tool is neither
    listed nor called until its entry is removed from the file.

    Args:
        path: JSON ``{server: {tool: digest}}``; created if it is missing.

    Raises:
        InputError: the file cannot be read.
        OutputError: it cannot be created.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._digests: dict[str, dict[str, str]] = {}
        self._saved = ""
        self._refused: dict[tuple[str, str], str] = {}
        if path is None:
            return
        try:
            self._digests = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]])
        except FileNotFoundError:
            self.save()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"cannot read {path}: {reason}") from error
        except ValueError as error:
            raise InputError(
                f'{path} must be JSON {{"server": {{"tool": "digest"}}}}; remove it to pin again'
            ) from error

    def iter_tools(self) -> Iterator[tuple[str, str]]:
        """``(server, tool)`` of every digest."""
        return ((upstream, tool) for upstream, tools in self._digests.items() for tool in tools)

    def accept(
        self, upstream: str, definitions: Sequence[Definition]
    ) -> tuple[list[Definition], set[str]]:
        """The definitions of a server that may be used, and the names of those that changed."""
        known = self._digests.setdefault(upstream, {})
        accepted: dict[str, Definition] = {}
        changed: set[str] = set()
        for definition in definitions:
            name = str(definition.get("name", ""))
            if not name or name in accepted:
                continue
            digest = _digest(definition)
            if known.setdefault(name, digest) == digest:
                self._refused.pop((upstream, name), None)
            elif self._path is None:
                logger.warning("upstream %r: the definition of tool %r changed", upstream, name)
                known[name] = digest
                changed.add(name)
            else:
                if self._refused.get((upstream, name)) != digest:
                    logger.warning(
                        "upstream %r: the definition of tool %r is not the one in %s; refused",
                        upstream, name, self._path,
                    )  # fmt: skip
                self._refused[upstream, name] = digest
                continue
            accepted[name] = definition
        return list(accepted.values()), changed

    def refusal(self, upstream: str, tool: str) -> str | None:
        """Why a tool cannot be called; None if it can."""
        if (upstream, tool) not in self._refused:
            return None
        return (
            f"the server {upstream!r} changed the definition of its tool {tool!r}, which differs "
            f"from the one pinned in {self._path}; the call was not made"
        )

    def save(self) -> None:
        """Write new digests to the file, if there is one."""
        if self._path is None:
            return
        text = json.dumps(self._digests, indent=1, sort_keys=True) + "\n"
        if text != self._saved:
            with replace_file(self._path) as stream:
                stream.write(text)
            self._saved = text


def _digest(definition: Definition) -> str:
    """A digest of everything that a model or a client sees of a tool."""
    shown = {key: value for key, value in definition.items() if key != "_meta"}
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
