"""What coding agents load of 120 MCP tools: the real programs against a scripted model server.

    make clients                                   # installs the programs into .cache/clients
    python benchmarks/clients.py [--clients claude-code codex opencode] [--runs 10] [--json]

Each program runs headless, as it is published, in a network namespace that has only loopback, with
an empty environment, a home of its own, a made-up key and its documented base URL. Behind it are
two published MCP servers and scripted tools (``clients_world.py``): directly, behind a plain proxy,
or behind ``dtdr mcp`` as ``dtdr mcp --setup CLIENT --write`` sets it up, with a model learned from
40 scripted runs. The model server records which definitions each request holds.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console

import clients_world as world
import dtdr
from dtdr.evaluate.tables import Column, Table

PROJECT = Path(__file__).resolve().parent.parent
WORLD = str(Path(world.__file__).resolve())
SCRIPTED_TOOLS = 90
CLIENTS = ("claude-code", "codex", "opencode")
SETTINGS = ("search off", "search on", "plain proxy", "dtdr, no hook", "dtdr, reworded", "dtdr")
SECONDS = 240
"""For one run of a program, on a busy machine."""


def programs() -> Path | None:
    """The folder that ``make clients`` filled, or ``DTDR_CLIENTS``; None where there is none."""
    folder = Path(os.environ.get("DTDR_CLIENTS") or PROJECT / ".cache" / "clients")
    modules = folder / "node_modules"
    return modules if (modules / "@modelcontextprotocol").is_dir() else None


def why_not() -> str | None:
    """Why the programs cannot be tried here; None where they can."""
    if programs() is None:
        return "the programs are not installed; run: make clients"
    if _unshare() is None:
        return "this machine gives no network namespace (unshare -n), so the programs are not run"
    return None


def _unshare() -> list[str] | None:
    for flags in (["-n"], ["-r", "-n"]):
        command = ["unshare", *flags]
        try:
            done = subprocess.run([*command, "true"], capture_output=True, check=False)
        except OSError:
            return None
        if done.returncode == 0:
            return command
    return None


def enter_namespace() -> None:
    """Start this program again where only loopback is, or bring that up where it runs there."""
    if "DTDR_INSIDE" not in os.environ:
        environment = {**os.environ, "DTDR_INSIDE": "1"}
        command = [*(_unshare() or []), sys.executable, *sys.argv]
        os.execvpe(command[0], command, environment)  # noqa: S606
    with socket.socket() as any_socket:  # the flags of lo: up and running
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


@dataclass
class Outcome:
    """One run of a program: what its requests held."""

    script: world.Script
    log: str

    @property
    def direct(self) -> list[bool]:
        """Of each wanted tool, whether it was loaded when it was wanted, before any search."""
        first: dict[int, bool] = {}
        step, was_search = 0, False
        for request in self.script.requests:
            if not was_search:
                step += 1
            if request.wanted:
                first.setdefault(step, request.loaded)
            was_search = request.searched
        return list(first.values())

    def definitions(self, position: int) -> list[int]:
        """Characters of the MCP servers' definitions in a request."""
        request = self.script.requests[min(position, len(self.script.requests) - 1)]
        return [size for name, size in request.tools.items() if world.is_of_server(name)]


