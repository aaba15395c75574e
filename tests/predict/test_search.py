"""The search of an agent that says what it lacks: in the library, the masks and their adapters."""

import json
from typing import Any

import numpy as np
import pytest

import dtdr
from dtdr.agents import ToolMask, ToolPolicy, Transcript, anthropic, openai
from dtdr.agents.search import read_search
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.predict.search import ToolSearch
from dtdr.rankers.calibration import Calibration
from dtdr.rankers.ranking import Ranking
from tests import small_data
from tests.helpers import RANKER_ONLY, smoke_rows
from tests.integrations.tools import NEW, QUERY, broken_mask, mask, shared_model

NAMES = [tool.name for tool in small_data.TOOLS]
NEW_TOOL = Tool(NEW, "Order a taxi")
KNOWN = (*small_data.TOOLS, NEW_TOOL)


def names(tools):
    return [name for name, _ in tools]


def test_words_of_the_text_find_a_tool_that_the_run_speaks_against():
    assert shared_model().rank(QUERY).best == "read_file"
    brought = shared_model().search("tell me the weather of a city", QUERY, 3)
    assert brought[0][0] == "weather"
    assert sum(share for _, share in brought) <= 1 + 1e-9


def test_the_run_decides_between_tools_whose_words_match_alike():
    search = ToolSearch.of([Tool("send_mail", "Send"), Tool("send_text", "Send")])
    for first, second in ((0.8, 0.1), (0.1, 0.8)):
        run = Ranking(("send_mail", "send_text", "end"), np.array([first, second, 0.1]))
        likelier = "send_mail" if first > second else "send_text"
        assert names(search.find("send", run=run))[0] == likelier


def test_a_session_searches_as_the_ranker_does():
    session = shared_model().session(QUERY).call("read_file")
    run = Run(QUERY)
    run.call("read_file")
    assert session.search("make it shorter", 4) == shared_model().search("make it shorter", run, 4)


def test_only_the_tools_that_are_asked_about_are_returned():
    brought = shared_model().search(
        "send an e-mail", QUERY, offered={"weather", "send_text", "nothing"}
    )
    assert set(names(brought)) <= {"weather", "send_text"}
    assert shared_model().search("send an e-mail", QUERY, offered=()) == []


def test_what_matches_nothing_brings_up_nothing_by_words_alone():
    search = ToolSearch.of(KNOWN)
    assert search.find("walrus quarantine") == []
    assert names(search.find("order a taxi")) == [NEW]
    assert ToolSearch.of(()).find("order a taxi") == []


def test_a_text_that_means_nothing_here_brings_up_no_tool_of_the_run():
    vocabulary = ("weather", "send_mail", "send_text", "end")
    run = Ranking(vocabulary, np.array([0.9, 0.05, 0.04, 0.01]))
    calibration = Calibration(familiarity_threshold=0.5)
    chances = np.array([0.5, 0.3, 0.1, 0.1])
    asked = Ranking(vocabulary, chances, familiarity=0.0, calibration=calibration)
    assert not asked.is_familiar
    tools = [Tool("weather", "Tell the weather"), Tool("send_mail"), Tool("send_text")]
    search = ToolSearch.of(tools)
    assert search.find("walrus quarantine", run=run, asked=asked) == []
    assert names(search.find("mail", run=run, asked=asked))[0] == "send_mail"


@pytest.mark.parametrize(
    "text",
    ["send_text", "please look whether SEND_TEXT(to) could open a file and return its number"],
)
def test_a_tool_that_is_named_comes_first_and_scores_fall(text):
    brought = shared_model().search(text, QUERY, 6)
    assert brought[0][0] == "send_text"
    scores = [score for _, score in brought]
    assert scores == pytest.approx(sorted(scores, reverse=True))


@pytest.mark.parametrize(("text", "k"), [(" ", 5), ("", 5), (None, 5), ("mail", 0)])
def test_a_search_for_nothing_is_an_error(text, k):
    with pytest.raises(InputError):
        shared_model().search(text, QUERY, k)


def test_tools_that_come_later_are_found():
    model: Any = dtdr.fit(small_data.dataset(24).demonstrations, small_data.TOOLS, **RANKER_ONLY)
    assert NEW not in names(model.search("order a taxi", QUERY))
    model.add_tools([NEW_TOOL])
    assert model.search("order a taxi", QUERY)[0][0] == NEW
    model.remove_tools([NEW])
    assert NEW not in names(model.search("order a taxi", QUERY))


# -- masks ---------------------------------------------------------------------------------------


def test_a_mask_searches_what_it_hides_and_tools_that_the_model_does_not_know():
    hides = mask(top_k=1)
    hidden = hides.select([tool.name for tool in KNOWN], Transcript.of(QUERY)).hidden
    brought = hides.search("the weather of a city", KNOWN, Transcript.of(QUERY))
    assert brought[0] == "weather"
    assert set(brought) <= {*hidden, NEW}
    assert hides.search("order a taxi", KNOWN, Transcript.of(QUERY))[0] == NEW
    shows = ToolMask(shared_model(), ToolPolicy(top_k=20))
    assert shows.search("order a taxi", KNOWN, Transcript.of(QUERY))[0] == NEW


