import json

import pytest

from dtdr.agents.gateway.config import UpstreamSpec, parse_rest, read_config, require_distinct
from dtdr.errors import InputError


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("npx -y @scope/server-git@1.2 --root /x", ["server-git"]),
        ("uvx git -- python notes.py -- https://a.io/mcp", ["git", "notes", "a-io"]),
        ("uvx git -- uvx git", ["git", "git-2"]),
        (
            "https://a.example/mcp -- http://127.0.0.1:9/mcp",
            ["a-example", "127-0-0-1"],
        ),
        ("npx mcp-remote https://a.example/mcp", ["mcp-remote"]),
        ("my__server_.py", ["my_server"]),
    ],
)
def test_words_after_the_dashes_are_commands_or_urls(words, names):
    specs = parse_rest(words.split())

    assert [spec.name for spec in specs] == names
    assert [" ".join(spec.command) or spec.url for spec in specs] == words.split(" -- ")


def write(folder, text):
    path = folder / "mcp.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_the_config_file_of_mcp_clients_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    servers = {
        "files": {"command": "npx", "args": ["-y", "${NOT_SET:-files}"], "cwd": "/tmp"},
        "my issues": {"url": "https://x/mcp", "headers": {"Authorization": "${TOKEN}"}},
        "off": {"command": "x", "disabled": True},
        "more": {"command": "x", "prefetch": ["read"], "note": "${fileBasename} is not read"},
    }
    files, issues, more = read_config(write(tmp_path, {"mcpServers": servers}))

    assert files.command == ("npx", "-y", "files")
    assert (files.cwd, files.prefetch) == ("/tmp", ())
    assert issues.name == "my-issues"
    assert issues.headers == {"Authorization": "secret"}
    assert more.prefetch == ("read",)


VS_CODE = {
    "inputs": [],
    "servers": {
        "files": {"type": "stdio", "command": "npx", "args": ["${workspaceFolder}/x", "// no"]},
        "git": {"type": "http", "url": "https://x/mcp", "headers": {"X": "${env:TOKEN}"}},
    },
}


def test_the_config_file_of_vs_code_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.chdir(tmp_path)
    files, git = read_config(write(tmp_path, VS_CODE))

    assert files.command == ("npx", f"{tmp_path}/x", "// no")
    assert (git.url, git.headers) == ("https://x/mcp", {"X": "secret"})


@pytest.mark.parametrize("name", ["a__b", "a_", "", "x" * 33, "a b"])
def test_a_name_that_would_make_full_tool_names_ambiguous_is_an_error(name):
    with pytest.raises(InputError, match="upstream name"):
        UpstreamSpec(name, url="https://x/mcp")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "is not JSON"),
        ([], "must have"),
        ({}, "must have"),
        ({"mcpServers": []}, "must have"),
        ({"mcpServers": {"a": {}}}, "needs either a command or a URL"),
        ({"mcpServers": {"a": {"url": "ftp://x/mcp"}}}, "'ftp://x/mcp' is not an address"),
        ({"mcpServers": {"a": {"command": "x", "url": "https://y"}}}, "needs either"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, r"server 'a' .*\$\.args"),
        ({"mcpServers": {"a": {"command": "x", "env": {"Y": 1}}}}, r"\$\.env"),
        ({"mcpServers": {"a": {"command": 1}}}, r"`str`, got `int` - at `\$\.command`"),
        ({"mcpServers": {"a": {"command": "${SURELY_NOT_SET}"}}}, "not set in the environment"),
        ({"mcpServers": {"a": "x"}}, "server 'a' must be a JSON object"),
        ({"servers": {"a": {"command": "x", "envFile": "y"}}}, "put its variables into 'env'"),
        ({"servers": {"a": {"command": "x", "args": ["${input:key}"]}}}, "not set in the environ"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_an_error(value, says, tmp_path):
    with pytest.raises(InputError, match=says):
        read_config(write(tmp_path, value))


def test_two_upstreams_of_one_name_and_a_command_after_urls_are_errors():
    with pytest.raises(InputError, match="two upstreams are named 'a'"):
        require_distinct([UpstreamSpec("a", url="https://x"), UpstreamSpec("a", command=("y",))])
    with pytest.raises(InputError, match="follows a URL"):
        parse_rest(["https://a.example/mcp", "npx"])
