"""Which value each argument takes: learned, with its source, and never made up."""

import datetime
import itertools
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtdr
from dtdr.cli import run as run_command
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.outputs import resolve_pointer
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError, ModelError
from dtdr.predict import create
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.arguments.confidence import Confidence
from dtdr.predict.arguments.constants import Constants
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.arguments.state import RunState, is_exact, iter_calls
from dtdr.predict.arguments.texts import tokenize
from dtdr.predict.arguments.values import canonical, convert, read_date, read_output
from tests.helpers import change_config
from tests.whole_calls import ADJECTIVES, DEMONSTRATIONS, NAMES, TOOLS, demonstrations

LOOK_UP = 'Look up Wanda and send them a mail with the subject "Ski Trip"'
INVITE = 'Create an event "Ski Trip" with Wanda and Yusuf'


@pytest.fixture(scope="module")
def model():
    return ArgumentModel.fit(DEMONSTRATIONS, TOOLS)


def after_look_up(output=None):
    run = Run(LOOK_UP)
    run.call("find_user", {"name": "Wanda"}, output=output)
    return run


def test_each_argument_is_filled_with_its_source(model):
    run = Run(LOOK_UP)
    call = model.fill("find_user", run)
    assert call.arguments == {"name": "Wanda"}
    (source,) = call.sources["name"]
    assert source.kind == "query"
    first, last = source.span
    assert run.query[first:last] == "Wanda"

    run.call("find_user", {"name": "Wanda"}, output={"id": 77, "mail": "wanda@y.org"})
    call = model.fill("send_mail", run)
    assert call.arguments == {"to": "wanda@y.org", "subject": "Ski Trip", "folder": "Outbox"}
    record = json.loads(json.dumps(call.to_dict()))
    assert record["sources"]["to"] == [{"kind": "output", "call": "1", "path": "/mail"}]
    assert CallPrediction.from_dict(record).sources == call.sources
    kinds = [source.kind for sources in call.sources.values() for source in sources]
    assert (kinds, call.unknown) == (["output", "query", "constant"], ())


def test_a_list_takes_the_outputs_of_several_calls(model):
    run = Run(INVITE)
    names = []
    for _ in range(2):
        call = model.fill("get_contact", run)
        names.append(call.arguments["name"])
        run.call("get_contact", call.arguments)
    assert names == ["Wanda", "Yusuf"]
    call = model.fill("create_event", run)
    assert call.arguments == {"title": "Ski Trip", "guests": [{"$ref": "1"}, {"$ref": "2"}]}
    assert [source.call for source in call.sources["guests"]] == ["1", "2"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ('Text Bo "Call me!" now', "Call me!"),
        ('Text Bo "Where? I wait; come." now', "Where? I wait; come."),
        ("Text Bo 'it's late, isn't it' now", "it's late, isn't it"),
        ('Text Bo "I am late." now', "I am late"),
        ('Text Bo "I am late." now', "I am late."),
        ('Text Bo "the long one," then stop', "the long one"),
    ],
)
def test_a_quotation_is_a_candidate_whole(query, wanted):
    texts = RunState(query).texts
    assert canonical(wanted) in texts.places
    assert wanted in texts.values


def confidence_of(exact):
    """As many calls as there are answers, each more probable than the one before."""
    return Confidence.fit([number / len(exact) for number in range(len(exact))], exact)


def test_a_threshold_says_from_where_on_calls_are_exact():
    exact = [number >= 300 or (number >= 100 and number % 2 == 0) for number in range(400)]
    confidence = confidence_of(exact)
    half, most = confidence.threshold(0.6), confidence.threshold(0.95)
    assert 0 < half < most <= 1
    for least, share in ((half, 0.6), (most, 0.95)):
        sure = [confidence.probability(number / 400) >= least for number in range(400)]
        chosen = list(itertools.compress(exact, sure))
        assert sum(chosen) / len(chosen) >= share
    assert confidence_of([False] * 400).threshold(0.5) is None
    assert confidence_of([True] * 19).threshold(0.5) is None  # too few to tell
    assert confidence_of([number > 25 for number in range(30)]).threshold(0.95) is None
    # Of two calls that are right as often the more probable one stays so.
    confidence = confidence_of([number % 2 == 0 for number in range(100)])
    shares = [*map(confidence.probability, (0.2, 0.4, 0.6))]
    assert sorted(set(shares)) == shares


