"""What ran inside a call: sub-agents, skills and tools that call tools, as plans with a parent."""

import json
from collections import Counter
from typing import Any

import pytest
from examples.hotel.log_formats import Call, Turn, flat, number, otel, otlp_span, write_lines

from dtdr import Demonstration, read_demonstrations
from dtdr.cli import run
from dtdr.data.demonstrations import Parent
from dtdr.errors import InputError
from dtdr.logs import CutOptions, Redactor, open_demonstrations
from tests.helpers import collected_spans


def read(tmp_path, name, records, **options):
    log = write_lines(tmp_path / "log.jsonl", records)
    return list(open_demonstrations([log], name, CutOptions(**options)))


def outline(found):
    """Query, tools, and the tool of the call that a plan is nested in."""
    calls = {(item.id, call.id): call.tool for item in found for call in item.plan.calls}
    assert len({item.group for item in found}) == 1
    return [
        (
            item.query,
            " ".join(item.plan.tools),
            item.parent and calls[item.parent.id, item.parent.call],
        )
        for item in found
    ]


def span(name, parent, at, operation, **values):
    values = {f"gen_ai.{key.replace('__', '.')}": value for key, value in values.items()}
    values["gen_ai.operation.name"] = operation
    return otlp_span("t1", name, parent, name, at, at + 1, values)


def messages(text):
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])


BOOKING = [
    span("boss", "", 1, "invoke_agent", agent__name="boss"),
    span("m1", "boss", 2, "chat", input__messages=messages("Book me a hotel")),
    span("sub", "boss", 3, "invoke_agent", agent__name="researcher"),
    span("m2", "sub", 4, "chat", input__messages=messages("Which hotel is free?")),
    span("s1", "sub", 5, "execute_tool", tool__name="search"),
    span("s2", "sub", 6, "execute_tool", tool__name="open_page"),
    span("b", "boss", 7, "execute_tool", tool__name="book"),
]


def test_an_agent_inside_another_is_a_call_of_it_with_a_plan_of_its_own(tmp_path):
    found = read(tmp_path, "otel", BOOKING)
    assert outline(found) == [
        ("Book me a hotel", "agent:researcher book", None),
        ("Which hotel is free?", "search open_page", "agent:researcher"),
    ]
    assert found[1].parent == Parent(found[0].id, found[0].plan.calls[0].id)


def test_agents_of_one_workflow_that_hand_over_share_a_plan(tmp_path):
    spans = [
        span("flow", "", 1, "invoke_workflow"),
        span("a", "flow", 2, "invoke_agent", agent__name="a"),
        span("m", "a", 3, "chat", input__messages=messages("Book and pay")),
        span("t", "a", 4, "execute_tool", tool__name="book"),
        span("z", "flow", 5, "invoke_agent", agent__name="z"),
        span("u", "z", 6, "execute_tool", tool__name="pay"),
    ]
    assert outline(read(tmp_path, "otel", spans)) == [("Book and pay", "book pay", None)]


