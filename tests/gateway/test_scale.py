import random
import socket

import anyio
import pytest

import dtdr
from dtdr.agents.gateway import UpstreamSpec
from tests.gateway.helpers import few, free_port, gateway_client, http_server, names, text

pytestmark = pytest.mark.anyio

SERVERS, TOOLS = 20, 100


@pytest.fixture(scope="module")
def twenty():
    """Twenty servers of a hundred tools each, in one process."""
    port = free_port()
    with http_server(port, mounts=[{"tools": TOOLS, "prefix": f"s{n}_"} for n in range(SERVERS)]):
        yield [
            UpstreamSpec(f"s{n}", url=f"http://127.0.0.1:{port}/{n}/mcp") for n in range(SERVERS)
        ]


@pytest.fixture(scope="module")
def large_model():
    """Knows half of the 2,000 tools, in chains over three servers."""
    draw = random.Random(0)
    demonstrations = []
    for number in range(300):
        tools = [f"s{draw.randrange(SERVERS)}_tool_{draw.randrange(TOOLS // 2)}" for _ in "abc"]
        calls = tuple(dtdr.ToolCall(str(place), tool) for place, tool in enumerate(tools))
        links = (("0", "1"), ("1", "2"))
        demonstrations.append(
            dtdr.Demonstration(str(number), f"task {number}", dtdr.Plan(calls, links))
        )
    return dtdr.fit(demonstrations, retriever="dtdr-c"), demonstrations


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_2000_tools_of_20_servers_are_narrowed_to_ten(large_model, twenty, mode):
    model, demonstrations = large_model
    async with gateway_client(model, twenty, mode=mode, policy=few(10)) as (client, gateway):
        assert len(gateway.catalog) == SERVERS * TOOLS
        shown = await names(client)
        first, second, _ = demonstrations[7].plan.tools
        meta = {"dtdr/intent": demonstrations[7].query}
        result = await client.call_tool(first, {"id": "1"}, meta=meta)
        after = await names(client)
        found = await client.call_tool("search_tools", {"query": "work number 87 of s13"})

    assert len(shown) == 10
    assert '"id": "1"' in text(result)
    assert first in after
    assert second in after
    assert found.structured_content["tools"][0]["name"] == "s13_tool_87"


async def test_hidden_tools_of_every_server_can_be_called(large_model, twenty):
    model, _ = large_model
    wanted = [f"s{server}_tool_{tool}" for server in range(SERVERS) for tool in range(0, TOOLS, 20)]
    answered = []
    async with gateway_client(model, twenty, policy=few(10)) as (client, _):
        queue = iter(wanted)

        async def worker():
            for name in queue:
                result = await client.call_tool(name, {"id": name})
                assert f'"id": "{name}"' in text(result)
                answered.append(name)

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(worker)

    assert sorted(answered) == sorted(wanted)


async def test_servers_that_are_not_there_do_not_keep_the_others_waiting(
    model, twenty, monkeypatch
):
    monkeypatch.setattr("dtdr.agents.gateway.gateway.START_SECONDS", 90)
    options = {"connect_seconds": 90}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        missing = UpstreamSpec("missing", url=f"http://127.0.0.1:{taken.getsockname()[1]}/mcp")
        with anyio.fail_after(60):
            servers = [missing, *twenty[:2]]
            async with gateway_client(model, servers, options=options) as (_, gateway):
                assert len(gateway.catalog) == 2 * TOOLS
