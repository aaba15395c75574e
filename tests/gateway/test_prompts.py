import contextlib
import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest

from dtdr.agents.gateway import hook
from dtdr.agents.gateway.serve import listen_for_prompts
from dtdr.cli import run
from tests.command_line import is_one_sentence
from tests.gateway.helpers import NAMES, few, gateway_client, names, stdio

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="hooks reach gateways by Unix sockets"),
]
PROMPT = "please do the weather work number 3"


@pytest.fixture
def home(monkeypatch):
    # The path of a Unix socket has at most 104 characters on some systems.
    with tempfile.TemporaryDirectory(prefix="dtdr") as folder:
        monkeypatch.setenv("HOME", folder)
        yield Path(folder)


async def tell(prompt: object = PROMPT, client: object = None) -> None:
    """Run the hook as a client does; these gateways' client is this process's parent."""
    command = [sys.executable, "-I", "-S", hook.__file__, str(client or os.getppid())]
    is_raw = isinstance(prompt, str) and prompt.startswith("{")
    told = str(prompt) if is_raw else json.dumps({"prompt": prompt})
    done = await anyio.run_process(command, input=told.encode(), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@contextlib.asynccontextmanager
async def listening():
    taken: list[str] = []

    async def take(prompt: str) -> None:
        taken.append(prompt)

    async with listen_for_prompts(take):
        yield taken


async def test_the_hook_says_nothing_where_no_gateway_runs_and_only_its_own_clients_is_told(home):
    await tell()
    async with listening() as taken:
        assert Path(hook.folder()).stat().st_mode & 0o777 == 0o700
        await tell(client=1)
        await tell("{broken")
        await tell('{"prompt": 7}')
        await tell("x" * (3 * hook.LONGEST))
        assert taken == []
        await tell()
        assert taken == [PROMPT]
        (file,) = Path(hook.folder()).iterdir()
        assert file.is_socket(), "the prompt is in no file"
    assert list(Path(hook.folder()).iterdir()) == []
    await tell()


async def test_every_gateway_of_the_client_gets_the_prompt_and_a_killed_one_leaves_nothing(
    home, monkeypatch
):
    place = Path(hook.folder())
    place.mkdir(mode=0o700, parents=True)
    killed = place / "1-999999999.sock"
    killed.write_text("old")
    async with listening() as taken:
        monkeypatch.setattr(os, "getpid", os.getppid)  # as another process
        async with listening() as taken_too:
            assert not killed.exists()
            await tell()
    assert taken == taken_too == [PROMPT]


async def test_a_folder_that_others_can_read_is_not_used(home, caplog):
    place = Path(hook.folder())
    place.mkdir(parents=True)
    place.chmod(0o755)
    async with listening() as taken:
        await tell()
    assert taken == []
    assert "set its mode to 700" in caplog.text


async def test_a_list_for_the_whole_run_follows_prompts_and_keeps_what_was_found(model):
    chosen: Any = {"policy": few(2, sticky="none"), "options": {"whole_run": True}}
    servers = [stdio("full", tools=30, names=NAMES)]
    async with gateway_client(model, servers, **chosen) as (client, gateway):
        listed = (await client.list_tools()).tools
        assert all((tool.meta or {}).get("anthropic/alwaysLoad") is True for tool in listed)
        await gateway.take_prompt(PROMPT)
        assert set(await names(client)) == {"find_place", "get_weather"}
        await gateway.take_prompt("please do the file work number 2")
        assert set(await names(client)) == {"open_file", "summarize_file"}
        await client.call_tool("open_file", {})
        await client.call_tool("search_tools", {"query": "tool_7"})
        (found,) = set(await names(client)) - {"open_file", "summarize_file"}
        await client.call_tool("summarize_file", {})
        assert found in await names(client)
        await gateway.take_prompt(PROMPT)
        await client.call_tool("find_place", {})
        assert {"open_file", "find_place", "get_weather"} <= set(await names(client))
        assert "place" in gateway.instructions


def test_setup_prints_by_default_and_writes_beside_what_is_there(home, monkeypatch, capsys):
    def dtdr(*words: str) -> tuple[int, str, str]:
        arguments = ["mcp", "model", "--config", "servers.json", *words]
        monkeypatch.setattr(sys, "argv", ["dtdr", *arguments])
        return run(arguments), *capsys.readouterr()

    monkeypatch.chdir(home)
    Path(".mcp.json").write_text('{"mcpServers": {"mine": {"command": "x"}}}')
    before = set(home.rglob("*"))
    for client in ("claude-code", "codex", "opencode"):
        code, out, _ = dtdr("--setup", client)
        assert (code, "hook.py" in out) == (0, True)
        assert str(home / "servers.json") in out
    assert set(home.rglob("*")) == before

    for client in ("claude-code", "claude-code", "codex", "opencode"):
        assert dtdr("--setup", client, "--write")[0] == 0
    servers = json.loads(Path(".mcp.json").read_text())["mcpServers"]
    assert set(servers) == {"mine", "tools"}
    command = servers["tools"]["args"]
    assert command[-3:] == ["--top-k", "15", "--whole-run"]
    assert "--setup" not in command
    hooks = json.loads(Path(".claude/settings.json").read_text())["hooks"]["UserPromptSubmit"]
    assert len(hooks) == 1
    codex = tomllib.loads((home / ".codex/config.toml").read_text())
    assert codex["mcp_servers"]["tools"]["args"] == command
    assert "hook.py" in codex["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"]
    opencode = json.loads(Path("opencode.json").read_text())["mcp"]["tools"]["command"]
    assert opencode[1:] == command

    Path(".mcp.json").write_text("[]")
    for words in (["--setup", "claude-code"], ["--setup", "vim"], ["--setup=codex"], ["--write"]):
        code, _, error = dtdr(*words)
        assert code == 2
        assert is_one_sentence(error)
