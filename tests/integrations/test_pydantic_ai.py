import asyncio

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")

from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.capabilities import PrepareTools, ToolSearch
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from dtdr.errors import InputError
from dtdr.integrations.pydantic_ai import prepare_tools, search_tools, transcript
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

SCRIPT = [("read_file",), ("summarize", "find_contact"), ("send_mail",)]


class Script:
    """A model that calls the tools of its script; notes what it was shown and what was deferred."""

    def __init__(self, steps):
        self.steps = steps
        self.seen = []

    def __call__(self, messages, info):
        # What a model without native tool search is sent: deferred tools are not.
        self.seen.append([tool.name for tool in info.function_tools])
        step = len(self.seen) - 1
        calls = self.steps[step] if step < len(self.steps) else ()
        arguments = {"queries": ["mail"]}
        if not calls:
            return ModelResponse(parts=[TextPart("There you are.")])
        return ModelResponse(
            parts=[
                ToolCallPart(name, arguments if name == "search_tools" else {}) for name in calls
            ]
        )


def agent(script, *capabilities, **options):
    def use() -> str:
        """Use it."""
        return "fine"

    tools = [Tool(use, name=name, **options) for name in (*NAMES, NEW)]
    return Agent(FunctionModel(script), tools=tools, capabilities=list(capabilities))


def run(found, *, asynchronous=False, turns=(QUERY,)):
    history = None
    for text in turns:
        if asynchronous:
            result = asyncio.run(found.run(text, message_history=history))
        else:
            result = found.run_sync(text, message_history=history)
        history = result.all_messages()
    return result


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_agent_sees_the_tools_that_come_next_and_those_it_called(asynchronous):
    script = Script(SCRIPT)
    found = agent(script, PrepareTools(prepare_tools(mask())))
    assert run(found, asynchronous=asynchronous).output == "There you are."

    history: list[str] = []
    for step, shown in enumerate(script.seen):
        assert set(shown) == best(history) | set(history) | {NEW}
        history += SCRIPT[step] if step < len(SCRIPT) else ()
    assert len(script.seen) == 4


def test_each_turn_of_the_user_is_ranked_for_itself():
    second = "Text Bob what the weather in Rome is"
    script = Script([*SCRIPT, ()])
    run(agent(script, PrepareTools(prepare_tools(mask()))), turns=(QUERY, second))

    called = {name for step in SCRIPT for name in step}
    assert set(script.seen[4]) == best([], query=second) | called | {NEW}


def test_a_failing_retriever_shows_all_tools_and_says_why(caplog):
    script = Script(SCRIPT)
    run(agent(script, PrepareTools(prepare_tools(broken_mask()))))
    assert set(script.seen[0]) == {*NAMES, NEW}
    assert "the disk is on fire" in caplog.text


def test_the_framework_itself_refuses_a_filtered_tool():
    assert "send_text" not in best([])
    script = Script([("send_text",)])
    result = run(agent(script, PrepareTools(prepare_tools(mask()))))
    assert "Unknown tool name: 'send_text'" in str(result.all_messages())


def test_deferred_tools_are_loaded_before_the_model_searches_and_others_can_be_found():
    script = Script([("search_tools",)])
    # A scripted model is taken to search for itself; the local search is asked for by name.
    search = ToolSearch(strategy="keywords")
    found = agent(script, search, PrepareTools(prepare_tools(mask(), "deferred")))
    run(found)

    assert set(script.seen[0]) == best([]) | {NEW, "search_tools"}
    assert "send_mail" not in best([])
    assert "send_mail" in script.seen[1]


def test_the_search_finds_what_the_run_needs_and_what_the_words_mean():
    script = Script([("search_tools",), ("read_file",), ("search_tools",)])
    found = agent(script, ToolSearch(strategy=search_tools(mask())), defer_loading=True)
    run(found)

    assert set(script.seen[0]) == {"search_tools"}
    assert "send_mail" not in best([])
    assert set(script.seen[1]) == best([]) | {NEW, "search_tools", "send_mail"}
    assert set(script.seen[3]) == set(script.seen[1]) | best(["read_file"])


def test_a_token_budget_is_counted_in_definitions():
    tight, loose = Script([]), Script([])
    run(agent(tight, PrepareTools(prepare_tools(mask(token_budget=1)))))
    run(agent(loose, PrepareTools(prepare_tools(mask(token_budget=10_000)))))
    assert set(tight.seen[0]) == best([], 1) | {NEW}
    assert set(loose.seen[0]) == {*NAMES, NEW}


def test_what_calls_returned_and_what_was_said_before_is_told():
    second = "Text Bob what the weather in Rome is"
    noting = record_mask()
    run(agent(Script([*SCRIPT, ()]), PrepareTools(prepare_tools(noting))), turns=(QUERY, second))
    check_two_turns(noting.retriever.runs, SCRIPT, second)


def test_a_call_that_has_to_be_made_again_failed():
    def look(city: str) -> dict:
        """Look."""
        if city != "Rome":
            raise ModelRetry("no such city")
        return {"days": [1]}

    def answer(messages, info):
        cities = [call for message in messages for call in message.parts if part_is_call(call)]
        if len(cities) == 2:
            return ModelResponse(parts=[TextPart("Sunny.")])
        return ModelResponse(parts=[ToolCallPart("look", {"city": ["Rom", "Rome"][len(cities)]})])

    def part_is_call(part):
        return isinstance(part, ToolCallPart)

    result = Agent(FunctionModel(answer), tools=[Tool(look)]).run_sync(QUERY)
    first, second = told(transcript(result.all_messages()).bound().turns[0])
    assert (first[1], first[3]) == ({"city": "Rom"}, "error")
    assert second == ("look", {"city": "Rome"}, {"days": [1]}, "ok", 2)


def test_an_unknown_form_is_refused():
    with pytest.raises(InputError, match="unknown form 'hint'"):
        prepare_tools(mask(), "hint")  # type: ignore[arg-type]


def test_a_runs_messages_are_read_as_its_transcript():
    result = run(agent(Script(SCRIPT)))
    assert outline(transcript(result.all_messages())) == [(QUERY, SCRIPT)]
