"""Kinds of faults in which turns, tools or failures were lost without a word."""

# ruff: noqa: E501  # a record is easier to read on one line

import json
from typing import Any

import pytest
from examples.hotel.log_formats import write_lines

from dtdr.conversation.values import arguments_of, decode_value
from dtdr.errors import InputError
from dtdr.logs import CutOptions, Importer, find_format, open_demonstrations
from tests.logs.public_forms import call


def read(path, fmt=None, **options):
    return list(open_demonstrations([path], fmt, CutOptions(**options)))


def shape(found):
    return [(item.query, list(item.plan.tools)) for item in found]


# --- Claude Code ---


def claude(number, kind, content, session="s1", **more):
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message["id"] = f"m{number}"
    line = {"type": kind, "uuid": f"u{number}", "sessionId": session, "message": message, **more}
    return {**line, "timestamp": f"2026-06-01T08:00:{number:02}Z"}


def use(number, tool="Bash", **entered):
    block = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": entered}
    return claude(number, "assistant", [{"type": "text", "text": "I look."}, block])


def result(number, of, content="done", **more):
    block = {"type": "tool_result", "tool_use_id": f"t{of}", "content": content}
    return claude(number, "user", [block], **more)


def tagged(name, arguments=""):
    return (
        f"<command-name>/{name}</command-name>\n<command-message>{name}</command-message>\n"
        f"<command-args>{arguments}</command-args>"
    )


def test_a_command_that_an_agent_answered_is_what_was_typed_and_others_are_none(tmp_path):
    lines = [
        claude(1, "user", tagged("model")),
        claude(2, "user", "<local-command-stdout>Set model</local-command-stdout>"),
        claude(3, "user", tagged("review")),
        claude(4, "user", [{"type": "text", "text": "You are a reviewer."}], isMeta=True),
        use(5),
        result(6, 5),
        claude(7, "user", tagged("clear")),
        claude(8, "user", tagged("fix", "the first bug")),
        use(9, "Edit"),
        claude(10, "user", tagged("mcp")),
    ]
    found = read(write_lines(tmp_path / "log.jsonl", lines))
    assert shape(found) == [("/review", ["Bash"]), ("/fix the first bug", ["Edit"])]


@pytest.mark.parametrize(
    "text",
    [
        "<task-notification>\n<status>completed</status>\n</task-notification>\nRead the output.",
        "<local-command-stderr>no</local-command-stderr> see the log",
        "<bash-input>ls</bash-input>",
        "<system-reminder>be brief</system-reminder>",
        "[Request interrupted by user]",
        "This session is being continued from a previous conversation that ran out of context. So",
        "Stop hook feedback:\n- the tests fail",
        "Another Claude session sent a message:\n<teammate-message>go</teammate-message>",
        "<user-memory-input>use tabs</user-memory-input>",
        "<user_shell_command>ls</user_shell_command>",
    ],
)
def test_what_a_program_writes_begins_no_turn_and_joins_no_query(text, tmp_path):
    lines = [claude(1, "user", "go"), use(2), result(3, 2), claude(4, "user", text), use(5, "Read")]
    lines += [claude(6, "user", text), claude(7, "user", "stop"), use(8, "Kill")]
    found = read(write_lines(tmp_path / "log.jsonl", lines))
    assert shape(found) == [("go", ["Bash", "Read"]), ("stop", ["Kill"])]


@pytest.mark.parametrize("order", [1, -1])
def test_a_copied_history_counts_once_and_both_sessions_go_on(order, tmp_path):
    begin = [claude(1, "user", "list"), use(2), result(3, 2)]
    first = [*begin, claude(4, "user", "sort"), use(5, "Sort"), result(6, 5)]
    copied = [{**line, "sessionId": "s2"} for line in begin]
    second = [*copied, claude(7, "user", "pay", session="s2"), {**use(8, "Pay"), "sessionId": "s2"}]
    paths = [write_lines(tmp_path / f"{n}.jsonl", lines) for n, lines in enumerate([first, second])]
    found = list(open_demonstrations(paths[::order], None, CutOptions()))
    assert sorted(shape(found)) == [("list", ["Bash"]), ("pay", ["Pay"]), ("sort", ["Sort"])]
    assert len({item.group for item in found}) == 1
    assert {item.query: len(item.before) for item in found if item.query != "list"} == {
        "pay": 3,
        "sort": 3,
    }


