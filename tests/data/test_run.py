import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Message
from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.data.run import Run, as_run
from dtdr.errors import InputError

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def test_calls_are_numbered_and_their_names_are_the_history():
    run = Run("Mail Ann her invoice.")
    first = run.call("find_user", {"name": "Ann"}, output={"mail": "ann@x.org"})
    second = run.call("send_mail", {"to": {"$ref": first.id, "path": "/mail"}})
    assert (first.id, second.id) == ("1", "2")
    assert run.history == ("find_user", "send_mail")
    assert run.calls == [first, second]


def test_numbers_that_are_taken_are_passed_over():
    before = (Message("user", "Hello"), ToolCall("1", "log_in"), ToolCall("3", "greet"))
    run = Run("Go on.", before)
    assert [run.call("a").id, run.call("b").id] == ["2", "4"]
    assert [call.id for call in run.earlier] == ["1", "3"]


def test_an_id_is_taken_once():
    run = Run("Go on.", [ToolCall("a", "log_in")])
    with pytest.raises(InputError, match="share the id 'a'"):
        run.call("next", id="a")
    assert run.calls == []
    with pytest.raises(InputError, match="share the id"):
        Run("Go on.", (), [ToolCall("1", "a"), ToolCall("1", "b")])


def test_a_copy_goes_on_alone():
    run = Run("Mail Ann her invoice.", [Message("user", "Hello")])
    run.call("find_user")
    copy = run.copy()
    copy.call("send_mail")
    assert (run.history, copy.history) == (("find_user",), ("find_user", "send_mail"))
    assert (copy.query, copy.before) == (run.query, run.before)


def test_a_run_is_given_alone_since_it_has_its_own_calls():
    run = Run("Go on.")
    assert as_run(run) is run
    for more in ({"history": ["find_user"]}, {"before": [Message("user", "Hello")]}):
        with pytest.raises(InputError, match="give the run alone"):
            as_run(run, **more)


@pytest.mark.parametrize(
    ("output", "status"),
    [(None, "unknown"), ("", "empty"), ([], "empty"), ({"id": 3}, "ok"), ("done", "ok")],
)
def test_the_status_follows_the_output_unless_it_is_given(output, status):
    assert Run("Go on.").call("a", output=output).status == status
    assert Run("Go on.").call("a", output=output, status="error").status == "error"


def test_an_output_is_kept_as_in_a_demonstration():
    run = Run("Go on.")
    assert run.call("a", output='{"id": 7}').output == {"id": 7}
    assert run.call("a", output="{not JSON").output == "{not JSON"
    assert run.call("a", output=("x", 1)).output == ["x", 1]
    assert run.call("a", output=float("nan")).output == "NaN"
    long = run.call("a", output="word " * 200_000)
    assert len(long.output) <= OUTPUT_LENGTH
    assert long.output_length == 1_000_000
    listed = run.call("a", output=json.dumps([{"id": n} for n in range(100_000)]))
    assert listed.output[:2] == [{"id": 0}, {"id": 1}]
    assert listed.output_length is not None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"tool": ""}, "has no 'tool'"),
        ({"tool": "end"}, "name of a tool"),
        ({"tool": "a", "arguments": ["x"]}, "must be a JSON object"),
        ({"tool": "a", "status": "fine"}, "choose one of ok, error"),
        ({"tool": "a", "output": object()}, "cannot be written as JSON"),
        ({"tool": "a", "output": [b"x"]}, "cannot be written as JSON"),
        ({"tool": "\ud800"}, "surrogate"),
    ],
)
def test_a_call_that_is_not_one_is_refused_and_changes_nothing(call, words):
    run = Run("Go on.")
    with pytest.raises(InputError, match=words):
        run.call(**call)
    assert run.calls == []
    assert run.call("a").id == "1"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ([], "must be a JSON object, not list"),
        ({}, "no 'query'"),
        ({"query": "  "}, "no 'query'"),
        ({"query": "x", "calls": {}}, "must be a list, not dict"),
        ({"query": "x", "calls": [7]}, "names of tools, calls and their JSON objects, not int"),
        ({"query": "x", "calls": [{"id": "1"}]}, "no 'tool'"),
        ({"query": "x", "before": {}}, "'before' must be a list"),
        (
            {"query": "x", "calls": [{"tool": "a", "id": 1}, {"tool": "b", "id": "1"}]},
            "share the id",
        ),
    ],
)
def test_a_record_that_is_not_a_run_is_refused(record, words):
    with pytest.raises(InputError, match=words):
        Run.from_dict(record)


@given(
    st.lists(st.tuples(st.text("ab", min_size=1), st.dictionaries(st.text("x"), values), values))
)
def test_a_run_survives_its_json(calls):
    run = Run("Go on.", [Message("assistant", "Yes?"), ToolCall("e", "a", {"x": 1}, {"id": 2})])
    for tool, arguments, output in calls:
        run.call(tool, arguments, output=output)
    read = Run.from_dict(json.loads(json.dumps(run.to_dict())))
    assert (read.query, read.before, read.calls) == (run.query, run.before, run.calls)


def test_a_call_keeps_the_end_of_what_the_agent_wrote():
    words = " ".join(f"word{number}" for number in range(200))
    call = ToolCall.from_dict({"id": "1", "tool": "a", "text": words + "\n"})
    assert call.text is not None
    assert len(call.text) <= 500
    assert words.endswith(call.text)
    assert call.text.startswith("word")
    assert ToolCall.from_dict(call.to_dict()) == call
    assert ToolCall.from_dict({"id": "1", "tool": "a", "text": "  "}).text is None
    (long,) = Run("Go on.", calls=[ToolCall("1", "a", text="x" * 900)]).calls
    assert long.text == "x" * 500
    with pytest.raises(InputError, match="the 'text' of call '1' must be text, not list"):
        ToolCall.from_dict({"id": "1", "tool": "a", "text": ["x"]})
    with pytest.raises(InputError, match="surrogate"):
        Run("Go on.", text="\ud800")


def test_the_next_call_takes_the_text_of_a_run():
    run = Run.from_dict({"query": "Go on.", "calls": ["a"], "text": "Now I send it."})
    assert run.text == run.copy().text == run.to_dict()["text"] == "Now I send it."
    assert run.first(0).text is None
    longer = run.with_calls(["b", "c"])
    assert [call.text for call in longer.calls] == [None, "Now I send it.", None]
    assert longer.text is None
    called = run.call("b", output={})
    assert called.text == "Now I send it."
    assert run.to_dict().get("text") is None
    with pytest.raises(InputError, match="a run has its own calls"):
        as_run(run, text="Other words.")
