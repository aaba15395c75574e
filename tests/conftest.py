import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.command_line import Shown, shown_by
from tests.redis_server import RedisServer

# Timings never decide a test, and the same run gives the same examples.
for _name, _examples in (("unit", 12), ("nightly", 400)):
    settings.register_profile(
        _name,
        deadline=None,
        derandomize=True,
        max_examples=_examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("DTDR_TEST_PROFILE", "unit"))

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep embeddings and downloads of the tests out of the user's cache."""
    os.environ["DTDR_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """No test pulls the plug, so none has to wait until its files would survive that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as without a terminal, whatever started the tests."""
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """A command that a test runs in its own process sets up logging for that test alone."""
    names = ("dtdr", "dtdr.server", "dtdr.mcp", "dtdr.agents", "uvicorn")
    loggers = [logging.getLogger(name) for name in names]
    before = [(each, each.handlers[:], each.propagate, each.level) for each in loggers]
    yield
    for each, handlers, propagate, level in before:
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Shown]:
    """Run a command in this process; gives its exit code and what it printed."""
    return lambda *arguments: shown_by(capsys, *arguments)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of published demonstrations, or a skip where it is absent."""
    folder = os.environ.get("DTDR_DATA_DIR")
    if not folder or not (Path(folder) / "tinyagent" / "examples.json").exists():
        pytest.skip("DTDR_DATA_DIR names no folder with the published demonstrations")
    return Path(folder)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis for the tests of a module."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()