def test_results_in_lines_of_the_program_and_queued_messages_are_read(tmp_path):
    queued = {"type": "queued_command", "prompt": "and mail it", "commandMode": "prompt"}
    lines = [
        claude(1, "user", "go"),
        use(2),
        result(3, 2, "RM-40417", isMeta=True),
        {"type": "attachment", "uuid": "u4", "sessionId": "s1", "attachment": queued},
        use(5, "Mail"),
    ]
    found = read(write_lines(tmp_path / "log.jsonl", lines))
    assert shape(found) == [("go", ["Bash"]), ("and mail it", ["Mail"])]
    assert found[0].plan.calls[0].output == "RM-40417"


def test_the_text_of_a_step_is_its_end_without_secrets_on_the_first_call(tmp_path):
    long = "word " * 200 + "the password is tr0ub4dor&3"
    blocks: list[dict[str, Any]] = [{"type": "text", "text": long}]
    blocks += [{"type": "tool_use", "id": f"t{n}", "name": "f", "input": {}} for n in (1, 2)]
    path = write_lines(
        tmp_path / "log.jsonl", [claude(1, "user", "go"), claude(2, "assistant", blocks)]
    )
    from dtdr.logs import Redactor

    (item,) = open_demonstrations([path], None, CutOptions(), redactor=Redactor())
    first, second = item.plan.calls
    assert first.text is not None
    assert len(first.text) <= 500
    assert first.text.startswith("word")
    assert first.text.endswith("[password]") or "tr0ub4dor" not in first.text
    assert second.text is None


# --- Codex ---


def codex(*payloads, meta=({"id": "x1"},)):
    lines = [("session_meta", payload) for payload in meta]
    lines += [("event_msg" if "event" in p else "response_item", p) for p in payloads]
    return [
        {"timestamp": f"2026-03-01T12:00:{n:02}Z", "type": kind, "payload": payload}
        for n, (kind, payload) in enumerate(lines)
    ]


ASK = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
SHELL = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}


def output(value):
    return {"type": "function_call_output", "call_id": "c1", "output": value}


@pytest.mark.parametrize(
    ("value", "status", "kept"),
    [
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\nno rule", "error", "no rule"),
        ("Exit code: 0\nWall time: 0.1 seconds\nOutput:\nmade", "ok", "made"),
        ("Wall time: 0.1 seconds\nProcess exited with code 7\nOutput:\nx", "error", "x"),
        ("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nx", "ok", "x"),
        (json.dumps({"output": "no", "metadata": {"exit_code": 2}}), "error", "no"),
        (json.dumps({"output": "yes", "metadata": {"exit_code": 0}}), "ok", "yes"),
        ("tool call error: no such ticket", "error", "tool call error: no such ticket"),
        ("failed in sandbox X: denied", "error", "failed in sandbox X: denied"),
        ("exec command rejected by user", "error", "exec command rejected by user"),
        ("aborted by user after 3.0s", "error", "aborted by user after 3.0s"),
        ("The test prints: Exit code: 1", "ok", "The test prints: Exit code: 1"),
        ({"content": "no", "success": False}, "error", "no"),
        ('{"content": [{"type": "text", "text": "no"}], "isError": true}', "error", "no"),
        ([{"type": "input_text", "text": "Wall time: 1 s\nOutput:\nx"}], "ok", "x"),
    ],
)  # fmt: skip
def test_codex_marks_failures_in_ways_of_its_own(value, status, kept, tmp_path):
    path = write_lines(tmp_path / "log.jsonl", codex(ASK, SHELL, output(value)))
    (item,) = read(path)
    (call_,) = item.plan.calls
    assert (call_.status, call_.output) == (status, kept)


