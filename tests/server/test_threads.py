"""What takes long is done outside the event loop, whoever asks."""

import pytest

from dtdr.data.outputs import READ_LENGTH
from dtdr.predict.arguments.model import ArgumentModel
from dtdr.predict.plans.model import PlanModel
from dtdr.rankers.ranking import Ranking
from dtdr.serve.server import actions, masks, model_routes, steps
from tests import small_data
from tests.server import serving
from tests.server.serving import QUERY, is_in_event_loop

LONG = "Mail Ann the summary of q3.pdf. " * 100
CALLS = [{"tool": "read_file", "arguments": {"name": "q3.pdf"}, "output": "x " * 900}] * 30


@pytest.fixture(scope="module")
def planning(tmp_path_factory):
    """A server of a model that knows arguments and plans."""
    folder = serving.fit(
        tmp_path_factory.mktemp("plans") / "mail",
        size=30,
        retriever="dtdr-f",
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


def open_session(served, **given):
    answer = served.post("/v1/sessions", {"query": QUERY, **given})
    assert answer.status_code == 201
    return f"/v1/sessions/{answer.json()['session']}"


@pytest.mark.parametrize("kind", ["step", "session"])
@pytest.mark.parametrize(
    ("what", "owner", "name"),
    [
        ("plans", PlanModel, "predict"),
        ("plans", ArgumentModel, "fill"),
        ("calls", ArgumentModel, "fill"),
    ],
)
def test_plans_and_calls_are_made_and_written_in_a_thread(planning, watch, kind, what, owner, name):
    loops = watch(owner, name)
    if kind == "step":
        answer = planning.post(f"/v1/{what}", {"query": QUERY})
    else:
        answer = planning.post(f"{open_session(planning)}/{what}", {})
    assert answer.status_code == 200
    assert answer.json()[what]
    assert loops
    assert not any(loops)


def test_a_short_step_is_ranked_at_once(planning, watch):
    session = open_session(planning)
    loops = watch(Ranking, "__init__")
    for path, body in (
        ("/v1/rank", {"query": QUERY}),
        ("/v1/rank", {"query": QUERY, "history": ["read_file"] * 10}),
        (f"{session}/rank", {}),
        (f"{session}/call", {"tools": ["read_file"], "rank": {}}),
    ):
        assert planning.post(path, body).is_success
    assert len(loops) >= 4
    assert all(loops)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rank", {"query": LONG}),
        ("/v1/rank", {"query": QUERY, "history": CALLS}),
        ("/v1/rank", {"query": QUERY, "history": ["read_file"] * 60}),
        ("/v1/rank/batch", {"steps": [{"query": QUERY}]}),
        ("/v1/explain", {"query": QUERY}),
        ("/v1/search", {"text": "mail", "query": QUERY}),
        ("/v1/search", {"text": LONG}),
        ("/v1/sessions", {"query": LONG, "rank": {}}),
    ],
)
def test_what_may_take_long_is_not_done_in_the_event_loop(planning, watch, path, body):
    loops = watch(Ranking, "__init__")
    assert planning.post(path, body).is_success
    assert loops
    assert not any(loops)


def test_what_is_long_is_read_in_a_thread(planning, watch):
    loops = watch(steps, "add_calls")
    watch(actions, "add_calls")
    watch(masks, "ToolMask")
    watch(model_routes, "_demonstration")
    path = open_session(planning, history=CALLS)
    planning.post(f"{path}/call", {"tools": CALLS})
    planning.post("/v1/plans", {"query": QUERY, "history": CALLS})
    request = {"messages": [{"role": "user", "content": QUERY}], "tools": []}
    planning.post("/v1/mask/openai", {"request": request})
    planning.post("/v1/feedback", {"demonstrations": [{"query": QUERY, "calls": ["read_file"]}]})
    assert len(loops) >= 5
    assert not any(loops)


def test_of_a_text_the_beginning_is_read(planning):
    head = ("Mail Ann the summary of q3.pdf. " * 300)[:READ_LENGTH]
    tail = " Text the weather of Rome to Zoë." * 200

    def ranked(query):
        return planning.post("/v1/rank", {"query": query, "top_k": 100}).json()["tools"]

    assert ranked(head) == ranked(head + tail) != ranked(tail)
    long = [{"role": "user", "content": "x " * READ_LENGTH + small_data.dataset(1).tools[0].name}]
    assert planning.post("/v1/calls", {"query": QUERY, "before": long}).status_code == 200
