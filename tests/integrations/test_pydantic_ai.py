import pytest

from tests.integrations.frameworks import FRAMEWORKS, Script
from tests.integrations.tools import NEW, QUERY, best, mask, told

run = FRAMEWORKS["pydantic-ai"]
SEARCH = ("search_tools", {"queries": ["mail"]})


@pytest.fixture(autouse=True)
def _framework():
    """Imported where its tests run, since that takes seconds."""
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")


def test_deferred_tools_are_loaded_before_the_model_searches_and_others_can_be_found():
    from pydantic_ai.capabilities import ToolSearch

    script = Script([(SEARCH,)])
    # A scripted model is taken to search for itself; the local search is asked for by name.
    run(script, mask(), form="deferred", capabilities=[ToolSearch(strategy="keywords")])

    assert script.seen[0] == best([]) | {NEW, "search_tools"}
    assert "send_mail" not in best([])
    assert "send_mail" in script.seen[1]


def test_a_call_that_has_to_be_made_again_failed():
    from pydantic_ai import Agent, ModelRetry, Tool
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from dtdr.agents.pydantic_ai import transcript

    def look(city: str) -> dict:
        """Look."""
        if city != "Rome":
            raise ModelRetry("no such city")
        return {"error": "it rained"}

    def answer(messages, info):
        cities = [call for message in messages for call in message.parts if part_is_call(call)]
        if len(cities) == 2:
            return ModelResponse(parts=[TextPart("Sunny.")])
        return ModelResponse(parts=[ToolCallPart("look", {"city": ["Rom", "Rome"][len(cities)]})])

    def part_is_call(part):
        return isinstance(part, ToolCallPart)

    result = Agent(FunctionModel(answer), tools=[Tool(look)]).run_sync(QUERY)
    first, second = told(transcript(result.all_messages()).run())
    assert (first[1], first[3]) == ({"city": "Rom"}, "error")
    # What says "error" is a result where nothing marks it as a failure.
    assert second == ("look", {"city": "Rome"}, {"error": "it rained"}, "ok", 2)
