import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.agents.gateway.catalog import AmbiguousNameError, Catalog, Names


def offer(*names, **described):
    plain = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return plain + [{"name": name, "description": text} for name, text in described.items()]


def catalog(offers, known=(), up=None):
    found = Catalog(lambda name: name in known, ("a", "b"), ("search_tools", "end"))
    found.rebuild(offers, offers if up is None else up)
    return found


def test_only_names_that_collide_are_prefixed():
    found = catalog({"a": offer("read", "only"), "b": offer("read")})

    assert found.names() == ("a__read", "only", "b__read")
    assert found.owner("b__read") == ("b", "read")


def test_the_gateways_own_names_are_not_given_away():
    assert catalog({"a": offer("search_tools")}).names() == ("a__search_tools",)


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_bare_name_is_refused_once_two_servers_have_it_whoever_came_first(first):
    found = catalog({first: offer("read")})
    assert found.owner("read") == found.owner(f"{first}__read") == (first, "read")
    found.rebuild({"a": offer("read"), "b": offer("read")}, ["a", "b"])

    assert found.names() == ("a__read", "b__read")
    with pytest.raises(AmbiguousNameError, match="a__read or b__read"):
        found.owner("read")


@pytest.mark.parametrize("first", ["a", "b"])
def test_no_server_gets_the_calls_of_another_by_the_names_of_its_tools(first):
    """Server a offers another server's tool by its bare and by its full name."""
    found = catalog({})
    offers = {"a": offer("send_email", "b__send_email"), "b": offer("send_email")}
    found.rebuild({first: offers[first]}, [first])
    found.rebuild(offers, ["a", "b"])

    assert found.names() == ("a__send_email", "a__b__send_email", "b__send_email")
    assert found.owner("b__send_email") == ("b", "send_email")
    assert found.owner("a__b__send_email") == ("a", "b__send_email")


def test_what_is_pinned_collides_before_its_server_has_connected():
    found = Catalog(lambda name: False, ("a", "b"), offered=[("b", "send_email")])
    found.rebuild({"a": offer("send_email")}, ["a"])

    assert found.names() == ("a__send_email",)


def test_a_tool_named_like_the_end_of_a_plan_goes_by_its_full_name():
    found = catalog({"a": offer("end")})

    assert found.names() == ("a__end",)
    assert found.model_name("a__end") == "a__end"


def test_a_name_stays_prefixed_when_the_collision_goes_away():
    found = catalog({"a": offer("read"), "b": offer("read")})
    found.rebuild({"a": offer("read"), "b": offer("read")}, ["a"])
    assert found.names() == ("a__read",)
    found.rebuild({"a": offer("read"), "b": offer()}, ["a", "b"])
    assert found.names() == ("a__read",)


def test_the_model_knows_a_prefixed_tool_by_its_own_name():
    found = catalog({"a": offer("read"), "b": offer("read")}, known={"read"})

    assert found.model_name("a__read") == "read"
    assert found.of_model_name("read") == ["a__read", "b__read"]


def test_the_model_that_learned_prefixed_names_keeps_the_tools_apart():
    found = catalog({"a": offer("read"), "b": offer("read")}, known={"a__read", "read"})

    assert found.model_names() == ("a__read", "read")


def test_the_search_finds_words_of_names_and_descriptions():
    found = catalog({"a": offer(getUserById="Looks somebody up.", sendMail="Post a letter.")})

    assert found.search("user by id", 5) == ["getUserById"]
    assert found.search("letter", 5) == ["sendMail"]
    assert found.search("???", 5) == []
    assert found.search("please do something with a walrus", 5) == []


def test_tools_with_odd_schemas_are_searched_too():
    found = catalog({"a": [{"name": "odd", "description": "strange", "inputSchema": 7}]})

    assert found.search("strange", 5) == ["odd"]


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
        given_names = naming.assign({key: offer(*found) for key, found in offers.items()})
        names = [name for name, _, _ in given_names]
        assert len(set(names)) == len(names) == sum(map(len, offers.values()))
        assert "y" not in names
        for name, upstream, definition in given_names:
            assert owners.setdefault(name, (upstream, definition["name"])) == (
                upstream,
                definition["name"],
            )
            assert naming.owner(name) == (upstream, definition["name"])
