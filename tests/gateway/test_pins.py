import json

import mcp_types as types
import pytest

from dtdr.agents.gateway.pins import Pins
from dtdr.errors import InputError
from tests.gateway.helpers import few, gateway_client, names, stdio, text, until

pytestmark = pytest.mark.anyio


def tool(name="send", description="Sends.", **more):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def test_a_pinned_definition_cannot_change_not_even_in_a_later_gateway(tmp_path):
    path = tmp_path / "pins.json"
    first = Pins(path)
    first.accept("a", [tool(), tool("read")])

    later = Pins(path)
    changed = tool(description="Sends to everybody.")
    offered = [changed, tool("read"), tool("new")]
    assert later.accept("a", offered) == [tool("read"), tool("new")]
    assert sorted(Pins(path).iter_tools()) == [("a", "new"), ("a", "read"), ("a", "send")]
    assert "pinned" in (later.refusal("a", "send") or "")
    assert later.refusal("b", "send") is None
    assert later.accept("a", [tool(_meta={"at": 7})]) == [tool(_meta={"at": 7})]
    assert later.refusal("a", "send") is None, "the server took its change back"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', '{"a": {"send": 1}}'])
def test_a_pin_file_of_another_shape_is_an_error(tmp_path, content):
    (tmp_path / "pins.json").write_text(content)

    with pytest.raises(InputError, match="remove it to pin again"):
        Pins(tmp_path / "pins.json")


async def test_a_client_is_told_of_a_changed_definition(model):
    told = []

    async def handle(message):
        told.append(message)

    specs = [stdio("a", special=True)]
    async with gateway_client(model, specs, policy=few(20), message_handler=handle) as (client, _):
        await names(client)
        await client.call_tool("grow", {"describe": "ask"})
        await until(lambda: any(isinstance(m, types.ToolListChangedNotification) for m in told))
        listed = {item.name: item.description for item in (await client.list_tools()).tools}

    assert listed["ask"] == "A tool that came later."


async def test_a_pinned_tool_that_changes_is_neither_listed_nor_called(model, tmp_path):
    path = tmp_path / "pins.json"
    specs = [stdio("a", special=True)]
    options = {"pin": path}
    async with gateway_client(model, specs, policy=few(20), options=options) as (client, gateway):
        assert "ask" in await names(client)
        await client.call_tool("grow", {"describe": "ask"})
        await until(lambda: "ask" not in gateway.catalog)
        result = await client.call_tool("ask", {})
        assert "ask" not in await names(client)

    assert result.is_error
    assert "changed the definition" in text(result)
    assert "ask" in json.loads(path.read_text())["a"]
