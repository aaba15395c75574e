import asyncio
import json
import re
import sys
from typing import Any

import pytest

import dtdr
from dtdr.agents import anthropic, openai
from tests import whole_calls
from tests.integrations.documentation import TEXT, run_python
from tests.integrations.frameworks import (
    Script,
    captured_client,
    llama_index_model,
    llama_index_tools,
    openai_agents_model,
    openai_agents_tools,
    pydantic_ai_model,
    pydantic_ai_tools,
)
from tests.integrations.tools import NAMES, NEW, QUERY, best, shared_model

SCHEMA = {"type": "object", "properties": {}}
MARKS = re.findall(r"<!-- test: (\S+) -->", TEXT)
TESTED = {
    "from-log-shell",
    "from-log-python",
    "loop",
    "search",
    "prefetch",
    "openai",
    "anthropic",
    "langchain",
    "pydantic-ai",
    "openai-agents",
    "llama-index",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("documentation")
    shared_model().save(place / "model")
    return place


@pytest.fixture(autouse=True)
def _beside_the_model(folder, monkeypatch):
    monkeypatch.chdir(folder)


def five():
    """What the pages' masks show at first."""
    return best([], 5) | {NEW}


def test_every_block_of_the_page_is_run_by_a_test():
    assert set(MARKS) == TESTED
    assert len(re.findall(r"^```(?:python|sh)$", TEXT, re.MULTILINE)) == len(MARKS)


def test_what_a_search_found_is_answered_and_shown():
    tools = [
        {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES
    ]
    request: dict[str, Any] = {
        "messages": [{"role": "user", "content": QUERY}],
        "tools": tools,
    }
    sent = []

    def ask(masked):
        sent.append(openai.tool_names(masked["tools"]))
        asked = {"name": "search_tools", "arguments": '{"query": "mail"}'}
        call = {"id": "c1", "type": "function", "function": asked}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    run_python("search", request=request, ask=ask)
    assert "search_tools" in sent[0]
    (answer,) = [item for item in request["messages"] if item["role"] == "tool"]
    assert [tool["name"] for tool in json.loads(answer["content"])["tools"]]


def test_the_loop_shows_what_comes_next_after_each_call():
    shown = []
    plan = iter(["read_file", "summarize", None])

    def choose(tools):
        shown.append(set(tools))
        return next(plan)

    run_python("loop", names=[*NAMES, NEW], choose=choose, use=lambda tool: f"{tool} is done")
    assert shown[0] == five()
    assert shown[2] == best(["read_file", "summarize"], 5) | {"read_file", "summarize", NEW}


def test_the_prefetch_snippet_makes_the_agent_s_calls_once(folder, capsys, monkeypatch):
    calls = [("find_user", {"name": "Rosa"}), ("send_mail", {"to": "rosa@x.org"}), (None, None)]
    made = []
    fitted = dtdr.fit(whole_calls.DEMONSTRATIONS, ranker="dtdr-l", arguments=True)
    fitted.save(folder / "filling")
    load = dtdr.load
    monkeypatch.setattr("dtdr.load", lambda name: load(folder / "filling"))

    def execute(tool, arguments):
        made.append((tool, dict(arguments)))
        return f"{tool} is done"

    run_python("prefetch", execute=execute, ask_llm=lambda run: calls[len(run.calls)])
    assert made == calls[:2]
    assert "started=0, hits=0" in capsys.readouterr().out


ANSWERS: dict[str, Any] = {
    "openai": {
        "id": "r",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant"}}],
    },
    "anthropic": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


def send_snippet(name, tools):
    """The request that a snippet sends with the provider's own client, on a network of our own."""
    package = pytest.importorskip(name, reason=f"{name} is not installed")
    http, sent = captured_client(package, 200, ANSWERS[name])
    make = package.OpenAI if name == "openai" else package.Anthropic
    messages = [{"role": "user", "content": QUERY}]
    client = make(api_key="none", http_client=http)
    assert "response" in run_python(name, client=client, messages=messages, tools=tools)
    assert len(messages) == 1
    return sent[0]


def test_the_openai_snippet_sends_a_constant_list_and_allows_some():
    tools = [
        {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
        for name in (*NAMES, NEW)
    ]
    sent = send_snippet("openai", tools)
    assert sent["tools"] == tools
    allowed = sent["tool_choice"]["allowed_tools"]["tools"]
    assert set(map(openai.tool_name, allowed)) == five()


def test_the_anthropic_snippet_defers_all_and_loads_some():
    tools = [{"name": name, "input_schema": SCHEMA} for name in (*NAMES, NEW)]
    sent = send_snippet("anthropic", tools)
    assert {tool["name"] for tool in sent["tools"] if tool.get("defer_loading")} == set(NAMES)
    assert sent["tools"][0]["name"] == anthropic.LOADER
    loaded = sent["messages"][2]["content"][0]["content"]
    assert {block["tool_name"] for block in loaded} == best([], 5)


def test_the_langchain_snippet_masks():
    pytest.importorskip("langchain", reason="langchain is not installed")
    from tests.integrations.scripted_chat_model import ScriptedModel, tools

    script = Script()
    model = ScriptedModel(script=script)
    agent = run_python("langchain", model=model, tools=tools(script))["agent"]
    agent.invoke({"messages": [("user", QUERY)]})
    assert script.seen == [five()]


def test_the_pydantic_ai_snippet_masks():
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    script = Script()
    model, tools = pydantic_ai_model(script), pydantic_ai_tools(script)
    run_python("pydantic-ai", model=model, tools=tools)["agent"].run_sync(QUERY)
    assert script.seen == [five()]


def test_the_openai_agents_snippet_masks():
    pytest.importorskip("agents", reason="openai-agents is not installed")
    from agents import Runner
    from agents.run import RunConfig

    script = Script()
    model, tools = openai_agents_model(script), openai_agents_tools(script)
    agent = run_python("openai-agents", model=model, tools=tools)["agent"]
    Runner.run_sync(agent, QUERY, run_config=RunConfig(tracing_disabled=True))
    assert script.seen == [five()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_llama_index_snippet_masks():
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    script = Script([("read_file",)])
    llm, tools = llama_index_model(script), llama_index_tools(script)
    agent = run_python("llama-index", llm=llm, tools=tools)["agent"]

    async def started():
        return await agent.run(QUERY)

    asyncio.run(started())
    assert script.seen[0] == five()
    assert script.seen[1] == best(["read_file"], 5) | {"read_file", NEW}


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain", "langchain"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("openai_agents", "agents", "openai-agents"),
        ("llama_index", "llama_index", "llama-index"),
    ],
)
def test_a_framework_that_is_missing_is_named_with_its_extra(module, package, extra, monkeypatch):
    import importlib

    from dtdr.errors import MissingExtraError

    if module == "langchain":
        pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    hidden = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    for name in hidden:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"dtdr.agents.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'dtdr\[{extra}\]'"):
        importlib.import_module(f"dtdr.agents.{module}")
    assert f"pip install 'dtdr[{extra}]'" in TEXT