@pytest.mark.parametrize(
    "end",
    [
        {"type": "exec_command_end", "call_id": "c1", "exit_code": 1},
        {"type": "exec_command_end", "call_id": "c1", "exit_code": 0, "status": "declined"},
        {"type": "mcp_tool_call_end", "call_id": "c1", "result": {"Err": "no"}},
        {"type": "mcp_tool_call_end", "call_id": "c1", "result": {"Ok": {"isError": True}}},
        {"type": "patch_apply_end", "call_id": "c1", "success": False},
    ],
)
def test_an_event_of_a_calls_end_says_that_it_failed(end, tmp_path):
    path = write_lines(tmp_path / "log.jsonl", codex(ASK, SHELL, {**end, "event": 1}, output("x")))
    (item,) = read(path)
    assert item.plan.calls[0].status == "error"


def test_the_first_meta_is_the_files_own_and_the_last_the_group(tmp_path):
    metas = [{"id": "c", "forked_from_id": "b"}, {"id": "b"}, {"id": "a"}]
    (item,) = read(write_lines(tmp_path / "log.jsonl", codex(ASK, SHELL, meta=metas)))
    assert (item.id, item.group) == ("c-1", "a")


def test_old_lines_of_codex_may_repeat_themselves(tmp_path):
    again = {**SHELL, "call_id": "c2"}
    meta = {"id": "x1", "timestamp": "2025-09-10T18:58:38Z", "instructions": None}
    path = write_lines(tmp_path / "log.jsonl", [meta, ASK, SHELL, ASK, again])
    assert shape(read(path)) == [("go", ["shell"]), ("go", ["shell"])]


def test_the_request_behind_the_state_of_an_editor_is_the_query(tmp_path):
    text = (
        "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nfix it"
    )
    ask = {**ASK, "content": [{"type": "input_text", "text": text}]}
    assert read(write_lines(tmp_path / "log.jsonl", codex(ask, SHELL)))[0].query == "fix it"


# --- Spans ---


def langfuse(*observations, asked="go"):
    return [{"trace": {"id": "t", "input": json.dumps(json.dumps({"prompt": asked}))},
             "observations": list(observations)}]  # fmt: skip


def observation(number, kind, name, entered, left, **attributes):
    time = f"2026-03-01T12:00:0{number}"
    return {"id": f"o{number}", "traceId": "t", "type": kind, "name": name, "input": entered,
            "output": left, "startTime": f"{time}Z", "endTime": f"{time}.5Z", "level": "DEFAULT",
            "metadata": json.dumps({"attributes": attributes})}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("execute_tool look", {}),
        ("running tool: look", {"gen_ai.tool.name": "look"}),
        ("execute_tool look", {"gen_ai.operation.name": "execute_tool"}),
        ("x", {"openinference.span.kind": "TOOL", "tool.name": "look"}),
        ("x", {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "look"}),
        ("x", {"traceloop.span.kind": "tool", "traceloop.entity.name": "look"}),
        ("look", {"langsmith.span.kind": "tool"}),
        ("tool.look", {"ag2.span.type": "tool"}),
    ],
)
@pytest.mark.parametrize(
    "entered",
    [
        {"city": "Oslo"},
        {"input": {"city": "Oslo"}},
        "{'city': 'Oslo'}",
        json.dumps(json.dumps({"city": "Oslo"})),
        {"args": [], "kwargs": {"city": "Oslo"}},
        {"input": "{'city': 'Oslo'}"},
    ],
)
def test_a_span_is_the_tool_that_its_attributes_name(name, attributes, entered, tmp_path):
    kind = "TOOL" if not attributes else "SPAN"
    records = langfuse(observation(1, kind, name, entered, '"done"', **attributes))
    (item,) = read(write_lines(tmp_path / "log.jsonl", records))
    (made,) = item.plan.calls
    assert (item.query, made.tool, made.output) == ("go", "look", "done")
    assert made.arguments == {"city": "Oslo"}


