"""The servers behind the gateway, from the command line or a config file, and its options."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dtdr.agents.early_calls import PrefetchBounds
from dtdr.agents.policy import ToolPolicy
from dtdr.errors import InputError
from dtdr.logs.cut_options import Outputs

# No "__" and no "_" at the end, so that the first "__" of a full tool name ends the server's name.
_NAME = re.compile(r"(?!.*__)[A-Za-z0-9_-]{0,31}[A-Za-z0-9-]")
_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
# Programs that run another: the server's name is what they run.
_LAUNCHERS = {
    *("npx", "npm", "bunx", "node", "deno"),
    *("uvx", "uv", "pipx", "python", "python3", "docker"),
}
_LAUNCHER_WORDS = {"run", "exec", "tool", "x", "-m"}


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """One MCP server to connect to: a command that uses stdio, or a streamable HTTP URL.

    Attributes:
        name: letters, digits, ``-`` and single ``_``; prefixes the names of tools that collide.
        command: the program and its arguments; empty for a URL.
        url: where the server listens; empty for a command.
        env: environment variables added for the command.
        inherit_env: the command gets the whole environment of the gateway, not only ``PATH``,
            ``HOME`` and the like.
        cwd: the command's working folder.
        headers: HTTP headers sent with every request.
        prefetch: its own names of the tools that may be called early; None where the server's
            ``readOnlyHint`` is to say.

    Raises:
        InputError: the name cannot be used, or there is not exactly one of command and URL.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    inherit_env: bool = False
    cwd: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    prefetch: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"upstream name {self.name!r} must be 1 to 32 letters, digits, '-' or single '_', "
                "with no '_' at the end"
            )
        if bool(self.command) == bool(self.url):
            raise InputError(f"upstream {self.name!r} needs either a command or a URL")


DEFAULT_POLICY = ToolPolicy(top_k=10, sticky="grow", fallback=False)

