"""What takes long is done outside the event loop, whoever asks."""

import pytest

from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.model import Model
from dtdr.predict.plans.plan_model import PlanModel
from dtdr.rankers.ranking import Ranking
from dtdr.serve.server import masks, model_routes
from tests.server import serving
from tests.server.serving import QUERY, is_in_event_loop

LONG = "Mail Ann the summary of q3.pdf. " * 100
CALLS = [{"tool": "read_file", "arguments": {"name": "q3.pdf"}, "output": "x " * 900}] * 30

REQUEST = {"messages": [{"role": "user", "content": QUERY}], "tools": []}
TAUGHT = {"query": QUERY, "calls": ["read_file"]}


@pytest.fixture(scope="module")
def planning(tmp_path_factory):
    """A server of a model that knows arguments and plans."""
    folder = serving.fit(
        tmp_path_factory.mktemp("plans") / "mail",
        size=30,
        ranker="dtdr-f",
        arguments=True,
        plans=True,
    )
    with serving.serve(serving.settings(folder)) as served:
        yield served


@pytest.fixture
def watch(monkeypatch):
    """Notes of calls of a function whether the event loop made them."""
    loops: list[bool] = []

    def watch(owner, name):
        original = getattr(owner, name)

        def noted(*given, **named):
            loops.append(is_in_event_loop())
            return original(*given, **named)

        monkeypatch.setattr(owner, name, noted)
        return loops

    return watch


def test_a_short_step_is_ranked_at_once(planning, watch):
    loops = watch(Ranking, "__init__")
    for path, body in (
        ("/v1/rank", {"query": QUERY}),
        ("/v1/rank", {"query": QUERY, "history": ["read_file"] * 10}),
    ):
        assert planning.post(path, body).is_success
    assert len(loops) >= 2
    assert all(loops)


@pytest.mark.parametrize(
    ("path", "body", "owner", "name"),
    [
        ("/v1/rank", {"query": LONG}, Ranking, "__init__"),
        ("/v1/rank", {"query": QUERY, "history": CALLS}, Ranking, "__init__"),
        ("/v1/rank", {"query": QUERY, "history": ["read_file"] * 60}, Ranking, "__init__"),
        ("/v1/rank/batch", {"steps": [{"query": QUERY}]}, Ranking, "__init__"),
        ("/v1/explain", {"query": QUERY}, Ranking, "__init__"),
        ("/v1/search", {"text": "mail", "query": QUERY}, Ranking, "__init__"),
        ("/v1/search", {"text": LONG}, Ranking, "__init__"),
        ("/v1/plans", {"query": QUERY}, PlanModel, "predict"),
        ("/v1/plans", {"query": QUERY}, ArgumentModel, "fill"),  # as it is written
        ("/v1/calls", {"query": QUERY}, ArgumentModel, "fill"),
        ("/v1/mask/openai", {"request": REQUEST}, masks, "ToolMask"),
        ("/v1/feedback", {"demonstrations": [TAUGHT]}, model_routes, "_record"),
        ("/v1/feedback", {"demonstrations": [TAUGHT]}, Model, "update"),
    ],
)
def test_what_may_take_long_is_not_done_in_the_event_loop(planning, watch, path, body, owner, name):
    loops = watch(owner, name)
    assert planning.post(path, body).is_success
    serving.wait_until(lambda: loops)  # feedback is learned after its answer
    assert not any(loops)
