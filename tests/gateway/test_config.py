import json

import pytest

from dtdr.agents.gateway.config import (
    UpstreamSpec,
    parse_rest,
    read_config,
    require_distinct,
)
from dtdr.errors import InputError


def test_words_after_the_dashes_are_one_command():
    (spec,) = parse_rest(["npx", "-y", "@scope/server-git@1.2", "--root", "/x"])

    assert spec.name == "server-git"
    assert spec.command == ("npx", "-y", "@scope/server-git@1.2", "--root", "/x")


def test_another_pair_of_dashes_begins_another_upstream():
    specs = parse_rest(
        ["uvx", "mcp-server-git", "--", "python", "notes.py", "--", "https://a.io/mcp"]
    )

    assert [spec.name for spec in specs] == ["mcp-server-git", "notes", "a-io"]


def test_urls_after_the_dashes_are_one_upstream_each():
    specs = parse_rest(["https://a.example/mcp", "http://127.0.0.1:9/mcp"])

    assert [spec.url for spec in specs] == ["https://a.example/mcp", "http://127.0.0.1:9/mcp"]


def test_a_url_that_is_an_argument_stays_one():
    (spec,) = parse_rest(["npx", "mcp-remote", "https://a.example/mcp"])

    assert spec.command == ("npx", "mcp-remote", "https://a.example/mcp")


def test_equal_names_after_the_dashes_are_numbered():
    specs = parse_rest(["uvx", "git", "--", "uvx", "git"])

    assert [spec.name for spec in specs] == ["git", "git-2"]


def test_the_config_file_of_mcp_clients_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    path = tmp_path / "mcp.json"
    path.write_text(
        json.dumps(
            {
                "mcpServers": {
                    "files": {"command": "npx", "args": ["-y", "${NOT_SET:-files}"], "cwd": "/tmp"},
                    "my issues": {"url": "https://x/mcp", "headers": {"Authorization": "${TOKEN}"}},
                    "off": {"command": "x", "disabled": True},
                }
            }
        )
    )

    files, issues = read_config(path)

    assert files.command == ("npx", "-y", "files")
    assert files.cwd == "/tmp"
    assert issues.name == "my-issues"
    assert issues.headers == {"Authorization": "secret"}


VS_CODE = """{
  // Servers of this folder.
  "inputs": [],
  "servers": {
    "files": {"type": "stdio", "command": "npx", "args": ["${workspaceFolder}/x", "// no comment"]},
    /* another
       one */
    "git": {"type": "http", "url": "https://x/mcp", "headers": {"X": "${env:TOKEN}"},},
  }
}"""


@pytest.mark.parametrize("text", [VS_CODE, f'{{"mcp": {VS_CODE}}}'])
def test_the_config_file_of_vs_code_is_read(tmp_path, monkeypatch, text):
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mcp.json"
    path.write_text(text)

    files, git = read_config(path)

    assert files.command == ("npx", f"{tmp_path}/x", "// no comment")
    assert (git.url, git.headers) == ("https://x/mcp", {"X": "secret"})


@pytest.mark.parametrize("name", ["a__b", "a_", "", "x" * 33, "a b"])
def test_a_name_that_would_make_full_tool_names_ambiguous_is_an_error(name):
    with pytest.raises(InputError, match="upstream name"):
        UpstreamSpec(name, url="https://x/mcp")


def test_names_of_config_files_are_made_to_fit():
    assert parse_rest(["my__server_.py"])[0].name == "my_server"


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"mcpServers": []},
        {"mcpServers": {"a": {}}},
        {"mcpServers": {"a": {"command": "x", "url": "https://y"}}},
        {"mcpServers": {"a": {"command": "x", "args": "y"}}},
        {"mcpServers": {"a": {"command": "x", "env": {"Y": 1}}}},
        {"mcpServers": {"a": {"command": "${SURELY_NOT_SET}"}}},
        {"mcpServers": {"a": "x"}},
        {"servers": {"a": {"command": "x", "envFile": "y"}}},
        {"servers": {"a": {"command": "x", "args": ["${input:key}"]}}},
    ],
)
def test_a_config_file_that_cannot_be_used_is_an_error(value, tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(value))

    with pytest.raises(InputError):
        read_config(path)


def test_two_upstreams_of_one_name_are_an_error():
    with pytest.raises(InputError, match="two upstreams are named 'a'"):
        require_distinct([UpstreamSpec("a", url="https://x"), UpstreamSpec("a", command=("y",))])


def test_a_command_after_urls_is_an_error():
    with pytest.raises(InputError, match="follows a URL"):
        parse_rest(["https://a.example/mcp", "npx"])
