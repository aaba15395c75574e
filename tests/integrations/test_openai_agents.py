import asyncio
import json
from typing import Any

import pytest

from dtdr.agents import Transcript
from tests.integrations.frameworks import FRAMEWORKS, Script
from tests.integrations.tools import NAMES, NEW, QUERY, best, mask

run = FRAMEWORKS["openai-agents"]


@pytest.fixture(autouse=True)
def _framework():
    """Imported where its tests run, since that takes seconds."""
    pytest.importorskip("agents", reason="openai-agents is not installed")


def test_hosted_tools_pass_untouched():
    from agents import WebSearchTool

    script = Script()
    run(script, mask(), extra=[WebSearchTool()])
    assert script.seen[0] == best([]) | {NEW, WebSearchTool().name}


def test_a_tool_that_the_settings_force_is_not_taken_away():
    from agents import ModelSettings

    assert "send_text" not in best([])
    script = Script()
    run(script, mask(), model_settings=ModelSettings(tool_choice="send_text"))
    assert "send_text" in script.seen[0]


def test_a_model_is_found_by_name_and_closed_with_its_wrapper(monkeypatch):
    from dtdr.agents.openai_agents import ToolMaskModel

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    masked = ToolMaskModel("gpt-5.4", mask())
    assert masked.model.model == "gpt-5.4"  # type: ignore[attr-defined]
    closed = []

    async def close():
        closed.append(masked.model)

    monkeypatch.setattr(masked.model, "close", close)
    asyncio.run(masked.close())
    assert closed == [masked.model]


def test_a_question_in_plain_text_is_read():
    from dtdr.agents.openai_agents import transcript

    assert transcript(QUERY) == Transcript.of(QUERY)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_openai_itself_gets_all_tools_and_the_list_of_those_it_may_call(api):
    import httpx2
    from agents import (
        Agent,
        FunctionTool,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        RunConfig,
        Runner,
    )
    from openai import APIStatusError, AsyncOpenAI

    from dtdr.agents.openai_agents import ToolMaskModel

    kind = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[api]
    sent = []

    async def answer(request):
        sent.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"message": "enough", "code": "enough"}})

    def ask(address, **options):
        transport = httpx2.MockTransport(answer)
        http = httpx2.AsyncClient(transport=transport)
        client = AsyncOpenAI(api_key="none", base_url=address, http_client=http, max_retries=0)
        masked = ToolMaskModel(kind("m", client), mask(), **options)
        never: Any = None
        tools: list[Any] = [FunctionTool(name, "", {}, never) for name in (*NAMES, NEW)]
        agent = Agent("a", model=masked, tools=tools)
        with pytest.raises(APIStatusError):
            asyncio.run(Runner.run(agent, QUERY, run_config=RunConfig(tracing_disabled=True)))
        return sent.pop()

    body = ask("https://api.openai.com/v1")
    assert len(body["tools"]) == len(NAMES) + 1
    allowed = body["tool_choice"]
    assert allowed["type"] == "allowed_tools"
    listed = allowed["allowed_tools"]["tools"] if api == "chat" else allowed["tools"]
    names = {(item["function"] if api == "chat" else item)["name"] for item in listed}
    assert names == best([]) | {NEW}
    for address, options in (
        ("https://api.openai.com/v1", {"form": "filtered"}),
        ("http://localhost:1/v1", {}),
    ):
        body = ask(address, **options)
        assert "tool_choice" not in body
        assert len(body["tools"]) == len(names)