class Bench:
    """Runs programs.

    Args:
        folder: for what a run leaves; a folder of each.
        modules: where the programs are.
    """

    def __init__(self, folder: Path, modules: Path) -> None:
        self.folder, self.modules = folder, modules
        self.server = world.ModelServer()
        self.model = folder / "model"
        if not self.model.exists():
            dtdr.fit(list(world.demonstrations(world.make_runs(1, 40)))).save(self.model)
        self._number = 0

    def run(self, client: str, setting: str, run: world.ScriptedRun) -> Outcome:
        """One run of a program in a setting; what it wrote stays in its folder.

        Raises:
            RuntimeError: the program failed or asked the model nothing.
        """
        self._number += 1
        name = f"{client}-{os.getpid()}-{self._number}"
        home, work = self.folder / name / "home", self.folder / name / "work"
        home.mkdir(parents=True)
        work.mkdir()
        (work / "notes.txt").write_text("Ann owes Ben 5.\n")
        script = self.server.scripts[name] = world.Script(run)
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "TERM": "dumb",
            "LANG": "C.UTF-8", "npm_config_fetch_retries": "0",
        }  # fmt: skip
        self._configure(client, setting, home, work, environment)
        start = {
            "claude-code": self._claude_code, "codex": self._codex, "opencode": self._opencode
        }[client]  # fmt: skip
        command, more = start(setting, self.server.url(name), home, run.query)
        done = subprocess.run(
            command, cwd=work, env=environment | more, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        log = done.stdout + done.stderr
        if done.returncode or not script.requests:
            raise RuntimeError(f"{client} ({setting}) ended with {done.returncode}: {log[-2000:]}")
        return Outcome(script, log)

    def _configure(
        self, client: str, setting: str, home: Path, work: Path, environment: dict[str, str]
    ) -> None:
        packages = self.modules / "@modelcontextprotocol"
        sources = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path[:1]]))
        python = {"command": sys.executable, "env": {"PYTHONPATH": sources}}
        everything = str(packages / "server-everything" / "dist" / "index.js")
        files = str(packages / "server-filesystem" / "dist" / "index.js")
        servers: dict[str, Any] = {
            "everything": {"command": "node", "args": [everything]},
            "files": {"command": "node", "args": [files, str(work)]},
            "scripted": {**python, "args": [WORLD, "tools", str(SCRIPTED_TOOLS)]},
        }
        config = home / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        if setting.startswith("dtdr"):
            environment["PYTHONPATH"] = sources
            words = ["mcp", str(self.model), "--config", str(config), "--setup", client, "--write"]
            subprocess.run(
                [sys.executable, "-m", "dtdr", *words], cwd=work, env=environment, check=True,
                capture_output=True,
            )  # fmt: skip
            if setting == "dtdr, no hook":
                shutil.rmtree(work / ".claude", ignore_errors=True)
                shutil.rmtree(work / ".opencode", ignore_errors=True)
            return
        if setting == "plain proxy":
            servers = {"tools": {**python, "args": [WORLD, "proxy", str(config)]}}
        if client == "claude-code":
            (work / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
        elif client == "opencode":
            local = {
                name: {
                    "type": "local", "command": [entry["command"], *entry["args"]],
                    "environment": entry.get("env", {}), "timeout": 120_000,
                }
                for name, entry in servers.items()
            }  # fmt: skip
            (work / "opencode.json").write_text(json.dumps({"mcp": local}))
        else:
            (home / ".codex").mkdir()
            lines = ["[features]", "mcp_tool_list_changed = true"]
            for name, entry in servers.items():
                lines += [f"[mcp_servers.{name}]", "required = true", "startup_timeout_sec = 120"]
                lines += [f"{key} = {json.dumps(entry[key])}" for key in ("command", "args")]
                path = entry.get("env", {}).get("PYTHONPATH", "")
                lines.append(f"env = {{ PYTHONPATH = {json.dumps(path)} }}")
            (home / ".codex" / "config.toml").write_text("\n".join(lines) + "\n")

    def _claude_code(
        self, setting: str, url: str, home: Path, query: str
    ) -> tuple[list[str], dict[str, str]]:
        program = str(self.modules / ".bin" / "claude")
        allowed = [f"mcp__{name}" for name in world.SERVERS]
        options = ["--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools"]
        return [program, "-p", query, *options, *allowed, "ToolSearch"], {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "made-up",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "MCP_TIMEOUT": "120000",  # to connect; 30 s are too few on a busy machine
            # Where the base URL is not Anthropic's, it is off unless it is asked for.
            "ENABLE_TOOL_SEARCH": "false" if setting == "search off" else "true",
        }

    def _codex(
        self, setting: str, url: str, home: Path, query: str
    ) -> tuple[list[str], dict[str, str]]:
        config = home / ".codex" / "config.toml"
        provider = (
            f'model = "gpt-5.5"\nmodel_provider = "scripted"\n[model_providers.scripted]\n'
            f'name = "scripted"\nbase_url = "{url}/v1"\nenv_key = "SCRIPTED_KEY"\n'
            'wire_api = "responses"\n\n'
        )
        config.write_text(provider + config.read_text())
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        if setting != "dtdr, no hook":  # a person says once that the hook is trusted
            options.append("--dangerously-bypass-hook-trust")
        program = str(self.modules / "@openai" / "codex" / "bin" / "codex.js")
        return ["node", program, "exec", *options, query], {"SCRIPTED_KEY": "made-up"}

    def _opencode(
        self, setting: str, url: str, home: Path, query: str
    ) -> tuple[list[str], dict[str, str]]:
        provider = {"options": {"baseURL": f"{url}/v1", "apiKey": "made-up"}}
        config = {"provider": {"anthropic": provider}, "permission": "allow"}
        path = home / ".config" / "opencode" / "opencode.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(config))
        program = str(self.modules / ".bin" / "opencode")
        return [program, "run", "--model", "anthropic/claude-sonnet-4-5", query], {}


def possible(client: str, setting: str) -> bool:
    """Codex always defers MCP tools; opencode never does, and has no search."""
    return setting not in {"codex": ("search off",), "opencode": ("search on",)}.get(client, ())


def row(client: str, setting: str, outcomes: list[Outcome], whole: int) -> dict[str, Any]:
    """One line of the table.

    Args:
        client: the program.
        setting: what is between it and the servers.
        outcomes: of its runs.
        whole: characters of all definitions.
    """
    direct = [value for outcome in outcomes for value in outcome.direct]
    sizes = [
        sum(outcome.definitions(position))
        for outcome in outcomes
        for position in range(len(outcome.script.requests))
    ]
    return {
        "client": client,
        "setting": setting,
        "runs": len(outcomes),
        "first_tools": mean(len(outcome.definitions(0)) for outcome in outcomes),
        "first_characters": mean(sum(outcome.definitions(0)) for outcome in outcomes),
        "tenth_tools": mean(len(outcome.definitions(9)) for outcome in outcomes),
        "tenth_characters": mean(sum(outcome.definitions(9)) for outcome in outcomes),
        "share": mean(sizes) / whole,
        "searches": mean(
            sum(request.searched for request in outcome.script.requests) for outcome in outcomes
        ),
        "loaded": mean(direct),
        "unreached": sum(len(outcome.script.unreached) for outcome in outcomes),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--runs", type=int, default=10, help="held-out runs behind dtdr")
    parser.add_argument("--smoke", action="store_true", help="one run of one program")
    parser.add_argument("--keep", type=Path, help="keep what the programs wrote in this folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if reason := why_not():
        print(f"Nothing was tried: {reason}.")
        return
    enter_namespace()
    if given.smoke:
        given.clients, given.settings, given.runs = ["claude-code"], ["dtdr"], 1
    modules = programs()
    assert modules is not None
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(given.keep or Path(temporary), modules)
        for client in given.clients:
            for setting in given.settings:
                if not possible(client, setting):
                    continue
                runs = world.make_runs(
                    7, given.runs, held_out=True, reworded=setting == "dtdr, reworded"
                )
                # What does not depend on the model says the same in every run.
                few = runs if setting in ("dtdr", "dtdr, reworded") else runs[:1]
                outcomes = [bench.run(client, setting, run) for run in few]
                rows.append(row(client, setting, outcomes, WHOLE[client]))
                if given.json:
                    print(json.dumps(rows[-1]), flush=True)
    if given.json:
        return
    columns = [
        Column("Client", "client"),
        Column("Between it and the servers", "setting"),
        Column("Runs", "runs", str, numeric=True),
        Column("Tools, first", "first_tools", _one, numeric=True),
        Column("kB", "first_characters", _kilo, numeric=True),
        Column("Tools, tenth", "tenth_tools", _one, numeric=True),
        Column("kB", "tenth_characters", _kilo, numeric=True),
        Column("Of all", "share", _percent, numeric=True),
        Column("Searches", "searches", _one, numeric=True),
        Column("Loaded when wanted", "loaded", _percent, numeric=True),
        Column("Never", "unreached", str, numeric=True),
    ]
    caption = "Definitions of MCP tools in the first and the tenth request, means over the runs."
    title = "What a model is given of 120 tools"
    Console(width=130).print(Table(columns, rows, title, caption).to_rich())


WHOLE = {"claude-code": 76_700, "codex": 76_700, "opencode": 81_600}
"""Characters of all definitions as a client sends them without a search; Codex always has one, so
it is compared with Claude Code."""


def _one(value: float) -> str:
    return f"{value:.1f}"


def _kilo(value: float) -> str:
    return f"{value / 1e3:.1f}"


def _percent(value: float) -> str:
    return f"{value:.0%}"


if __name__ == "__main__":
    main()
