"""Whole calls and plans over HTTP, with arguments, sources and what is unknown."""

import pytest

import dtdr
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Message
from dtdr.data.run import Run
from dtdr.errors import InputError
from tests import whole_calls
from tests.server import serving
from tests.server.serving import refused

QUERY = 'Create an event "Final Demo" with Rosa and Kim'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls") / "mail"
    fitted = dtdr.fit(
        whole_calls.DEMONSTRATIONS[:40],
        whole_calls.TOOLS,
        ranker="dtdr-l",
        arguments=True,
        plans=True,
    )
    fitted.save(folder)
    return folder


@pytest.fixture(scope="module")
def filling(folder):
    with serving.serve(serving.settings(folder)) as found:
        yield found


@pytest.fixture
def model(folder):
    return dtdr.load(folder)


def test_outputs_ids_and_what_came_before_are_read(filling):
    call = {"tool": "find_user", "id": "a", "arguments": {"name": "Ann"}, "output": {"mail": "x@y"}}
    body = {
        "query": 'Look up Ann and send them a mail with the subject "Final Demo"',
        "history": [call, "unknown_tool"],
        "before": [{"role": "user", "content": "Hello"}],
        "tool": "send_mail",
    }
    answer = filling.post("/v1/calls", body).json()
    (predicted,) = answer["calls"]
    assert predicted["arguments"]["to"] == "x@y"
    (source,) = predicted["sources"]["to"]
    assert source == {"kind": "output", "call": "a", "path": "/mail"}
    assert answer["unknown_tools"] == ["unknown_tool"]


def test_a_session_predicts_by_the_calls_it_was_told_whatever_named_them(filling):
    with dtdr.Client(filling.url) as client:
        with client.session(QUERY) as session:
            session.call("get_contact")
            session.call(ToolCall("2", "get_contact", {"name": "Kim"}))
            session.call({"tool": "get_contact", "id": "x", "arguments": {"name": "Rosa"}})
            session.call("get_contact", ToolCall("4", "get_contact", {"name": "Bo"}))
            guests = session.fill("create_event").arguments["guests"]
            assert {item["$ref"] for item in guests} <= {"1", "2", "x", "5", "4"}
            with pytest.raises(InputError, match="share the id 'x'"):
                session.call(ToolCall("x", "get_contact"))
            assert len(session.next_calls(2)) == 2
        again = client.session(QUERY, [ToolCall("1", "get_contact", {"name": "Rosa"})])
        again.call(ToolCall("2", "get_contact", {"name": "Kim"}))
        filled = again.fill("create_event")
        assert filled.arguments["guests"] == [{"$ref": "1"}, {"$ref": "2"}]
        assert [source.call for source in filled.sources["guests"]] == ["1", "2"]


def test_the_clients_calls_are_those_of_the_library(filling, model):
    calls = [ToolCall("a", "get_contact", {"name": "Rosa"})]
    before = [Message("user", "Hello")]
    run = Run(QUERY, before, calls)
    expected = [call.to_dict() for call in model.next_calls(run, 3)]
    with dtdr.Client(filling.url) as client:
        assert [c.to_dict() for c in client.next_calls(QUERY, calls, before=before)] == expected
        filled = client.fill("create_event", QUERY, calls, before=before)
        assert filled.to_dict() == model.fill("create_event", run).to_dict()


def test_plans_are_those_of_the_library(filling, model):
    expected = [plan.to_dict() for plan in model.plans(QUERY, top_k=2)]
    calls = [ToolCall("a", "get_contact", {"name": "Rosa"})]
    left = [plan.to_dict() for plan in model.plans(Run(QUERY, (), calls))]
    with dtdr.Client(filling.url) as client:
        assert [plan.to_dict() for plan in client.plans(QUERY, top_k=2)] == expected
        assert [plan.to_dict() for plan in client.plans(QUERY, calls)] == left
        with client.session(QUERY, calls) as session:
            assert [plan.to_dict() for plan in session.plans()] == left
    assert filling.post("/v1/plans", {"query": QUERY, "top_k": 21}).status_code == 422


def test_plans_of_a_model_that_knows_no_arguments_are_names(tmp_path, model):
    model.arguments_ = None
    model.save(tmp_path / "mail")
    with serving.serve(serving.settings(tmp_path / "mail")) as found:
        (plan,) = found.post("/v1/plans", {"query": QUERY, "top_k": 1}).json()["plans"]
        assert [set(call) for call in plan["calls"]] == [{"id", "tool"}] * len(plan["calls"])
        with dtdr.Client(found.url) as client:
            (read,) = client.plans(QUERY, top_k=1)
    (local,) = dtdr.load(tmp_path / "mail").plans(QUERY, top_k=1)
    assert read.to_dict() == local.to_dict()
    assert not read.has_arguments


def test_a_model_without_plans_or_arguments_says_what_to_do(served):
    for path, lack in (("plans", "plans"), ("calls", "arguments")):
        answer = served.post(f"/v1/{path}", {"query": QUERY})
        assert answer.status_code == 409
        error = answer.json()["error"]
        assert error["type"] == "conflict"
        assert error["message"] == (
            f"model 'mail' was fitted without {lack}; fit it again with dtdr fit, without "
            f"--no-{lack}, and reload it"
        )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"top_k": 21}, "top_k"),
        ({"tool": "no_such"}, "tool: is not known to model 'mail'; see /v1/models/mail"),
        ({"tols": 3}, "object contains unknown field `tols`"),
        ({"history": [{"tool": "a", "id": "x"}, {"tool": "a", "id": "x"}]}, "share the id 'x'"),
    ],
)
def test_bad_requests_are_one_sentence(filling, more, said):
    assert said in refused(filling.post("/v1/calls", {"query": QUERY, **more}), 422)


def test_searches_are_those_of_the_library(filling, model):
    text = "look up the number of a contact"
    run = Run(QUERY, (), [ToolCall("a", "get_contact", {"name": "Rosa"})])
    expected = model.search(text, run, 3)
    body = {"text": text, "query": QUERY, "history": ["get_contact"], "top_k": 3}
    answer = filling.post("/v1/search", body).json()
    assert [item["tool"] for item in answer["tools"]] == [tool for tool, _ in expected]
    with dtdr.Client(filling.url) as client:
        alone = client.search(text)
        assert [tool for tool, _ in alone] == [tool for tool, _ in model.search(text)]
        some = client.search(text, QUERY, run.calls, 3, offered=["create_event", "nothing"])
        assert {tool for tool, _ in some} <= {"create_event"}
        with client.session(QUERY, run.calls) as session:
            assert session.search(text, 3) == [(tool, round(part, 6)) for tool, part in expected]
    for wrong in (
        {"text": " "},
        {"text": text, "history": ["get_contact"]},
        {"text": text, "top_k": 0},
    ):
        assert filling.post("/v1/search", wrong).status_code == 422
