"""A refitted model takes the place of the one that is served, and no request notices."""

import json
import shutil
import threading

import httpx2
import numpy as np
import pytest

import dtdr
from dtdr.errors import InputError, ModelError
from dtdr.rankers.model_folder import FORMAT_VERSION
from dtdr.serve.server import create_app, models
from dtdr.serve.server.keys import create_key, revoke_key
from tests import small_data
from tests.server import serving
from tests.server.serving import QUERY, refused


def test_no_request_is_dropped_while_models_are_replaced(model):
    """Clients ask without a pause while the folder is replaced many times."""
    outcomes: list[tuple[int, int]] = []
    stop = threading.Event()

    def ask(url: str) -> None:
        with httpx2.Client(base_url=url, timeout=60) as http:
            call = {"tool": "read_file", "output": "three pages"}
            while not stop.is_set():
                for history in ([], [call]):
                    answer = http.post("/v1/rank", json={"query": QUERY, "history": history})
                    found = answer.json().get("generation", 0)
                    outcomes.append((answer.status_code, found))

    with serving.serve(serving.settings(model, watch_seconds=0.02)) as served:
        threads = [threading.Thread(target=ask, args=(served.url,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(6):
                former = served.service.models["mail"].current.generation
                serving.fit(model, ranker=("dr", "dtdr-l")[number % 2])
                serving.wait_until(
                    lambda former=former: served.service.models["mail"].current.generation > former
                )
                seen = len(outcomes)
                serving.wait_until(lambda seen=seen: len(outcomes) > seen + 20)
            assert served.metric('dtdr_model_generation{model="mail"}') >= 7
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
    assert {status for status, _ in outcomes} == {200}
    assert len({generation for _, generation in outcomes}) >= 6


def replace(path, text):
    """Writes in one step, or the watcher may meet the file while it is still empty."""
    written = path.with_name("written")
    written.write_text(text)
    written.replace(path)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("model.safetensors", lambda _: "damaged", "not a safetensors file"),
        (
            "config.json",
            lambda text: json.dumps({**json.loads(text), "format_version": 9}),
            f"model format version 9, but this dtdr reads version {FORMAT_VERSION}",
        ),
    ],
)
def test_a_folder_that_cannot_be_read_leaves_the_model_as_it_was(model, name, change, reason):
    with serving.serve(serving.settings(model)) as served:
        before = served.post("/v1/rank", {"query": QUERY}).json()
        replace(model / name, change((model / name).read_text("latin-1")))
        assert reason in refused(served.post("/v1/models/mail/reload"), 503)
        assert served.post("/v1/rank", {"query": QUERY}).json() == before
        assert reason in served.get("/v1/models/mail").json()["reload_error"]
        assert served.get("/readyz").status_code == 200
        serving.fit(model)
        assert served.post("/v1/models/mail/reload").json()["reload_error"] is None


def test_a_damaged_folder_is_tried_once_and_again_when_it_changes(model):
    with serving.serve(serving.settings(model, watch_seconds=0.02)) as served:
        failed = 'dtdr_reloads_total{model="mail",outcome="failed"}'
        config = model / "config.json"
        good = config.read_text()
        replace(config, "{}")
        serving.wait_until(lambda: served.metric(failed) == 1)
        replace(config, good + "\n")
        done = 'dtdr_reloads_total{model="mail",outcome="done"}'
        serving.wait_until(lambda: served.metric(done) == 1)
        assert served.metric(failed) == 1


@pytest.mark.parametrize("first", ["config.json", "model.safetensors"])
def test_a_model_whose_files_arrive_one_after_the_other_is_loaded(model, tmp_path, first):
    refitted = serving.fit(tmp_path / "refitted", ranker="dr")
    names = [first, *({"config.json", "model.safetensors"} - {first})]
    with serving.serve(serving.settings(model, watch_seconds=0.02)) as served:
        for number, name in enumerate(names):
            shutil.copyfile(refitted / name, tmp_path / "written")
            (tmp_path / "written").replace(model / name)
            if number == 0:
                serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 1)
                assert served.get("/v1/models/mail").json()["ranker"] == "dtdr-l"
        serving.wait_until(lambda: served.get("/v1/models/mail").json()["ranker"] == "dr")
        serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 0)


def test_one_damaged_folder_keeps_nothing_else_from_being_looked_after(
    model, tmp_path, monkeypatch
):
    """Not even when loading it fails in a way that nobody foresaw."""
    other, keys = serving.fit(tmp_path / "other"), tmp_path / "keys.json"
    revoked, key = create_key(keys)[1], create_key(keys)[0]
    headers = {"authorization": f"Bearer {key}"}
    load = models._load

    def fail(folder):
        if folder == model:
            raise ZeroDivisionError("secret")
        return load(folder)

    folders = {"mail": model, "other": other}
    settings = serving.settings(models=folders, keys=keys, watch_seconds=0.02)
    with serving.serve(settings) as served:
        monkeypatch.setattr(models, "_load", fail)
        replace(model / "config.json", "{}")
        serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 1)
        assert served.metric('dtdr_failing{task="model mail"}', headers=headers) == 1
        revoke_key(keys, revoked.id)
        serving.wait_until(lambda: len(served.service.keys) == 1)
        serving.fit(other, ranker="dr")
        serving.wait_until(
            lambda: served.get("/v1/models/other", headers=headers).json().get("ranker") == "dr"
        )
        described = served.get("/v1/models/mail", headers=headers).json()
        assert described["generation"] == 1
        assert "cannot be loaded (ZeroDivisionError)" in described["reload_error"]


def test_a_model_without_finite_probabilities_is_not_the_clients_fault(fitted, monkeypatch):
    with serving.serve(serving.settings(fitted)) as served:
        model = served.service.models["mail"].current.model
        nothing = np.full((1, len(model.vocabulary)), np.nan)
        monkeypatch.setattr(model.ranker, "score_all", lambda *_: nothing)
        assert "probabilities that are not numbers" in refused(
            served.post("/v1/rank", {"query": "an unusual query"}), 503
        )


def test_a_folder_that_cannot_be_served_does_not_start(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        create_app(serving.settings(tmp_path / "nothing"))
    dataset = small_data.dataset()
    asking = dtdr.fit(
        dataset.demonstrations, dataset.tools, ranker="less-is-more", llm=lambda _: "weather"
    )
    asking.save(tmp_path / "model")
    with pytest.raises(InputError, match="asks an LLM"):
        create_app(serving.settings(tmp_path / "model"))
