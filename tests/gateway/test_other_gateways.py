"""dtdr in front of other MCP gateways: the files in deploy/gateways, and a real LiteLLM proxy."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import typer

import dtdr
from dtdr.cli import app
from dtdr.gateway.config import read_config
from tests.conftest import PROJECT
from tests.gateway.conftest import demonstrations
from tests.gateway.helpers import free_port, gateway_client, text, until, wait_for_port

yaml = pytest.importorskip("yaml", reason="the examples are YAML")

FOLDER = PROJECT / "deploy" / "gateways"
EXAMPLES = ("docker", "litellm", "portkey")
SERVER = """
import json, sys
from mcp.server import MCPServer
server = MCPServer("mail")
for name in json.loads(sys.argv[2]):
    server.add_tool(lambda: "done", name=name, description="Does it.")
server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""
VARIABLES = {"litellm": "LITELLM_KEY", "docker": "GATEWAY_TOKEN", "portkey": "PORTKEY_API_KEY"}


def load(name) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def service(name):
    """The service dtdr of an example, with what it extends."""
    own = load(f"{name}.yaml")["services"]["dtdr"]
    base = load(own["extends"]["file"])["services"][own["extends"]["service"]]
    environment = {**base["environment"], **own["environment"]}
    return {**base, "environment": environment, "volumes": [*base["volumes"], *own["volumes"]]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_fit_together(name, monkeypatch):
    dtdr_service = service(name)
    program, command = dtdr_service["entrypoint"]
    assert program == "dtdr"
    root: Any = typer.main.get_command(app)
    root.commands[command].make_context(command, [*dtdr_service["command"]])  # raises where unknown
    mounts = dict(volume.split(":")[:2] for volume in dtdr_service["volumes"])
    inside = dtdr_service["command"][dtdr_service["command"].index("--config") + 1]
    assert inside in mounts.values()
    services = load(f"{name}.yaml")["services"]
    for one in services.values():
        for volume in one.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (FOLDER / source).is_file(), source

    key = VARIABLES[name]
    assert key in dtdr_service["environment"]
    monkeypatch.setenv(key, "secret")
    specs = read_config(FOLDER / f"{name}-servers.json")
    for spec in specs:
        assert any("secret" in value for value in spec.headers.values())
        address = urlsplit(spec.url)
        assert address.scheme == "https" or address.hostname in services.keys() - {"dtdr"}


@contextmanager
def mail_server(port, names):
    """A server of the official SDK with tools of these names."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port), names])
    try:
        wait_for_port(port)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def litellm(program, folder, port, servers):
    """The proxy with the configuration of deploy/gateways, and these servers in place of its."""
    config = load("litellm-config.yaml")
    given = config["mcp_servers"]["mail"]
    config["mcp_servers"] = {name: {**given, "url": url} for name, url in servers.items()}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        "LITELLM_KEY": "sk-test",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
    }
    command = [program, "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
        try:
            for _ in range(480):
                try:
                    urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).close()
                    break
                except (URLError, OSError):
                    assert process.poll() is None, (folder / "log").read_text()
                    time.sleep(0.5)
            yield
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.slow
@pytest.mark.anyio
async def test_dtdr_ranks_the_tools_of_a_litellm_proxy(tmp_path, monkeypatch):
    program = os.environ.get("DTDR_TEST_LITELLM") or shutil.which("litellm")
    if program is None:
        pytest.skip("pip install 'litellm[proxy]' elsewhere; DTDR_TEST_LITELLM names its program")
    ports = [free_port(), free_port()]
    monkeypatch.setenv("LITELLM_KEY", "sk-test")
    servers = json.loads((FOLDER / "litellm-servers.json").read_text(encoding="utf-8"))
    entry = servers["mcpServers"]["litellm"]
    entry["url"] = entry["url"].replace("litellm:4000", f"127.0.0.1:{ports[1]}")
    config = Path(tmp_path / "servers.json")
    config.write_text(json.dumps(servers), encoding="utf-8")
    # A proxy lists its tools as SERVER-TOOL, and what was logged behind it has these names.
    renamed = [
        {
            **item.to_dict(),
            "calls": [{**call, "tool": f"mail-{call['tool']}"} for call in item.to_dict()["calls"]],
        }
        for item in demonstrations(20)
    ]
    model = dtdr.fit(renamed, retriever="dtdr-l", epochs=100)
    names = model.vocabulary[:-1]
    bare = json.dumps([name.removeprefix("mail-") for name in names])
    with (
        mail_server(ports[0], bare),
        litellm(program, tmp_path, ports[1], {"mail": f"http://127.0.0.1:{ports[0]}/mcp"}),
    ):
        async with gateway_client(model, read_config(config)) as (client, gateway):
            await until(lambda: set(gateway.catalog.names()) >= set(names))
            intent = renamed[0]["query"]
            wanted = renamed[0]["calls"][0]["tool"]
            answer = await client.call_tool(wanted, {}, meta={"dtdr/intent": intent})
            assert not answer.is_error, text(answer)
            shown = [tool.name for tool in (await client.list_tools()).tools]
            assert shown[0] == "search_tools"
            assert renamed[0]["calls"][1]["tool"] in shown
