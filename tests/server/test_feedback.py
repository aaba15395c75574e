"""Feedback: learned on a copy that takes the model's place and saved when asked, or logged."""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import dtdr
from dtdr.data.demonstration_files import read_demonstrations
from dtdr.data.demonstrations import Demonstration, Parent
from dtdr.errors import InputError, OutputError
from dtdr.predict.model import Model
from dtdr.serve.feedback import DuplicateError, FileLog
from dtdr.serve.server import create_app
from tests import small_data
from tests.server import serving
from tests.server.serving import QUERY, refused

DEMONSTRATION = {"query": QUERY, "calls": ["weather", "weather", "weather"]}


@pytest.fixture
def learning(learner):
    """A server whose model can learn."""
    with serving.serve(serving.settings(learner)) as served:
        yield served


@pytest.fixture
def logging(fitted, tmp_path):
    """A server that logs feedback."""
    settings = serving.settings(fitted, feedback_log=str(tmp_path / "feedback.jsonl"))
    with serving.serve(settings) as served:
        yield served


def test_feedback_is_appended_as_import_writes_it_and_fit_reads_it(logging, tmp_path):
    written = {
        "id": "run-1",
        "query": "Mail Zoë the notes",
        "calls": [
            {"id": "1", "tool": "read_file", "arguments": {}, "step": 0, "status": "ok"},
            {"id": "2", "tool": "send_mail", "arguments": {"body": {"$ref": "1"}}, "step": 1},
        ],
        "source": "openai-chat",
        "group": "user-7",
        "parent": {"id": "run-0", "call": "3"},
        "time": "2026-11-22T09:30:00Z",
    }
    assert Demonstration.from_dict(written).to_dict() == written
    answer = logging.post("/v1/feedback", {"demonstrations": [written]}).json()
    assert (answer["demonstrations"], answer["logged"], answer["generation"]) == (1, True, 1)
    assert logging.metric('dtdr_logged_demonstrations_total{model="mail"}') == 1
    logging.post("/v1/feedback", {"demonstrations": [DEMONSTRATION]})
    found = list(read_demonstrations(tmp_path / "feedback.jsonl"))
    assert found[0].to_dict() == written
    assert found[1].plan.tools == ("weather",) * 3
    vocabulary = ("read_file", "send_mail", "weather", "end")
    assert dtdr.fit(found, ranker="dr").vocabulary == vocabulary
    wrong = {**written, "id": "run-2", "time": "noon"}
    answer = logging.post("/v1/feedback", {"demonstrations": [wrong]})
    assert "the time 'noon' is not one" in refused(answer, 422)


SECRETS = {"place": "sk-proj-abcDEF123456", "password": "hunter2"}
SECRET_FEEDBACK = {
    "id": "ann.lee@mail.example.org",
    "query": "Mail ann.lee@mail.example.org the weather",
    "calls": [
        {
            "id": "a.lee@x.org",
            "tool": "weather",
            "arguments": SECRETS,
            "output": "token ab12cd34ef",
        },
        {"id": "2", "tool": "send_mail", "arguments": {"body": {"$ref": "a.lee@x.org"}}},
    ],
    "links": [["a.lee@x.org", "2"]],
    "before": [
        {"role": "user", "content": "my key is ghp_0123456789abcdefghij"},
        {"role": "call", "id": "a.lee@y.org", "tool": "read_file"},
    ],
    "parent": {"id": "run-0", "call": "a.lee@y.org"},
}


