"""What failed and what only says "failed"; what a parallel batch returned; what is left out."""

import json
from dataclasses import replace

import pytest
from examples.hotel.log_formats import Call, Turn, flat, number, write_lines

import dtdr
from dtdr.cli import run
from dtdr.data.calls import END
from dtdr.logs import CutOptions, Importer, find_format, open_demonstrations
from tests import ci_assistant
from tests.logs.log_samples import RENDERINGS, format_of

RED = {"id": "pipeline-77", "status": "failed", "jobs": [{"name": "test", "status": "error"}]}
MARKING = ("anthropic", "otel", "openinference", "langsmith", "langfuse", "mcp", "claude-code")


def read(tmp_path, rendering, records):
    path = write_lines(tmp_path / "log.jsonl", records)
    return list(open_demonstrations([path], format_of(rendering), CutOptions(query="go")))


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_a_status_in_a_richer_output_is_no_failure(rendering, tmp_path):
    turns = number([Turn("go", [[Call("get_pipeline", {"n": 1}, RED)]])])
    (found,) = read(tmp_path, rendering, RENDERINGS[rendering](turns))
    assert found.outcome == "success"
    assert found.plan.calls[0].status in ("ok", "unknown")  # of some, nothing says that it ended


@pytest.mark.parametrize("rendering", [*MARKING, "openinference, Phoenix"])
def test_where_failures_are_marked_only_the_mark_counts(rendering, tmp_path):
    for output, failed in (("Error: the build broke", False), ("no luck", True)):
        turns = number([Turn("go", [[Call("get_log", {"n": 1}, output, failed=failed)]])])
        (found,) = read(tmp_path, rendering, RENDERINGS[rendering](turns))
        assert found.plan.calls[0].status == ("error" if failed else "ok")
        assert found.outcome == "success"  # a call that failed is part of a run to learn from


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("Error: no such project", "error"),
        ("Traceback (most recent call last):\n  a\n  b\n  c\n  d\nKeyError: 'x'", "error"),
        ({"error": "not found"}, "error"),
        ({"error": {"code": 404}, "success": False, "data": None}, "error"),
        ({"isError": True, "content": [{"type": "text", "text": "no"}]}, "error"),
        ("Error: 3 tests broke\n" + "line\n" * 40, "ok"),
        ({"status": "failed"}, "ok"),
        ({"status": "error", "message": "red"}, "ok"),
        ({"success": False, "passed": 3}, "ok"),
        ({"error": "timeout in job 3", "job": "job-3", "log": "..."}, "ok"),
        ({"error": None, "rows": [1]}, "ok"),
        ({"error_rate": 0.2}, "ok"),
    ],
)
def test_without_marks_only_what_is_nothing_but_an_error_counts(output, status, tmp_path):
    turns = number([Turn("go", [[Call("look", {"n": 1}, output)]])])
    (found,) = read(tmp_path, "openai-chat", RENDERINGS["openai-chat"](turns))
    assert (found.plan.calls[0].status, found.outcome) == (status, "success")


def chat_with(content, **mark):
    """LangChain messages, of which the tool's carries a mark or none."""
    call = {"id": "c1", "name": "look", "args": {}}
    return {
        "messages": [
            {"type": "human", "content": "go"},
            {"type": "ai", "content": "", "tool_calls": [call]},
            {"type": "tool", "tool_call_id": "c1", "content": content, **mark},
        ]
    }


def test_a_message_of_langchain_fails_by_its_status_alone(tmp_path):
    for content, mark, status in (
        ("Error: no", {"status": "success"}, "ok"),
        ("Error: no", {}, "ok"),
        ("no luck", {"status": "error"}, "error"),
    ):
        (found,) = read(tmp_path, "openai-chat", [chat_with(content, **mark)])
        assert found.plan.calls[0].status == status


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_a_tools_message_in_a_span_says_that_it_failed(is_wrapped, tmp_path):
    message = {"type": "tool", "tool_call_id": "c1", "content": "no luck", "status": "error"}
    chain = {"id": "r", "run_type": "chain", "inputs": {"input": "go"}, "trace_id": "t"}
    tool = {"id": "s", "parent_run_id": "r", "trace_id": "t", "run_type": "tool", "name": "look",
            "inputs": {}, "outputs": {"output": message} if is_wrapped else message}  # fmt: skip
    (found,) = read(tmp_path, "langsmith", [chain, tool])
    assert (found.plan.calls[0].status, found.plan.calls[0].output) == ("error", "no luck")


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"reward": 0.0}, "failure"),
        ({"reward": 1.0}, "success"),
        ({"metadata": {"success": False}}, "failure"),
        ({"metadata": {"outcome": "failed"}}, "failure"),
        ({"feedback": {"score": 0}}, "failure"),
        ({"feedback": [{"score": 1}, {"comment": "fine"}]}, "success"),
        ({"metadata": {"status": "failed"}}, "success"),
    ],
)
@pytest.mark.parametrize("rendering", ["openai-chat", "anthropic", "openai-responses"])
def test_a_run_fails_where_its_record_says_so(rendering, said, outcome, tmp_path):
    name = next(name for name in RENDERINGS if name.startswith(rendering))
    turns = number([Turn("go", [[Call("look", {"n": 1}, RED)]])])
    records = [{**record, **said} for record in RENDERINGS[name](turns)]
    (found,) = read(tmp_path, name, records)
    assert found.outcome == outcome


