import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="the HTTP server needs the extra 'server'")
pytest.importorskip("httpx2", reason="these tests speak HTTP with httpx2")

from tests.server import serving


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that no test changes."""
    return serving.fit(tmp_path_factory.mktemp("models") / "mail")


@pytest.fixture(scope="session")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that can learn."""
    return serving.fit(tmp_path_factory.mktemp("models") / "mail", size=6, ranker="dtdr-f")


@pytest.fixture(scope="module")
def served(fitted: Path) -> Iterator[serving.Served]:
    """A server without keys, shared by the tests of a module."""
    with serving.serve(serving.settings(fitted)) as found:
        yield found


@pytest.fixture
def model(fitted: Path, tmp_path: Path) -> Path:
    """A small model of a test's own."""
    return shutil.copytree(fitted, tmp_path / "mail")
