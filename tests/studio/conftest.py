from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="the HTTP server needs the extra 'server'")
pytest.importorskip("httpx2", reason="these tests speak HTTP with httpx2")

import dtdr
from dtdr.serve.studio.routes import Studio
from tests import small_data
from tests.server import serving


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs, and a model that learned from them."""
    path = tmp_path_factory.mktemp("studio")
    data = small_data.write(path, 60)
    dtdr.fit(data, arguments=True).save(path / "model")
    return path


@pytest.fixture(scope="module")
def studio(folder: Path) -> Iterator[serving.Served]:
    """A studio of the runs, which only reads."""
    endpoints = Studio(folder / "demonstrations.jsonl").endpoints
    settings = serving.settings(folder / "model", read_only=True)
    with serving.serve(settings, more=endpoints) as served:
        yield served


@pytest.fixture
def ask(studio: serving.Served) -> Callable[..., Any]:
    """Posts a request that must succeed."""

    def post(path: str, **body: Any) -> Any:
        response = studio.post(path, body)
        assert response.status_code == 200, response.text
        return response.json()

    return post