def test_a_model_says_how_sure_a_call_has_to_be(model):
    assert model.confidence.threshold() is None  # it has too few groups to hold some out
    assert model.config()["thresholds"] == []
    alone = [replace(item, group="") for item in DEMONSTRATIONS]
    calibrated = ArgumentModel.fit(alone, TOOLS)
    least = calibrated.confidence.threshold(0.9)
    assert calibrated.config()["thresholds"][0]["probability"] == pytest.approx(least, abs=1e-4)
    with pytest.raises(InputError, match="share"):
        calibrated.confidence.threshold(95)
    with pytest.raises(InputError, match="value_runs is -1"):
        ArgumentModel.fit([], value_runs=-1)
    sure = model.fill("find_user", Run('Look up Bo and send them a mail with the subject "Yoga"'))
    strange = model.fill("find_user", Run("what is it then"))
    assert 0 <= strange.probability < 0.8 < sure.probability <= 1


def test_a_state_that_is_kept_and_copied_predicts_as_a_new_one(model):
    run = Run(INVITE)
    state, branch = RunState.from_run(run), RunState.from_run(run).copy()
    for tool in ("get_contact", "get_contact", "create_event"):
        expected = model.fill(tool, run)
        assert model.fill(tool, state) == model.fill(tool, branch) == expected
        left_alone = state.copy()
        run.call(tool, expected.arguments, output={"id": 5})
        state.add_calls_of(run)
        branch = branch.copy()
        branch.add(run.calls[-1])
        assert model.fill(tool, left_alone) == expected


def test_two_fits_and_a_restored_model_predict_the_same(model):
    again = ArgumentModel.fit(DEMONSTRATIONS, TOOLS)
    config = json.loads(json.dumps(model.config()))
    restored = ArgumentModel.restore(config, model.arrays(), TOOLS)
    assert restored.ranker.arrays()[0].tolist() == model.ranker.arrays()[0].tolist()
    unread = [replace(call, output=None) for call in DEMONSTRATIONS[1].plan.calls]
    own = replace(DEMONSTRATIONS[1], plan=Plan(tuple(unread)))
    for state, call in iter_calls([*DEMONSTRATIONS[:6], own]):
        expected, other = model.fill(call.tool, state), restored.fill(call.tool, state)
        assert again.fill(call.tool, state) == expected
        assert other.arguments == expected.arguments
        assert other.probability == pytest.approx(expected.probability, abs=0.02)


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        *((name, None) for name in ("gaps", "weights", "confidence", "runs_values")),
        ("constants", {"find_user": {"name": 3}}),
        ("constants", {"find_user": {"name": {"values": 3}}}),
        ("constants", []),
        ("parameters", {"find_user": 1}),
    ],
)
def test_a_damaged_model_is_refused(model, part, damage):
    config, arrays = model.config(), model.arrays()
    if damage is None:
        arrays[part] = np.zeros((3, 3, 3), np.float32)
    else:
        config[part] = damage
    with pytest.raises(ModelError, match="fit it again"):
        ArgumentModel.restore(config, arrays, TOOLS)


# -- nothing is made up ------------------------------------------------------------------------


def assert_nothing_is_made_up(prediction, run, model):
    texts = [run.query, *(item.content for item in run.before if isinstance(item, Message))]
    calls = {call.id: call for call in (*run.earlier, *run.calls)}
    given = {canonical(value) for call in calls.values() for value in call.arguments.values()}
    for parameter, sources in prediction.sources.items():
        constants = {form for form, _ in model.constants.slot(prediction.tool, parameter).values}
        value = prediction.arguments[parameter]
        items = value if isinstance(value, list) and value else [value]
        for item, source in zip(items, sources, strict=True):
            if source.kind in ("query", "message"):
                assert any(item in text for text in texts)
            elif source.kind != "output":
                held = {"argument": given, "constant": constants}[source.kind]
                assert canonical(item) in held
            elif source.path and calls[source.call].output is None:
                assert item == {"$ref": source.call, "path": source.path}
                assert source.path in model.constants.slot(calls[source.call].tool, "").fields
            elif item != {"$ref": source.call} or source.path:
                # A number may have become a text, as the parameter wants it.
                output = resolve_pointer(calls[source.call].output, source.path)
                assert canonical(output) == canonical(item)


