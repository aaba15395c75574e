"""What deploy/ holds is valid, fits together, and names commands and metrics that exist."""

import contextlib
import json
import re
import socket
import subprocess
import urllib.request
from typing import Any

import pytest
import typer

pytest.importorskip("msgspec", reason="the HTTP server needs the extra 'server'")
pytest.importorskip("httpx2", reason="a test speaks HTTP with httpx2")

import httpx2

from dtdr.cli import app
from dtdr.cli.learn import _serve_metrics
from dtdr.serve.server.server_metrics import Metrics
from tests.conftest import PROJECT
from tests.server import serving

DEPLOY = PROJECT / "deploy"


@pytest.fixture(scope="module")
def yaml():
    return pytest.importorskip("yaml", reason="the manifests are YAML")


@pytest.fixture(scope="module", params=["compose.yaml", "replicas.yaml"])
def compose(yaml, request):
    return yaml.safe_load((DEPLOY / request.param).read_text(encoding="utf-8"))


def test_the_compose_file_is_valid(compose):
    schemas = pytest.importorskip(
        "check_jsonschema.builtin_schemas", reason="Compose's schema is in check-jsonschema"
    )
    jsonschema = pytest.importorskip("jsonschema", reason="it comes with check-jsonschema")
    schema = schemas.get_builtin_schema("vendor.compose-spec")
    jsonschema.validate(compose, schema)
    services = compose["services"]
    service = {**services.get("dtdr", services.get("dtdr-1")), "prots": []}
    with pytest.raises(jsonschema.ValidationError, match="prots"):
        jsonschema.validate({"services": {"dtdr": service}}, schema)
    ports = [port for item in services.values() for port in item.get("ports", ())]
    assert len(ports) == 1
    assert ports[0].startswith("127.0.0.1:")
    assert (DEPLOY / service["build"]["context"] / "pyproject.toml").exists()
    assert (PROJECT / service["build"]["dockerfile"]).exists()


def test_containers_call_commands_that_there_are(compose):
    root: Any = typer.main.get_command(app)
    containerfile = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    entry = re.search(r"^ENTRYPOINT (.*)$", containerfile, re.MULTILINE)
    assert entry is not None
    calls = [
        [*service.get("entrypoint", json.loads(entry.group(1))), *service["command"]]
        for service in compose["services"].values()
        if service["image"] == "dtdr"
    ]
    assert len(calls) >= 2
    for program, name, *arguments in calls:
        assert program == "dtdr"
        root.get_command(None, name).make_context(
            name, arguments
        )  # raises where an option is unknown


def test_the_proxy_of_the_replicas_passes_on_to_them(yaml, tmp_path):
    services = yaml.safe_load((DEPLOY / "replicas.yaml").read_text(encoding="utf-8"))["services"]
    shell, option, script = services["proxy"]["command"]
    changes = script.partition("&&")[0]
    for there, here in (("/etc/dtdr", str(DEPLOY)), ("/tmp", str(tmp_path))):
        changes = changes.replace(there, here)
    subprocess.run([shell, option, changes], check=True)
    text = (tmp_path / "nginx.conf").read_text(encoding="utf-8")
    servers = re.findall(r"^ +server ([\w.-]+):8756 ", text, re.MULTILINE)
    assert servers == ["dtdr-1", "dtdr-2"]
    assert servers == [name for name in services if name.startswith("dtdr")]
    assert "listen 8080;" in text


def test_the_dashboard_shows_metrics_that_there_are():
    pytest.importorskip("prometheus_client", reason="metrics need the extra 'server'")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dtdr.cli.learn.note", said.append)
        _serve_metrics("0")
    address = said[0].split("metrics on ")[1]
    with urllib.request.urlopen(address, timeout=60) as answer:
        text = Metrics().text().decode() + answer.read().decode()
    known = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    dashboard = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    shown = set()
    for panel in panels:
        for target in panel["targets"]:
            names = set(re.findall(r"\b(?:dtdr|process)_\w+", target["expr"]))
            assert names, panel["title"]
            for name in names:
                assert name.removesuffix("_bucket") in known, name
            shown |= names
    learned = {name for name in known if name.startswith("dtdr_learn_")}
    assert len(shown & learned) >= 5


def test_nginx_ends_slow_heads_and_passes_on_whole_requests(tmp_path):
    model = serving.fit(tmp_path / "mail")
    quick = {
        "client_header_timeout 10s": "client_header_timeout 1s",
        "limit_conn clients 100": "limit_conn clients 5",
    }
    with serving.serve(serving.settings(model)) as served, contextlib.ExitStack() as stack:
        # Nothing listens on the port of the second server.
        address = stack.enter_context(serving.nginx(tmp_path, [served.url, None], quick))
        client = stack.enter_context(
            httpx2.Client(base_url="http://{}:{}".format(*address), timeout=60)
        )
        assert client.post("/v1/rank", json={"query": "Mail Ann"}).status_code == 200
        assert client.post("/v1/rank", content=b"x" * 2_000_000).status_code == 413
        slow = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(8)]
        for connection in slow:
            connection.sendall(b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        assert client.post("/v1/rank", json={"query": "Mail Ann"}).status_code == 200
        for connection in slow:
            connection.settimeout(60)
            while connection.recv(65_536):
                pass  # until it is closed, with or without an answer