def test_secrets_of_feedback_do_not_reach_the_file(logging, tmp_path):
    answer = logging.post("/v1/feedback", {"demonstrations": [SECRET_FEEDBACK]})
    assert answer.status_code == 202, answer.text
    text = (tmp_path / "feedback.jsonl").read_text()
    for secret in (".lee@", "sk-proj", "hunter2", "ab12cd34ef", "ghp_"):
        assert secret not in text
    (found,) = read_demonstrations(tmp_path / "feedback.jsonl")
    assert found.query == "Mail [email] the weather"
    first, second = found.plan.calls
    assert first.arguments == {"place": "[api-key]", "password": "[secret]"}
    assert second.references() == (first.id,)
    assert found.plan.links == ((first.id, "2"),)
    assert found.parent == Parent("run-0", found.plan.earlier[0].id)
    again = logging.post("/v1/feedback", {"demonstrations": [SECRET_FEEDBACK]})
    assert again.status_code == 409  # by an id that is not written as it was sent
    other = {**SECRET_FEEDBACK, "id": "bob.lee@mail.example.org"}
    assert logging.post("/v1/feedback", {"demonstrations": [other]}).status_code == 202
    assert len(list(read_demonstrations(tmp_path / "feedback.jsonl"))) == 2


def test_a_repeated_id_is_refused_before_anything_is_logged(logging, tmp_path):
    demonstration = {**DEMONSTRATION, "id": "mine"}
    assert logging.post("/v1/feedback", {"demonstrations": [demonstration]}).status_code == 202
    for body in (
        [demonstration],
        [DEMONSTRATION, demonstration],
        [{**DEMONSTRATION, "id": "new"}] * 2,
    ):
        assert "id" in refused(logging.post("/v1/feedback", {"demonstrations": body}), 409)
    bad = {"id": "new", "query": "q", "calls": ["end"]}
    assert logging.post("/v1/feedback", {"demonstrations": [bad]}).status_code == 422
    path = tmp_path / "feedback.jsonl"
    logging.service.feedback_logs["mail"].close()
    with pytest.raises(DuplicateError, match="sent before"):  # the next process reads the ids
        FileLog(path).append(list(read_demonstrations(path)))
    good = {**DEMONSTRATION, "id": "new"}
    assert logging.post("/v1/feedback", {"demonstrations": [good]}).status_code == 202
    assert [item.id for item in read_demonstrations(path)] == ["mine", "new"]


