import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.conversation.events import AssistantMessage, Event, LoggedCall, LoggedRun, UserMessage
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.errors import InputError
from dtdr.logs import CutOptions
from dtdr.logs.turns import Cutter


def plan_of(*calls, query="please", options=None, given=()):
    cutter = Cutter(options or CutOptions(), None, "test")
    (demonstration,) = cutter.cut(LoggedRun("t", [UserMessage(query), *calls], instructions=given))
    return demonstration.plan


def in_turn(*pairs):
    """Calls one after the other from (arguments, output) pairs."""
    return [
        LoggedCall(f"tool_{index}", arguments, 2 * index, 2 * index + 1, output=output)
        for index, (arguments, output) in enumerate(pairs)
    ]


def second_arguments(output, arguments, **more):
    return plan_of(*in_turn(({}, output), (arguments, None)), **more).calls[1].arguments


@pytest.mark.parametrize(
    ("output", "value", "path"),
    [
        ("usr_8841", "usr_8841", None),
        ({"user": {"ids": ["usr_8841", "usr_9"]}}, "usr_8841", "/user/ids/0"),
        ({"a/b": ["usr_9", "usr_8841"], "id": "usr_8841"}, "usr_8841", "/a~1b/1"),
        ('{"user": "usr_8841"}', "usr_8841", "/user"),
        ({"order": 918273}, 918273, "/order"),
        ({"order": 918273}, "918273", "/order"),
        ({"where": {"lat": 1.25, "lon": 9.5}}, {"lon": 9.5, "lat": 1.25}, "/where"),
        ("Created event evt-55a1 for Ann.", "evt-55a1", None),
        ({"said": "Created event evt-55a1 for Ann."}, "evt-55a1", None),
        ("A whole page of text.", "A whole page of text.", None),
    ],
)
def test_a_value_of_an_earlier_output_becomes_a_reference(output, value, path):
    reference = {"$ref": "1"} if path is None else {"$ref": "1", "path": path}
    assert second_arguments(output, {"x": value}) == {"x": reference}
    assert second_arguments(output, {"x": {"y": [value]}}) == {"x": {"y": [reference]}}


@pytest.mark.parametrize(
    "value", [True, None, 7, 2024, 0.5, "ok", "success", "abc", "1234", "", "default", "--- --"]
)
def test_values_that_anything_could_hold_are_no_references(value):
    assert second_arguments({"a": value}, {"x": value}) == {"x": value}


def test_an_output_inside_a_longer_text_becomes_a_join_but_no_part_of_a_word():
    assert second_arguments({"id": "usr_8841"}, {"x": "Owner: usr_8841, thanks"}) == {
        "x": {"$join": ["Owner: ", {"$ref": "1", "path": "/id"}, ", thanks"]}
    }
    assert second_arguments({"id": "usr_8841"}, {"x": "see usr_88412"}) == {"x": "see usr_88412"}


def test_what_the_user_or_the_instructions_said_is_no_reference():
    output, arguments = {"mail": "ann@corp.example"}, {"to": "ann@corp.example"}
    assert second_arguments(output, arguments, query="Write to Ann@corp.example") == arguments
    assert second_arguments(output, arguments, given=("I am ann@corp.example",)) == arguments


def test_what_the_agent_made_up_itself_is_no_reference_when_an_output_repeats_it():
    calls = in_turn(({"path": "draft-1.md"}, "created draft-1.md"), ({"path": "draft-1.md"}, ""))
    assert list(plan_of(*calls).edges()) == []


def test_the_earliest_output_that_holds_a_value_is_its_source():
    calls = in_turn(
        ({}, ["doc-4711"]), ({"id": "doc-4711"}, {"id": "doc-4711"}), ({"id": "doc-4711"}, "")
    )
    assert list(plan_of(*calls).edges()) == [(0, 1), (0, 2)]


@pytest.mark.parametrize(("ended", "failed"), [(10, False), (1, True)])
def test_a_call_that_failed_or_ended_after_another_began_is_no_source(ended, failed):
    early = LoggedCall("a", {}, 0, ended, output="rec-123456", failed=failed)
    late = LoggedCall("b", {"id": "rec-123456"}, 5, 6)
    assert list(plan_of(early, late).edges()) == []


def test_references_can_be_left_out():
    output, arguments = {"id": "usr_8841"}, {"x": "usr_8841"}
    off = CutOptions(references=False)
    assert second_arguments(output, arguments, options=off) == arguments


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=5), st.just("$ref")), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(
    st.lists(st.tuples(st.dictionaries(st.text(max_size=5), json_values), json_values), max_size=5)
)
def test_any_arguments_and_outputs_give_a_plan_that_json_holds(pairs):
    cutter = Cutter(CutOptions(empty=True), None, "test")
    (demonstration,) = cutter.cut(LoggedRun("t", [UserMessage("go"), *in_turn(*pairs)]))
    assert len(demonstration.plan) == len(pairs)
    json.dumps(demonstration.to_dict(), allow_nan=False)