def test_a_tool_that_calls_tools_has_a_plan_whose_query_is_the_call(tmp_path):
    turns = number([Turn("go", [[Call("outer", {"a": 1}), Call("x", {}), Call("y", {})]])])
    records = otel(turns)
    for record in records[-2:]:
        inner = record["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
        inner["parentSpanId"] = flat(turns)[0].id
    assert outline(read(tmp_path, "otel", records)) == [
        ("go", "outer", None),
        ('outer {"a":1}', "x y", "outer"),
    ]


def test_a_call_that_client_and_server_both_record_is_one_call(tmp_path):
    spans = [
        span("m", "", 1, "chat", input__messages=messages("go")),
        span("client", "", 2, "execute_tool", tool__name="find"),
        span("server", "client", 3, "execute_tool", tool__name="find"),
    ]
    assert outline(read(tmp_path, "otel", spans)) == [("go", "find", None)]


def test_spans_whose_parents_go_in_a_circle_are_read(tmp_path):
    spans = [
        *BOOKING,
        span("x", "y", 8, "execute_tool", tool__name="left"),
        span("y", "x", 9, "execute_tool", tool__name="right"),
    ]
    assert "book" in outline(read(tmp_path, "otel", spans))[0][1]


def test_runs_within_runs_are_read_to_a_depth_that_the_stack_bears(tmp_path):
    calls = [
        span(f"s{n}", f"s{n - 1}", 2 + n, "execute_tool", tool__name=f"t{n}")
        for n in range(1, 2_000)
    ]
    found = read(tmp_path, "otel", [BOOKING[1], *calls])
    assert [item.plan.tools for item in found[:3]] == [("t1",), ("t2",), ("t3",)]
    assert len(found) == 51


def test_langfuse_agents_and_tools_within_tools_are_nested(tmp_path):
    def seen(name, parent, kind, second, value=None):
        at = f"2026-03-01T12:00:{second:02d}Z"
        times = {"startTime": at, "endTime": at}
        part = {"id": name, "traceId": "t", "parentObservationId": parent, "type": kind}
        return {**part, **times, "name": name, "input": value}

    records = [
        seen("boss", None, "AGENT", 1, "Book me a hotel"),
        seen("ask", "boss", "TOOL", 2, {"question": "Which hotel is free?"}),
        seen("researcher", "ask", "AGENT", 3),
        seen("search", "researcher", "TOOL", 4, {}),
        seen("checker", "researcher", "AGENT", 5, "Is it clean?"),
        seen("open_page", "checker", "TOOL", 6, {}),
    ]
    assert outline(read(tmp_path, "langfuse", records)) == [
        ("Book me a hotel", "ask", None),
        ("Which hotel is free?", "search agent:checker", "ask"),
        ("Is it clean?", "open_page", "agent:checker"),
    ]


def line(kind, content, name, **more):
    message = {"role": kind, "content": content}
    return {"type": kind, "message": message, "sessionId": "s", "uuid": name, **more}


def use(name, tool, **arguments):
    return [{"type": "tool_use", "id": name, "name": tool, "input": arguments}]


def answer(name, text="done"):
    return [{"type": "tool_result", "tool_use_id": name, "content": text}]


TASK = {"subagent_type": "reviewer", "prompt": "Review a.py"}
MAIN = [
    line("user", "Fill in the form", "1"),
    line("assistant", use("c1", "Skill", skill="pdf"), "2"),
    line("user", answer("c1"), "3"),
    line("user", "Base directory for this skill: …", "4", isMeta=True),
    line("assistant", use("c2", "Task", **TASK), "5"),
]
INSIDE = [
    line("user", "Review a.py", "6"),
    line("assistant", use("d1", "Read", file="a.py"), "7", parentUuid="6"),
    line("user", answer("d1"), "8", parentUuid="7"),
    line("assistant", use("d2", "Grep", pattern="x"), "9", parentUuid="8"),
    line("user", answer("d2"), "10", parentUuid="9"),
]


@pytest.mark.parametrize("link", ["parent_tool_use_id", "agentId", "prompt"])
def test_sub_agents_and_skills_of_claude_code_are_tools_of_their_own(link, tmp_path):
    result = {"agentId": "a7"} if link == "agentId" else {}
    end = [line("user", answer("c2"), "11", toolUseResult=result)]
    mark: Any = {
        "parent_tool_use_id": {"parent_tool_use_id": "c2"},
        "agentId": {"isSidechain": True, "agentId": "a7"},
        "prompt": {"isSidechain": True},
    }[link]
    inside = [{**item, **mark} for item in INSIDE]
    # A transcript has its sub-agents in files of their own, which are read after it.
    records = [*MAIN, *end, *inside] if link == "agentId" else [*MAIN, *inside, *end]
    assert outline(read(tmp_path, "claude-code", records)) == [
        ("Fill in the form", "skill:pdf agent:reviewer", None),
        ("Review a.py", "Read Grep", "agent:reviewer"),
    ]


def test_a_sub_agent_that_no_call_is_known_of_is_a_run_by_itself(tmp_path):
    inside = [{**item, "isSidechain": True, "agentId": "a7"} for item in INSIDE]
    assert outline(read(tmp_path, "claude-code", inside)) == [("Review a.py", "Read Grep", None)]


def test_parents_survive_every_file_and_redaction(tmp_path, capsys):
    log = write_lines(tmp_path / "log.jsonl", BOOKING)
    for source, target in (
        ([str(log)], "a.jsonl"),
        (["dtdr", str(tmp_path / "a.jsonl")], "b.parquet"),
    ):
        assert run(["import", *source, "-o", str(tmp_path / target)]) == 0
    assert "nested" in capsys.readouterr().out
    lines, rows = (list(read_demonstrations(tmp_path / name)) for name in ("a.jsonl", "b.parquet"))
    assert lines == rows
    assert [item.parent is None for item in rows] == [True, False]
    secret = Demonstration.from_dict(
        {"id": "2", "query": "q", "calls": ["f"], "parent": {"id": "ann@corp.example-1"}}
    )
    path = write_lines(tmp_path / "c.jsonl", [secret.to_dict(), {**secret.to_dict(), "id": "3"}])
    scrubbed = [item.parent for item in open_demonstrations([path], "dtdr", redactor=Redactor())]
    assert "ann" not in str(scrubbed)
    assert len(set(scrubbed)) == 1


@pytest.mark.parametrize(
    ("parent", "said"),
    [
        (None, "'parent' must be an object with an 'id', not null"),
        ("1", "'parent' must be an object with an 'id', not str"),
        ({}, "'parent' has no 'id'"),
        ({"id": ""}, "'parent' has no 'id'"),
        ({"id": "1", "call": [2]}, "the 'call' of 'parent' must be text, not list"),
        ({"id": "\ud800"}, "the id of 'parent'"),
    ],
)
def test_a_parent_that_is_none_is_named(parent, said):
    record = {"id": "1", "query": "q", "calls": ["f"], "parent": parent}
    with pytest.raises(InputError, match=said):
        Demonstration.from_dict(record)


@pytest.mark.slow
def test_a_sub_agent_of_pydantic_ai_is_nested_in_the_tool_that_runs_it(tmp_path):
    pytest.importorskip("pydantic_ai", reason="needs the extra 'pydantic-ai'")
    pytest.importorskip("opentelemetry.sdk", reason="needs the extra 'otel'")
    import asyncio

    from pydantic_ai import Agent
    from pydantic_ai.models.instrumented import InstrumentationSettings

    from tests.integrations.frameworks import Script, pydantic_ai_model

    spans, provider = collected_spans()

    def agent(name, *calls):
        return Agent(pydantic_ai_model(Script([[call] for call in calls])), name=name)

    researcher = agent("researcher", ("search", {"text": "hotels"}))
    boss = agent("boss", ("ask", {"question": "Which hotel?"}), ("book", {"hotel": "Bo"}))

    @researcher.tool_plain
    def search(text: str) -> str:
        return "Bo"

    @boss.tool_plain
    async def ask(question: str) -> str:
        return (await researcher.run(question)).output

    @boss.tool_plain
    def book(hotel: str) -> str:
        return "ok"

    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        asyncio.run(boss.run("Book me a hotel"))
    finally:
        Agent.instrument_all(False)
    assert outline(read(tmp_path, "otel", [json.loads(item.to_json()) for item in spans()])) == [
        ("Book me a hotel", "ask book", None),
        ("Which hotel?", "search", "ask"),
    ]


@pytest.mark.slow
def test_agents_of_the_openai_sdk_as_tools_and_by_handoff(tmp_path):
    instrumentation = pytest.importorskip(
        "openinference.instrumentation.openai_agents",
        reason="spans of the SDK come from openinference-instrumentation-openai-agents",
    )
    import asyncio

    from agents import Agent, Runner, function_tool
    from agents.tracing import generation_span

    from tests.integrations.frameworks import Script, openai_agents_model

    model: Any = openai_agents_model(
        Script([[("ask", {"input": "Which hotel?"})], ["search"], ["open"], [],
                ["transfer_to_payer"], ["pay"]])
    )  # fmt: skip
    answer = model.get_response

    async def get_response(**given):
        said = given["input"] if isinstance(given["input"], str) else given["input"][0]["content"]
        with generation_span(input=[{"role": "user", "content": said}], model="m"):
            return await answer(**given)

    model.get_response = get_response

    def agent(name, *tools, **more):
        used: Any = [function_tool(lambda: "fine", name_override=tool) for tool in tools]
        return Agent(name=name, model=model, tools=used, **more)

    researcher = agent("researcher", "search", "open")
    boss = agent("boss", handoffs=[agent("payer", "pay")])
    boss.tools = [researcher.as_tool("ask", "Asks a researcher.")]
    spans, provider = collected_spans()
    instrumentor = instrumentation.OpenAIAgentsInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        asyncio.run(Runner.run(boss, "Book me a hotel"))
    finally:
        instrumentor.uninstrument()
    found = read(tmp_path, "openinference", [json.loads(item.to_json()) for item in spans()])
    assert outline(found) == [
        ("Book me a hotel", "ask agent:payer pay", None),
        ("Which hotel?", "search open", "ask"),
    ]


@pytest.mark.slow
def test_sub_agents_of_langchain_are_nested_in_the_tool_that_runs_them(tmp_path):
    pytest.importorskip("langchain", reason="needs the extra 'langchain'")
    from langchain.agents import create_agent
    from langchain_core.load.dump import dumps
    from langchain_core.tools import StructuredTool
    from langchain_core.tracers.run_collector import RunCollectorCallbackHandler

    from tests.integrations.frameworks import Script
    from tests.integrations.scripted_chat_model import ScriptedModel

    def agent(steps, *tools):
        return create_agent(ScriptedModel(script=Script(steps)), list(tools))

    def tool(name, function=lambda: "fine"):
        return StructuredTool.from_function(function, name=name, description=name)

    def record(item):
        names = ("id", "trace_id", "run_type", "name", "inputs", "outputs", "error", "extra")
        values = json.loads(dumps({name: getattr(item, name) for name in names}))
        times = {"start_time": item.start_time.isoformat(), "end_time": item.end_time.isoformat()}
        ids = {name: str(getattr(item, name)) for name in ("id", "trace_id")}
        return {**values, **times, **ids, "child_runs": list(map(record, item.child_runs))}

    researcher = agent([["search"], ["open_page"]], tool("search"), tool("open_page"))

    def ask():
        asked: Any = {"messages": [("user", "Which hotel?")]}
        return researcher.invoke(asked)["messages"][-1].content

    boss = agent([["ask"], ["book"]], tool("ask", ask), tool("book"))
    collector = RunCollectorCallbackHandler()
    asked: Any = {"messages": [("user", "Book me a hotel")]}
    boss.invoke(asked, {"callbacks": [collector]})
    found = read(tmp_path, "langsmith", list(map(record, collector.traced_runs)))
    assert [(tools, parent) for _, tools, parent in outline(found)] == [
        ("ask book", None),
        ("search open_page", "ask"),
    ]
    assert Counter("hotel" in query for query, _, _ in outline(found)) == {True: 2}
