"""Models at a URL: published by one process, loaded by all, and kept when the store fails."""

import shutil
import subprocess
import sys

import pytest

pytest.importorskip("fsspec", reason="URLs of models need fsspec")

import dtdr
from dtdr.errors import ModelError, OutputError
from dtdr.serve.feedback import FileLog
from dtdr.serve.remote_folder import RemoteFolder
from dtdr.serve.server.settings import named_models
from tests import small_data
from tests.server import serving
from tests.server.serving import QUERY, refused

URL = "memory://models/mail"
FAILING = 'dtdr_failing{task="model mail"}'


@pytest.fixture
def store(fitted):
    """A store with a model."""
    remote = RemoteFolder(URL)
    remote.publish(fitted)
    yield remote
    remote._system.store.clear()


def test_a_model_of_a_store_is_served_and_follows_what_is_published(store, fitted, tmp_path):
    other = serving.fit(tmp_path / "other", ranker="dr")
    with serving.serve(serving.settings(models={"mail": URL}, watch_seconds=0.05)) as served:
        expected = dtdr.load(fitted).rank(QUERY).top(1)[0][0]
        assert served.post("/v1/rank", {"query": QUERY}).json()["tools"][0]["tool"] == expected
        assert "dtdr learn --publish" in refused(served.post("/v1/models/mail/save"), 409)
        store.publish(other)
        described = "/v1/models/mail"
        serving.wait_until(lambda: served.get(described).json()["ranker"] == "dr")
        assert served.metric(FAILING) == 0


def test_a_server_keeps_its_model_while_the_store_has_none_or_is_away(store, fitted, monkeypatch):
    with serving.serve(serving.settings(models={"mail": URL}, watch_seconds=0.05)) as served:
        system = store._system
        system.pipe_file("/models/mail/config.json", b"{}")
        serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 1)
        assert served.metric(FAILING) == 1
        assert served.get("/v1/models/mail").json()["reload_error"]
        store.publish(fitted)
        serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 0)

        def away(*_, **__):
            raise OSError("no route to host")

        monkeypatch.setattr(type(system), "info", away)
        serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 1)
        assert served.post("/v1/rank", {"query": QUERY}).status_code == 200
        with pytest.raises(ModelError, match="no route to host"):
            store.stamp()
        monkeypatch.undo()
        serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 0)
        assert served.get("/v1/models/mail").json()["generation"] >= 2


def test_a_store_without_a_model_or_that_cannot_be_written_is_said(fitted, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="has no model"):
        RemoteFolder("memory://nothing").fetch(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()

    def full(*_, **__):
        raise OSError("no space left")

    target = RemoteFolder("memory://full")
    monkeypatch.setattr(type(target._system), "open", full)
    with pytest.raises(OutputError, match="no space left"):
        target.publish(fitted)
    assert named_models(["s3://bucket/mail/", "home=models/home"])["mail"] == "s3://bucket/mail/"


def test_dtdr_learn_publishes_to_a_url_that_a_server_watches(learner, tmp_path):
    model = shutil.copytree(learner, tmp_path / "mail")
    url = (tmp_path / "store").as_uri()
    log = FileLog(tmp_path / "f.jsonl")
    command = [sys.executable, "-m", "dtdr", "learn", str(model), str(log.path), "--once"]
    command += ["--publish", url, "--set", "gain=9", "--set", "tolerance=1", "--set", "share=0.5"]
    log.append([])
    subprocess.run(command, check=True, timeout=300)
    with serving.process(f"mail={url}", "--watch", "0.2", "--quiet") as served:
        assert served.get("/v1/models/mail").json()["demonstrations"] == 6
        items = [small_data.demonstration(number % 12) for number in range(90)]
        log.append([dtdr.Demonstration(f"f{at}", x.query, x.plan) for at, x in enumerate(items)])
        subprocess.run(command, check=True, timeout=300)
        serving.wait_until(lambda: served.get("/v1/models/mail").json()["demonstrations"] > 6)
        assert dtdr.load(model).training_.demonstrations > 6
