import json

import pytest

from dtdr.agents import openai
from dtdr.agents.requests import transcript_of
from tests.integrations.frameworks import FRAMEWORKS, Script, captured_client
from tests.integrations.tools import NAMES, NEW, QUERY, best, mask, told
from tests.mask_strategies import outline

run = FRAMEWORKS["langchain"]


@pytest.fixture(autouse=True)
def _framework():
    """Imported where its tests run, since that takes seconds."""
    pytest.importorskip("langchain", reason="langchain is not installed")


def test_tools_of_a_provider_pass_untouched():
    builtin = {"type": "web_search_20250305", "name": "web_search"}
    script = Script()
    run(script, mask(), extra=[builtin])
    assert None in script.seen[0]
    assert set(script.seen[0]) == best([]) | {NEW, None}


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_allowed_tools_reach_openai_with_the_list_unchanged(api):
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage

    from dtdr.agents.langchain import ToolMaskMiddleware
    from tests.integrations.scripted_chat_model import tools

    package = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    sdk = pytest.importorskip("openai", reason="openai is not installed")
    http, sent = captured_client(sdk, 400, {"error": {"message": "enough"}})
    model = package.ChatOpenAI(
        model="gpt-5.4",
        api_key="none",
        max_retries=0,
        use_responses_api=api == "responses",
        http_client=http,
    )
    middleware = ToolMaskMiddleware(mask())  # the form and the API follow from the model
    agent = create_agent(model, tools=tools(Script()), middleware=[middleware])
    with pytest.raises(sdk.BadRequestError):
        agent.invoke({"messages": [HumanMessage(QUERY)]})

    assert {openai.tool_name(tool) for tool in sent[0]["tools"]} == {*NAMES, NEW}
    choice = sent[0]["tool_choice"]
    allowed = choice["allowed_tools"] if api == "chat" else choice
    assert {openai.tool_name(tool) for tool in allowed["tools"]} == best([]) | {NEW}


def test_a_server_that_is_only_compatible_with_openai_gets_a_filtered_list():
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage

    from dtdr.agents.langchain import ToolMaskMiddleware
    from tests.integrations.scripted_chat_model import tools

    package = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    sdk = pytest.importorskip("openai", reason="openai is not installed")
    http, sent = captured_client(sdk, 400, {"error": {"message": "enough"}})
    address = "http://localhost:8000/v1"
    model = package.ChatOpenAI(
        model="m", api_key="none", base_url=address, max_retries=0, http_client=http
    )
    middleware = [ToolMaskMiddleware(mask())]
    agent = create_agent(model, tools=tools(Script()), middleware=middleware)
    with pytest.raises(sdk.BadRequestError):
        agent.invoke({"messages": [HumanMessage(QUERY)]})

    assert {openai.tool_name(tool) for tool in sent[0]["tools"]} == best([]) | {NEW}
    assert "tool_choice" not in sent[0]


def test_outputs_and_failures_are_read():
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    calls = [{"name": name, "args": {"to": "Rome"}, "id": name} for name in ("weather", "send")]
    messages = [
        HumanMessage(QUERY),
        AIMessage("One moment.", tool_calls=calls),
        ToolMessage('{"days": []}', tool_call_id="weather"),
        ToolMessage("no such mail", tool_call_id="send", status="error"),
        AIMessage("", tool_calls=[{"name": "read_log", "args": {}, "id": "log"}]),
        ToolMessage("Error: the build broke", tool_call_id="log"),
    ]
    run = transcript_of(messages).run()
    assert told(run) == [
        ("weather", {"to": "Rome"}, {"days": []}, "empty", 1),
        ("send", {"to": "Rome"}, "no such mail", "error", 1),
        ("read_log", {}, "Error: the build broke", "ok", 2),
    ]


def test_messages_with_parts_are_read():
    from langchain_core.messages import AIMessage, HumanMessage

    messages = [
        HumanMessage([{"type": "text", "text": QUERY}, {"type": "image", "url": "x"}]),
        AIMessage("", tool_calls=[{"name": "weather", "args": {}, "id": "1"}]),
    ]
    assert outline(transcript_of(messages)) == [(QUERY, [("weather",)])]


@pytest.mark.parametrize("way", ["langchain", "langchain-async"])
def test_an_agent_that_searches_is_shown_what_it_found(way):
    from langchain_core.messages import ToolMessage

    search = ("search_tools", {"query": "the weather of a city"})
    script = Script([(search,), ("weather",)])
    outcome = FRAMEWORKS[way](script, mask(top_k=1), search=True)
    assert "weather" not in script.seen[0]
    assert "search_tools" in script.seen[0]
    assert "weather" in script.seen[1]
    (answer, used) = [item for item in outcome.messages if isinstance(item, ToolMessage)]
    assert [tool["name"] for tool in json.loads(str(answer.content))["tools"]] == ["weather"]
    assert used.name == "weather"
