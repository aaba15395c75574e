import pytest

from dtdr.agents import openai
from tests.integrations.frameworks import FRAMEWORKS, Script
from tests.integrations.openai_server import COMPATIBLE, callable_names
from tests.integrations.tools import NAMES, NEW, QUERY, best, mask, told

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


APIS = ["chat", "responses"]
STEPS = [("read_file",), ("summarize",)]


def bodies(api, **options):
    """What the server was sent in a run of three requests."""
    requests: list[dict] = []
    way = FRAMEWORKS[f"pydantic-ai-{api}"]
    way(Script(STEPS), mask(top_k=3), requests=requests, **options)
    assert len(requests) == 3
    return requests


def sent_names(body):
    return [tool.get("function", tool).get("name") for tool in body["tools"]]


@pytest.mark.parametrize("api", APIS)
def test_openai_itself_gets_the_same_tools_at_each_step_and_a_list_of_those_it_may_call(api):
    first, second, third = bodies(api)
    assert first["tools"] == second["tools"] == third["tools"], "or the prompt cache is lost"
    assert set(sent_names(first)) == {*NAMES, NEW}
    assert set(callable_names(first)) == best([], 3) | {NEW}
    assert set(callable_names(second)) == best(["read_file"], 3) | {"read_file", NEW}
    allowed = first["tool_choice"]
    assert allowed["type"] == "allowed_tools"
    assert allowed.get("allowed_tools", allowed)["mode"] == "auto", "it may answer in words"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("options", [{"address": COMPATIBLE}, {"form": "filtered"}])
def test_another_server_and_who_asks_for_it_get_a_filtered_list(api, options):
    for body in bodies(api, **options):
        assert body.get("tool_choice", "auto") == "auto"
    assert set(sent_names(bodies(api, **options)[0])) == best([], 3) | {NEW}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_with_more_tools_than_openai_takes_the_list_is_filtered(api, extra):
    from pydantic_ai import Tool

    def use() -> str:
        """Use it."""
        return "fine"

    count = openai.MOST_TOOLS + extra - len(NAMES) - 1
    further = [Tool(use, name=f"further_{number}") for number in range(count)]
    body = bodies(api, tools=further)[0]
    shown = best([], 3) | {NEW} | {tool.name for tool in further}
    assert set(callable_names(body)) == shown
    assert len(sent_names(body)) == (len(shown) if extra > 0 else openai.MOST_TOOLS + extra)


def test_an_agent_with_native_tools_keeps_them_and_gets_a_filtered_list():
    from pydantic_ai.capabilities import NativeTool
    from pydantic_ai.native_tools import WebSearchTool

    for body in bodies("responses", capabilities=[NativeTool(WebSearchTool())]):
        assert body.get("tool_choice", "auto") == "auto"
        assert {tool["type"] for tool in body["tools"]} == {"function", "web_search"}
        assert len(body["tools"]) < len(NAMES)


@pytest.mark.parametrize(
    ("choice", "mode", "names"),
    [
        ("auto", "auto", None),
        ("required", "required", None),
        (["send_text", "weather"], "required", {"send_text", "weather"}),
    ],
)
def test_a_choice_of_the_settings_is_kept(choice, mode, names):
    from pydantic_ai.capabilities import AbstractCapability

    class Choose(AbstractCapability):
        def get_model_settings(self):
            return lambda context: {"tool_choice": choice if context.run_step == 1 else "auto"}

    body = bodies("chat", capabilities=[Choose()])[0]
    assert body["tool_choice"]["allowed_tools"]["mode"] == mode
    assert set(callable_names(body)) == (names or best([], 3) | {NEW})


def test_the_form_follows_from_the_model_within_wrappers():
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from dtdr.agents.pydantic_ai import _address

    model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=AsyncOpenAI(api_key="x")))
    assert openai.cheapest_form(5, address=_address(WrapperModel(model))) == "allowed-tools"
    assert openai.cheapest_form(5, address=_address(TestModel())) == "filtered"


def test_the_old_name_still_filters():
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import PrepareTools

    from dtdr.agents.pydantic_ai import prepare_tools
    from tests.integrations.frameworks import pydantic_ai_model, pydantic_ai_tools

    with pytest.warns(DeprecationWarning, match="use ToolMaskCapability"):
        prepare = prepare_tools(mask())
    script = Script()
    model, tools = pydantic_ai_model(script), pydantic_ai_tools(script)
    Agent(model, tools=tools, capabilities=[PrepareTools(prepare)]).run_sync(QUERY)
    assert script.seen == [best([]) | {NEW}]