def test_several_models_have_a_file_each(fitted, tmp_path):
    models = {"mail": fitted, "home": fitted}
    with pytest.raises(InputError, match=r"\{model\}"):
        create_app(serving.settings(models=models, feedback_log=str(tmp_path / "f.jsonl")))
    settings = serving.settings(models=models, feedback_log=str(tmp_path / "f" / "{model}.jsonl"))
    with serving.serve(settings) as served:
        body = {"model": "home", "demonstrations": [DEMONSTRATION]}
        assert served.post("/v1/feedback", body).json()["logged"]
    assert (tmp_path / "f" / "mail.jsonl").read_bytes() == b""
    assert len((tmp_path / "f" / "home.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_half_a_line_that_a_crash_left_is_cut_off(tmp_path, cut):
    path = tmp_path / "feedback.jsonl"
    FileLog(path).append([small_data.demonstration(number) for number in (0, 1)])
    path.write_bytes(path.read_bytes()[:-cut])
    FileLog(path).append([small_data.demonstration(2)])
    found = [item.id for item in read_demonstrations(path)]
    whole = [small_data.demonstration(number).id for number in ((0, 1, 2) if cut == 1 else (0, 2))]
    assert found == whole


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")
@pytest.mark.parametrize("kind", ["feedback", "gateway"])
def test_no_acknowledged_demonstration_is_lost_or_glued_when_its_writer_is_killed(kind, tmp_path):
    kills = os.environ.get("DTDR_TEST_KILLS", "100")  # 1,000 were killed for docs/security.md
    if kind == "gateway":
        pytest.importorskip("mcp", reason="the gateway needs the extra dtdr[mcp]")
    found = subprocess.run(
        [sys.executable, Path(__file__).with_name("killed_writer.py"), kind, tmp_path / "f", kills],
        capture_output=True,
        text=True,
        check=True,
    )
    counts = json.loads(found.stdout)
    assert counts["wrong"] == []
    assert counts["acknowledged"] > int(kills) // 10
    # The server cuts off half a line; the gateway ends it.
    assert counts["broken"] <= (0 if kind == "feedback" else int(kills))


def test_what_cannot_be_learned_is_refused_and_changes_nothing(learning):
    """Not even with a good one before it."""
    before = learning.post("/v1/rank", {"query": QUERY}).json()
    reference = {"id": "1", "tool": "a", "arguments": {"x": {"$ref": "9"}}}
    for wrong, reason in (
        ({"calls": ["end"]}, "reserved"),
        ({"calls": [{"id": "1", "tool": "a"}, {"id": "1", "tool": "b"}]}, "share the id"),
        ({"calls": [reference]}, "'9'"),
        ({"calls": ["a"], "links": [["1", "7"]]}, "demonstration 1: "),
    ):
        bodies = [DEMONSTRATION, {"query": "q", **wrong}]
        assert reason in refused(learning.post("/v1/feedback", {"demonstrations": bodies}), 422)
    assert learning.post("/v1/rank", {"query": QUERY}).json() == before


def test_feedback_cannot_bring_more_tools_than_the_limit(learner):
    names = [f"tool_{number}" for number in range(90)]
    with serving.serve(serving.settings(learner, tools=50)) as served:
        body = {"demonstrations": [{"query": QUERY, "calls": names}]}
        assert "the limit is 50" in refused(served.post("/v1/feedback", body), 422)


@pytest.mark.parametrize(("number", "status"), [(28, 507), (5, 503)])
def test_what_cannot_be_written_is_said_without_a_path(logging, monkeypatch, number, status):
    def fail(_):
        raise OSError(number, "the disk says so")

    with monkeypatch.context() as patch:
        patch.setattr("dtdr.serve.feedback.file_log.os.fsync", fail)
        answer = logging.post("/v1/feedback", {"demonstrations": [DEMONSTRATION]})
    assert answer.status_code == status
    assert "feedback.jsonl" not in answer.text
    assert logging.get("/readyz").json()["failing"] == 1
    assert logging.post("/v1/feedback", {"demonstrations": [DEMONSTRATION]}).status_code == 202
    assert logging.get("/readyz").json()["failing"] == 0


def test_a_second_writer_of_a_log_is_refused_until_the_first_ends(fitted, tmp_path):
    path = tmp_path / "feedback.jsonl"
    with serving.serve(serving.settings(fitted, feedback_log=str(path))) as served:
        with pytest.raises(OutputError, match="another process appends to") as raised:
            create_app(serving.settings(fitted, feedback_log=str(path)))
        assert "\n" not in str(raised.value)
        assert served.post("/v1/feedback", {"demonstrations": [DEMONSTRATION]}).status_code == 202
        assert len(FileLog(path).read("", 10)) == 1, "others may read"
    FileLog(path).append([small_data.demonstration(0)])


def test_lines_are_read_once_they_are_kept(tmp_path, monkeypatch):
    path = tmp_path / "feedback.jsonl"
    log = FileLog(path)
    log.append([small_data.demonstration(0)])
    written, fail = threading.Event(), threading.Event()

    def sync(_):
        written.set()
        assert fail.wait(30)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dtdr.serve.feedback.file_log.os.fsync", sync)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        writing = pool.submit(log.append, [small_data.demonstration(1)])
        assert written.wait(30)
        reading = pool.submit(FileLog(path).read, "", 10)
        assert not concurrent.futures.wait([reading], 0.2).done
        fail.set()
        assert isinstance(writing.exception(30), OutputError)
        assert len(reading.result(30)) == 1, "what was cut off again was never read"


def wait_until_learned(served):
    """The model once nothing waits to be learned."""

    def is_done():
        described.update(served.get("/v1/models/mail").json())
        waits = described["waiting"]
        return described["learning"] is None and not any(waits.values())

    described: dict[str, Any] = {}
    serving.wait_until(is_done, 120)
    return described


def test_feedback_that_arrives_at_once_is_all_learned_exactly_once(learning):
    body = {"demonstrations": [DEMONSTRATION]}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: learning.post("/v1/feedback", body), range(16)))
    assert {answer.status_code for answer in answers} == {202}
    model = wait_until_learned(learning)
    assert model["demonstrations"] == 6 + 16
    assert model["unsaved"] == 16
    assert model["generation"] < 1 + 16, "what waits is learned together"