def test_text_with_a_speaker_before_each_paragraph_is_several_messages(tmp_path):
    text = "system: Be brief.\nuser: go\nassistant: None"
    reply = {"choices": [{"message": {"tool_calls": [call("c1", "look", "{}")]}}]}
    records = langfuse(observation(1, "GENERATION", "chat", text, reply), asked="")
    assert shape(read(write_lines(tmp_path / "log.jsonl", records))) == [("go", ["look"])]


def test_an_agent_that_only_wraps_another_is_none(tmp_path):
    asked = [{"role": "user", "content": "go"}]
    spans = [
        observation(0, "AGENT", "outer", None, None),
        {**observation(1, "AGENT", "inner", None, None), "parentObservationId": "o0"},
        {**observation(2, "GENERATION", "chat", asked, "x"), "parentObservationId": "o1"},
        {**observation(3, "TOOL", "look", {}, "x"), "parentObservationId": "o1"},
    ]
    assert shape(read(write_lines(tmp_path / "log.jsonl", langfuse(*spans)))) == [("go", ["look"])]


def test_spans_without_ids_are_different_spans(tmp_path):
    run = {"trace_id": "t", "run_type": "tool", "start_time": "2026-03-01T12:00:00Z", "inputs": {}}
    chain = {**run, "run_type": "chain", "name": "x", "inputs": {"input": "go"}}
    tools = [{**run, "name": f"look_{n}", "outputs": {"output": "x"}} for n in range(3)]
    (item,) = read(write_lines(tmp_path / "log.jsonl", [chain, *tools]))
    assert set(item.plan.tools) == {"look_0", "look_1", "look_2"}


def otlp(*spans):
    """A file of OTLP with these spans, as names, attributes and events."""

    def values(given):
        given = {
            key: value if isinstance(value, (str, bool)) else json.dumps(value)
            for key, value in given.items()
        }
        return [
            {"key": k, "value": {"boolValue" if isinstance(v, bool) else "stringValue": v}}
            for k, v in given.items()
        ]

    found = []
    for number, (name, attributes, *events) in enumerate(spans):
        time = 1_780_000_000_000_000_000 + number * 1_000_000_000
        listed = [
            {"name": key, "attributes": values(said)}
            for event in events
            for key, said in event.items()
        ]
        found.append(
            {
                "traceId": "t",
                "spanId": f"s{number}",
                "parentSpanId": "s0" if number else "",
                "name": name,
                "events": listed,
                "startTimeUnixNano": str(time),
                "endTimeUnixNano": str(time + 5),
                "attributes": values(attributes),
            }
        )
    return {"resourceSpans": [{"scopeSpans": [{"spans": found}]}]}


LOOK_ID = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "look",
    "gen_ai.tool.call.id": "c1",
}
DETAILS = "gen_ai.client.inference.operation.details"
GO = {"messages": [{"role": "user", "content": [{"text": "go"}]}]}
PARTS = [{"functionCall": {"id": f"c{n}", "name": "look", "args": {"a": n}}} for n in (1, 2)]


