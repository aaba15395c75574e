import asyncio
import json
import sys
from typing import Any

import pytest

pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from dtdr.errors import InputError
from dtdr.integrations import openai
from dtdr.integrations.langchain import GuardedToolMaskMiddleware, ToolMaskMiddleware
from dtdr.integrations.langchain_core import transcript
from tests.integrations.scripted_chat_model import ScriptedModel, tools
from tests.integrations.tools import (
    NAMES,
    NEW,
    QUERY,
    best,
    broken_mask,
    check_two_turns,
    mask,
    record_mask,
    told,
)
from tests.mask_strategies import outline


def run(script, middleware, *, asynchronous=False, extra=(), turns=(QUERY,)):
    model = ScriptedModel(script=script, seen=[], heard=[])
    agent = create_agent(model, tools=[*tools(), *extra], middleware=[middleware])
    state: Any = {"messages": []}
    for text in turns:
        state = {"messages": [*state["messages"], HumanMessage(text)]}
        state = asyncio.run(agent.ainvoke(state)) if asynchronous else agent.invoke(state)
    return model, state["messages"]


SCRIPT = [("read_file",), ("summarize", "find_contact"), ("send_mail",)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_agent_sees_the_tools_that_come_next_and_those_it_called(asynchronous):
    model, _ = run(SCRIPT, ToolMaskMiddleware(mask()), asynchronous=asynchronous)

    history: list[str] = []
    for step, shown in enumerate(model.seen):
        assert set(shown) == best(history) | set(history) | {NEW}
        history += SCRIPT[step] if step < len(SCRIPT) else ()
    assert len(model.seen) == 4
    assert len(model.seen[0]) < len(NAMES)


def test_tools_of_a_provider_pass_untouched():
    builtin = {"type": "web_search_20250305", "name": "web_search"}
    model, _ = run([], ToolMaskMiddleware(mask()), extra=[builtin])
    assert None in model.seen[0]
    assert set(model.seen[0]) == best([]) | {NEW, None}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_failing_retriever_shows_all_tools_and_says_why(asynchronous, caplog):
    model, messages = run(SCRIPT, ToolMaskMiddleware(broken_mask()), asynchronous=asynchronous)

    assert set(model.seen[0]) == {*NAMES, NEW}
    assert messages[-1].content == "There you are."
    assert "the disk is on fire" in caplog.text


@pytest.mark.parametrize("form", ["hint", "hint-weighted"])
def test_a_hint_keeps_every_tool_and_the_conversation(form):
    model, messages = run(SCRIPT, ToolMaskMiddleware(mask(), form=form))

    assert set(model.seen[0]) == {*NAMES, NEW}
    for heard in model.heard:
        assert "prefer them" in heard[-1].content
        assert all("prefer them" not in str(message.content) for message in heard[:-1])
    assert all("prefer them" not in str(message.content) for message in messages)


def test_each_turn_of_the_user_is_ranked_for_itself():
    second = "Text Bob what the weather in Rome is"
    model, _ = run([*SCRIPT, ()], ToolMaskMiddleware(mask()), turns=(QUERY, second))

    called = {name for step in SCRIPT for name in step}
    assert set(model.seen[4]) == best([], query=second) | called | {NEW}


def test_a_growing_set_grows_over_the_steps_of_an_agent():
    model, _ = run(SCRIPT, ToolMaskMiddleware(mask(top_k=1, sticky="grow")))
    for before, after in zip(model.seen, model.seen[1:], strict=False):
        assert set(before) <= set(after)


def test_a_token_budget_is_counted_in_langchain_definitions():
    tight, _ = run([], ToolMaskMiddleware(mask(token_budget=1)))
    loose, _ = run([], ToolMaskMiddleware(mask(token_budget=10_000)))
    assert set(tight.seen[0]) == best([], 1) | {NEW}
    assert set(loose.seen[0]) == {*NAMES, NEW}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_guard_refuses_a_hidden_tool_and_the_run_goes_on(asynchronous):
    assert "send_text" not in best([])
    script = [("send_text", "read_file"), ("summarize",)]
    middleware = GuardedToolMaskMiddleware(mask())
    _, messages = run(script, middleware, asynchronous=asynchronous)

    answers = {message.name: message for message in messages if message.type == "tool"}
    assert answers["send_text"].status == "error"
    assert "cannot be used at this step" in answers["send_text"].content
    assert answers["read_file"].content == "fine"
    assert answers["summarize"].content == "fine"
    assert messages[-1].content == "There you are."


def test_without_the_guard_a_hidden_tool_is_executed():
    _, messages = run([("send_text",)], ToolMaskMiddleware(mask()))
    assert [message.content for message in messages if message.type == "tool"] == ["fine"]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_allowed_tools_reach_openai_with_the_list_unchanged(api):
    package = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    sdk = pytest.importorskip("openai", reason="openai is not installed")
    client = next(kind for kind in sdk.DefaultHttpxClient.__mro__ if kind.__name__ == "Client")
    httpx = sys.modules[client.__module__.partition(".")[0]]
    sent: list[dict] = []

    def handle(request):
        sent.append(json.loads(request.content))
        return httpx.Response(400, json={"error": {"message": "enough"}})

    model = package.ChatOpenAI(
        model="gpt-5.4",
        api_key="none",
        max_retries=0,
        use_responses_api=api == "responses",
        http_client=httpx.Client(transport=httpx.MockTransport(handle)),
    )
    middleware = ToolMaskMiddleware(mask(), form="allowed-tools", api=api)
    agent = create_agent(model, tools=tools(), middleware=[middleware])
    with pytest.raises(sdk.BadRequestError):
        agent.invoke({"messages": [HumanMessage(QUERY)]})

    assert {openai.tool_name(tool) for tool in sent[0]["tools"]} == {*NAMES, NEW}
    choice = sent[0]["tool_choice"]
    allowed = choice["allowed_tools"] if api == "chat" else choice
    assert {openai.tool_name(tool) for tool in allowed["tools"]} == best([]) | {NEW}


def test_what_calls_returned_and_what_was_said_before_is_told():
    second = "Text Bob what the weather in Rome is"
    noting = record_mask()
    run([*SCRIPT, ()], ToolMaskMiddleware(noting), turns=(QUERY, second))
    check_two_turns(noting.retriever.runs, SCRIPT, second)


def test_outputs_and_failures_are_read():
    calls = [{"name": name, "args": {"to": "Rome"}, "id": name} for name in ("weather", "send")]
    messages = [
        HumanMessage(QUERY),
        AIMessage("One moment.", tool_calls=calls),
        ToolMessage('{"days": []}', tool_call_id="weather"),
        ToolMessage("no such mail", tool_call_id="send", status="error"),
    ]
    run = transcript(messages).bound().run()
    assert told(run) == [
        ("weather", {"to": "Rome"}, {"days": []}, "empty", 1),
        ("send", {"to": "Rome"}, "no such mail", "error", 1),
    ]


def test_an_unknown_form_or_api_is_refused():
    with pytest.raises(InputError, match="unknown form 'allowed'"):
        ToolMaskMiddleware(mask(), form="allowed")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown API 'assistants'"):
        ToolMaskMiddleware(mask(), api="assistants")  # type: ignore[arg-type]


def test_messages_with_parts_are_read():
    messages = [
        HumanMessage([{"type": "text", "text": QUERY}, {"type": "image", "url": "x"}]),
        AIMessage("", tool_calls=[{"name": "weather", "args": {}, "id": "1"}]),
    ]
    assert outline(transcript(messages)) == [(QUERY, [("weather",)])]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_agent_that_searches_is_shown_what_it_found(asynchronous):
    class Searching(ScriptedModel):
        """Gives the search what it must have."""

        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            result = super()._generate(messages, stop, run_manager, **kwargs)
            for call in result.generations[0].message.tool_calls:
                if call["name"] == "search_tools":
                    call["args"] = {"query": "the weather of a city", "limit": 1}
            return result

    model = Searching(script=[("search_tools",), ("weather",)], seen=[], heard=[])
    hides = mask(top_k=1)
    agent = create_agent(model, tools=tools(), middleware=[ToolMaskMiddleware(hides, search=True)])
    state: Any = {"messages": [HumanMessage(QUERY)]}
    state = asyncio.run(agent.ainvoke(state)) if asynchronous else agent.invoke(state)
    assert "weather" not in model.seen[0]
    assert "search_tools" in model.seen[0]
    assert "weather" in model.seen[1]
    (answer, used) = [item for item in state["messages"] if isinstance(item, ToolMessage)]
    assert [tool["name"] for tool in json.loads(str(answer.content))["tools"]] == ["weather"]
    assert used.name == "weather"
