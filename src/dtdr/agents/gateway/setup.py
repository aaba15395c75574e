"""Configuration of coding agents: the gateway and its hook, in the form each one reads."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dtdr.agents.gateway import hook
from dtdr.errors import InputError, check_choice

Files = dict[Path, str]


def make_setup(client: str, gateway: Sequence[str]) -> Files:
    """The text of each configuration file of a client, added to what the file has.

    Args:
        client: one of ``CLIENTS``.
        gateway: the command that starts the gateway.

    Raises:
        InputError: there is no such client, or a file that is there cannot be added to.
    """
    check_choice("client", client, CLIENTS)
    # Without site-packages, an interpreter starts in half of the time.
    hook_command = [sys.executable, "-I", "-S", str(Path(hook.__file__).resolve())]
    return CLIENTS[client](list(gateway), hook_command)


def _claude_code(gateway: list[str], hook_command: list[str]) -> Files:
    entry = {"command": gateway[0], "args": gateway[1:], "alwaysLoad": True}
    servers, settings = Path(".mcp.json"), Path(".claude/settings.json")
    group = {"hooks": [{"type": "command", "command": _in_shell(hook_command), "timeout": 5}]}
    former = _read(settings, "hooks")
    groups = [item for item in former["hooks"].get("UserPromptSubmit", ()) if item != group]
    former["hooks"]["UserPromptSubmit"] = [*groups, group]
    return {servers: _with_entry(servers, "mcpServers", entry), settings: _json(former)}


def _codex(gateway: list[str], hook_command: list[str]) -> Files:
    path = Path.home() / ".codex" / "config.toml"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for table in ("[mcp_servers.tools]", "[features]"):
        if table in text:
            raise InputError(f"{path} has a table {table}; add the lines of an empty file by hand")
    # Texts and lists of texts are written alike in JSON and TOML.
    return {
        path: f"""{text}
[features]
mcp_tool_list_changed = true

[mcp_servers.tools]
command = {json.dumps(gateway[0])}
args = {json.dumps(gateway[1:])}
required = true
startup_timeout_sec = 60

[[hooks.UserPromptSubmit]]
[[hooks.UserPromptSubmit.hooks]]
type = "command"
command = {json.dumps(_in_shell(hook_command))}
timeout = 5
"""
    }


def _opencode(gateway: list[str], hook_command: list[str]) -> Files:
    path = Path("opencode.json")
    # Its own 5 s are too few for servers that are started by npx.
    entry = {"type": "local", "command": gateway, "timeout": 60_000}
    plugin = Path(__file__).with_name("opencode_plugin.js").read_text(encoding="utf-8")
    plugin = plugin.replace("= COMMAND", f"= {json.dumps(hook_command)}")
    return {path: _with_entry(path, "mcp", entry), Path(".opencode/plugins/dtdr.js"): plugin}


CLIENTS: dict[str, Callable[[list[str], list[str]], Files]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
}


def _in_shell(command: list[str]) -> str:
    """For clients that run hooks in a shell, whose parent is the client."""
    return f"{shlex.join(command)} $PPID"


def _with_entry(path: Path, key: str, entry: dict[str, Any]) -> str:
    value = _read(path, key)
    value[key]["tools"] = entry
    return _json(value)


def _read(path: Path, key: str) -> dict[str, Any]:
    """The JSON object of a file, with an object under the key."""
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if isinstance(value, dict) and isinstance(value.setdefault(key, {}), dict):
            return value
    except (OSError, ValueError):
        pass
    raise InputError(f"{path} must be a JSON object with an object {key!r} to be added to")


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
