"""Calls made while the LLM is thinking: which, how often, and what becomes of them."""

import asyncio
import threading
from typing import Any

import pytest

from dtdr.agents import Prefetch, prefetch
from dtdr.agents.prefetch import EarlyCalls
from dtdr.data.calls import ToolCall
from dtdr.errors import InputError
from dtdr.net.http_requests import wait_for
from dtdr.predict import create
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.model import Model
from dtdr.rankers.random import RandomRetriever
from tests import whole_calls
from tests.helpers import RANKER_ONLY

pytestmark = pytest.mark.anyio
QUERY = 'Create an event "Final Demo" with Rosa and Kim'


@pytest.fixture
def anyio_backend():
    return "asyncio"


def predicted(tool, arguments=None, probability=0.95, unknown=()):
    return CallPrediction(tool, arguments or {}, {}, probability, unknown)


class Tools:
    """Notes the calls that are carried out; each waits until it is let go."""

    def __init__(self, *, is_open=True):
        self.made: list[tuple[str, dict]] = []
        self.cancelled: list[str] = []
        self.gate = asyncio.Event()
        self.failures: list[Exception] = []
        if is_open:
            self.gate.set()

    async def __call__(self, tool, arguments):
        self.made.append((tool, dict(arguments)))
        if self.failures:
            raise self.failures.pop(0)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(tool)
            raise
        return f"{tool} {sorted(arguments.values())}"


def early(tools):
    return EarlyCalls(tools, frozenset(("find", "read")).__contains__)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_exactly_the_predicted_call_is_handed_over_once():
    tools = Tools()
    calls = early(tools)
    calls.prepare([predicted("find", {"name": "Ann"})])
    await settle()
    assert await calls.take("find", {"name": "Bo"}) == (False, None)
    assert await calls.take("find", {"name": "Ann"}) == (True, "find ['Ann']")
    assert await calls.take("find", {"name": "Ann"}) == (False, None)
    assert tools.made == [("find", {"name": "Ann"})]
    assert (calls.counts.started, calls.counts.hits, calls.counts.wasted) == (1, 1, 0)


@pytest.mark.parametrize(
    "call",
    [
        predicted("write"),
        predicted("end"),
        predicted("find", probability=0.79),
        predicted("find", unknown=("name",)),
        predicted("find", {"of": {"$ref": "1"}}),
        predicted("find", {"of": {"$ref": "cut"}}),
        predicted("find", {"of": [{"$ref": "known", "path": "/no"}]}),
        predicted("find", {"of": {"$join": ["to ", {"$ref": "known"}]}}),
    ],
)
async def test_what_is_not_safe_sure_and_whole_is_not_made(call):
    tools = Tools()
    calls = early(tools)
    earlier = [
        ToolCall("1", "a"),
        ToolCall("cut", "a", output="x", output_length=9_000),
        ToolCall("known", "a", output={"id": 3}),
    ]
    calls.prepare([call], earlier)
    await settle()
    assert tools.made == []


async def test_references_become_what_earlier_calls_returned():
    tools = Tools()
    calls = early(tools)
    arguments = {
        "whole": {"$ref": "a"},
        "part": [{"$ref": "b", "path": "/id"}],
        "text": {"$join": ["to ", {"$ref": "a"}]},
    }
    earlier = [ToolCall("a", "x", output="Ann"), ToolCall("b", "x", output={"id": 3})]
    calls.prepare([predicted("find", arguments)], earlier)
    await settle()
    assert tools.made == [("find", {"whole": "Ann", "part": [3], "text": "to Ann"})]


async def test_a_call_under_way_is_waited_for_and_not_made_again(monkeypatch):
    monkeypatch.setattr(prefetch, "MAX_AGE", 0.02)
    tools = Tools(is_open=False)
    calls = early(tools)
    calls.prepare([predicted("find")])
    await asyncio.sleep(0.1)  # past the age, which counts for results
    taking = asyncio.ensure_future(calls.take("find", {}))
    await settle()
    tools.gate.set()
    assert await taking == (True, "find []")
    assert len(tools.made) == 1


async def test_what_is_no_longer_predicted_is_cancelled():
    tools = Tools(is_open=False)
    calls = early(tools)
    calls.prepare([predicted("read")])
    await settle()
    calls.prepare([predicted("find", {"name": "Ann"})])
    await settle()
    assert tools.cancelled == ["read"]
    assert calls.counts.wasted == 1


async def test_a_tool_that_is_not_safe_throws_away_what_was_read_before():
    tools = Tools()
    calls = early(tools)
    calls.prepare([predicted("read"), predicted("find")])
    await settle()
    assert (await calls.take("find", {}))[0]  # another safe one changes nothing
    assert await calls.take("write", {}) == (False, None)
    assert await calls.take("read", {}) == (False, None)
    assert (calls.counts.hits, calls.counts.wasted) == (1, 1)


async def test_a_call_that_was_thrown_away_is_not_made_early_again_and_the_budget_ends_it(
    monkeypatch,
):
    monkeypatch.setattr(prefetch, "BUDGET", 3)
    tools = Tools()
    calls = early(tools)
    for _ in range(3):
        calls.prepare([predicted("find")])
        await settle()
    assert len(tools.made) == 1
    names = [{"name": str(number)} for number in range(9)]
    for name in names:
        calls.prepare([predicted("find", name), predicted("read", name)])
        await settle()
    calls.discard()
    assert calls.counts.wasted == 3
    assert len(tools.made) == 3