LOST_CACHE = 0.5
"""Share of the next calls that a new list for the whole run must add. A tool that is missing is
searched for and then listed, so it costs the prompt cache as well, and the search besides: with
probability p, p × (cache + search) against the cache now. A search is another request that reads
the prompt, and seconds of the user's; at the price of a lost cache, a new list pays from .5 on."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """How the gateway chooses, and what it records.

    Attributes:
        whole_run: the list is chosen for the next calls of the run instead of the next one, and
            changes only where that is worth the client's prompt cache (``LOST_CACHE``), whatever
            the policy's ``sticky``; answers wait until the client has listed again.
        policy: how many ranked tools are shown and when they may change. ``grow``, the default,
            keeps a tool that was shown until the run ends, so that the list changes less often and
            the client's prompt cache lasts longer. ``always_include`` are names as clients see
            them; of tools that the model does not know, too.
        learn: file that the demonstrations of passed calls are appended to; None records nothing.
        redact: scrub secrets and personal data from it.
        outputs: what it keeps of the calls' outputs: text, their shape, or nothing.
        prefetch: makes calls early that the model predicts, to tools that are known to change
            nothing; None makes none.
        pin: file of the digests of the tools' definitions; a tool whose definition is another one
            than there is refused. None takes changed definitions, with a line in the log.
        run_gap: seconds without a call that end a run.
        connect_seconds: how long a server may take to connect.
        wait_seconds: how long a call waits for a server that is away before it fails.
        idle_seconds: how long an HTTP client without requests is remembered.
    """

    policy: ToolPolicy = DEFAULT_POLICY
    whole_run: bool = False
    learn: Path | None = None
    redact: bool = True
    outputs: Outputs = Outputs.TEXT
    prefetch: PrefetchBounds | None = None
    pin: Path | None = None
    run_gap: float = 300.0
    connect_seconds: float = 30.0
    wait_seconds: float = 5.0
    idle_seconds: float = 1800.0

    def __post_init__(self) -> None:
        if self.whole_run:
            if self.policy.coverage is not None:
                raise InputError("a list for the whole run has no coverage; give --top instead")
            policy = replace(self.policy, sticky="confidence", tolerance=LOST_CACHE)
            object.__setattr__(self, "policy", policy)


def parse_rest(words: Sequence[str]) -> list[UpstreamSpec]:
    """Upstreams from the words after ``--``.

    ``--`` again separates upstreams. Where the first word of one is a URL, each of its words is
    an upstream; everything else is one command with its arguments.

    Raises:
        InputError: nothing is between two ``--``, or a command follows URLs.
    """
    specs: list[UpstreamSpec] = []
    for is_separator, group in groupby(words, "--".__eq__):
        first, *rest = group
        if is_separator:
            if rest:
                raise InputError("nothing is between two '--'; write: dtdr mcp MODEL -- SERVER")
            continue
        if not _is_url(first):
            command = (first, *rest)
            specs.append(UpstreamSpec(_command_name(command), command=command, inherit_env=True))
            continue
        for word in (first, *rest):
            if not _is_url(word):
                raise InputError(f"{word!r} follows a URL but is none; put '--' before a command")
            specs.append(UpstreamSpec(_clean(urlsplit(word).hostname or "server"), url=word))
    return _number_duplicates(specs)


def read_config(path: str | Path) -> list[UpstreamSpec]:
    """Upstreams of a JSON file with ``mcpServers`` or ``servers``, as MCP clients write it.

    An entry is ``{"command", "args", "env", "cwd"}`` or ``{"url", "headers"}``, and may list the
    tools that may be called early under ``prefetch``; ``${NAME}``,
    ``${env:NAME}`` and ``${NAME:-default}`` in its texts are environment variables and
    ``${workspaceFolder}`` is the working folder; ``"disabled": true`` skips it. Comments and commas
    after the last item are passed over, as VS Code does.

    Raises:
        InputError: the file cannot be read, or an entry is not a server.
    """
    try:
        value = _loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON") from error
    servers: object = None
    if isinstance(value, dict):
        # VS Code's own file has "servers", its settings have them under "mcp".
        holder = value["mcp"] if isinstance(value.get("mcp"), dict) else value
        servers = holder.get("mcpServers", holder.get("servers"))
    if not isinstance(servers, dict):
        raise InputError(
            f'{path} must have {{"mcpServers": {{"name": {{"command": …}}}}}}, or the same under '
            '"servers"'
        )
    return [
        _entry(path, str(name), entry)
        for name, entry in servers.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    ]


def require_distinct(specs: Iterable[UpstreamSpec]) -> tuple[UpstreamSpec, ...]:
    """The specs, which must be at least one and have different names.

    Raises:
        InputError: there is none, or two share a name.
    """
    distinct = tuple(specs)
    if not distinct:
        raise InputError("name at least one upstream: dtdr mcp MODEL -- COMMAND, or --config FILE")
    (name, count), *_ = Counter(spec.name for spec in distinct).most_common(1)
    if count > 1:
        raise InputError(f"two upstreams are named {name!r}; names must differ")
    return distinct


class _Entry(BaseModel):
    """A server of a configuration file, as MCP clients write it."""

    model_config = ConfigDict(strict=True)

    command: str = Field("", description="a text")
    args: list[str] = Field([], description="a list of texts")
    url: str = Field("", description="a text")
    env: dict[str, str] = Field({}, description="an object of texts")
    headers: dict[str, str] = Field({}, description="an object of texts")
    cwd: str | None = Field(None, description="a text")
    prefetch: list[str] | None = Field(None, description="a list of its tools")


def _entry(path: str | Path, name: str, value: object) -> UpstreamSpec:
    if not isinstance(value, dict):
        raise InputError(f"{path}: server {name!r} must be a JSON object")
    if "envFile" in value:
        raise InputError(f"{path}: server {name!r} has an 'envFile'; put its variables into 'env'")
    try:
        entry = _Entry.model_validate(value)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        expected = _Entry.model_fields[key].description
        raise InputError(f"{path}: {key!r} of server {name!r} must be {expected}") from error
    expand = partial(_expand_variables, path)
    return UpstreamSpec(
        _clean(name),
        command=tuple(map(expand, (entry.command, *entry.args))) if entry.command else (),
        url=expand(entry.url),
        env={variable: expand(text) for variable, text in entry.env.items()},
        cwd=None if entry.cwd is None else expand(entry.cwd),
        headers={header: expand(text) for header, text in entry.headers.items()},
        prefetch=None if entry.prefetch is None else tuple(entry.prefetch),
    )


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        for pattern in (_COMMENT, _TRAILING_COMMA):
            text = pattern.sub(lambda match: match[1] or "", text)
        return json.loads(text)


def _expand_variables(path: str | Path, text: str) -> str:
    def value(match: re.Match[str]) -> str:
        text = os.environ.get(match[1], match[2])
        if text is None:
            raise InputError(f"{path} uses ${{{match[1]}}}, which is not set in the environment")
        return text

    if "${input:" in text:
        raise InputError(
            f"{path} asks for {text!r}, which only an editor can; write ${{NAME}} and set NAME in "
            "the environment"
        )
    return _VARIABLE.sub(value, text.replace("${workspaceFolder}", os.getcwd()))


def _is_url(text: str) -> bool:
    return text.strip().startswith(("http://", "https://"))


def _command_name(words: Sequence[str]) -> str:
    """The server's name in a command: ``npx -y @scope/server-git@1.2`` is ``server-git``."""
    program = Path(words[0]).stem
    chosen = program
    if program in _LAUNCHERS or re.fullmatch(r"python[\d.]*", program):
        chosen = next(
            (
                word
                for word in words[1:]
                if not word.startswith("-") and word not in _LAUNCHER_WORDS
            ),
            program,
        )
    package = chosen.rstrip("/").rpartition("/")[2]
    return _clean(re.sub(r"(?:@|==|:).*$|\.(?:py|js|ts|mjs)$", "", package))


def _clean(name: str) -> str:
    plain = re.sub(r"__+", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name))
    return plain.strip("-_")[:32].rstrip("_") or "server"


def _number_duplicates(specs: Sequence[UpstreamSpec]) -> list[UpstreamSpec]:
    """The specs with ``-2``, ``-3`` behind names that were taken."""
    taken: set[str] = set()
    result: list[UpstreamSpec] = []
    for spec in specs:
        name, number = spec.name, 1
        while name in taken:
            number += 1
            name = f"{spec.name[:28]}-{number}"
        taken.add(name)
        result.append(replace(spec, name=name))
    return result
