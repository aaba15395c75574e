import asyncio

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed")

from agents import ModelSettings, WebSearchTool

from dtdr.agents import Transcript
from dtdr.agents.openai_agents import ToolMaskModel, transcript
from tests.integrations.frameworks import FRAMEWORKS, Script
from tests.integrations.tools import NEW, QUERY, best, mask

run = FRAMEWORKS["openai-agents"]


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
    masked = ToolMaskModel("gpt-5.4", mask())
    assert masked.model.model == "gpt-5.4"  # type: ignore[attr-defined]
    closed = []

    async def close():
        closed.append(masked.model)

    monkeypatch.setattr(masked.model, "close", close)
    asyncio.run(masked.close())
    assert closed == [masked.model]


def test_a_question_in_plain_text_is_read():
    assert transcript(QUERY) == Transcript.of(QUERY)