words = st.sampled_from(
    [*NAMES, "mail", "event", "with", "and", '"', "'", ",", ".", "a@b.org", "12", "1,000", "€", "Ø"]
)
outputs = st.one_of(
    st.none(),
    st.text(max_size=20),
    st.dictionaries(st.sampled_from(["id", "mail", "name"]), st.integers() | st.text(max_size=6)),
    st.lists(st.integers(), max_size=4),
)


@given(
    st.lists(words, max_size=25).map(" ".join),
    st.lists(
        st.tuples(st.sampled_from(["find_user", "get_contact", "other"]), outputs), max_size=3
    ),
    st.sampled_from(["find_user", "send_mail", "create_event", "never_called", "unheard_of"]),
)
def test_every_value_is_from_the_run_or_from_the_demonstrations(model, query, calls, tool):
    run = Run(query, [Message("user", "I am Ann, ann@z.org")])
    for number, (name, output) in enumerate(calls):
        run.call(name, {"name": NAMES[number]}, output=output)
    prediction = model.fill(tool, run)
    assert_nothing_is_made_up(prediction, run, model)
    assert 0 <= prediction.probability <= 1
    assert not set(prediction.unknown) & set(prediction.arguments)


def test_numbers_keep_their_sign():
    values = {*tokenize("from (-122.40,37.7) to 53,-0.13, 8-10 days, co-op -x").values}
    assert {"-122.40", "-122.40,37.7", "53,-0.13", "-0.13", "8-10", "co-op"} <= values
    assert not {"-10", "-op", "-x", "-"} & values


def test_an_empty_text_that_is_a_constant_is_right_only_where_it_was_given():
    def save(number):
        name = NAMES[number % 20] if number % 3 else ""
        return f"Save it as {name}" if name else "Save it", ToolCall("1", "save", {"name": name})

    model = ArgumentModel.fit(demonstrations(save))
    assert model.fill("save", Run("Save it as Wanda")).arguments == {"name": "Wanda"}
    assert model.fill("save", Run("Save it")).arguments == {"name": ""}


# -- privacy -----------------------------------------------------------------------------------


def runs_with(values, groups=None):
    plans = [Plan((ToolCall("1", "open", {"file": value}),)) for value in values]
    groups = groups or [f"g{number}" for number in range(len(values))]
    return [
        Demonstration(str(number), "Go", plan, group=group)
        for number, (plan, group) in enumerate(zip(plans, groups, strict=True))
    ]


def constants_of(demonstrations, **options):
    kept = Constants.fit(demonstrations, **options).slot("open", "file").values
    return [value for _, value in kept]


@pytest.mark.parametrize(
    ("values", "groups", "kept"),
    [
        (["a"] * 2 + ["b"] * 3, None, ["b"]),
        (["a"] * 3, ["one"] * 3, []),
        (["a"] * 3, ["one", "one", "two"], ["a"]),
        (["a"] * 3, [""] * 3, ["a"]),
        ([value for value in ("x" * 500, ["a"], {"b": 1}) for _ in range(4)], None, []),
        ([[]] * 3, None, [[]]),
    ],
)
def test_a_constant_is_a_short_value_of_three_runs_of_two_groups(values, groups, kept):
    assert constants_of(runs_with(values, groups)) == kept
    assert constants_of(runs_with(values, groups), min_runs=0) == []
    calls = tuple(ToolCall(str(n), "open", {"file": value}) for n, value in enumerate(values))
    assert constants_of([Demonstration("1", "Go", Plan(calls))]) == []  # of one run