def test_a_search_goes_by_words_when_ranking_fails(caplog):
    assert broken_mask().search("order a taxi", KNOWN, Transcript.of(QUERY)) == (NEW,)
    assert "searching by words alone" in caplog.text


# -- requests ------------------------------------------------------------------------------------


def chat_tool(tool):
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": {}},
    }


def test_a_chat_search_is_answered_and_what_it_found_is_shown_from_then_on():
    hides = mask(top_k=1)
    user = {"role": "user", "content": QUERY}
    body = {"messages": [user], "tools": [*map(chat_tool, KNOWN), openai.search_tool()]}
    first = openai.mask_request(body, hides, "filtered")
    assert "weather" not in openai.tool_names(first["tools"])
    assert "search_tools" in openai.tool_names(first["tools"])
    asked = {"name": "search_tools", "arguments": '{"query": "the weather of a city"}'}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": asked}],
    }
    (answer,) = openai.answer_searches(body, [message], hides)
    assert (answer["role"], answer["tool_call_id"]) == ("tool", "c1")
    assert [tool["name"] for tool in json.loads(answer["content"])["tools"]] == ["weather"]
    body["messages"] = [user, message, answer]
    later = openai.mask_request(body, hides, "filtered")
    assert "weather" in openai.tool_names(later["tools"])
    assert hides.select(NAMES, openai.transcript(body)).reasons["weather"] == "called"
    # The search is not a step of the user's task.
    ranked = hides.select(NAMES, openai.transcript({"messages": [user]})).preferred
    assert hides.select(NAMES, openai.transcript(body)).preferred == ranked


def test_openais_tool_search_is_answered_with_definitions_that_its_package_accepts():
    responses = pytest.importorskip("openai.types.responses", reason="openai is not installed")
    hides = mask(top_k=1)
    tools = [
        {"type": "function", "name": t.name, "description": t.description, "parameters": {}}
        for t in KNOWN
    ]
    offered = openai.search_tool("responses")
    assert responses.ToolSearchTool.model_validate(offered).execution == "client"
    body = {"input": QUERY, "tools": [*tools, offered]}
    call = responses.ResponseToolSearchCall.model_validate(
        {
            "type": "tool_search_call",
            "id": "ts_1",
            "call_id": "call_1",
            "execution": "client",
            "status": "completed",
            "arguments": {"query": "order a taxi"},
        }
    )
    (answer,) = openai.answer_searches(body, [call], hides)
    output = responses.ResponseToolSearchOutputItem.model_validate({**answer, "id": "tso_1"})
    assert output.call_id == "call_1"
    assert output.tools[0].name == NEW
    assert output.tools[0].defer_loading is True
    by_server = {**call.model_dump(), "execution": "server"}
    assert openai.answer_searches(body, [by_server], hides) == []

    items = [{"role": "user", "content": QUERY}, call.model_dump(), answer]
    weather = {"query": "the weather of a city"}
    again = call.model_copy(update={"call_id": "call_2", "arguments": weather})
    items += [again.model_dump(), *openai.answer_searches({**body, "input": items}, [again], hides)]
    ranked = hides.select(NAMES, openai.transcript({"input": QUERY})).preferred
    assert hides.select(NAMES, openai.transcript({"input": items})).preferred == ranked


def test_anthropics_search_is_answered_with_references():
    types = pytest.importorskip("anthropic.types", reason="anthropic is not installed")
    hides = mask(top_k=1)
    tools = [
        {"name": t.name, "description": t.description, "input_schema": {"type": "object"}}
        for t in KNOWN
    ]
    body = {
        "messages": [{"role": "user", "content": QUERY}],
        "tools": [*tools, anthropic.search_tool()],
    }
    sent = anthropic.mask_request(body, hides)
    (offered,) = [tool for tool in sent["tools"] if tool["name"] == "search_tools"]
    assert "defer_loading" not in offered
    search = types.ToolUseBlock(
        id="toolu_1", name="search_tools", input={"query": "the weather"},
        type="tool_use", caller={"type": "direct"},
    )  # fmt: skip
    bad = {"type": "tool_use", "id": "toolu_2", "name": "search_tools", "input": {"query": ""}}
    good, refused = anthropic.answer_searches(body, [search, bad], hides)
    assert good == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "tool_reference", "tool_name": "weather"}],
    }
    assert refused["is_error"] is True
    assert "'query' is missing" in refused["content"]
    body["messages"] += [
        {"role": "assistant", "content": [search.model_dump()]},
        {"role": "user", "content": [good]},
    ]
    masked = anthropic.mask_request(body, hides)
    loads = [
        block["content"]
        for message in masked["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_result" and block["tool_use_id"] != "toolu_1"
    ]
    loaded = [reference["tool_name"] for content in loads for reference in content]
    assert "weather" not in loaded


@pytest.mark.parametrize("arguments", ["{", {}, {"query": " "}])
def test_a_search_that_cannot_be_understood_says_why(arguments):
    with pytest.raises(InputError, match=r"'query'|not JSON"):
        read_search(arguments)


# -- command line and benchmark --------------------------------------------------------------------


@pytest.mark.slow
def test_the_benchmark_runs():
    rows = smoke_rows("search")
    assert [row["wanted"] for row in rows] == ["missed", "new"]
    assert all(row["search"] >= row["ranking"] for row in rows)
