import asyncio

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed")

from agents import Agent, Model, ModelSettings, Runner, WebSearchTool
from agents.run import RunConfig

from dtdr.agents.openai_agents import ToolMaskModel
from tests.integrations.frameworks import FRAMEWORKS, Script
from tests.integrations.tools import NEW, QUERY, best, mask

run = FRAMEWORKS["openai-agents"]


class Noting(Model):
    """Notes what it is asked and that it was closed."""

    def __init__(self):
        self.shown = set()
        self.is_closed = False

    async def get_response(self, system_instructions, input, model_settings, tools, *rest, **more):
        self.shown = {tool.name for tool in tools}
        raise RuntimeError("enough")

    def stream_response(self, *rest, **more):
        raise NotImplementedError

    async def close(self):
        self.is_closed = True


def test_a_question_in_plain_text_is_read():
    from tests.integrations.frameworks import openai_agents_tools

    model = Noting()
    agent = Agent("tester", model=ToolMaskModel(model, mask()), tools=openai_agents_tools(Script()))
    with pytest.raises(RuntimeError, match="enough"):
        Runner.run_sync(agent, QUERY, run_config=RunConfig(tracing_disabled=True))
    assert model.shown == best([]) | {NEW}


def test_hosted_tools_pass_untouched():
    script = Script()
    run(script, mask(), extra=[WebSearchTool()])
    assert script.seen[0] == best([]) | {NEW, WebSearchTool().name}


def test_a_tool_that_the_settings_force_is_not_taken_away():
    assert "send_text" not in best([])
    script = Script()
    run(script, mask(), model_settings=ModelSettings(tool_choice="send_text"))
    assert "send_text" in script.seen[0]


def test_a_model_is_found_by_name_and_closed_with_its_wrapper(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert ToolMaskModel("gpt-5.4", mask()).model.model == "gpt-5.4"  # type: ignore[attr-defined]

    model = Noting()
    asyncio.run(ToolMaskModel(model, mask()).close())
    assert model.is_closed
