"""What the page on the server shows runs, and the container's command line is one."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import PROJECT
from tests.server.serving import QUERY

PAGE = (PROJECT / "docs" / "server.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8756"


def example(language: str, url: str) -> str:
    """The block of that language that is marked as a test, with another server's address."""
    found = re.search(rf"<!-- run as a test -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert ADDRESS in found.group(1)
    return found.group(1).replace(ADDRESS, url)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example_ranks(served):
    done = subprocess.run(
        ["sh", "-ec", example("sh", served.url)], capture_output=True, text=True, check=True
    )
    body = {"query": QUERY, "history": ["read_file"], "model": "mail", "top_k": 3}
    assert json.loads(done.stdout) == served.post("/v1/rank", body).json()
    assert len(json.loads(done.stdout)["tools"]) == 3


def test_the_python_example_ranks(served):
    done = subprocess.run(
        [sys.executable, "-c", example("python", served.url)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, then = done.stdout.splitlines()
    best = served.post("/v1/rank", {"query": QUERY, "history": ["read_file"]}).json()["tools"][0]
    assert first == best["tool"]
    assert then.startswith("('")


def test_every_endpoint_and_option_of_the_page_is_there(cli, served):
    paths = served.get("/openapi.json").json()["paths"]
    for path in re.findall(r"`(?:[A-Z`, ]+ )?(/(?:v1/)?[a-z/{}]+)`", PAGE):
        known = {re.sub(r"{\w+}", "{}", item) for item in paths} | {"/docs", "/openapi.json"}
        known |= {"/save"}
        assert re.sub(r"{\w+}", "{}", path) in known, path
    help_text = cli("serve", "--help")[1] + cli("keys", "create", "--help")[1]
    for option in set(re.findall(r"--[a-z][a-z-]+", PAGE.split("## Speed")[0])):
        assert option in help_text, option


def test_the_metrics_of_the_page_are_there(served):
    served.post("/v1/rank", {"query": QUERY})
    text = served.get("/metrics").text
    for name in set(re.findall(r"`(dtdr_[a-z_]+)`", PAGE)):
        assert f"# TYPE {name}" in text or f"# TYPE {name.removesuffix('_total')}" in text, name