async def test_an_old_result_and_a_failed_one_are_not_handed_over(monkeypatch):
    monkeypatch.setattr(prefetch, "MAX_AGE", 0.01)
    tools = Tools()
    calls = early(tools)
    calls.prepare([predicted("find")])
    await asyncio.sleep(0.05)
    assert await calls.take("find", {}) == (False, None)
    tools.failures = [OSError("no disk")]
    calls = early(tools)
    calls.prepare([predicted("read")])
    await settle()
    assert await calls.take("read", {}) == (False, None)
    assert calls.counts.wasted == 1


async def test_no_more_than_two_calls_are_made_at_a_time():
    tools = Tools(is_open=False)
    calls = early(tools)
    calls.prepare([predicted("find"), predicted("read"), predicted("find", {"name": "Ann"})])
    await settle()
    assert len(tools.made) == 2
    tools.gate.set()


class InOrder(RandomRetriever):
    """Ranks the calls of one plan first, one after the other."""

    plan = ("get_contact", "get_contact", "create_event")

    def _row(self, prepared, history):
        row = super()._row(prepared, history) * 0
        row[self._index[(*self.plan, "end")[min(len(history), 3)]]] = 1
        return row


@pytest.fixture(scope="module")
def model():
    return Model(InOrder()).fit(whole_calls.DEMONSTRATIONS, arguments=True, plans=False)


GOLD: list[tuple[str, dict[str, Any]]] = [
    ("get_contact", {"name": "Rosa"}),
    ("get_contact", {"name": "Kim"}),
    ("create_event", {"title": "Final Demo", "guests": ["contact Rosa", "contact Kim"]}),
]


@pytest.mark.parametrize("has_loop", [False, True])
def test_an_agent_finds_its_reads_done_and_other_calls_run_in_the_caller_s_thread(model, has_loop):
    """No call is made twice, and none early that is not on the list."""
    made = []
    early_call = threading.Event()

    def execute(tool, arguments):
        made.append((tool, dict(arguments), threading.current_thread().name))
        early_call.set()
        return f"contact {arguments.get('name')}"

    def call(fetch, *asked):
        if has_loop:

            async def work():
                return await asyncio.to_thread(fetch.call, *asked)

            return asyncio.run(work())
        return fetch.call(*asked)

    session = model.session(QUERY)
    with Prefetch(session, execute, ["get_contact"], min_probability=0.5) as fetch:
        for number, (tool, arguments) in enumerate(GOLD):
            fetch.start()
            if number < 2:  # the LLM answers once the early call is made
                assert early_call.wait(60)
                early_call.clear()
            assert call(fetch, tool, arguments) == f"contact {arguments.get('name')}"
    assert [(tool, arguments) for tool, arguments, _ in made] == GOLD
    assert (made[-1][-1] == "MainThread") is not has_loop
    assert (fetch.counts.hits, fetch.counts.wasted) == (2, 0)
    assert [call.output for call in session.run.calls][:2] == ["contact Rosa", "contact Kim"]
    fetch.close()


def test_errors_reach_the_agent_and_the_session_and_a_model_without_arguments_stops_nothing():
    found = create("random").fit(whole_calls.DEMONSTRATIONS, **RANKER_ONLY)

    def execute(tool, arguments):
        if tool == "send_mail":
            raise OSError("no disk")
        return {tool}  # not JSON

    session = found.session(QUERY)
    with Prefetch(session, execute, ["get_contact"]) as fetch:
        fetch.start()
        with pytest.raises(OSError, match="no disk"):
            fetch.call("send_mail", {"to": "Ann"})
        assert fetch.call("get_contact") == {"get_contact"}
        assert fetch.counts.started == 0
    first, second = session.run.calls
    assert (first.status, first.output) == ("error", "no disk")
    assert (second.tool, second.output) == ("get_contact", None)


def test_reads_that_hang_leave_the_event_loop_s_threads_free_for_requests(model):
    """These threads look up the names of hosts."""
    gate, waiting = threading.Event(), threading.Semaphore(0)

    def execute(tool, arguments):
        waiting.release()
        gate.wait(300)

    runs = [
        Prefetch(model.session(QUERY), execute, ["get_contact"], min_probability=0.5)
        for _ in range(40)
    ]
    try:
        for run in runs:
            run.start()
        assert all(waiting.acquire(timeout=60) for _ in runs)
        assert wait_for(asyncio.wait_for(asyncio.to_thread(lambda: True), 60))
    finally:
        gate.set()
        for run in runs:
            run.close()


def test_a_text_is_not_a_list_of_tools_and_a_probability_is_from_0_to_1(model):
    session = model.session(QUERY)
    with pytest.raises(InputError, match="must be a list, not 'get_contact'"):
        Prefetch(session, print, "get_contact")
    for number in (0, 1.1):
        with pytest.raises(InputError, match="must be above 0 and at most 1"):
            Prefetch(session, print, ["get_contact"], min_probability=number)
