import contextlib
import json
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from examples.hotel.log_formats import (
    START,
    TOOLS,
    Call,
    Turn,
    expected,
    flat,
    iso,
    number,
    otel,
    otlp_span,
    write_lines,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr import Demonstration
from dtdr.data import json_codec
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError
from dtdr.logs import (
    FORMATS,
    CutOptions,
    Importer,
    LogReader,
    Redactor,
    detect_format,
    find_format,
    open_demonstrations,
)
from tests.crafted import change
from tests.logs.log_samples import RENDERINGS, TIMED, conversations, format_of

PLAIN = CutOptions(references=False)


def read(tmp_path, rendering, records, options=PLAIN, **more):
    path = write_lines(tmp_path / "log.jsonl", records)
    importer = Importer(find_format(format_of(rendering)), [path], options, **more)
    found = list(importer.demonstrations())
    return found, importer


def shape(found):
    return [(demonstration.query, list(demonstration.plan.tools)) for demonstration in found]


def sample():
    find = Call("find_user", {"name": "Ann"}, {"id": "usr_8841", "boss": "usr_1177"})
    address = Call("get_mail", {"user": "usr_1177"}, "boss@corp.example")
    send = Call("send_mail", {"to": "boss@corp.example"}, "sent")
    mail = Turn("Mail the boss of Ann", [[find], [address, Call("get_time", {}, "12:00")], [send]])
    book = Turn("Now book a room", [[Call("book_room", {"size": 4}, "room 7")]])
    return number([mail, Turn("Thanks", []), book])


@pytest.mark.parametrize("rendering", RENDERINGS)
@given(turns=conversations)
@settings(max_examples=settings().max_examples // 4)
def test_a_conversation_comes_back_from_every_format(rendering, turns, tmp_path_factory):
    if rendering == "mcp":  # only another query tells one run from the next
        turns = [replace(turn, query=f"{n}: {turn.query}") for n, turn in enumerate(turns)]
    found, importer = read(tmp_path_factory.mktemp("log"), rendering, RENDERINGS[rendering](turns))
    assert shape(found) == expected(turns)
    calls = [call for demonstration in found for call in demonstration.plan.calls]
    assert [call.arguments for call in calls] == [call.arguments for call in flat(turns)]
    summary = importer.summary()
    assert summary["kept"] + sum(summary["dropped"].values()) == summary["runs"]


@pytest.mark.parametrize("rendering", [name for name in RENDERINGS if format_of(name) in TIMED])
@given(turns=conversations, seed=st.integers(0, 2**32))
@settings(max_examples=settings().max_examples // 8)
def test_shuffled_events_of_a_trace_are_put_in_order_by_their_times(
    rendering, turns, seed, tmp_path_factory
):
    if rendering == "mcp":
        turns = number([turns[0]])  # a query that comes back later would be another run
    records = RENDERINGS[rendering](turns)
    random.Random(seed).shuffle(records)
    found, _ = read(tmp_path_factory.mktemp("log"), rendering, records)
    assert shape(found) == expected(turns)


WITHOUT_DEFINITIONS = ("openai-responses", "mcp", "claude-code")
WITHOUT_TIMES = ("openai-chat", "openai-responses", "anthropic")


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_every_format_tells_the_same_of_a_conversation(rendering, tmp_path):
    fmt, records = format_of(rendering), RENDERINGS[rendering](sample())
    found, importer = read(tmp_path, rendering, records, CutOptions())
    plan = found[0].plan
    assert plan.tools == ("find_user", "get_mail", "get_time", "send_mail")
    assert list(plan.edges()) == [(0, 1), (1, 3)]
    assert plan.calls[1].arguments == {"user": {"$ref": "1", "path": "/boss"}}
    assert [call.step for call in plan.calls] == [1, 2, 2, 3]
    assert [call.output for call in plan.calls] == [
        {"id": "usr_8841", "boss": "usr_1177"},
        "boss@corp.example",
        "12:00",
        "sent",
    ]
    assert {call.status for call in plan.calls} == {"ok"}
    assert plan.acceptable_next([0]) == {"get_mail", "get_time"}
    assert len({item.id for item in found}) == 2
    assert len({item.group for item in found}) == 1
    assert found[0].group
    if fmt not in WITHOUT_DEFINITIONS:
        (tool,) = importer.tools()
        assert (tool.name, tool.description) == ("find_user", TOOLS[0]["function"]["description"])
        assert [parameter.name for parameter in tool.parameters] == ["name"]
    if fmt not in WITHOUT_TIMES:
        first, second = (item.time for item in found)
        assert START <= first <= second < START + timedelta(hours=1)
    log, whole = tmp_path / "log.jsonl", tmp_path / "log.json"
    whole.write_text(json.dumps(records), encoding="utf-8")
    assert detect_format(LogReader([log])).name == detect_format(LogReader([whole])).name == fmt
    if fmt != "mcp":  # its messages carry no id that tells a repetition from a second session
        twice, _ = read(tmp_path, rendering, records + records)
        assert shape(twice) == expected(sample())


def test_an_output_that_parallel_calls_share_is_no_reference(tmp_path):
    turns = number(
        [Turn("go", [[Call("first", {}, {"id": "abc-777"}), Call("second", {"id": "abc-777"})]])]
    )
    for rendering, render in RENDERINGS.items():
        found, _ = read(tmp_path, rendering, render(turns), CutOptions())
        assert list(found[0].plan.edges()) == [], rendering


def test_interleaved_conversations_are_told_apart(tmp_path):
    one, two = (
        sample(),
        number([Turn("Find flights", [[Call("find_flight", {"to": "Rome"})]])], "x"),
    )
    for name in ("openai-chat", "anthropic", "openai-responses, repeated"):
        first, second = RENDERINGS[name](one), RENDERINGS[name](two)
        records = [first[0], second[0], *first[1:3], *second[1:], *first[3:]]
        found, importer = read(tmp_path, name, records)
        assert sorted(shape(found)) == sorted(expected(one) + expected(two)), name
        assert importer.summary()["superseded_requests"] == len(records) - 2


def test_other_instructions_and_a_reworded_reply_do_not_split_a_conversation(tmp_path):
    records = RENDERINGS["openai-chat"](sample())
    for index, record in enumerate(records):
        messages = record["request"]["messages"]
        messages[0] = {"role": "system", "content": f"It is 12:0{index}."}
    records[0]["response"]["choices"][0]["message"]["content"] = "let me think"
    found, _ = read(tmp_path, "openai-chat", records)
    assert shape(found) == expected(sample())


def test_two_answers_to_one_question_are_two_conversations(tmp_path):
    first = number([Turn("go", [[Call("left", {})]])], "a")
    second = number([Turn("go", [[Call("right", {})]])], "b")
    records = RENDERINGS["openai-chat"](first)[:1] + RENDERINGS["openai-chat"](second)
    found, _ = read(tmp_path, "openai-chat", records)
    assert sorted(shape(found)) == [("go", ["left"]), ("go", ["right"])]


def test_a_second_answer_to_a_response_does_not_repeat_the_first_turn(tmp_path):
    one, two = sample(), sample()
    two[2] = Turn("Call a taxi", [[Call("call_taxi", {}, "on its way")]])
    number(two, "other")
    records = RENDERINGS["openai-responses, chained"](one)
    branch = RENDERINGS["openai-responses, chained"](two)[5:]
    for record in branch:
        record["response"]["id"] += "b"
    branch[0]["request"]["previous_response_id"] = records[4]["response"]["id"]
    branch[1]["request"]["previous_response_id"] = branch[0]["response"]["id"]
    found, importer = read(tmp_path, "openai-responses", records + branch)
    assert sorted(shape(found)) == sorted([*expected(one), ("Call a taxi", ["call_taxi"])])
    assert importer.summary()["dropped"]["a record with this id was read before"] == 1


def test_legacy_function_calls_are_read(tmp_path):
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": "xyz-123456"}'}},
        {"role": "function", "name": "f", "content": '{"id": "rec-998877"}'},
        {"role": "assistant", "function_call": {"name": "g", "arguments": '{"a": "rec-998877"}'}},
    ]
    found, _ = read(tmp_path, "openai-chat", [{"messages": messages}], CutOptions())
    assert found[0].plan.tools == ("f", "g")
    assert list(found[0].plan.edges()) == [(0, 1)]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("{broken", {"input": "{broken"}),
        (
            '{"schema": {"$ref": "#/x"}, "parts": {"$join": ["a"]}}',
            {"schema": {"$$ref": "#/x"}, "parts": {"$$join": ["a"]}},
        ),
    ],
)
def test_arguments_of_any_kind_are_kept(written, arguments, tmp_path):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": written}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]
    found, _ = read(tmp_path, "openai-chat", [{"messages": messages}], CutOptions())
    assert found[0].plan.calls[0].arguments == arguments