@pytest.mark.parametrize(
    "spans",
    [
        [  # Strands
            ("chat", {"gen_ai.operation.name": "chat"}, {"gen_ai.user.message": {"content": [{"text": "go"}]}},
             {"gen_ai.choice": {"message": [{"toolUse": {"toolUseId": "c1", "name": "look", "input": {"a": 1}}}]}}),
            ("execute_tool look", {**LOOK_ID, "gen_ai.tool.status": "error"}, {"gen_ai.tool.message": {"role": "tool", "content": {"a": 1}, "id": "c1"}},
             {"gen_ai.choice": {"message": [{"text": "done"}], "id": "c1"}}),
        ],
        [  # Strands with the newest conventions
            ("invoke_agent x", {"gen_ai.operation.name": "invoke_agent"}, {"gen_ai.user.message": {"content": [{"text": "go"}]}}),
            ("execute_tool look", {**LOOK_ID, "gen_ai.tool.status": "error"},
             {DETAILS: {"gen_ai.input.messages": [{"role": "tool", "parts": [{"type": "tool_call", "name": "look", "id": "c1", "arguments": {"a": 1}}]}]}},
             {DETAILS: {"gen_ai.output.messages": [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": [{"text": "done"}]}]}]}}),
        ],
        [  # LiveKit
            ("llm_node", {"lk.chat_ctx": {"items": [{"type": "message", "role": "user", "content": ["go"]}]}, "lk.response.text": "I look.",
                          "lk.response.function_calls": [{"call_id": "c1", "name": "look", "arguments": "{\"a\": 1}"}]}),
            ("function_tool", {"lk.function_tool.name": "look", "lk.function_tool.id": "c1", "lk.pii.function_tool.arguments": {"a": 1},
                               "lk.function_tool.is_error": True, "lk.pii.function_tool.output": "done"}),
        ],
        [  # Spring AI
            ("chat", {"gen_ai.operation.name": "chat", "gen_ai.prompt": ["Be brief.", "go"]}),
            ("tool_call look", {"spring.ai.kind": "tool_call", "spring.ai.tool.definition.name": "look", "spring.ai.tool.call.arguments": {"a": 1},
                                "spring.ai.tool.call.result": "done", "error.type": "IOException"}),
        ],
        [  # Genkit
            ("model", {"genkit:metadata:subtype": "model", "genkit:name": "gemini", "genkit:input": GO,
                       "genkit:output": {"message": {"role": "model", "content": [{"toolRequest": {"name": "look", "ref": "c1", "input": {"a": 1}}}]}}}),
            ("look", {"genkit:metadata:subtype": "tool", "genkit:name": "look", "genkit:input": {"a": 1}, "genkit:output": "\"done\"", "genkit:state": "error"}),
        ],
        [  # Google ADK, with a span for all results of a message
            ("call_llm", {"gen_ai.operation.name": "generate_content", "gcp.vertex.agent.llm_request": {"contents": [{"role": "user", "parts": [{"text": "go"}]}]},
                          "gcp.vertex.agent.llm_response": {"content": {"role": "model", "parts": PARTS[:1]}}}),
            ("execute_tool look", {**LOOK_ID, "gcp.vertex.agent.tool_call_args": {"a": 1}, "gcp.vertex.agent.tool_response": "done", "error.type": "x"}),
            ("execute_tool (merged tools)", {**LOOK_ID, "gen_ai.tool.name": "(merged tools)", "gcp.vertex.agent.tool_call_args": "N/A"}),
        ],
    ],
)  # fmt: skip
def test_spans_of_further_frameworks_say_their_calls(spans, tmp_path):
    (item,) = read(write_lines(tmp_path / "log.json", [otlp(*spans)]))
    (made,) = item.plan.calls
    assert (item.query, made.tool, made.arguments) == ("go", "look", {"a": 1})
    assert (made.output, made.status) == ("done", "error")


@pytest.mark.parametrize(
    ("name", "entered", "left", "attributes"),
    [
        ("execute_tool look", [{"role": "tool", "content": '{"city": "Oslo"}', "id": "c1"}], {"message": '[{"text": "done"}]', "id": "c1"}, {}),
        ("tool: 'look'", {"city": "Oslo"}, "done", {}),
        ("Look", {"args": [{"city": "Oslo"}], "kwargs": {}}, "done", {"tool.name": "look"}),
    ],
)  # fmt: skip
def test_tools_of_langfuse_that_frameworks_wrote_are_opened(
    name, entered, left, attributes, tmp_path
):
    records = langfuse(observation(1, "TOOL", name, entered, left, **attributes))
    (item,) = read(write_lines(tmp_path / "log.jsonl", records))
    (made,) = item.plan.calls
    assert (made.tool, made.arguments, made.output) == ("look", {"city": "Oslo"}, "done")


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_printed_message_of_a_tool_is_its_content_and_a_dotted_order_names_the_trace(
    quote, tmp_path
):
    top = {
        "run_id": "r0",
        "run_type": "chain",
        "name": "x",
        "inputs": {"input": "go"},
        "dotted_order": "20260301T120000000000Zr0",
    }
    printed = f"content={quote}no\\nfile{quote} name='look' tool_call_id='c1' status='error'"
    tool = {**top, "run_id": "r1", "parent_run_id": "r0", "run_type": "tool", "name": "look", "inputs": {}, "outputs": {"output": printed},
            "dotted_order": "20260301T120000000000Zr0.20260301T120001000000Zr1"}  # fmt: skip
    (item,) = read(write_lines(tmp_path / "log.jsonl", [top, tool]))
    (made,) = item.plan.calls
    assert (item.query, made.tool, made.output, made.status) == ("go", "look", "no\nfile", "error")


# --- Arguments and outputs ---


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("null", {}),
        ("", {}),
        (None, {}),
        ("None", {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("{'a': True}", {"a": True}),
        ('""', {}),
        ("{broken", {"input": "{broken"}),
        ("[1, 2]", {"input": [1, 2]}),
        ("ls -l", {"input": "ls -l"}),
    ],
)
def test_arguments_in_any_notation_are_an_object(written, arguments):
    assert arguments_of(written) == arguments


def test_a_text_in_a_text_is_decoded_and_others_stay():
    assert decode_value(json.dumps(json.dumps(json.dumps({"a": 1})))) == {"a": 1}
    assert decode_value("plain") == "plain"
    assert decode_value("{'a': open('x')}") == "{'a': open('x')}"


def chat(arguments, content="done"):
    calls = [call("c1", "look", arguments)]
    return {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": content},
        ]
    }


def test_calls_that_a_stream_glued_together_are_as_many_calls(tmp_path):
    record = chat('{"city": "Oslo"}{"city": "Rome"}\n{"city": "Bern"}')
    (item,) = read(write_lines(tmp_path / "log.jsonl", [record]))
    assert [made.arguments["city"] for made in item.plan.calls] == ["Oslo", "Rome", "Bern"]
    assert {made.step for made in item.plan.calls} == {1}
    (item,) = read(write_lines(tmp_path / "log.jsonl", [chat('{"text": "a}{b"}')]))
    assert item.plan.calls[0].arguments == {"text": "a}{b"}


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ('[{"type": "text", "text": "{\\"id\\": \\"RM-40417\\"}"}]', {"id": "RM-40417"}),
        ('{"type": "text", "text": "RM-40417"}', "RM-40417"),
        ('{"content": [{"type": "text", "text": "RM-40417"}]}', "RM-40417"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ('[{"type": "table", "rows": []}]', [{"type": "table", "rows": []}]),
        ('{"text": "a", "id": 7}', {"text": "a", "id": 7}),
    ],
)
def test_blocks_of_text_around_an_output_are_opened(content, kept, tmp_path):
    (item,) = read(write_lines(tmp_path / "log.jsonl", [chat("{}", content)]))
    assert item.plan.calls[0].output == kept


def test_a_long_text_in_a_block_is_cut_inside_the_text(tmp_path):
    content = json.dumps([{"type": "text", "text": "word " * 1000}])
    path = write_lines(tmp_path / "log.jsonl", [chat("{}", content)])
    (item,) = read(path, output_length=100)
    assert item.plan.calls[0].output.startswith("word word")


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"reward_info": {"reward": 0.0}}, "failure"),
        ({"reward_info": {"reward": 1.0}}, "success"),
        ({"result": {"success": False}}, "failure"),
        ({"results": {"success": False}}, "failure"),
        ({"evaluation": {"outcome": "failed"}}, "failure"),
    ],
)
def test_a_result_says_that_a_run_failed(said, outcome, tmp_path):
    (item,) = read(write_lines(tmp_path / "log.jsonl", [{**chat("{}"), **said}]))
    assert item.outcome == outcome


