"""Learning from the whole run: what calls returned, their order, and what came before."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtdr import Demonstration, Plan, ToolCall, load
from dtdr.data.calls import END
from dtdr.data.demonstrations import Message
from dtdr.predict import create
from dtdr.rankers.dtdr_f.observations import RunReader
from dtdr.rankers.dtdr_f.outcomes import NO_OUTCOME, STATUSES
from tests.helpers import RANKER_ONLY

CITIES = ("Rome", "Oslo", "Lima", "Cairo", "Perth", "Quito", "Turin", "Delft")
ROOMS = {"rooms": [{"room": "14B", "price": 90}], "total": 1}
NO_ROOMS = {"rooms": [], "total": 0}


def hotel_log(runs: int) -> list[Demonstration]:
    """A search; then, if there is a room, it is booked and mailed, else the next dates are tried.

    A second turn cancels or pays, as the agent offered last.
    """
    log = []
    for number in range(runs):
        has_room, city = number % 2 == 0, CITIES[number % len(CITIES)]
        calls = [ToolCall("1", "search", {"city": city}, ROOMS if has_room else NO_ROOMS, step=1)]
        if has_room:
            calls.append(ToolCall("2", "book", {"room": "14B"}, {"ok": True}, "ok", step=2))
            calls.append(ToolCall("3", "mail", {"text": "booked"}, "sent", "ok", step=3))
        else:
            calls.append(ToolCall("2", "try_next_dates", {"city": city}, "noted", "ok", step=2))
        query = f"A hotel in {city} please"
        log.append(Demonstration(f"{number}-1", query, Plan(tuple(calls)), group=f"{number}"))
        offers_payment = number % 3 == 0
        offer = "Shall I charge your card now?" if offers_payment else "Shall I withdraw the stay?"
        tool = "pay" if offers_payment else "cancel"
        before: tuple[Message | ToolCall, ...] = (
            Message("user", query),
            *calls,
            Message("assistant", offer),
        )
        log.append(
            Demonstration(
                f"{number}-2",
                "Yes, go ahead",
                Plan((ToolCall("9", tool, {}, {"done": True}, "ok", step=5),)),
                group=f"{number}",
                before=before,
            )
        )
    return log


def names_only(item: Demonstration) -> Demonstration:
    calls = tuple(ToolCall(call.id, call.tool, call.arguments) for call in item.plan.calls)
    return replace(item, plan=Plan(calls), before=())


LOG = hotel_log(48)
CONTEXT = LOG[1].before[:-1]


@pytest.fixture(scope="module")
def fitted():
    return create("dtdr-f").fit(LOG, **RANKER_ONLY)


@pytest.fixture
def hotel(fitted):
    return copy(fitted)  # changes replace what it holds


def probabilities(model):
    told = [
        model.rank("Yes, go ahead", before=[*CONTEXT, Message("assistant", "I could charge")]),
        model.rank("A hotel in Bonn", [{"tool": "search", "output": ROOMS}]),
    ]
    return np.concatenate([ranking.probabilities for ranking in told])


def test_what_a_call_returned_decides_what_comes_next(hotel):
    session = hotel.session("A hotel in Bonn please").call("search", output=ROOMS)
    assert session.rank().best == "book"
    session = hotel.session("A hotel in Bonn please").call("search", output=NO_ROOMS)
    assert session.rank().best == "try_next_dates"


@pytest.mark.parametrize(
    ("offer", "tool"),
    [("Shall I charge your card now?", "pay"), ("Shall I withdraw the stay?", "cancel")],
)
def test_what_the_agent_said_last_decides_what_a_yes_means(hotel, offer, tool):
    before = [*CONTEXT, Message("assistant", offer)]
    assert hotel.rank("Yes, go ahead", before=before).best == tool


def test_a_log_with_an_order_is_predicted_in_it(hotel):
    session = hotel.session("A hotel in Bonn please")
    order = []
    for output in (ROOMS, {"ok": True}, "sent", None):
        order.append(session.rank().best)
        session.call(order[-1], output=output)
    assert order == ["search", "book", "mail", END]


@pytest.mark.parametrize(
    "change",
    [
        lambda item: replace(item, before=item.before[1:]),
        lambda item: replace(
            item, plan=Plan(tuple(replace(call, output="else") for call in item.plan.calls))
        ),
        lambda item: replace(
            item, plan=Plan(tuple(replace(call, step=7) for call in item.plan.calls))
        ),
    ],
    ids=["before", "output", "step"],
)
def test_the_hash_of_what_was_learned_tells_runs_apart(change):
    def digest(log):
        return create("dr").fit(log, **RANKER_ONLY).training_.sha256

    assert digest(LOG[:2]) == digest(LOG[:2]) != digest([LOG[0], change(LOG[1])])


def test_told_names_only_it_ranks_too(hotel):
    ranking = hotel.rank("A hotel in Bonn please", ["search"])
    assert set(ranking.tools[:2]) == {"book", "try_next_dates"}


def test_a_saved_model_ranks_alike_and_learns_on(hotel, tmp_path):
    hotel.update(hotel_log(20))
    hotel.rename_tool("pay", "charge")
    hotel.remove_tools(["mail"])
    hotel.save(tmp_path / "model")
    loaded: Any = load(tmp_path / "model")
    assert (probabilities(loaded) == probabilities(hotel)).all()
    before = [*CONTEXT, Message("assistant", "Shall I charge your card now?")]
    assert loaded.rank("Yes, go ahead", before=before).best == "charge"
    assert loaded.update(hotel_log(20)) == 40
    assert {"pay", "mail"} < set(loaded.vocabulary)


def test_no_text_of_a_run_is_saved(tmp_path):
    secret = "Xylophonist"
    log = [
        replace(
            item,
            before=(Message("user", f"I am {secret}"), Message("assistant", f"Hello {secret}")),
            plan=Plan(
                tuple(
                    replace(call, arguments={"who": secret}, output={"name": secret})
                    for call in item.plan.calls
                )
            ),
        )
        for item in hotel_log(8)
    ]
    create("dtdr-f").fit(log, **RANKER_ONLY).save(tmp_path / "model")
    for path in (tmp_path / "model").iterdir():
        assert secret.lower().encode() not in path.read_bytes().lower()


def rooms_log(runs: int) -> list[Demonstration]:
    """A search, and each room that it found is shown."""
    log = []
    for number in range(runs):
        rooms = [f"{number}-{place}" for place in range(number % 4)]
        calls = [ToolCall("1", "search", {"city": CITIES[number % 8]}, {"rooms": rooms}, step=1)]
        for place, room in enumerate(rooms, 2):
            calls.append(ToolCall(str(place), "show", {"room": room}, {"view": "sea"}, step=place))
        log.append(Demonstration(str(number), "Show me rooms", Plan(tuple(calls))))
    return log


def test_a_tool_is_called_until_nothing_of_a_list_is_left():
    model = create("dtdr-f").fit(rooms_log(48), **RANKER_ONLY)
    session = model.session("Show me rooms")
    session.call("search", output={"rooms": ["one-1", "two-2", "three-3"]})
    for room in ("one-1", "two-2", "three-3"):
        assert session.rank().best == "show"
        session.call("show", {"room": room}, output={"view": "sea"})
    assert session.rank().best == END


DEEP: list = []
for _ in range(5_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("output", "status"),
    [
        (None, "unknown"),
        ([], "empty"),
        ("\ud800 half", "ok"),
        ({"\ud800": "\udfff"}, "ok"),
        ("a" * 1_000_000, "ok"),
        (["word"] * 100_000, "ok"),
        (DEEP, "ok"),
        (float("nan"), "ok"),
        (10**30, "ok"),
    ],
    ids=["none", "list", "half", "keys", "long", "many", "deep", "nan", "big"],
)
def test_any_output_can_be_read(output, status):
    if output is DEEP:
        output = {"deep": DEEP, "x": 1}
    outcome = RunReader().read(ToolCall("1", "search", {}, output))
    assert STATUSES[outcome.status] == status
    assert len(outcome.words) <= 2_000
    assert (outcome is NO_OUTCOME) == (output is None)
