"""What deploy/ holds is valid, fits together, and names commands and metrics that exist."""

import json
import re
import tomllib
import urllib.request
from typing import Any

import pytest
import typer

pytest.importorskip("msgspec", reason="the HTTP server needs the extra 'server'")

from dtdr.cli import app
from dtdr.cli.learn import _serve_metrics
from dtdr.server.metrics import Metrics
from tests.conftest import PROJECT

DEPLOY = PROJECT / "deploy"


@pytest.fixture(scope="module")
def yaml():
    return pytest.importorskip("yaml", reason="the manifests are YAML")


@pytest.fixture(scope="module")
def manifests(yaml):
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))


def pods(manifests):
    return {
        item["metadata"]["name"]: item["spec"]["template"]
        for item in manifests
        if "template" in item["spec"]
    }


@pytest.mark.slow  # the schemas are large
def test_every_manifest_is_valid(manifests):
    validator = pytest.importorskip(
        "kubernetes_validate", reason="schemas of Kubernetes are in kubernetes-validate"
    )
    assert len(manifests) >= 8
    for version in ("1.31", validator.latest_version()):
        for item in manifests:
            validator.validate(item, version, strict=True)
    wrong = {**manifests[1], "spec": {**manifests[1]["spec"], "replica": 2}}
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, "1.31", strict=True)