def test_a_value_becomes_a_constant_in_an_update_once_enough_runs_had_it():
    model = ArgumentModel.fit(runs_with(["red", "red", "blue", "blue"]))
    key = ("open", "file")
    assert model.constants.slot(*key).values == ()
    held = json.dumps(model.config())
    assert "red" not in held
    loaded = ArgumentModel.restore(json.loads(held), model.arrays())
    updated = loaded.update(runs_with(["red", "green"], ["other", "other"]))
    assert updated.constants.slot(*key).values == (("red", "red"),)
    assert loaded.constants.slot(*key).values == ()
    none = ArgumentModel.fit(runs_with(["red"] * 4), value_runs=0)
    assert none.update(runs_with(["red"] * 4, list("abcd"))).constants.slot(*key).values == ()
    counted = [array for name, array in none.arrays().items() if name.startswith("runs_")]
    assert len(counted) == 4
    assert not any(map(len, counted))


# -- types ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "converted"),
    [
        ("3", "integer", 3),
        ("1,200", "integer", 1200),
        ("3.5", "number", 3.5),
        ("3", "number", 3),
        ("3.5", "integer", "3.5"),
        ("three", "integer", "three"),
        ("12345678901234567890", "integer", "12345678901234567890"),
        ("True", "boolean", True),
        ("yes", "boolean", "yes"),
        (7, "string", "7"),
        (True, "string", True),
        ("x", "", "x"),
        (None, "integer", None),
        ({"$ref": "1"}, "integer", {"$ref": "1"}),
    ],
)
def test_a_value_is_converted_to_its_type_where_it_can_be(value, kind, converted):
    result = convert(value, kind)
    assert (result, type(result)) == (converted, type(converted))
    assert canonical(result) == canonical(value)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("September 6, 2025", "2025-09-06"),
        ("the 3rd of May 2024", "2024-05-03"),
        ("20 mai 2024", "2024-05-20"),
        ("May 20", None),  # a year would be made up
        ("next Friday", None),
        ("January 32, 2020", None),
        ("03/04/2025", None),  # a month or a day
        ("12 tools 2024", None),
    ],
)
def test_a_date_in_words_is_read_where_nothing_is_missing(text, date):
    assert read_date(text) == date


def flights(number):
    day = datetime.date(2024, 1 + number % 12, 1 + number % 28)
    query = f"Find flights to Rome on {day:%B} {day.day}, {day.year} for two"
    return query, ToolCall("1", "find_flights", {"day": str(day)})


def test_a_date_is_given_in_the_form_that_demonstrations_give_it():
    model = ArgumentModel.fit(demonstrations(flights))
    run = Run("Find flights to Oslo on August 30, 2031 for two")
    call = model.fill("find_flights", run)
    (source,) = call.sources["day"]
    first, last = source.span or (0, 0)
    assert run.query[first:last] == "August 30, 2031"
    assert call.probability > 0.8
    for asked in (run, Run("Find flights to Oslo on 2031-08-30")):
        assert model.fill("find_flights", asked).arguments == {"day": "2031-08-30"}


@pytest.mark.parametrize(("written", "declared"), [(int, "string"), (str, "integer")])
def test_demonstrations_decide_where_the_schema_contradicts_them(written, declared):
    tools = (Tool("book", "", (Parameter("people", declared),)),)
    runs = demonstrations(
        lambda n: (
            f"Book a table for {n % 9 + 1} people",
            ToolCall("1", "book", {"people": written(n % 9 + 1)}),
        )
    )
    model = ArgumentModel.fit(runs, tools, value_runs=0)
    assert model.fill("book", Run("Book a table for 7 people")).arguments == {"people": written(7)}


# -- how values are compared -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        *((3, "3", True), (3.0, "3", True), ("1,000", 1000, True), ("  A  b ", "a B", True)),
        *((-0.5, "-.5", True), ([1], ["1.0"], True)),
        *((True, 1, False), (None, "", False), ([], {}, False), (10**30, 10**30 + 1, False)),
        ("12345678901234567890", "12345678901234567891", False),
        *(("1.2.3", "1.23", False), ("12e400", "13e400", False)),
    ],
)
def test_only_case_spaces_and_number_formats_do_not_count(left, right, is_same):
    assert (canonical(left) == canonical(right)) == is_same


