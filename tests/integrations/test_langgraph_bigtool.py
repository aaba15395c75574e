import asyncio

import pytest

pytest.importorskip("langgraph_bigtool", reason="langgraph-bigtool is not installed")

from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from langgraph_bigtool import create_agent  # type: ignore[import-untyped]

from dtdr.errors import InputError
from dtdr.integrations.langgraph_bigtool import retrieve_tools_functions
from tests.integrations.scripted_chat_model import ScriptedModel, tools
from tests.integrations.tools import NAMES, NEW, QUERY, best, broken_mask, mask

REGISTRY = {f"id-{tool.name}": tool for tool in tools()}


class SearchingModel(ScriptedModel):
    """Gives the search tool the query that it must have."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        result = super()._generate(messages, stop, run_manager, **kwargs)
        for call in result.generations[0].message.tool_calls:
            if "retrieve" in call["name"]:
                call["args"] = {"query": "something to read with"}
        return result


def run(script, found, *, asynchronous):
    function, coroutine = retrieve_tools_functions(found, REGISTRY)
    model = SearchingModel(script=script, seen=[], heard=[])
    builder = create_agent(
        model,
        REGISTRY,
        retrieve_tools_function=function,
        retrieve_tools_coroutine=coroutine,
    )
    agent = builder.compile(store=InMemoryStore())
    state = {"messages": [("user", QUERY)]}
    asyncio.run(agent.ainvoke(state)) if asynchronous else agent.invoke(state)
    return model


SEARCH = "retrieve_tools"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_is_retrieved_follows_the_users_message(asynchronous):
    model = run([(SEARCH,)], mask(), asynchronous=asynchronous)

    assert set(model.seen[0]) == {SEARCH}
    assert set(model.seen[1]) == best([]) | {SEARCH, NEW}


@pytest.mark.skipif(
    not hasattr(ToolNode, "inject_tool_args"),
    reason="no langgraph-bigtool executes tools with langgraph 1; see make test-bigtool",
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_is_retrieved_follows_the_calls_so_far(asynchronous):
    script = [(SEARCH,), ("read_file",), (SEARCH,)]
    model = run(script, mask(), asynchronous=asynchronous)

    assert best(["read_file"]) != best([])
    assert set(model.seen[3]) == best([]) | best(["read_file"]) | {SEARCH, NEW}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_failing_retriever_retrieves_every_tool(asynchronous, caplog):
    model = run([(SEARCH,)], broken_mask(), asynchronous=asynchronous)
    assert set(model.seen[1]) == {*NAMES, NEW, SEARCH}
    assert "the disk is on fire" in caplog.text


def test_outside_a_graph_the_search_text_is_the_query(caplog):
    function, _ = retrieve_tools_functions(mask(), REGISTRY)
    assert set(function(QUERY)) >= {f"id-{name}" for name in best([]) | {NEW}}
    assert "ranking by the search text alone" in caplog.text


def test_what_the_model_searched_for_is_retrieved_besides():
    function, _ = retrieve_tools_functions(mask(top_k=1), REGISTRY)
    text = "text message to a phone number"
    assert "send_text" not in best([], 1, text)
    assert "id-send_text" in function(text)


def test_two_tools_of_one_name_are_an_error():
    twice = {**REGISTRY, "other": tools(["weather"])[0]}
    with pytest.raises(InputError, match="two tools are named 'weather'"):
        retrieve_tools_functions(mask(), twice)
