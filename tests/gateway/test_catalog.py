from hypothesis import given
from hypothesis import strategies as st

from dtdr.gateway.catalog import Catalog, Names


def offer(*names, **described):
    plain = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return plain + [{"name": name, "description": text} for name, text in described.items()]


def catalog(offers, known=(), up=None):
    found = Catalog(lambda name: name in known, reserved=("search_tools",))
    found.rebuild(offers, offers if up is None else up)
    return found


def test_only_names_that_collide_are_prefixed():
    found = catalog({"a": offer("read", "only"), "b": offer("read")})

    assert found.names() == ("a__read", "only", "b__read")
    assert found.owner("b__read") == ("b", "read")


def test_the_gateways_own_names_are_not_given_away():
    assert catalog({"a": offer("search_tools")}).names() == ("a__search_tools",)


def test_a_name_once_given_stays_with_its_tool_when_a_collision_comes_later():
    found = Catalog(lambda name: False)
    found.rebuild({"a": offer("read")}, ["a"])
    found.rebuild({"a": offer("read"), "b": offer("read")}, ["a", "b"])

    assert found.names() == ("a__read", "b__read")
    assert found.owner("read") == ("a", "read")


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
    naming = Names(reserved=("y",))
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
