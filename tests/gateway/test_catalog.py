import json
import multiprocessing
import shutil
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.agents.gateway.catalog import AmbiguousNameError, Catalog, Names
from dtdr.agents.gateway.pins import Pins
from dtdr.errors import InputError
from tests.gateway.helpers import few, gateway_client, names, stdio, text, until


def offer(*names, **described):
    plain = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return plain + [{"name": name, "description": text} for name, text in described.items()]


def catalog(offers, known=()):
    found = Catalog(lambda name: name in known, Names(("a", "b"), ("search_tools", "end")))
    found.rebuild(offers, offers)
    return found


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_bare_name_is_refused_once_two_servers_have_it_whoever_came_first(first):
    found = catalog({first: offer("read")})
    owner = found.names.owner
    assert owner("read") == owner(f"{first}__read") == (first, "read")
    found.rebuild({"a": offer("read", "only"), "b": offer("read")}, ["a", "b"])

    assert list(found) == ["a__read", "only", "b__read"]
    with pytest.raises(AmbiguousNameError, match="a__read or b__read"):
        owner("read")
    found.rebuild({"a": offer("read"), "b": offer()}, ["a", "b"])
    assert list(found) == ["a__read"], "it stays prefixed"


@pytest.mark.parametrize("first", ["a", "b"])
def test_no_server_gets_the_calls_of_another_by_the_names_of_its_tools(first):
    """Server a offers another server's tool by its bare and by its full name."""
    found = catalog({})
    offers = {"a": offer("send_email", "b__send_email"), "b": offer("send_email")}
    found.rebuild({first: offers[first]}, [first])
    found.rebuild(offers, ["a", "b"])

    assert list(found) == ["a__send_email", "a__b__send_email", "b__send_email"]
    assert found.names.owner("b__send_email") == ("b", "send_email")
    assert found.names.owner("a__b__send_email") == ("a", "b__send_email")


def test_what_is_pinned_collides_before_its_server_has_connected():
    found = Catalog(lambda name: False, Names(("a", "b"), offered=[("b", "send_email")]))
    found.rebuild({"a": offer("send_email")}, ["a"])

    assert list(found) == ["a__send_email"]


@pytest.mark.parametrize("reserved", ["search_tools", "end"])
def test_a_tool_with_a_name_of_the_gateway_or_of_the_end_goes_by_its_full_name(reserved):
    found = catalog({"a": offer(reserved)})

    assert list(found) == [f"a__{reserved}"]
    assert found.model_name(f"a__{reserved}") == f"a__{reserved}"


@pytest.mark.parametrize(
    ("known", "in_the_model"),
    [({"read"}, {"read": ["a__read", "b__read"]}), ({"a__read", "read"}, {"a__read": ["a__read"]})],
)
def test_the_model_knows_a_tool_by_its_full_name_or_its_own(known, in_the_model):
    found = catalog({"a": offer("read"), "b": offer("read")}, known)

    for name, listed in in_the_model.items():
        assert found.model_name("a__read") == name
        assert found.by_model_name[name] == listed
    assert found.by_model_name.keys() == known


def test_the_search_reads_names_descriptions_and_odd_schemas():
    odd = {"name": "odd", "description": "strange", "inputSchema": 7}
    found = catalog({"a": [*offer(getUserById="Looks up.", sendMail="Post a letter."), odd]})

    for words, matches in {
        "user by id": ["getUserById"],
        "letter": ["sendMail"],
        "strange": ["odd"],
        "???": [],
    }.items():
        assert found.search(words, 5) == matches


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("ab"),
            st.lists(st.sampled_from(["x", "y", "a__x", "b__x", "a__a__x"]), unique=True),
            min_size=1,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_names_always_differ_and_never_change_their_owner(rounds):
    naming = Names(("a", "b"), reserved=("y",))
    owners: dict[str, tuple[str, str]] = {}
    for offers in rounds:
        assigned = naming.assign({key: offer(*found) for key, found in offers.items()})
        listed = [name for name, _, _ in assigned]
        assert len(set(listed)) == len(listed) == sum(map(len, offers.values()))
        assert "y" not in listed
        for name, upstream, definition in assigned:
            owner = upstream, definition["name"]
            assert owners.setdefault(name, owner) == naming.owner(name) == owner


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


def pin(path, server):
    pins = Pins(path)
    for count in range(20):
        tools = [{"name": f"tool_{number}"} for number in range(count + 1)]
        assert len(pins.accept(server, tools)) == count + 1


def test_gateways_that_pin_into_one_file_keep_each_others_pins(tmp_path):
    path = tmp_path / "pins.json"
    servers = [f"s{number}" for number in range(4)]
    # Forked: what a new interpreter imports first takes a hundred times as long.
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=pin, args=(path, server)) for server in servers]
    for process in running:
        process.start()
    for process in running:
        process.join(300)
    assert [process.exitcode for process in running] == [0] * 4
    kept = json.loads(path.read_text())
    assert {server: len(tools) for server, tools in kept.items()} == dict.fromkeys(servers, 20)


def test_a_tool_is_refused_if_its_pin_cannot_be_kept(tmp_path):
    folder = tmp_path / "pins"
    pins = Pins(folder / "pins.json")
    pins.accept("a", [tool()])
    shutil.rmtree(folder)
    folder.write_text("")

    assert pins.accept("a", [tool(), tool("new")]) == [tool()]
    assert "cannot be pinned" in (pins.refusal("a", "new") or "")
    folder.unlink()
    assert pins.is_outdated(tries_again=True)
    assert pins.accept("a", [tool(), tool("new")]) == [tool(), tool("new")]
    assert sorted(Pins(folder / "pins.json").iter_tools()) == [("a", "new"), ("a", "send")]


@pytest.mark.anyio
@pytest.mark.parametrize("is_pinned", [False, True])
async def test_a_changed_definition_is_told_or_if_it_is_pinned_neither_listed_nor_called(
    model, tmp_path, is_pinned
):
    told = []

    async def handle(message):
        told.append(message)

    path = tmp_path / "pins.json"
    chosen: Any = {"policy": few(20), "options": {"pins": Pins(path if is_pinned else None)}}
    specs = [stdio("a", special=True)]
    async with gateway_client(model, specs, **chosen, message_handler=handle) as (client, _):
        assert "ask" in await names(client)
        await client.call_tool("grow", {"describe": "ask"})
        await until(lambda: any(isinstance(m, types.ToolListChangedNotification) for m in told))
        listed = {item.name: item.description for item in (await client.list_tools()).tools}
        if is_pinned:
            result = await client.call_tool("ask", {})
            kept = json.loads(path.read_text())
            del kept["a"]["ask"]
            path.write_text(json.dumps(kept))
            assert "ask" in await names(client), "its entry was removed meanwhile"

    assert listed.get("ask") == (None if is_pinned else "A tool that came later.")
    if is_pinned:
        assert result.is_error
        assert "changed the definition" in text(result)
        assert "ask" in json.loads(path.read_text())["a"]
