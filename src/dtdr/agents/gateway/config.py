"""The gateway's servers, from the command line or a configuration file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dtdr.errors import InputError, cannot_read
from dtdr.net.http_requests import parse_address

# No "__" and no "_" at the end, so that the first "__" of a full tool name ends the server's name.
_NAME = re.compile(r"(?!.*__)[A-Za-z0-9_-]{0,31}[A-Za-z0-9-]")
_VARIABLE = re.compile(r"\$\{(?:env:)?([^}]+?)(?::-([^}]*))?\}")
# Words before the one that says what a command runs.
_LAUNCHERS = re.compile(
    r"-.*|npx|npm|bunx|node|deno|uvx?|pipx|python[\d.]*|docker|run|exec|tool|x", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """One MCP server to connect to: a command or a streamable HTTP URL.

    Attributes:
        name: letters, digits, ``-`` and single ``_``; prefixes the names of tools that collide.
        command: the program and its arguments; empty for a URL.
        url: where the server listens; empty for a command.
        env: environment variables of the command, besides ``PATH``, ``HOME`` and the like.
        cwd: the command's working folder.
        headers: HTTP headers sent with every request.
        prefetch: the server's names of tools that may be called early.

    Raises:
        InputError: the name cannot be used, or there is not exactly one of command and http URL.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    prefetch: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"upstream name {self.name!r} must be 1 to 32 letters, digits, '-' or single '_', "
                "with no '_' at the end"
            )
        if bool(self.command) == bool(self.url):
            raise InputError(f"upstream {self.name!r} needs either a command or a URL")
        if self.url and parse_address(self.url) is None:
            raise InputError(
                f"upstream {self.name!r}: {self.url!r} is not an address; write https://HOST/mcp"
            )


def parse_rest(words: Sequence[str]) -> list[UpstreamSpec]:
    """Upstreams from the words after ``--``.

    Another ``--`` begins the next upstream, which is a URL, or a command with its arguments.

    Raises:
        InputError: nothing is between two ``--``, or something follows a URL.
    """
    specs: list[UpstreamSpec] = []
    for is_separator, group in groupby(words, "--".__eq__):
        first, *rest = group
        if is_separator:
            if rest:
                raise InputError("nothing is between two '--'; write: dtdr mcp MODEL -- SERVER")
        elif first.startswith(("http://", "https://")):
            if rest:
                raise InputError(f"{rest[0]!r} follows a URL; put '--' before each server")
            name = _unused_name(_clean(urlsplit(first).hostname or ""), specs)
            specs.append(UpstreamSpec(name, url=first))
        else:
            name = _unused_name(_command_name(first, rest), specs)
            specs.append(UpstreamSpec(name, command=(first, *rest), env=os.environ))
    return specs


def read_config(path: str | Path) -> list[UpstreamSpec]:
    """Upstreams of a JSON file with ``mcpServers`` or ``servers``, as MCP clients write it.

    ``docs/gateway.md`` has the keys of an entry.

    Raises:
        InputError: the file cannot be read, or an entry is not a server.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON, which has no comments: {error}") from error
    servers = value.get("mcpServers", value.get("servers")) if isinstance(value, dict) else None
    if not isinstance(servers, dict):
        raise InputError(
            f'{path} must have {{"mcpServers": {{"name": {{"command": …}}}}}}, or the same under '
            '"servers"'
        )
    return [
        _read_entry(path, name, entry)
        for name, entry in servers.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    ]


def require_distinct(specs: Iterable[UpstreamSpec]) -> None:
    """Raise an InputError if there is no upstream, or two share a name."""
    names: set[str] = set()
    for spec in specs:
        if spec.name in names:
            raise InputError(f"two upstreams are named {spec.name!r}; names must differ")
        names.add(spec.name)
    if not names:
        raise InputError("name at least one upstream: dtdr mcp MODEL -- COMMAND, or --config FILE")


class _ServerEntry(msgspec.Struct):
    """A server of a configuration file, as MCP clients write it."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    cwd: str | None = None
    prefetch: tuple[str, ...] = ()


def _read_entry(path: str | Path, name: str, value: object) -> UpstreamSpec:
    if not isinstance(value, dict):
        raise InputError(f"{path}: server {name!r} must be a JSON object")
    if "envFile" in value:
        raise InputError(f"{path}: server {name!r} has an 'envFile'; put its variables into 'env'")
    fields = _ServerEntry.__struct_fields__
    known = {key: _expand(path, item) for key, item in value.items() if key in fields}
    try:
        entry = msgspec.convert(known, _ServerEntry)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: server {name!r} cannot be read: {error}") from error
    rest = msgspec.structs.asdict(entry)
    command = (rest.pop("command"), *rest.pop("args"))
    return UpstreamSpec(_clean(name), command if entry.command else (), **rest)


def _expand(path: str | Path, value: Any) -> Any:
    """A JSON value with environment variables in its texts."""

    def variable(match: re.Match[str]) -> str:
        text = os.environ.get(match[1], match[2])
        if text is None:
            raise InputError(f"{path} uses {match[0]}, which is not set in the environment")
        return text

    if isinstance(value, dict):
        return {key: _expand(path, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(path, item) for item in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(variable, value.replace("${workspaceFolder}", os.getcwd()))


def _command_name(program: str, arguments: Sequence[str]) -> str:
    """The server's name in a command: ``npx -y @scope/server-git@1.2`` is ``server-git``."""
    words = (Path(program).stem, *arguments)
    name = next((word for word in words if not _LAUNCHERS.fullmatch(word)), words[0])
    package = name.rstrip("/").rpartition("/")[2]
    return _clean(re.sub(r"(?:@|==|:).*$|\.(?:py|js|ts|mjs)$", "", package))


def _clean(name: str) -> str:
    plain = re.sub(r"__+", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name))
    return plain.strip("-_")[:32].rstrip("_") or "server"


def _unused_name(name: str, specs: Sequence[UpstreamSpec]) -> str:
    """The name, with a number at its end if another upstream has it."""
    is_taken = any(spec.name == name for spec in specs)
    return f"{name[:28]}-{len(specs) + 1}" if is_taken else name
