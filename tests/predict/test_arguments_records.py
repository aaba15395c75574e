"""Values of one call belong together: records, walks over them, and nothing of other runs."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.run import Run
from dtdr.logs import open_demonstrations
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.arguments.candidates import CallCandidates
from dtdr.predict.arguments.constants import Constants, group_hash
from dtdr.predict.arguments.earlier_parts import MAX_PARTS
from dtdr.predict.arguments.state import RunState, is_exact, iter_calls
from dtdr.predict.arguments.values import short_hash
from tests.whole_calls import ADJECTIVES, NAMES, NOUNS, demonstrations

HOTEL = Path(__file__).resolve().parents[2] / "examples" / "hotel" / "openai-chat.jsonl"
CITIES = ("ROM", "OSL", "LIM", "BER", "KYI", "CAI", "QUI", "TUN", "DEL", "PER")


def flight(number):
    return {
        "number": f"F{1000 + 37 * number % 900}",
        "from": CITIES[number % 10],
        "to": CITIES[(3 * number + 1) % 10],
        "day": f"2031-0{1 + number % 9}-1{number % 10}",
    }


def booking(number):
    return {"booking_id": f"B{5000 + number}", "flights": [flight(number + at) for at in range(3)]}


def rebook(number, output=None):
    """Look a booking up, search each of its flights, and book all of them again."""
    held = output or booking(11 * number)
    calls = [ToolCall("1", "get_booking", {"booking_id": held["booking_id"]}, held)]
    for place, one in enumerate(held["flights"][: 1 + number % 3]):
        given = {"origin": one["from"], "destination": one["to"], "date": one["day"]}
        calls.append(ToolCall(str(2 + place), "search", given, []))
    again = [{"flight_number": one["number"], "date": one["day"]} for one in held["flights"]]
    calls.append(ToolCall("9", "rebook", {"booking_id": held["booking_id"], "flights": again}))
    return f"Please rebook {held['booking_id']} for {NAMES[number % 20]}", *calls


@pytest.fixture(scope="module")
def flights():
    return ArgumentModel.fit(demonstrations(rebook))


def begun(held):
    run = Run(f"Please rebook {held['booking_id']} for Wanda")
    run.call("get_booking", {"booking_id": held["booking_id"]}, output=held)
    return run


def test_the_fields_of_a_call_come_from_one_record_and_the_next_call_from_the_next(flights):
    held = booking(7003)
    run = begun(held)
    for one in held["flights"]:
        wanted = {"origin": one["from"], "destination": one["to"], "date": one["day"]}
        assert flights.fill("search", run).arguments == wanted
        run.call("search", wanted, output=[])


def test_a_list_of_objects_takes_the_records_of_an_output_field_by_field(flights):
    held = booking(7003)
    call = flights.fill("rebook", begun(held))
    assert call.arguments["booking_id"] == held["booking_id"]
    assert call.arguments["flights"] == [
        {"flight_number": one["number"], "date": one["day"]} for one in held["flights"]
    ]
    paths = [source.path for source in call.sources["flights"]]
    assert paths == [f"/flights/{place}/{name}" for place in range(3) for name in ("number", "day")]
    assert call.unknown == ()


def tour(number):
    """Visits two of five people one after the other, from the one that the user names last."""
    draw = random.Random(number)
    names, start = draw.sample(NAMES, 5), draw.randrange(4)
    far = "with all of the cups that were in one of the boxes on the shelf"
    ways = "; ".join(f"visit {name} {far[: draw.randint(30, 60)]}" for name in names)
    calls = [ToolCall(name, "visit", {"name": name}) for name in names[start : start + 2]]
    return f"{ways}. Start at {names[start]}", *calls


def test_the_next_call_takes_the_next_clause():
    runs = demonstrations(tour)
    model = ArgumentModel.fit(runs[:50])
    steps = iter_calls(runs[50:])
    assert all(is_exact(model.fill(call.tool, state), call, state) for state, call in steps)


def join(number):
    """Joins the one of two events that exists; none of its words says so."""
    draw = random.Random(number)
    first, last = draw.randrange(6), draw.randrange(3)
    ends = NOUNS[2 * last + first % 2], NOUNS[2 * last + 1 - first % 2]
    titles = [f"{ADJECTIVES[first]} {end}" for end in ends]
    return f"join {' or '.join(draw.sample(titles, 2))}", ToolCall(
        "1", "join", {"title": titles[0]}
    )


def test_a_slot_prefers_pieces_of_text_that_it_took_in_other_groups():
    runs = demonstrations(join, 90)
    model = ArgumentModel.fit(runs[:75])
    steps = iter_calls(runs[75:])
    assert all(is_exact(model.fill(call.tool, state), call, state) for state, call in steps)

    (alone,) = demonstrations(lambda _: ("Go", ToolCall("1", "join", {"title": "Ski Trip"})), 1)
    constants = Constants.fit([alone])
    hashes = np.array([short_hash("ski trip"), short_hash("else")])
    assert constants.is_taken("join", "title", hashes, None).tolist() == [True, False]
    assert not constants.is_taken("join", "title", hashes, group_hash(alone)).any()
    assert not constants.is_taken("leave", "title", hashes, None).any()


def test_a_record_is_found_by_what_the_query_says_of_it():
    def cancel(number):
        names = [NAMES[(number + 3 * at) % 20] for at in range(4)]
        held = [{"id": f"K{900 + 7 * number + at}", "guest": name} for at, name in enumerate(names)]
        wanted = number % 4
        return (
            f"Cancel the table of {names[wanted]}",
            ToolCall("1", "list_tables", {}, {"tables": held}),
            ToolCall("2", "cancel_table", {"table": held[wanted]["id"]}),
        )

    model = ArgumentModel.fit(demonstrations(cancel))
    run = Run("Cancel the table of Wanda")
    tables = [{"id": f"K{place}77", "guest": name} for place, name in enumerate(("Xenia", "Wanda"))]
    run.call("list_tables", output={"tables": tables})
    assert model.fill("cancel_table", run).arguments == {"table": "K177"}


def test_a_call_that_failed_is_made_again_with_parts_of_its_arguments():
    def retry(number):
        names = NAMES[number % 20], NAMES[(number + 3) % 20]
        guests = [{"name": name, "age": 20 + number + len(name)} for name in names]
        given = {"guests": guests, "room": f"R{number}"}
        return (
            "Book a room for us",
            ToolCall("1", "book", given, "Error: no room", "error"),
            ToolCall("2", "list_rooms", {}, {"free": f"R{number + 1}"}),
            ToolCall("3", "book", given | {"room": f"R{number + 1}"}),
        )

    model = ArgumentModel.fit(demonstrations(retry))
    run = Run("Book a room for us")
    guests = [{"name": "Wanda", "age": 91}, {"name": "Yves", "age": 92}]
    run.call("book", {"guests": guests, "room": "R8"}, output="Error: no room", status="error")
    run.call("list_rooms", output={"free": "R9"})
    call = model.fill("book", run)
    assert call.arguments == {"guests": guests, "room": "R9"}
    assert {source.kind for source in call.sources["guests"]} == {"argument"}


# -- nothing invented ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hotel():
    return ArgumentModel.fit(list(open_demonstrations([HOTEL])))


def test_no_value_of_another_guest_is_proposed(hotel):
    run = Run("Charge Wanda Zorn for the extra night and mail her the receipt")
    guest = {"guest_id": "G-9901", "email": "wanda@z.example", "phone": "+1-555-7777"}
    run.call("find_guest", {"name": "Wanda Zorn"}, output=guest)
    mail = hotel.fill("send_email", run)
    assert mail.arguments["to"] == "wanda@z.example"
    assert "body" in mail.unknown or "Wanda" in mail.arguments["body"]
    charge = hotel.fill("charge_card", run)
    assert "amount" in charge.unknown
    assert charge.probability == 0
    run.call("get_invoice", {"booking_id": "BK-1"})
    assert "amount" in hotel.fill("charge_card", run).unknown


def test_constants_of_a_log_hold_no_names_dates_or_amounts(hotel):
    slots = hotel.constants.slots.values()
    kept = [str(value) for slot in slots for _, value in slot.values]
    calls = [call for item in open_demonstrations([HOTEL]) for call in item.plan.calls]
    names = [call.arguments.get("name") for call in calls if call.tool == "find_guest"]
    guests = {name for name in names if isinstance(name, str)}
    assert len(guests) > 10
    assert not [value for value in kept if any(guest in value for guest in guests)]
    assert "420" not in kept


def counted(value, output=None, query="Go", runs=6):
    """The constants of a parameter that took a value in several runs."""
    calls = (ToolCall("1", "look", {}, output), ToolCall("2", "tell", {"it": value}))
    slot = Constants.fit(demonstrations(lambda _: (query, *calls), runs)).slot("tell", "it")
    return [one for _, one in slot.values]


def test_what_an_output_or_the_user_gave_is_no_constant():
    assert counted("economy") == ["economy"]
    assert counted(10) == [10]
    assert counted(420, {"price": 420}) == []
    assert counted("economy", {"cabin": "economy"}) == []
    assert counted("Dear Emi Ruiz, done.", {"guest": "Emi Ruiz"}) == []
    assert counted("Dear Emi Ruiz, done.", query="Mail Emi") == []
    assert counted("2031-05-20") == []
    assert counted("A77", query="Use a77") == []


def test_a_value_that_few_of_many_runs_share_is_no_constant():
    values = ["shared"] * 4 + [""] * 3 + [f"value of run {number}" for number in range(30)]
    runs = demonstrations(lambda n: ("Go", ToolCall("1", "tell", {"it": values[n]})), len(values))
    assert Constants.fit(runs).slot("tell", "it").values == (("", ""),)  # says nothing of anybody


# -- bounds --------------------------------------------------------------------------------------


def nested(depth):
    value: dict[str, Any] = {"number": "F1234", "day": "2031-05-20"}
    for _ in range(depth):
        value = {"inner": [value]}
    return value


@pytest.mark.parametrize(
    "output",
    [
        {"flights": [flight(number) for number in range(10_000)]},
        nested(100),
        json.dumps([[flight(1)]] * 2_000),
        {"flights": {"$ref": "1"}},
        [{"$ref": "1", "path": "/flights"}, {"$ref": "2"}],
    ],
)
def test_huge_deep_and_cyclic_outputs_offer_a_bounded_number_of_parts(flights, output):
    run = begun(booking(7003))
    unread = {"origin": {"$ref": "2"}, "date": {"$ref": "2", "path": "/x"}}
    run.call("search", unread, output=output)
    state = RunState.from_run(run)
    call = flights.fill("rebook", state)
    assert 0 <= call.probability <= 1
    found = CallCandidates(state, "rebook", flights.constants).find("flights/*/date")
    assert 0 < len(found) - found.first_part <= MAX_PARTS