# --- Encodings and containers ---


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("indent", [None, 1])
def test_files_of_other_encodings_are_read(encoding, indent, tmp_path):
    text = json.dumps({**chat("{}"), "note": "Grüße, 你好"}, indent=indent, ensure_ascii=False)
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    path = tmp_path / "log.jsonl"
    path.write_bytes((mark + text + "\n").encode(encoding))
    assert shape(read(path)) == [("go", ["look"])]


def test_values_over_several_lines_follow_each_other(tmp_path):
    records = [chat("{}"), chat('{"a": 1}')]
    path = tmp_path / "log.json"
    path.write_text("\n".join(json.dumps(record, indent=2) for record in records))
    assert [item.plan.calls[0].arguments for item in read(path)] == [{}, {"a": 1}]


def test_the_samples_of_a_zip_file_of_inspect_are_read(tmp_path):
    import zipfile

    from tests.logs.public_forms import QUERY, inspect

    sample = json.loads(inspect())["samples"][0]
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample))
    assert shape(read(path)) == [(QUERY, ["search_rooms", "book_room"])]


# --- Messages ---


ASKED = {"role": "assistant", "content": "", "tool_calls": [call("c1", "look", "{}")]}


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "USER", "content": "go"}, ASKED],
        [{"role": "MessageRole.USER", "content": "go"}, ASKED],
        [{"role": "user", "blocks": [{"block_type": "text", "text": "go"}]},
         {"role": "assistant", "blocks": [{"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "look", "tool_kwargs": {}}]}],
        [{"parts": [{"text": "go"}]}, {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}],
        [{"role": "user", "content": "This is the Gemini CLI. We are setting up the context for our chat."},
         {"role": "user", "content": "go"}, ASKED],
        [{"role": "user", "content": "<user_query>\ngo\n</user_query>"}, ASKED],
        [{"role": "user", "parts": [{"type": "text", "text": "go"}, {"type": "text", "synthetic": True, "text": "Called the Read tool"}]}, ASKED],
        [{"role": "user", "content": "go"}, {"type": "reasoning", "summary": []}, {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}],
        [{"role": "user", "content": "go"}, {"role": "assistant", "content": json.dumps([call("c1", "look", "{}")])}],
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape_of", [lambda m: m, lambda m: [m], lambda m: [{"messages": m}]])
def test_messages_of_any_form_are_read_in_any_container(messages, shape_of, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(shape_of(messages)), encoding="utf-8")
    assert shape(read(path)) == [("go", ["look"])]


def test_notes_of_a_program_are_ignored_by_kind_and_not_unknown(tmp_path):
    messages = [
        {"id": "1", "type": "user", "content": "go"},
        {"id": "2", "type": "gemini", "content": "", "toolCalls": [{"id": "c", "name": "look", "args": {}, "status": "success"}]},
        {"id": "3", "type": "info", "content": "Request cancelled."},
    ]  # fmt: skip
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"sessionId": "s", "projectHash": "p", "messages": messages}))
    importer = Importer(find_format("gemini-cli"), [path], CutOptions())
    assert shape(importer.demonstrations()) == [("go", ["look"])]
    summary = importer.summary()
    assert summary["ignored"] == {"note of the program": 1}
    assert summary["unknown"] == {}


def test_the_files_of_opencodes_storage_are_one_session(tmp_path):
    files = {
        "session/p/ses_1.json": {"id": "ses_1", "projectID": "p", "directory": "/w", "title": "x", "time": {"created": 1772366400000}},
        "message/ses_1/msg_b.json": {"id": "msg_b", "sessionID": "ses_1", "role": "user", "time": {"created": 1772366400000}},
        "message/ses_1/msg_a.json": {"id": "msg_a", "sessionID": "ses_1", "role": "assistant", "time": {"created": 1772366401000}},
        "part/msg_b/prt_1.json": {"id": "prt_1", "messageID": "msg_b", "sessionID": "ses_1", "type": "text", "text": "go"},
        "part/msg_a/prt_2.json": {"id": "prt_2", "messageID": "msg_a", "sessionID": "ses_1", "type": "tool", "callID": "c", "tool": "look",
                                  "state": {"status": "completed", "input": {}, "output": "no such file", "metadata": {"exit": 1}}},
    }  # fmt: skip
    for name, record in files.items():
        path = tmp_path / "storage" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    (item,) = read(tmp_path / "storage")
    assert (item.query, item.plan.tools, item.group) == ("go", ("look",), "ses_1")
    assert item.plan.calls[0].status == "error"


@pytest.mark.parametrize(
    "record",
    [
        {"sessionId": "s", "chatMessages": [{"role": "user", "content": "go"}, ASKED]},
        {"uuid": "s", "name": "x", "chat_messages": [
            {"sender": "human", "text": "go", "content": [{"type": "text", "text": "go"}]},
            {"sender": "assistant", "text": "", "content": [
                {"type": "tool_use", "name": "look", "input": {}}, {"type": "tool_result", "name": "look", "content": []}, {"type": "text", "text": "done"}]},
        ]},
        {"trace_id": "t", "span_id": "s", "span_name": "x", "start_timestamp": "2026-03-01T12:00:00Z", "attributes": {
            "agent_name": "desk", "all_messages_events": [{"role": "user", "content": "go", "event.name": "gen_ai.user.message"}, ASKED],
            "gen_ai.operation.name": "chat"}},
        {"schemaType": "ModelInvocationLog", "input": {"inputBodyJson": {"messages": [{"role": "user", "content": [{"text": "go"}]}]}},
         "output": {"outputBodyJson": {"output": {"message": {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "look", "input": {}}}]}}}}},
    ],
)  # fmt: skip
def test_further_envelopes_around_messages_are_read(record, tmp_path):
    assert shape(read(write_lines(tmp_path / "log.jsonl", [record]))) == [("go", ["look"])]


