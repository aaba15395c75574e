from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from dtdr.agents.gateway import UpstreamSpec
from tests.gateway.helpers import (
    gateway_client,
    http_server,
    journal_of,
    stdio,
    text,
    until,
)
from tests.ports import free_port

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
UPSTREAM_ERAS = pytest.mark.parametrize("handshake", [True, False])
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@ERAS
async def test_resources_of_all_servers_are_listed_and_read(model, served, mode):
    async with gateway_client(model, served["two"], mode=mode) as (client, _):
        never_listed = await client.read_resource("memo://b_note")
        with pytest.raises(MCPError, match="Resource not found") as caught:
            await client.read_resource("memo://nobody")
        listed = [item.uri for item in (await client.list_resources()).resources]
        templates = (await client.list_resource_templates()).resource_templates
        note = await client.read_resource("memo://b_note")
        day = await client.read_resource("memo://b_day/7")

    assert never_listed.contents[0].text == note.contents[0].text == "b_: memo://b_note"
    assert caught.value.code == -32002
    assert listed == ["memo://a_note", "memo://b_note"]
    assert [item.uri_template for item in templates] == ["memo://a_day/{day}", "memo://b_day/{day}"]
    assert day.contents[0].text == "b_: memo://b_day/7"


@ERAS
async def test_prompts_that_collide_are_prefixed(model, served, mode):
    async with gateway_client(model, served["two"], mode=mode) as (client, _):
        before = await client.get_prompt("b__greet")
        listed = [prompt.name for prompt in (await client.list_prompts()).prompts]
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("nothing")
        instructions = client.instructions

    assert listed == ["a__greet", "a_only", "b__greet", "b_only"]
    assert before.messages[0].content.text == "b_ greet"
    assert "search_tools" in instructions
    assert "Instructions of b_." in instructions


@UPSTREAM_ERAS
@ERAS
async def test_progress_reaches_the_client_that_asked_and_a_cancelled_call_stops(
    model, mode, handshake, tmp_path
):
    journal = tmp_path / "journal"
    heard = []

    async def progress(done, total, message):
        heard.append((done, total, message))

    specs = [stdio("a", special=True, journal=str(journal), handshake=handshake)]
    async with gateway_client(model, specs, mode=mode) as (client, _):
        with anyio.move_on_after(60) as scope:

            async def call():
                await client.call_tool("slow", {}, progress_callback=progress)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await until(lambda: len(heard) >= 3)
                tasks.cancel_scope.cancel()
        assert not scope.cancelled_caught
        await until(lambda: journal_of(journal) == ["cancelled"])

    assert heard[:2] == [(1, 200, "step 1"), (2, 200, "step 2")]


async def test_errors_are_the_servers_own(model, served):
    async with gateway_client(model, served["two"]) as (client, _):
        failed = await client.call_tool("a__fail", {})
        with pytest.raises(MCPError, match="refused by the server") as caught:
            await client.call_tool("a__refuse", {})

    assert failed.is_error
    assert text(failed) == "the disk of the server is full"
    assert (caught.value.code, caught.value.data) == (-32099, {"why": "test"})


async def test_a_question_that_nobody_answers_ends_its_call(model, monkeypatch):
    monkeypatch.setattr("dtdr.agents.gateway.questions.ANSWER_SECONDS", 0.2)
    specs = [stdio("a", special=True, handshake=True)]
    async with gateway_client(model, specs, mode="auto") as (client, gateway):
        with pytest.raises(MCPError, match="not supported"):
            await client.call_tool("ask", {})
        await until(lambda: not any(state.open_calls for state in gateway.clients))


async def test_nobody_else_can_answer_a_question(model):
    specs = [stdio("a", special=True, handshake=True)]
    ann, eve = {"dtdr/session": "ann"}, {"dtdr/session": "eve"}
    accept = types.ElicitResult(action="accept", content={"name": "Eve"})
    async with gateway_client(model, specs, mode="auto") as (client, gateway):
        asked = await client.session.call_tool("ask", {}, meta=ann, allow_input_required=True)
        assert asked.input_requests.keys() == {"question"}
        answers: Any = {"input_responses": {"question": accept}}
        stolen = await client.session.call_tool(
            "ask", {}, meta=eve, allow_input_required=True, **answers,
            request_state=asked.request_state,
        )  # fmt: skip
        assert [len(state.open_calls) for state in gateway.clients] == [1, 1]
        assert stolen.request_state != asked.request_state


async def elicit(context, params):
    assert params.message == "Who?"
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def sample(context, params):
    assert params.messages[0].content.text == "2 + 2?"
    assert params.max_tokens == 10
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(type="text", text="4"), model="scripted"
    )


async def roots(context):
    return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///home/ann"})])


ASKED = pytest.mark.parametrize(
    ("tool", "callback", "answer"),
    [
        ("ask", {"elicitation_callback": elicit}, "Ann"),
        ("think", {"sampling_callback": sample}, "4"),
        ("where", {"list_roots_callback": roots}, "['file:///home/ann']"),
    ],
)


@UPSTREAM_ERAS
@ERAS
@ASKED
async def test_a_server_asks_the_user_the_clients_llm_and_for_its_roots(
    model, tmp_path, tool, callback, answer, mode, handshake
):
    journal = tmp_path / "journal"
    specs = [stdio("a", special=True, handshake=handshake, journal=str(journal))]
    async with gateway_client(model, specs, mode=mode, **callback) as (client, gateway):
        result = await client.call_tool(tool, {"id": "x"})
        (state,) = gateway.clients
        assert [call.tool for call in state.calls] == [tool], "an answer is not another call"
        assert state.open_calls == {}

    assert text(result) == answer
    if handshake:  # whose call stays open meanwhile
        assert journal_of(journal) == ["x"]


@pytest.fixture(scope="module")
def over_http():
    port = free_port()
    with http_server(port, special=True):
        yield [UpstreamSpec("a", url=f"http://127.0.0.1:{port}/mcp")]


@ASKED
async def test_over_http_a_server_of_2026_asks_through_the_gateway_and_may_be_refused(
    model, over_http, tool, callback, answer
):
    async with gateway_client(model, over_http, **callback) as (client, _):
        assert text(await client.call_tool(tool, {})) == answer
    async with gateway_client(model, over_http) as (client, _):
        with pytest.raises(MCPError, match=r"not supported|[Nn]ot found"):
            await client.call_tool(tool, {})


async def test_a_change_of_the_clients_roots_reaches_the_servers_that_know_such_changes(
    model, tmp_path
):
    journal = tmp_path / "journal"
    specs = [
        stdio("old", special=True, handshake=True, journal=str(journal)),
        stdio("new", special=True),
    ]
    async with gateway_client(model, specs, list_roots_callback=roots) as (client, _):
        await client.send_roots_list_changed()
        await until(lambda: journal_of(journal) == ["roots-changed"])
