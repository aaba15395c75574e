import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.agents.gateway.catalog import AmbiguousNameError, Catalog, Names
from tests.gateway.helpers import few, gateway_client, names, stdio, until


def offer(*names, **described):
    plain = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return plain + [{"name": name, "description": text} for name, text in described.items()]


def catalog(offers, known=()):
    found = Catalog(lambda name: name in known, ("a", "b"), ("search_tools", "end"))
    found.rebuild(offers, offers)
    return found


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_bare_name_is_refused_once_two_servers_have_it_whoever_came_first(first):
    found = catalog({first: offer("read")})
    assert found.owner("read") == found.owner(f"{first}__read") == (first, "read")
    found.rebuild({"a": offer("read", "only"), "b": offer("read")}, ["a", "b"])

    assert list(found) == ["a__read", "only", "b__read"]
    with pytest.raises(AmbiguousNameError, match="a__read or b__read"):
        found.owner("read")
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
    assert found.owner("b__send_email") == ("b", "send_email")
    assert found.owner("a__b__send_email") == ("a", "b__send_email")


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
        assert found.of_model_name(name) == listed
    assert set(found.model_names()) == known


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


@pytest.mark.anyio
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
