import random

import anyio
import pytest

import dtdr
from dtdr.agents.gateway import UpstreamSpec
from tests.gateway.helpers import few, free_port, gateway_client, http_server, names, text

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

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


async def test_2000_tools_of_20_servers_are_narrowed_to_ten_and_all_can_be_called(
    large_model, twenty
):
    model, demonstrations = large_model
    async with gateway_client(model, twenty, policy=few(10)) as (client, gateway):
        assert len(gateway.catalog) == SERVERS * TOOLS
        shown = await names(client)
        first, second, _ = demonstrations[7].plan.tools
        meta = {"dtdr/intent": demonstrations[7].query}
        result = await client.call_tool(first, {"id": "1"}, meta=meta)
        after = await names(client)
        found = await client.call_tool("search_tools", {"query": "work number 87 of s13"})
        wanted = [f"s{number}_tool_{tool}" for number in range(SERVERS) for tool in (0, 40, 80)]
        answered = []
        queue = iter(wanted)

        async def worker():
            for name in queue:
                result_of_worker = await client.call_tool(name, {"id": name})
                assert f'"id": "{name}"' in text(result_of_worker)
                answered.append(name)

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(worker)

    assert len(shown) == 10
    assert '"id": "1"' in text(result)
    assert {first, second} <= set(after)
    assert found.structured_content["tools"][0]["name"] == "s13_tool_87"
    assert sorted(answered) == sorted(wanted)