def test_parts_and_roles_of_frameworks_names_are_known(tmp_path):
    messages = [
        {"role": "user", "content": [{"message_content": {"type": "text", "text": "go"}}]},
        {"role": "assistant", "content": [{"type": "Some.TextReasoningContent", "content": {"text": "I look."}}], "tool_calls": [call("c1", "look", "{}")]},
        {"content": "no such file", "additional_kwargs": {}, "role": "look"},
    ]  # fmt: skip
    importer = Importer(
        find_format("messages"),
        [write_lines(tmp_path / "log.jsonl", [{"messages": messages}])],
        CutOptions(),
    )
    assert shape(items := list(importer.demonstrations())) == [("go", ["look"])]
    assert items[0].plan.calls[0].output == "no such file"
    assert importer.summary()["unknown"] == {}


SAID = [{"role": "user", "content": "go"}, ASKED]


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        ({"trajectory": SAID, "is_success": False}, "failure"),
        ({"messages": json.dumps(SAID), "test_result": {"pass": False}}, "failure"),
        ({"prompt": SAID[:1], "completion": SAID[1:], "resolved": False}, "failure"),
        ({"data": {"said": SAID}, "passed": False}, "failure"),
        ({"number": 1, "anything": SAID, "resolved": True}, "success"),
    ],
)
def test_one_list_of_messages_is_found_under_any_key_with_what_became_of_it(
    record, outcome, tmp_path
):
    found = read(write_lines(tmp_path / "log.jsonl", [record]))
    assert shape(found) == [("go", ["look"])]
    assert [item.outcome for item in found] == [outcome]


def test_requests_without_their_replies_are_no_conversations(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", [{"input": SAID[:1], "output": {"x": 1}}])
    with pytest.raises(InputError, match="its first record has the keys input, output"):
        read(path)
