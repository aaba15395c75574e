"""What guests and the front desk ask the hotel's agent for, and the calls that answer it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from examples.hotel.log_formats import Call

Guest = dict[str, Any]
Batches = list[list[Call]]


@dataclass(frozen=True)
class Request:
    """A request: its phrasings, held-out phrasings, calls and frequency."""

    phrasings: tuple[str, ...]
    other: tuple[str, ...]
    calls: Callable[[random.Random, Guest], Batches]
    weight: int = 2


def _find(guest: Guest) -> list[Call]:
    found = {"guest_id": guest["guest_id"], "email": guest["email"], "phone": guest["phone"]}
    return [Call("find_guest", {"name": guest["name"]}, found)]


def _booking(guest: Guest) -> list[Call]:
    listed = {"bookings": [{"booking_id": guest["booking"], "room": guest["room"]}]}
    return [Call("search_bookings", {"guest_id": guest["guest_id"]}, listed)]


def _tell(rng: random.Random, guest: Guest, subject: str) -> list[Call]:
    """Tell the guest: by mail if there is time, else by text message."""
    if rng.random() < 0.5:
        body = {"to": guest["email"], "subject": subject, "body": f"Dear {guest['name']}, done."}
        return [Call("send_email", body, {"sent": True})]
    return [Call("send_sms", {"phone": guest["phone"], "text": subject}, {"sent": True})]


def _book(rng: random.Random, guest: Guest) -> Batches:
    days = {"from": guest["day"], "to": guest["until"]}
    asked = Call("check_availability", {"type": guest["type"], **days}, {"rooms": []})
    if rng.random() < 0.25:  # nothing free: another type, or the waiting list
        other = Call("check_availability", {"type": "double", **days}, {"rooms": [{"id": "R-7"}]})
        room = "R-7"
        looked = [[*_find(guest), asked], [other]]
    else:
        room = f"R-{guest['room']}"
        asked.output = {"rooms": [{"id": room, "price": 140}]}
        looked = [[*_find(guest), asked]]
    booked = Call(
        "create_booking",
        {"guest_id": guest["guest_id"], "room_id": room, **days},
        {"booking_id": guest["booking"]},
    )
    return [*looked, [booked], _tell(rng, guest, "Your booking")]


def _check_in(rng: random.Random, guest: Guest) -> Batches:
    state = rng.choice(("clean", "clean", "dirty"))
    status = Call("get_room_status", {"room": guest["room"]}, {"room": guest["room"], "is": state})
    cleaning = [[Call("request_cleaning", {"room": guest["room"]}, {"minutes": 25})]]
    give = Call("assign_room", {"booking_id": guest["booking"], "room": guest["room"]}, "ok")
    key = Call("issue_key", {"room": guest["room"]}, {"key": "K-1"})
    return [
        _find(guest),
        _booking(guest),
        [status],
        *(cleaning if state == "dirty" else []),
        [give],
        [key],
    ]


def _change(rng: random.Random, guest: Guest) -> Batches:
    days = {"from": guest["day"], "to": guest["until"]}
    rooms = Call("check_availability", {"type": guest["type"], **days}, {"rooms": [{"id": "R-3"}]})
    if rng.random() < 0.25:
        rooms.output = {"rooms": []}
        rule = Call("search_policies", {"question": "no room on the new days"}, {"rule": "offer"})
        return [_find(guest), _booking(guest), [rooms], [rule], _tell(rng, guest, "New dates")]
    change = Call("change_booking", {"booking_id": guest["booking"], **days}, {"changed": True})
    return [_find(guest), _booking(guest), [rooms], [change], _tell(rng, guest, "New dates")]


def _cancel(rng: random.Random, guest: Guest) -> Batches:
    free = rng.random() < 0.6
    rule = Call("search_policies", {"question": "cancellation"}, {"free_of_charge": free})
    cancel = Call("cancel_booking", {"booking_id": guest["booking"]}, {"cancelled": True})
    plan = [_find(guest), _booking(guest), [rule], [cancel]]
    if free:
        bill = {"invoice_id": "IN-88213", "total": 280}
        plan.append([Call("get_invoice", {"booking_id": guest["booking"]}, bill)])
        paid = {"invoice_id": "IN-88213", "amount": 280}
        plan.append([Call("refund_payment", paid, {"refunded": True})])
    return [*plan, _tell(rng, guest, "Your cancellation")]


def _check_out(rng: random.Random, guest: Guest) -> Batches:
    bill = {"invoice_id": "IN-54021", "total": 420}
    invoice = Call("get_invoice", {"booking_id": guest["booking"]}, bill)
    charge = Call("charge_card", {"invoice_id": "IN-54021", "amount": 420}, {"paid": True})
    mail = {"to": guest["email"], "subject": "Your invoice", "body": "See IN-54021."}
    sent = Call("send_email", mail, {"sent": True})
    return [_find(guest), _booking(guest), [invoice], [charge], [sent]]


def _dispute(rng: random.Random, guest: Guest) -> Batches:
    bill = {"invoice_id": "IN-77310", "total": 95, "minibar": 35}
    invoice = Call("get_invoice", {"booking_id": guest["booking"]}, bill)
    rule = Call("search_policies", {"question": "wrong minibar charge"}, {"refund": True})
    paid = {"invoice_id": "IN-77310", "amount": 35}
    back = Call("refund_payment", paid, {"refunded": True})
    return [_find(guest), _booking(guest), [invoice], [rule], [back], _tell(rng, guest, "Refund")]


def _room(tool: str, result: Any, *names: str) -> Callable[[random.Random, Guest], Batches]:
    """One call about a room, without looking anything up."""

    def calls(rng: random.Random, guest: Guest) -> Batches:
        given = {"room": guest["room"], **{name: guest[name] for name in names}}
        return [[Call(tool, given, result)]]

    return calls


def _repair(rng: random.Random, guest: Guest) -> Batches:
    report = {"room": guest["room"], "problem": guest["problem"]}
    fix = Call("request_maintenance", report, {"ticket": "T-4711"})
    status = {"room": guest["room"], "is": rng.choice(("clean", "out of order"))}
    look = Call("get_room_status", {"room": guest["room"]}, status)
    if status["is"] == "out of order":
        move = Call("check_availability", {"type": "double"}, {"rooms": [{"id": "R-12"}]})
        give = Call("assign_room", {"booking_id": guest["booking"], "room": "R-12"}, "ok")
        return [[fix, look], [move], [give], [Call("issue_key", {"room": "R-12"}, {"key": "K-2"})]]
    return [[fix, look]]


def _food(rng: random.Random, guest: Guest) -> Batches:
    order = {"room": guest["room"], "items": guest["dish"]}
    menu = Call("list_menu", {}, {"dishes": [guest["dish"]]})
    return [[menu], [Call("order_room_service", order, {"minutes": 30})]]


def _table(rng: random.Random, guest: Guest) -> Batches:
    wish = {"day": guest["day"], "time": guest["time"], "people": str(guest["people"])}
    find = Call("find_table", wish, {"tables": ["TB-1"]})
    if rng.random() < 0.2:
        find.output = {"tables": []}
        later = Call("find_table", {**wish, "time": "21:30"}, {"tables": ["TB-1"]})
        extra = [[later]]
    else:
        extra = []
    book = Call("book_table", {"table_id": "TB-1", "name": guest["name"]}, {"reserved": True})
    return [[find], *extra, [book]]


def _spa(rng: random.Random, guest: Guest) -> Batches:
    slots = Call("list_spa_times", {"day": guest["day"]}, {"slots": ["SL-20", "SL-21"]})
    given = {"slot_id": "SL-20", "guest_id": guest["guest_id"]}
    return [[*_find(guest), slots], [Call("book_spa", given, {"reserved": True})]]


def _taxi(rng: random.Random, guest: Guest) -> Batches:
    taxi = {"time": guest["time"], "destination": guest["place"]}
    return [[Call("order_taxi", taxi, {"car": "X-12"})]]


def _evening(rng: random.Random, guest: Guest) -> Batches:
    events = Call("list_events", {"day": guest["day"]}, {"events": [{"event_id": "EV-331"}]})
    weather = Call("get_weather", {"day": guest["day"]}, {"forecast": "rain"})
    given = {"event_id": "EV-331", "count": str(guest["people"])}
    return [[events, weather], [Call("buy_tickets", given, {"tickets": guest["people"]})]]


def _weather(rng: random.Random, guest: Guest) -> Batches:
    return [[Call("get_weather", {"day": guest["day"]}, {"forecast": rng.choice(("sun", "rain"))})]]


def _rules(rng: random.Random, guest: Guest) -> Batches:
    question = {"question": rng.choice(("pets", "breakfast hours", "late check-out", "parking"))}
    return [[Call("search_policies", question, {"rule": "ask the desk"})]]


REQUESTS = (
    Request(
        (
            "Book a {type} for {name} from {day} to {until}.",
            "{name} needs a {type}, arriving {day} and leaving {until}.",
            "Can you reserve a {type} for {name}, {day} until {until}?",
            "New reservation: {name}, {type}, {day} to {until}.",
            "Bitte ein Zimmer ({type}) für {name} buchen, {day} bis {until}.",
        ),
        (
            "Put {name} down for a {type}, staying {day} through {until}.",
            "We have got {name} on the line who would like to stay with us, {type}, {day}-{until}.",
        ),
        _book,
        4,
    ),
    Request(
        (
            "Check in {name}.",
            "{name} is at the desk and wants to check in.",
            "Please check {name} in and give them a key.",
            "{name} has arrived, get the room ready.",
        ),
        (
            "{name} just walked in, set them up with their room.",
            "A Mr or Ms {name} is standing here with luggage, hand over what they need.",
        ),
        _check_in,
        4,
    ),
    Request(
        (
            "Move the stay of {name} to {day} until {until}.",
            "{name} wants to change the dates to {day} - {until}.",
            "Change the booking of {name}: now {day} to {until}.",
        ),
        (
            "{name} would rather come {day} and go home {until}.",
            "Can {name} shift their trip? {day} through {until} suits them better.",
        ),
        _change,
        3,
    ),
    Request(
        (
            "Cancel the booking of {name}.",
            "{name} is not coming, cancel the reservation.",
            "Please cancel {name}'s stay and refund what is due.",
        ),
        (
            "{name} had to call it off, take the reservation out of the books.",
            "Scrap {name}'s trip and see what they get back.",
        ),
        _cancel,
        3,
    ),
    Request(
        (
            "{name} is checking out, send the invoice.",
            "Check out {name} and charge the card.",
            "Bill {name} and mail the invoice.",
        ),
        (
            "{name} is leaving, settle everything and let them have the receipt.",
            "Close the account of {name}, paper trail to their inbox.",
        ),
        _check_out,
        3,
    ),
    Request(
        (
            "{name} says the minibar charge is wrong.",
            "There is a wrong charge on the bill of {name}, please correct it.",
            "{name} complains about the invoice, refund the minibar.",
        ),
        (
            "{name} swears they never touched the fridge, make it right.",
            "The sum {name} paid does not add up, fix it.",
        ),
        _dispute,
    ),
    Request(
        (
            "Clean room {room}.",
            "Room {room} needs housekeeping.",
            "Can somebody clean {room} before noon?",
        ),
        ("{room} is a mess, have it tidied.", "Get someone with a mop up to {room}."),
        _room("request_cleaning", {"minutes": 30}),
    ),
    Request(
        (
            "The {problem} in room {room} is broken.",
            "Room {room} reports a problem with the {problem}.",
            "{problem} does not work in {room}, send a technician.",
        ),
        ("Somebody look at the {problem} up in {room}.", "{room}: {problem} acting up again."),
        _repair,
        3,
    ),
    Request(
        (
            "More towels to room {room}.",
            "Please bring two pillows to {room}.",
            "Room {room} asks for a crib.",
        ),
        ("{room} ran out of towels.", "Guests in {room} would like something softer to sleep on."),
        _room("bring_items", {"minutes": 10}),
    ),
    Request(
        (
            "Wake-up call for room {room} at {time}.",
            "Wake room {room} at {time}.",
            "Set an alarm for {room}, {time}.",
        ),
        ("{room} must not oversleep, ring them at {time}.", "Give {room} a buzz at {time}."),
        _room("set_wake_up_call", "ok", "time"),
    ),
    Request(
        (
            "Room {room} would like {dish}.",
            "Order {dish} to room {room}.",
            "Room service: {dish} for {room}.",
        ),
        ("They are hungry in {room}: {dish}.", "Send up {dish} to {room}."),
        _food,
        3,
    ),
    Request(
        (
            "Reserve a table for {people} on {day} at {time}, name {name}.",
            "Dinner for {people} at {time} on {day} for {name}.",
            "{name} would like a table, {people} people, {day} {time}.",
        ),
        (
            "{name} wants to eat with us {day}, party of {people}, around {time}.",
            "Save {people} seats in the restaurant, {day} {time}, under {name}.",
        ),
        _table,
        3,
    ),
    Request(
        (
            "Book a massage for {name} on {day}.",
            "{name} wants a spa treatment {day}.",
            "Is the spa free on {day}? Book it for {name}.",
        ),
        ("{name} has a sore back, find them an hour {day}.", "Pamper {name} {day}."),
        _spa,
    ),
    Request(
        (
            "Order a taxi to {place} at {time}.",
            "Taxi for {time} to {place}.",
            "A guest needs a cab to {place}, {time}.",
        ),
        ("Somebody has to be at {place}, pick-up {time}.", "Get wheels for {time}, {place}."),
        _taxi,
    ),
    Request(
        (
            "What is on in town on {day}? Buy {people} tickets.",
            "{people} tickets for a show on {day}, please.",
            "Find a concert on {day} and get {people} tickets.",
        ),
        ("We are bored {day}, {people} of us, arrange something.", "Culture for {people} {day}."),
        _evening,
    ),
    Request(
        ("What will the weather be on {day}?", "Weather on {day}?", "Will it rain on {day}?"),
        ("Do I need an umbrella {day}?", "How is it looking outside {day}?"),
        _weather,
        1,
    ),
    Request(
        (
            "Are pets allowed?",
            "What are the breakfast hours?",
            "Can a guest check out late?",
            "Is there parking?",
        ),
        ("May I bring my dog?", "Until when can I sleep in and still eat?"),
        _rules,
    ),
)

SMALL_TALK = (
    ("Thanks, that is all.", "My pleasure."),
    ("You are great!", "Thank you."),
    ("ok", "Anything else?"),
    ("Who are you?", "I am the assistant of the front desk."),
)