def test_an_argument_may_be_given_by_reference_or_by_value(model):
    state = RunState.from_run(after_look_up({"id": 77, "mail": "wanda@y.org"}))
    prediction = model.fill("send_mail", state)
    wanted = {"subject": "ski  trip", "folder": "Outbox"}
    for to in ("wanda@y.org", {"$ref": "1", "path": "/mail"}):
        assert is_exact(prediction, ToolCall("2", "send_mail", {**wanted, "to": to}), state)
    assert not is_exact(prediction, ToolCall("2", "send_mail", wanted), state)


# -- what is not known yet ---------------------------------------------------------------------


def test_a_part_of_an_output_that_is_not_known_yet_is_a_reference_with_its_path(model):
    call = model.fill("send_mail", after_look_up())
    assert call.arguments["to"] == {"$ref": "1", "path": "/mail"}
    (source,) = call.sources["to"]
    assert (source.kind, source.call, source.path) == ("output", "1", "/mail")


def test_paths_of_outputs_are_kept_as_constants_are():
    one = [item for item in DEMONSTRATIONS if item.plan.calls[0].tool == "find_user"][:2]
    assert ArgumentModel.fit(one, TOOLS).constants.slot("find_user", "").fields == ()
    private = ArgumentModel.fit(DEMONSTRATIONS, TOOLS, value_runs=0)
    assert private.constants.slot("find_user", "").fields == ()
    assert "Outbox" not in json.dumps(private.config())
    every = ArgumentModel.fit(DEMONSTRATIONS, TOOLS)
    assert every.constants.slot("find_user", "").fields == ("/mail",)
    left = every.with_tools(TOOLS, {}, ["find_user"]).constants
    assert left.slot("find_user", "").fields == ()


def test_a_text_to_be_written_around_an_output_names_it():
    def share(number):
        name, text = NAMES[number % 20], f"Hello {7919 * number}: "
        return (
            f"Get a link for {ADJECTIVES[number % 9]} and post it to {name}",
            ToolCall("1", "get_link", {"topic": ADJECTIVES[number % 9]}),
            ToolCall("2", "post", {"to": name, "text": {"$join": [text, {"$ref": "1"}]}}),
        )

    model = ArgumentModel.fit(demonstrations(share))
    run = Run("Get a link for Skiing and post it to Wanda")
    run.call("get_link", {"topic": "Skiing"})
    call = model.fill("post", run)
    assert (call.arguments, call.unknown, call.probability) == ({"to": "Wanda"}, ("text",), 0)
    (source,) = call.contains["text"]
    assert (source.kind, source.call) == ("output", "1")
    assert call.outputs == {"1"}
    read = CallPrediction.from_dict(json.loads(json.dumps(call.to_dict())))
    assert read.contains == call.contains


def test_a_required_parameter_that_no_demonstration_gave_is_unknown():
    required = Tool("find_user", "", (Parameter("name"), Parameter("realm", required=True)))
    optional = Tool("find_user", "", (Parameter("name"), Parameter("realm", required=False)))
    for tool, unknown in ((required, ("realm",)), (optional, ())):
        model = ArgumentModel.fit(DEMONSTRATIONS, [tool])
        call = model.fill("find_user", Run("Look up Wanda and send them a mail"))
        assert call.arguments == {"name": "Wanda"}
        assert call.unknown == unknown


# -- bad input ---------------------------------------------------------------------------------


def test_values_of_a_megabyte(model):
    long = "word " * 200_000
    run = Run(f"Look up Wanda {long}", [Message("user", long), Message("assistant", "x" * 10**6)])
    run.call("find_user", {"name": long, "other": [long]}, output={"mail": long})
    run.call("find_user", {"name": "Wanda"}, output=long)
    for tool in ("find_user", "send_mail"):
        assert_nothing_is_made_up(model.fill(tool, run), run, model)


@pytest.mark.parametrize("output", ["<html>", "{broken", "", "NaN", '["a"', "null", "\x00", b"x"])
def test_outputs_that_are_not_json(model, output):
    run = Run("Look up Wanda and send them a mail")
    run.calls.append(ToolCall("1", "find_user", {"name": "Wanda"}, output))
    prediction = model.fill("send_mail", run)
    assert set(prediction.arguments) | set(prediction.unknown) <= {"to", "subject", "folder"}