def test_the_manifests_fit_together(manifests):
    by_kind: dict[str, list[Any]] = {}
    for item in manifests:
        by_kind.setdefault(item["kind"], []).append(item)
    labels = [pod["metadata"]["labels"] for pod in pods(manifests).values()]
    selectors = [item["spec"]["selector"] for item in by_kind["Service"]]
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        selectors += [item["spec"]["selector"]["matchLabels"] for item in by_kind[kind]]
    for selector in selectors:
        assert sum(selector.items() <= own.items() for own in labels) == 1, selector
    target = by_kind["HorizontalPodAutoscaler"][0]["spec"]["scaleTargetRef"]["name"]
    assert target in {item["metadata"]["name"] for item in by_kind["Deployment"]}
    claims = {item["metadata"]["name"] for item in by_kind["PersistentVolumeClaim"]}
    for pod in pods(manifests).values():
        volumes = {item["name"]: item for item in pod["spec"].get("volumes", [])}
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim is None or claim in claims
        for container in pod["spec"]["containers"]:
            ports = {port["name"] for port in container["ports"]}
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            assert mounts <= volumes.keys() | {"data"}
            for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
                way = container.get(probe, {})
                asked = way.get("httpGet", way.get("tcpSocket"))
                assert asked is None or asked["port"] in ports
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["resources"]["limits"]["memory"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"]


def test_the_compose_files_are_valid(yaml):
    schemas = pytest.importorskip(
        "check_jsonschema.builtin_schemas", reason="Compose's schema is in check-jsonschema"
    )
    jsonschema = pytest.importorskip("jsonschema", reason="it comes with check-jsonschema")
    schema = schemas.get_builtin_schema("vendor.compose-spec")
    files = {
        path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (DEPLOY / "compose.yaml", *(DEPLOY / "gateways").glob("*.yaml"))
    }
    compose = {name: content for name, content in files.items() if "services" in content}
    assert len(compose) == 5
    for content in compose.values():
        jsonschema.validate(content, schema)
        content["services"]["dtdr"]["prots"] = []
        with pytest.raises(jsonschema.ValidationError, match="prots"):
            jsonschema.validate(content, schema)


def test_containers_call_commands_that_there_are(manifests, yaml):
    root: Any = typer.main.get_command(app)
    containerfile = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    entry = re.search(r"^ENTRYPOINT (.*)$", containerfile, re.MULTILINE)
    assert entry is not None
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    calls = [
        [*service.get("entrypoint", json.loads(entry.group(1))), *service["command"]]
        for service in compose.values()
    ]
    for pod in pods(manifests).values():
        for container in pod["spec"]["containers"]:
            if container["image"].startswith("dtdr"):
                command = container.get("command", json.loads(entry.group(1)))
                calls.append([*command, *container["args"]])
    assert len(calls) == 4
    for program, name, *arguments in calls:
        assert program == "dtdr"
        root.commands[name].make_context(name, arguments)  # raises where an option is unknown


# What KubeRay's definition of a RayJob (ray.io/v1) says of the fields that are used.
_GROUP: dict[str, Any] = {
    "type": "object",
    "required": ["rayStartParams", "template"],
    "additionalProperties": False,
    "properties": {
        "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
        "template": {"type": "object"},
    },
}
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0}
_WORKERS: dict[str, Any] = {"groupName": {"type": "string"}} | dict.fromkeys(
    ("replicas", "minReplicas", "maxReplicas"), _NUMBER
)
_RAY_JOB: dict[str, Any] = {
    "type": "object",
    "required": ["entrypoint", "rayClusterSpec"],
    "additionalProperties": False,
    "properties": {
        "entrypoint": {"type": "string"},
        "backoffLimit": _NUMBER,
        "shutdownAfterJobFinishes": {"type": "boolean"},
        "ttlSecondsAfterFinished": _NUMBER,
        "rayClusterSpec": {
            "type": "object",
            "required": ["headGroupSpec"],
            "additionalProperties": False,
            "properties": {
                "rayVersion": {"type": "string"},
                "enableInTreeAutoscaling": {"type": "boolean"},
                "autoscalerOptions": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"idleTimeoutSeconds": _NUMBER},
                },
                "headGroupSpec": _GROUP,
                "workerGroupSpecs": {
                    "type": "array",
                    "items": {
                        **_GROUP,
                        "required": [
                            "groupName",
                            "maxReplicas",
                            "minReplicas",
                            *_GROUP["required"],
                        ],
                        "properties": _GROUP["properties"] | _WORKERS,
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def ray_job(yaml):
    return yaml.safe_load((DEPLOY / "rayjob.yaml").read_text(encoding="utf-8"))


def test_the_ray_job_is_one_and_runs_a_command_that_there_is(ray_job, manifests):
    jsonschema = pytest.importorskip("jsonschema", reason="it comes with check-jsonschema")
    assert (ray_job["apiVersion"], ray_job["kind"]) == ("ray.io/v1", "RayJob")
    jsonschema.validate(ray_job["spec"], _RAY_JOB)
    program, name, *arguments = ray_job["spec"]["entrypoint"].split()
    root: Any = typer.main.get_command(app)
    given = root.commands[name].make_context(name, arguments).params
    assert (program, given["engine"], given["address"]) == ("dtdr", "ray", "auto")
    cluster = ray_job["spec"]["rayClusterSpec"]
    image = (DEPLOY / "Containerfile.ray").read_text(encoding="utf-8")
    assert f"ARG RAY={cluster['rayVersion']}\nFROM rayproject/ray:${{RAY}}-py3" in image
    lowest = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]["ray"][0].removeprefix("ray>=")
    assert list(map(int, cluster["rayVersion"].split("."))) >= list(map(int, lowest.split(".")))
    claims = {item["metadata"]["name"] for item in manifests if item["kind"].endswith("Claim")}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        volumes = {item["name"]: item["persistentVolumeClaim"] for item in pod["volumes"]}
        assert volumes["models"]["claimName"] in claims
        for container in pod["containers"]:
            mounts = {item["name"]: item["mountPath"] for item in container["volumeMounts"]}
            assert mounts.keys() == volumes.keys()
            assert str(given["output"]).startswith(mounts["models"])
            assert str(given["data"][0]).startswith(mounts["data"])
            assert container["resources"]["limits"]["memory"]


@pytest.mark.slow  # the schemas are large
def test_the_pods_of_the_ray_job_are_valid(ray_job):
    validator = pytest.importorskip(
        "kubernetes_validate", reason="schemas of Kubernetes are in kubernetes-validate"
    )
    cluster = ray_job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
        pod["metadata"] = {"name": "ray", **pod["metadata"]}
        validator.validate(pod, "1.31", strict=True)
        validator.validate(pod, validator.latest_version(), strict=True)


def test_the_variables_of_containers_are_read(manifests):
    page = (PROJECT / "docs" / "settings.md").read_text(encoding="utf-8")
    for pod in pods(manifests).values():
        for container in pod["spec"]["containers"]:
            for variable in container.get("env", []):
                if variable["name"].startswith("DTDR_"):
                    assert f"`{variable['name']}`" in page


def test_the_dashboard_shows_metrics_that_there_are():
    pytest.importorskip("prometheus_client", reason="metrics need the extra 'server'")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dtdr.cli.learn.note", said.append)
        _serve_metrics("0")
    address = said[0].split("metrics on ")[1]
    with urllib.request.urlopen(address, timeout=10) as answer:
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