def test_built_in_tools_of_the_responses_api_are_calls(tmp_path):
    output = [
        {"type": "web_search_call", "id": "ws_1", "action": {"query": "who won"}},
        {"type": "mcp_call", "id": "m", "name": "roll", "arguments": '{"dice": 2}', "output": "4"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "print(1)"},
    ]  # fmt: skip
    request = {"input": "Who won?", "tools": [{"type": "web_search"}]}
    record = {"request": request, "response": {"id": "r1", "output": output}}
    found, _ = read(tmp_path, "openai-responses", [record])
    assert [(call.tool, call.arguments) for call in found[0].plan.calls] == [
        ("web_search", {"query": "who won"}),
        ("roll", {"dice": 2}),
        ("run", {"input": "print(1)"}),
    ]


def test_the_instructions_of_a_sub_agent_are_not_the_users_words(tmp_path):
    records = otel(sample())
    messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Be brief"}]}])
    values = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": messages}
    records.append(
        otlp_span("4bf92f3577b34da6a3ce929d0e0e4736", "sub", "root", "c", 14, 15, values)
    )
    found, _ = read(tmp_path, "otel", records)
    assert shape(found) == expected(sample())


def test_langsmith_run_trees_are_read(tmp_path):
    book = {"id": "b", "name": "book", "start_time": iso(9), "inputs": {"flight": "NH101"}}
    search = {"id": "a", "name": "search_flights", "start_time": iso(1), "end_time": iso(2),
              "inputs": {"dest": "NRT"}, "outputs": {"flights": ["NH101", "JL5"]}}  # fmt: skip
    children = [{**child, "run_type": "tool"} for child in (book, search)]
    tree = {"id": "lc-1", "run_type": "chain", "name": "AgentExecutor", "outputs": {"output": "3"},
            "inputs": {"input": "find flights to Tokyo"}, "child_runs": children}  # fmt: skip
    found, _ = read(tmp_path, "langsmith", [tree], CutOptions())
    assert shape(found) == [("find flights to Tokyo", ["search_flights", "book"])]
    assert list(found[0].plan.edges()) == [(0, 1)]