@pytest.mark.parametrize(
    ("output", "read"),
    [
        ('[{"id": 7, "ok": true}, {"id": 8, "na', [{"id": 7, "ok": True}, {"id": 8}]),
        (
            "{'a': ['it\\'s', \"x's\", None], 'b': 1, 'c': 3.1...",
            {"a": ["it's", "x's", None], "b": 1},
        ),
        ("{'a': True, 'b': '[1, 2", {"a": True}),
        *(
            (text, text)
            for text in ("[1] is short", "[]]", "{broken", "{'a': b'x', 'b", "[1+2j, 'x")
        ),
    ],
)
def test_an_output_that_a_log_cut_is_read_up_to_its_last_whole_part(output, read):
    assert read_output(output) == read
    deep = read_output("[" * 9_000)
    assert len(json.dumps(deep)) <= 200


def test_a_part_of_an_output_that_a_log_cut_is_an_argument(model):
    run = after_look_up("{'id': 77, 'mail': 'wanda@y.org', 'not...")
    call = model.fill("send_mail", run)
    assert call.arguments["to"] == "wanda@y.org"
    assert call.sources["to"][0].path == "/mail"


def test_references_that_are_cyclic_or_lead_nowhere(model):
    calls = [
        ToolCall("1", "find_user", {"name": {"$ref": "2", "path": "/mail"}}, {"$ref": "2"}),
        ToolCall("2", "find_user", {"name": {"$ref": "1"}}, {"mail": {"$ref": "1"}}),
        ToolCall("3", "find_user", {"name": {"$ref": "none"}, "x": {"$ref": {}}}),
        ToolCall("4", "get_contact", {"name": {"$ref": "2", "path": "no pointer"}}),
    ]
    run = Run("Look up Wanda and send them a mail", (), calls)
    for tool in ("find_user", "send_mail", "create_event"):
        assert_nothing_is_made_up(model.fill(tool, run), run, model)


def test_demonstrations_with_awkward_values_are_learned_from():
    long = "word " * 200_000
    values = [long, None, True, 10**30, 1.5, [], {}, [[1], {"a": []}], {"$join": ["x"]}, "", "\x00"]
    pairs = list(itertools.product(values, (None, "<html>", long)))

    def do(number):
        value, output = pairs[number]
        first = ToolCall("1", "first", {"value": value}, output=output)
        return f"Do {number}", first, ToolCall("2", "then", {"value": value, "from": {"$ref": "1"}})

    model = ArgumentModel.fit(demonstrations(do, len(pairs)))
    run = Run("Do it with 7")
    run.call("first", {"value": long}, output="{broken")
    for tool in ("first", "then"):
        assert_nothing_is_made_up(model.fill(tool, run), run, model)
    assert model.fill("then", run).arguments["from"] == {"$ref": "1"}
    json.dumps(model.config())
    nothing = ArgumentModel.fit([Demonstration("1", "Go", Plan((ToolCall("1", "open"),)))])
    assert nothing.fill("open", Run("Go")).arguments == {}
    for never_seen in (nothing, ArgumentModel.fit([])):
        assert never_seen.fill("unheard_of", Run("Go")).arguments == {}


# -- in a model ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted_model():
    return dtdr.fit(DEMONSTRATIONS, TOOLS, ranker="dr", arguments=True)