@pytest.mark.parametrize("rendering", ["openai-chat", *MARKING])
@pytest.mark.parametrize(
    "answer",
    [
        "The tool 'pay' cannot be used at this step. Tools that can be used now: look.",
        {"error": "Unknown tool name: 'pay'."},
        "'pay' is a tool of two servers; the call was not made",
    ],
)
def test_a_call_that_was_refused_is_not_imported(rendering, answer, tmp_path):
    refused = Call("pay", {"n": 2}, answer, failed=True)
    made = Call("look", {"n": 1}, "The tool 'pay' cannot be used at this step.")
    turns = number([Turn("go", [[refused], [made], [refused]], "Done.")])
    path = write_lines(tmp_path / "log.jsonl", RENDERINGS[rendering](turns))
    options = CutOptions(query="go")
    importer = Importer(find_format(format_of(rendering)), [path], options)
    (found,) = importer.demonstrations()
    assert [call.tool for call in found.plan.calls] == ["look"]
    assert importer.summary()["failed_calls"] == 0


def ci_log(tmp_path, rendering, count, **options):
    """Import conversations of the CI assistant."""
    records = [
        record
        for place, turns in enumerate(ci_assistant.conversations(count))
        for record in RENDERINGS[rendering](turns, ci_assistant.TOOLS, f"{place}")
    ]
    path = write_lines(tmp_path / f"{format_of(rendering)}.jsonl", records)
    cut = CutOptions(**options)
    importer = Importer(find_format(format_of(rendering)), [path], cut)
    return sorted(importer.demonstrations(), key=lambda item: item.plan.calls[0].id), importer


BARE = next(name for name in RENDERINGS if RENDERINGS[name].__name__ == "openai_chat_bare")


def outline(found):
    """What happened, without ids, times and the agent's texts."""
    plain = ([replace(call, id="", text=None) for call in item.plan.calls] for item in found)
    return sorted(
        json.dumps([item.query, *(call.to_dict() for call in calls)])
        for item, calls in zip(found, plain, strict=True)
    )


@pytest.mark.parametrize("rendering", ["anthropic", "otel", "openinference", "langsmith"])
def test_two_formats_of_one_log_give_the_same_steps_outputs_and_references(rendering, tmp_path):
    chat, importer = ci_log(tmp_path, BARE, 40)
    other, other_importer = ci_log(tmp_path, rendering, 40)
    assert outline(chat) == outline(other)
    for key in ("runs", "kept", "calls", "failed_calls", "references"):
        assert importer.summary()[key] == other_importer.summary()[key], key


def test_no_run_is_lost_by_default_and_a_red_pipeline_is_followed_by_its_job_log(tmp_path):
    wanted = sum(bool(flat([turn])) for turns in ci_assistant.conversations(60) for turn in turns)
    for rendering in (BARE, "anthropic"):
        found, importer = ci_log(tmp_path, rendering, 60)
        assert len(found) == wanted
        assert {item.outcome for item in found} == {"success"}
        assert importer.summary()["failed_calls"] < 0.1 * importer.summary()["calls"]
        logs = [call for item in found for call in item.plan.calls if call.tool == "get_job_log"]
        assert {call.status for call in logs if "Error" not in str(call.output)} == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("rendering", [BARE, "anthropic"])
def test_what_a_job_log_asks_for_is_learned_by_default(rendering, tmp_path):
    found, _ = ci_log(tmp_path, rendering, 200)
    groups = sorted({item.group for item in found})
    held_out = set(groups[::4])
    model = dtdr.fit([item for item in found if item.group not in held_out])
    right = []
    for item in found:
        calls = item.plan.calls
        for done, call in enumerate(calls[:-1], start=1):
            if item.group in held_out and call.tool == "get_job_log" and call.status == "ok":
                best = model.rank(item.query, calls[:done], before=item.before)[0][0]
                right.append(best == (calls[done].tool if done < len(calls) else END))
    assert len(right) >= 15
    assert sum(right) / len(right) >= 0.9


def test_many_runs_marked_as_failed_are_said_with_the_remedy(tmp_path, capsys):
    records = []
    for n in range(20):
        turns = number(
            [Turn(f"go {n}", [[Call("pay", {"n": 1}, "Error: no" if n % 4 else "paid")]])]
        )
        records += [{**record, "success": not n % 4} for record in RENDERINGS[BARE](turns)]
    log, output = write_lines(tmp_path / "log.jsonl", records), tmp_path / "d.jsonl"
    fit = ["fit", str(output), "-o", str(tmp_path / "model"), "--retriever", "dr"]
    assert run(["import", str(log), "-o", str(output)]) == 0
    said = capsys.readouterr().err
    assert "15 of 20 runs (75%) are marked as failed" in said
    assert "--no-failures" in said
    assert run(fit) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "20 demonstrations (15 of them failed) of 2 tools" in said
    assert run([*fit, "--no-failures", "--force"]) == 0
    assert "(15 failures left out)" in " ".join(capsys.readouterr().out.split())


def test_many_runs_that_import_drops_are_said_with_the_option(tmp_path, capsys):
    turns = [
        number([Turn(f"go {n}", [[Call("pay", {"n": 1})]] if n % 4 else [])]) for n in range(20)
    ]
    log = write_lines(
        tmp_path / "log.jsonl", [record for turn in turns for record in RENDERINGS[BARE](turn)]
    )
    assert run(["import", str(log), "-o", str(tmp_path / "d.jsonl")]) == 0
    said = capsys.readouterr().err
    assert "5 of 20 runs (25%) were dropped (no tool was called: 5)" in said
    assert "--set empty=true" in said