def test_langfuse_traces_snake_case_rows_and_spans_named_as_tools_are_read(tmp_path):
    records = RENDERINGS["langfuse"](sample())
    untyped = [{**item, "type": item["type"].replace("TOOL", "SPAN")} for item in records]
    whole = {"id": "trace-7", "sessionId": "s", "input": "x", "observations": records}
    names = {"traceId": "trace_id", "startTime": "start_time", "endTime": "end_time",
             "parentObservationId": "parent_observation_id"}  # fmt: skip
    rows = [{names.get(key, key): value for key, value in item.items()} for item in records]
    for row in rows:
        row["start_time"] = row["start_time"].replace("T", " ").replace("Z", ".000000")
    for log in ([whole], rows, untyped):
        assert shape(read(tmp_path, "langfuse", log)[0]) == expected(sample())


def test_claude_desktop_logs_are_read_past_what_servers_print(tmp_path):
    def line(at, side, message):
        head = f"2026-03-01T12:00:{at:02d}.000Z [files] [info] Message from {side}: "
        return head + json.dumps({"jsonrpc": "2.0", **message})

    definition = {"name": "read_file", "description": "Read", "inputSchema": {"type": "object"}}
    request = {"name": "read_file", "arguments": {"path": "a.txt"}}
    path = tmp_path / "mcp-server-files.log"
    path.write_text(
        "\n".join(
            [
                "2026-03-01T12:00:00.000Z [files] [info] Initializing server...",
                line(1, "client", {"method": "initialize", "id": 0, "params": {}}),
                line(2, "server", {"id": 1, "result": {"tools": [definition]}}),
                "Secure server running on stdio",
                line(3, "client", {"method": "tools/call", "id": 2, "params": request}),
                line(4, "server", {"id": 2, "error": {"code": -32603, "message": "no"}}),
            ]
        ),
        encoding="utf-8",
    )
    importer = Importer(find_format("mcp"), [path])
    found = list(importer.demonstrations())
    assert shape(found) == [("(no query in the log)", ["read_file"])]
    assert found[0].plan.calls[0].status == "error"
    assert [tool.name for tool in importer.tools()] == ["read_file"]


def test_mcp_runs_end_at_a_pause_and_at_a_new_session(tmp_path):
    def call(at, identifier, session="a"):
        message = {"jsonrpc": "2.0", "id": identifier, "method": "tools/call",
                   "params": {"name": f"tool_{identifier}", "arguments": {}}}  # fmt: skip
        return {"ts": iso(at), "session": session, "message": message}

    records = [call(0, 1), call(10, 2), call(500, 3), call(505, 4, "b"), call(510, 5)]
    found, _ = read(tmp_path, "mcp", records)
    runs = sorted(demonstration.plan.tools for demonstration in found)
    assert runs == [("tool_1", "tool_2"), ("tool_3", "tool_5"), ("tool_4",)]


