"""What the server is told of calls besides their names."""

import json
from typing import Any

import pytest

import dtdr
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Message
from tests.server import serving
from tests.server.serving import QUERY

BEFORE: list[dict[str, Any]] = [
    {"role": "user", "content": "Who is Ann?"},
    {"role": "call", "id": "a", "tool": "find_contact", "output": {"mail": "x"}, "status": "ok"},
    {"role": "assistant", "content": "A colleague."},
]
CALL = {"tool": "read_file", "arguments": {"name": "q3.pdf"}, "output": '{"pages": []}', "step": 1}


@pytest.fixture
def told(served, monkeypatch):
    """The runs that the model of the server was told."""
    retriever = served.service.models.find(None).current.retriever
    runs = []

    def rank(self, query, history=(), *, before=()):
        runs.append(query)
        return self.rank_batch([query.query], [query.history])[0]

    monkeypatch.setattr(type(retriever), "rank", rank)
    return runs


def test_calls_and_what_came_before_are_told_to_the_model(served, told):
    body = {"query": QUERY, "history": [CALL, "unknown_tool"], "before": BEFORE, "top_k": 3}
    answer = served.post("/v1/rank", body)
    assert answer.status_code == 200
    assert answer.json()["unknown_tools"] == ["unknown_tool"]
    (run,) = told
    first, second = run.calls
    assert (first.output, first.status, first.step) == ({"pages": []}, "empty", 1)
    assert dict(first.arguments) == {"name": "q3.pdf"}
    assert (second.tool, second.output) == ("unknown_tool", None)
    assert [item.role for item in run.before if isinstance(item, Message)] == ["user", "assistant"]
    assert run.earlier[0].output == {"mail": "x"}


def test_a_session_a_batch_and_the_client_rank_as_a_request_does(served):
    body = {"query": QUERY, "history": [CALL], "before": BEFORE, "top_k": 4}
    plain = served.post("/v1/rank", body).json()
    step = {name: body[name] for name in ("query", "history", "before")}
    batch = served.post("/v1/rank/batch", {"steps": [step, {"query": QUERY}], "top_k": 4}).json()
    assert batch["rankings"][0]["tools"] == plain["tools"]
    opened = {"query": QUERY, "before": BEFORE}
    session = served.post("/v1/sessions", opened).json()["session"]
    path = f"/v1/sessions/{session}"
    called = served.post(f"{path}/call", {"tools": [CALL], "rank": {"top_k": 4}}).json()
    assert called["history"] == ["read_file"]
    assert called["ranking"]["tools"] == plain["tools"]
    with dtdr.Client(served.url) as client:
        call = ToolCall("7", "read_file", {"name": "q3.pdf"}, {"pages": []}, "empty", 1)
        expected = tuple(item["tool"] for item in plain["tools"])
        for history in ([call], [CALL]):
            ranking = client.rank(QUERY, history, before=BEFORE, top_k=4)
            assert ranking.tools == expected
        (ranking,) = client.rank_batch([QUERY], [[call]], befores=[BEFORE], top_k=4)
        assert ranking.tools == expected
        with client.session(QUERY, before=BEFORE) as session:
            assert session.call(call, "summarize").history == ("read_file", "summarize")


def test_feedback_keeps_what_calls_returned_cut_to_a_length(tmp_path):
    folder = serving.fit(tmp_path / "mail", arguments=False)
    log = tmp_path / "feedback.jsonl"
    call = {"id": "1", "tool": "read_file", "output": ["word"] * 5_000, "status": "ok", "step": 1}
    given = serving.settings(folder)
    settings = type(given)(**{**vars(given), "feedback_log": str(log)})
    with serving.serve(settings) as served:
        body = {"demonstrations": [{"query": QUERY, "calls": [call], "before": BEFORE}]}
        answer = served.post("/v1/feedback", body)
        assert answer.status_code == 200, answer.text
    (item,) = dtdr.read_demonstrations(log)
    (kept,), (earlier,) = item.plan.calls, item.plan.earlier
    assert (kept.status, kept.step) == ("ok", 1)
    assert len(json.dumps(kept.output, separators=(",", ":"))) <= 2_000 < (kept.output_length or 0)
    assert earlier.output == {"mail": "x"}