def conversation():
    return LoggedRun(
        "t",
        [
            UserMessage("Find Ann"),
            LoggedCall("find", {"n": "Ann"}, 0, 1, output="usr_8841"),
            UserMessage("Thanks"),
            UserMessage("and Bob", joins=True),
            LoggedCall("mail", {"to": "usr_8841"}, 2, 3, output="no", failed=True),
            LoggedCall("mail", {"to": "usr_8841", "again": 1}, 4, 5, output="sent"),
        ],
    )


def cut(**options):
    cutter = Cutter(CutOptions(**options), None, "test")
    return list(cutter.cut(conversation())), cutter


def test_each_message_of_the_user_begins_a_run_and_unanswered_ones_are_joined():
    found, _ = cut()
    assert [item.query for item in found] == ["Find Ann", "Thanks\nand Bob"]
    assert [item.plan.tools for item in found] == [("find",), ("mail", "mail")]
    assert found[1].plan.calls[0].arguments == {"to": {"$ref": "1"}}  # from the turn before
    first = replace(found[0].plan.calls[0], step=None)
    assert found[1].before == (Message("user", "Find Ann"), first)


def test_whatever_came_before_a_message_stands_before_its_query():
    first = LoggedCall("find", {"n": "Ann"}, 0, 1, output={"id": "usr_8841"})
    events: list[Event] = [
        UserMessage("Find Ann"),
        AssistantMessage("Let me see."),
        first,
        AssistantMessage("Found her."),
        UserMessage("Mail her"),
        LoggedCall("mail", {"to": "usr_8841"}, 2, 3, output=[]),
        AssistantMessage("Done."),
    ]
    found = list(Cutter(CutOptions(), None, "test").cut(LoggedRun("t", events)))
    assert len(found) == 2
    assert found[0].before == ()
    assert [item["role"] for item in found[1].to_dict()["before"]] == [
        "user", "assistant", "call", "assistant",
    ]  # fmt: skip
    assert found[1].to_dict()["before"][2]["output"] == {"id": "usr_8841"}
    (call,) = found[1].plan.calls
    assert call.arguments == {"to": {"$ref": "1", "path": "/id"}}
    assert (call.id, call.status, call.step) == ("2", "empty", 1)


def test_outputs_can_be_kept_as_they_are_or_not_at_all():
    def call_with(**options):
        output = '{"to": "Rome", "stops": [1, 2], "more": "' + "x" * 3000 + '"}'
        return plan_of(*in_turn(({}, output)), options=CutOptions(**options)).calls[0]

    kept = call_with()
    assert kept.output == {"to": "Rome", "stops": [1, 2]}
    assert kept.output_length > 3000
    assert call_with(output_length=5000).output_length is None
    none = call_with(output_length=0)
    assert (none.output, none.status) == (None, "ok")


@pytest.mark.parametrize(
    ("times", "steps"),
    [
        ([(0, 1), (2, 3), (4, None), (5, 6)], [1, 2, 3, 4]),
        ([(0, 5), (1, 3), (5, 6)], [1, 1, 2]),
        ([(0, None), (0, None)], [None, None]),
        ([(7, None)], [1]),
    ],
)
def test_without_messages_calls_that_overlap_are_parallel(times, steps):
    calls = [LoggedCall("t", {}, start, end) for start, end in times]
    assert [call.step for call in plan_of(*calls).calls] == steps


def test_a_tool_name_that_is_not_text_is_told_in_one_sentence():
    with pytest.raises(InputError, match="half of a surrogate pair"):
        plan_of(LoggedCall("a\ud800", {}, 0))


def test_runs_that_cannot_be_learned_from_are_counted_with_the_reason():
    cutter = Cutter(CutOptions(), None, "test")
    runs = [
        LoggedRun("a", [UserMessage("hello")]),
        LoggedRun("b", [LoggedCall("x", {}, 0)]),
        LoggedRun("c", [UserMessage("go"), LoggedCall("end", {}, 0)]),
    ]
    assert [found for run in runs for found in cutter.cut(run)] == []
    assert dict(cutter.dropped) == {
        "no tool was called": 1,
        "no query in the log": 1,
        "a tool is named 'end', which is reserved": 1,
    }


def test_of_a_long_conversation_the_latest_outputs_stand_before_a_query():
    events: list[Event] = []
    for turn in range(60):
        events.append(UserMessage(f"turn {turn}"))
        events.append(LoggedCall("t", {}, 2 * turn, 2 * turn + 1, output=f"rec-{turn:06d}"))
    events += [UserMessage("last"), LoggedCall("u", {"id": "rec-000003"}, 200)]
    *_, last = Cutter(CutOptions(), None, "test").cut(LoggedRun("t", events))
    assert len(last.before) == 120
    assert [call.output for call in last.plan.earlier].count(None) == 40
    assert last.plan.earlier[0].output_length == 10
    assert last.plan.earlier[-1].output == "rec-000059"
    assert last.plan.calls[0].arguments == {"id": {"$ref": "4"}}  # still known to the importer
    assert Demonstration.from_dict(last.to_dict()) == last
