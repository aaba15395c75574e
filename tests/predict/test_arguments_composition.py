"""Values that are put together: objects and lists of parts; values by name."""

import json

import pytest

import dtdr
from dtdr.cli import run as run_command
from dtdr.data.calls import ToolCall
from dtdr.data.run import Run
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.arguments.constants import Constants
from tests.whole_calls import NAMES, NOUNS, demonstrations, pick

CITIES = ("Rome", "Oslo", "Lima", "Bern", "Kyiv", "Cairo", "Quito", "Tunis", "Delhi", "Perth")


def book(number):
    name, other = pick(NAMES, number), pick(NAMES, number, 3)
    who = [name] if number % 3 or name == other else [name, other]
    place = pick(CITIES, number, 7)
    guests = [{"name": one, "kind": "adult"} for one in who]
    trip = {"city": place, "stay": {"room": "double"}}
    call = ToolCall("1", "book", {"guests": guests, "trip": trip})
    return f"Book a trip to {place} for {' and '.join(who)}", call


@pytest.fixture(scope="module")
def bookings():
    return ArgumentModel.fit(demonstrations(book, 90))


def test_objects_are_filled_field_by_field_and_a_list_has_one_for_each_that_is_named(bookings):
    query = "Book a trip to Paris for Wanda"
    call = bookings.fill("book", Run(query))
    assert call.arguments["trip"] == {"city": "Paris", "stay": {"room": "double"}}
    assert {source.kind for source in call.sources["trip"]} == {"query", "constant"}
    assert call.arguments["guests"] == [{"name": "Wanda", "kind": "adult"}]
    call = bookings.fill("book", Run(f"{query} and Yves"))
    names = [guest.pop("name") for guest in call.arguments["guests"]]
    assert (names, call.arguments["guests"]) == (["Wanda", "Yves"], [{"kind": "adult"}] * 2)
    config = json.loads(json.dumps(bookings.config()))
    again = ArgumentModel.restore(config, bookings.arrays()).fill("book", Run(f"{query} and Yves"))
    assert again.sources == call.sources


def test_names_of_fields_are_kept_as_constants_are():
    rare = demonstrations(book, 2)
    assert Constants.fit(rare).slot("book", "trip").fields == ()
    every = Constants.fit(demonstrations(book))
    assert every.slot("book", "trip").fields == ("city", "stay")
    assert every.without(["book"]).slots == {}
    none = ArgumentModel.fit(demonstrations(book), value_runs=0)
    assert none.fill("book", Run("Book a trip to Paris for Wanda")).unknown == ("guests", "trip")
    assert "double" not in json.dumps(none.config())


# -- values by name --------------------------------------------------------------------------------


def search(number):
    tool = ("search_news", "search_mail", "search_files")[number % 3]
    arguments = {"q": pick(NOUNS, number), "lang": ("en", "de")[number % 2]}
    language = ("English", "German")[number % 2]
    return f"Search for {arguments['q']} in {language}", ToolCall("1", tool, arguments)


def test_inspect_shows_fields_and_values_by_name(tmp_path, capsys):
    runs = demonstrations(book, 12) + demonstrations(search, 12)
    dtdr.fit(runs, ranker="dr", arguments=True).save(tmp_path / "model")
    assert run_command(["inspect", str(tmp_path / "model")]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["book", "trip", "{city,", "stay}"] in shown
    assert ["(any", "tool)", "lang", '"de",', '"en"'] in shown


def test_values_are_shared_by_parameters_of_a_name():
    # The last tool is given one of the values twice only.
    runs = demonstrations(search, 30)
    rare = [item for item in runs if item.plan.calls[0].tool == "search_files"]
    kept = [item for item in runs if item not in rare] + rare[:2]
    constants = Constants.fit(kept)
    assert constants.slot("search_files", "lang").values == ()
    assert {value for _, value in constants.slot("", "lang").values} == {"en", "de"}
    model = ArgumentModel.fit(kept)
    call = model.fill("search_files", Run("Search for Yoga in German"))
    assert call.arguments["lang"] == "de"
    (source,) = call.sources["lang"]
    assert source.kind == "constant"
    # Which of the tools gave a value is not known: all are forgotten with one of them.
    assert constants.without(["search_mail"]).slot("", "lang").values == ()
    none = Constants.fit(kept, min_runs=0).slots
    assert not any(slot.values for slot in none.values())
