import logging
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the gateway needs the extra dtdr[mcp]")

import dtdr
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from tests.gateway.helpers import NAMES, open_stdio, stdio

STRANGE = {
    "water_garden": "Waters the flowers in the garden.",
    "feed_goldfish": "Gives food to the goldfish in the aquarium.",
    "paint_fence": "Paints the fence around the house.",
}
WORK = {
    "mail": ("find_user", "write_mail", "send_mail"),
    "file": ("open_file", "summarize_file"),
    "weather": ("find_place", "get_weather"),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _servers_of_this_process(monkeypatch):
    monkeypatch.setattr("dtdr.agents.gateway.streams.stdio_client", open_stdio)
    # On a busy machine they take long to start.
    monkeypatch.setattr("dtdr.agents.gateway.gateway.START_SECONDS", 60)


@pytest.fixture(autouse=True)
def _logger_as_it_was():
    """The command adds a handler to a standard error that ends with its test."""
    logger = logging.getLogger("dtdr.mcp")
    handlers, propagates, level = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = handlers, propagates
    logger.setLevel(level)


def demonstrations(each):
    """So many of each kind of work; what comes next is certain after the first call."""
    return [
        Demonstration(
            f"{kind} {number}",
            f"please do the {kind} work number {number}",
            Plan(
                tuple(ToolCall(str(place), tool) for place, tool in enumerate(tools)),
                tuple((str(place), str(place + 1)) for place in range(len(tools) - 1)),
            ),
        )
        for kind, tools in WORK.items()
        for number in range(each)
    ]


@pytest.fixture(scope="session")
def model():
    """Learned three kinds of work."""
    return dtdr.fit(demonstrations(20), ranker="dtdr-l", epochs=100, arguments=False, plans=False)


@pytest.fixture(scope="session")
def served():
    """Servers that many tests have the gateway start."""
    servers: dict[str, dict[str, Any]] = {
        "full": {"tools": 30, "names": NAMES},
        "known": {"names": NAMES},
        "a": {"prefix": "a_", "special": True},
        "b": {"prefix": "b_", "special": True},
        "strange": {"names": STRANGE},
        "ends": {"names": {"end": "Ends it.", **STRANGE}},
        "runs": {"names": {"run": "Runs a marathon."}},
        "program": {"names": {"run": "Runs a program.", **NAMES}},
        "two_tools": {"tools": 2},
    }
    specs = {name: stdio(name, **options) for name, options in servers.items()}
    return {**specs, "two": [specs["a"], specs["b"]]}