def test_a_record_of_another_format_is_named_with_file_and_line(tmp_path):
    for name in ("openai-chat", "openai-responses", "anthropic", "otel", "openinference",
                 "langsmith", "langfuse", "mcp", "dtdr"):  # fmt: skip
        path = write_lines(tmp_path / "log.jsonl", [{"a": 1}, {"a": 2}])
        with pytest.raises(InputError, match=r"log\.jsonl:1: .*--skip-bad"):
            list(Importer(find_format(name), [path]).demonstrations())


@pytest.mark.parametrize("rendering", RENDERINGS)
@given(data=st.data())
@settings(max_examples=settings().max_examples // 2)
def test_damaged_records_are_left_out_and_never_crash(rendering, data, tmp_path_factory):
    records = [change(record, data.draw) for record in RENDERINGS[rendering](sample())]
    path = write_lines(tmp_path_factory.mktemp("log") / "log.jsonl", records)
    content = path.read_bytes()
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:place] + data.draw(st.binary(max_size=5)) + content[place:])
    name = format_of(rendering)
    if not data.draw(st.integers(0, 5)):
        name = data.draw(st.sampled_from(sorted(FORMATS)))
    bad = BadRecords()
    importer = Importer(find_format(name), [path], redactor=Redactor(), bad=bad)
    try:
        found = list(importer.demonstrations())
    except InputError:  # what looks like one document has no records to leave out
        return
    assert importer.summary()["kept"] == len(found)
    assert all(reason.startswith(str(path)) for reason in bad.first)
    for item in found:
        written = json_codec.dumps(item.to_dict())
        assert Demonstration.from_dict(json.loads(written)) == item
    with contextlib.suppress(InputError):
        assert detect_format(LogReader([path])).name in FORMATS


def test_a_log_of_no_known_format_is_told(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", [{"what": "else"}])
    with pytest.raises(InputError, match="cannot detect the format"):
        detect_format(LogReader([path]))


def test_a_result_that_comes_twice_is_counted_and_the_first_stands(tmp_path):
    (record,) = RENDERINGS["openai-chat, whole conversations"](sample())
    again = dict(next(m for m in record["messages"] if m["role"] == "tool"), content="other")
    record["messages"].insert(6, again)
    found, importer = read(tmp_path, "openai-chat", [record])
    assert found[0].plan.calls[0].output == {"id": "usr_8841", "boss": "usr_1177"}
    assert importer.summary()["unmatched_results"] == 1


def deep(depth):
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "output",
    [
        "{broken",
        "\x00\x01\xff",
        "QUJD" * 20_000,
        deep(500),
        deep(100_000),
        "a\ud800b",
        json.dumps({"rows": [{"id": n} for n in range(50_000)]}),
        "word " * 1_000_000,
        "NaN",
        "[NaN, 1e999]",
    ],
    ids=["broken", "binary", "base64", "nested", "deep", "surrogate", "long", "text", "nan", "inf"],
)
@pytest.mark.parametrize("redact", [False, True])
def test_hostile_outputs_are_kept_within_bounds(output, redact, tmp_path):
    turns = number([Turn("go", [[Call("one", {}, output)]]), Turn("on", [[Call("two", {})]])])
    records = RENDERINGS["openai-chat, whole conversations"](turns)
    redactor = Redactor() if redact else None
    found, _ = read(tmp_path, "openai-chat", records, redactor=redactor)
    assert shape(found) == [("go", ["one"]), ("on", ["two"])]
    for item in found:
        written = json_codec.dumps(item.to_dict())
        assert len(written) < 20_000
        assert Demonstration.from_dict(json.loads(written)) == item


def test_results_of_calls_that_share_an_id_are_in_the_order_of_the_calls(tmp_path):
    calls = [
        {"id": "find", "function": {"name": "find", "arguments": {"q": name}}} for name in "ab"
    ]
    results = [{"role": "tool", "tool_call_id": "find", "content": f"is {name}"} for name in "ab"]
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": calls}]
    path = write_lines(tmp_path / "log.jsonl", [{"messages": [*messages, *results]}])
    (found,) = open_demonstrations([path])
    assert [(call.arguments["q"], call.output) for call in found.plan.calls] == [
        ("a", "is a"),
        ("b", "is b"),
    ]