def test_a_model_predicts_whole_calls(fitted_model):
    run = Run(LOOK_UP)
    calls = fitted_model.next_calls(run, top_k=2)
    ranking = fitted_model.rank(run)
    assert [call.tool for call in calls] == [tool for tool, _ in ranking[:2]]
    for call, (tool, probability) in zip(calls, ranking, strict=False):
        filled = fitted_model.fill(tool, run)
        assert call.arguments == filled.arguments
        assert call.probability == pytest.approx(filled.probability * probability)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that can learn on, from runs of which some failed."""
    failed = [replace(runs_of("ping", name), outcome="failure") for name in NAMES]
    fitted = create("tests.updating_ranker:WordCounts").fit(
        [*DEMONSTRATIONS[:60], *failed], TOOLS, arguments=True, plans=False
    )
    assert fitted.training_.failures == len(failed)
    path = tmp_path_factory.mktemp("whole") / "model"
    fitted.save(path)
    return path


def runs_of(tool, name):
    calls = (ToolCall("1", tool, {"host": name}),)
    return Demonstration(f"{tool} {name}", f"{tool.title()} {name}", Plan(calls))


def test_failed_runs_teach_arguments_and_tools(folder, tmp_path):
    fitted_model = dtdr.load(folder)
    assert "ping" in fitted_model.vocabulary
    assert fitted_model.fill("ping", Run("Ping Wanda")).arguments == {"host": "Wanda"}
    shutil.copytree(folder, tmp_path / "damaged")
    change_config(tmp_path / "damaged", arguments={"constants": {"a": 1}})
    with pytest.raises(ModelError, match="fit it again"):
        dtdr.load(tmp_path / "damaged")


def test_an_update_learns_arguments_and_a_removed_tool_is_forgotten(folder):
    fitted_model = dtdr.load(folder)
    before = fitted_model.arguments_
    assert before is not None
    values = before.config()["constants"]
    assert values["send_mail"]["folder"]["values"] == ["Outbox"]
    fitted_model.update([runs_of("knock", name) for name in NAMES])
    assert fitted_model.fill("knock", Run("Knock Wanda")).arguments == {"host": "Wanda"}
    assert before.fill("knock", Run("Knock Wanda")).arguments == {}
    updated = fitted_model.arguments_
    assert updated is not None
    assert updated.config()["constants"]["send_mail"] == values["send_mail"]
    fitted_model.remove_tools(["send_mail"])
    assert fitted_model.arguments_ is not None
    after = fitted_model.arguments_.config()["constants"]
    assert after.keys() == {*values, "knock"} - {"send_mail"}


def test_a_tool_that_is_renamed_keeps_its_arguments(folder, tmp_path, capsys):
    fitted_model = dtdr.load(folder)
    output = {"id": 77, "mail": "wanda@y.org"}
    expected = fitted_model.fill("send_mail", after_look_up(output))
    fitted_model.rename_tool("send_mail", "post")
    fitted_model.rename_tool("find_user", "search_user")
    fitted_model.rename_tool("search_user", "user.find")
    fitted_model.save(tmp_path / "model")
    assert run_command(["inspect", str(tmp_path / "model")]) == 0
    assert re.search(r"post +folder +\"Outbox\"", capsys.readouterr().out)
    after = Run(LOOK_UP)
    after.call("user.find", {"name": "Wanda"}, output=output)
    for one in (fitted_model, dtdr.load(tmp_path / "model")):
        call = one.fill("post", after)
        assert (call.tool, call.arguments) == ("post", expected.arguments)
        assert call.probability == pytest.approx(expected.probability, abs=0.02)
        assert one.fill("user.find", Run(LOOK_UP)).arguments == {"name": "Wanda"}
        assert one.fill("send_mail", after).arguments == {}
    renamed = ToolCall("1", "user.find", {"name": "Zoe"})
    more = [Demonstration(str(n), f"Look up Zoe {n}", Plan((renamed,))) for n in range(3)]
    assert fitted_model.update(more) == 3
    assert fitted_model.fill("user.find", Run("Look up Zoe")).arguments == {"name": "Zoe"}
    fitted_model.rename_tool("user.find", "find_user")
    assert fitted_model.fill("find_user", Run(LOOK_UP)).arguments == {"name": "Wanda"}
    unlearned = fitted_model.fill("never_called", Run(LOOK_UP))
    assert unlearned.arguments or unlearned.unknown
    fitted_model.rename_tool("never_called", "still_never_called")
    assert fitted_model.fill("still_never_called", Run(LOOK_UP)).arguments == unlearned.arguments


def test_a_model_without_arguments_says_what_to_do(tmp_path):
    plain = dtdr.fit(DEMONSTRATIONS[:9], ranker="dr", arguments=False)
    for call in (
        lambda: plain.fill("find_user", Run("Go")),
        lambda: plain.next_calls(Run("Go")),
        lambda: plain.session("Go").next_calls(),
    ):
        with pytest.raises(InputError, match="arguments=True"):
            call()
    plain.save(tmp_path / "model")
    assert dtdr.load(tmp_path / "model").arguments_ is None