def test_feedback_is_answered_before_it_is_learned_and_the_model_says_what_waits(
    learning, monkeypatch
):
    started, proceed = threading.Event(), threading.Event()
    update = Model.update

    def slow(self, demonstrations):
        started.set()
        assert proceed.wait(60)
        return update(self, demonstrations)

    monkeypatch.setattr(Model, "update", slow)
    new = {**DEMONSTRATION, "calls": ["weather", "print_pages"]}
    answer = learning.post("/v1/feedback", {"demonstrations": [new, DEMONSTRATION]})
    assert answer.status_code == 202
    assert answer.json()["demonstrations"] == 2
    assert answer.json()["new_tools"] == ["print_pages"]
    assert started.wait(60)
    learning.post("/v1/feedback", {"demonstrations": [DEMONSTRATION]})
    tools = {"add": [{"name": "scan", "description": "Scan a page"}], "remove": ["weather"]}
    assert learning.post("/v1/models/mail/tools", tools).status_code == 202
    shown = learning.get("/v1/models/mail").json()
    assert shown["learning"] == {"demonstrations": 2, "added_tools": [], "removed_tools": []}
    assert shown["learning_since"] <= datetime.now(UTC).isoformat()
    assert shown["waiting"] == {
        "demonstrations": 1,
        "added_tools": ["scan"],
        "removed_tools": ["weather"],
    }
    assert learning.metric('dtdr_waiting_changes{model="mail"}') == 5
    assert learning.post("/v1/rank", {"query": QUERY}).json()["generation"] == 1
    cases: list[tuple[dict[str, Any], int]] = [
        ({"add": [{"name": "scan"}]}, 409),
        ({"add": [{"name": "print_pages"}]}, 409),
        ({"remove": ["weather"]}, 404),
        ({"add": [{"description": "x"}]}, 422),
        ({"remove": ["end"]}, 404),
    ]
    for tools, status in cases:
        refused(learning.post("/v1/models/mail/tools", tools), status)
    # A folder that is loaded meanwhile learns what waits, too.
    assert learning.post("/v1/models/mail/reload").json()["generation"] == 2
    proceed.set()
    shown = wait_until_learned(learning)
    assert {"scan", "print_pages"} <= {*shown["vocabulary"]}
    assert "weather" not in shown["vocabulary"]
    assert (shown["demonstrations"], shown["learning_error"]) == (6 + 3, None)


def test_a_change_of_tools_is_answered_before_it_is_made(learning, monkeypatch):
    proceed = threading.Event()
    for name in ("add_tools", "remove_tools"):
        change = getattr(Model, name)

        def slow(self, tools, change=change):
            assert proceed.wait(60)
            return change(self, tools)

        monkeypatch.setattr(Model, name, slow)
    for added, removed in ((["scan"], []), ([], ["weather"])):
        body = {"add": [{"name": name} for name in added], "remove": removed}
        answer = learning.post("/v1/models/mail/tools", body)
        assert answer.status_code == 202
        assert answer.json()["waiting"] == {
            "demonstrations": 0,
            "added_tools": added,
            "removed_tools": removed,
        }
    shown = learning.get("/v1/models/mail").json()
    assert shown["learning"]["added_tools"] == ["scan"]
    assert shown["learning_since"] <= datetime.now(UTC).isoformat()
    assert shown["waiting"]["removed_tools"] == ["weather"]
    proceed.set()
    vocabulary = wait_until_learned(learning)["vocabulary"]
    assert "scan" in vocabulary
    assert "weather" not in vocabulary


def test_a_change_that_fails_is_shown_and_stops_no_other(learning, monkeypatch):
    update = Model.update

    def failing(self, demonstrations):
        if any(item.id == "bad" for item in demonstrations):
            raise InputError("this cannot be learned")
        return update(self, demonstrations)

    monkeypatch.setattr(Model, "update", failing)
    bodies = [{**DEMONSTRATION, "id": name} for name in ("bad", "good")]
    for body in bodies:
        learning.post("/v1/feedback", {"demonstrations": [body]})
    shown = wait_until_learned(learning)
    assert shown["demonstrations"] == 6 + 1
    learning.post("/v1/feedback", {"demonstrations": bodies[:1]})
    assert wait_until_learned(learning)["learning_error"] == "this cannot be learned"
    monkeypatch.setattr(Model, "update", lambda *_: 1 / 0)
    learning.post("/v1/feedback", {"demonstrations": bodies[1:]})
    assert "ZeroDivisionError" in wait_until_learned(learning)["learning_error"]


def test_saving_never_overwrites_what_somebody_else_wrote(model):
    with serving.serve(serving.settings(model)) as served:
        serving.fit(model, ranker="dr")
        assert "was changed since it was loaded" in refused(
            served.post("/v1/models/mail/save"), 409
        )
        assert dtdr.load(model).name == "dr"


def test_a_new_tool_is_learned_on_a_copy_ranked_at_once_and_saved(learner, tmp_path):
    folder = shutil.copytree(learner, tmp_path / "mail")
    demonstration: Any = {
        "query": "Print the summary of q3.pdf for Ann",
        "calls": ["read_file", "summarize", "print_pages"],
    }
    step = {"query": demonstration["query"], "history": ["read_file", "summarize"]}
    with serving.serve(serving.settings(folder)) as served:
        assert served.get("/v1/models/mail").json()["can_learn"]
        former = served.service.models["mail"].current
        bodies = [*[demonstration] * 4, {**demonstration, "outcome": "failure"}]
        answer = served.post("/v1/feedback", {"demonstrations": bodies}).json()
        assert (answer["demonstrations"], answer["new_tools"]) == (5, ["print_pages"])
        assert wait_until_learned(served)["generation"] == 2
        assert served.metric('dtdr_unsaved_demonstrations{model="mail"}') == 5
        assert "print_pages" not in former.model.vocabulary
        assert "print_pages" in served.get("/v1/models/mail").json()["vocabulary"]
        ranked = served.post("/v1/rank", {**step, "top_k": 100}).json()
        assert served.post("/v1/models/mail/save").json()["unsaved"] == 0
        assert not served.service.models["mail"].changed, "its own writing is no change"
    again = dtdr.load(folder).rank(step["query"], step["history"])
    assert [(item["tool"], item["probability"]) for item in ranked["tools"]] == [
        (tool, pytest.approx(probability, abs=1e-6)) for tool, probability in again
    ]


def test_feedback_keeps_what_calls_returned_cut_to_a_length(logging, tmp_path):
    call = {"id": "1", "tool": "read_file", "output": ["word"] * 5_000, "status": "ok", "step": 1}
    found = {"id": "a", "tool": "find_contact", "output": {"mail": "x"}, "status": "ok"}
    before = [{"role": "user", "content": "Who is Ann?"}, {"role": "call", **found}]
    body = {"demonstrations": [{"query": QUERY, "calls": [call], "before": before}]}
    assert logging.post("/v1/feedback", body).status_code == 202
    (item,) = read_demonstrations(tmp_path / "feedback.jsonl")
    (kept,), (earlier,) = item.plan.calls, item.plan.earlier
    assert (kept.status, kept.step) == ("ok", 1)
    assert len(json.dumps(kept.output, separators=(",", ":"))) <= 2_000 < (kept.output_length or 0)
    assert earlier.output == {"mail": "x"}
