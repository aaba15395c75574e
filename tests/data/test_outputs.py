import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.data import json_codec
from dtdr.data.outputs import (
    bound_output,
    is_empty,
    is_short,
    iter_leaves,
    resolve_pointer,
    to_pointer,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab /~é", max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=3), inner),
    max_leaves=20,
)


# The example of RFC 6901, section 5.
RFC = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("pointer", "part"),
    [
        ("", RFC),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_pointers_name_the_parts_that_the_rfc_says(pointer, part):
    assert resolve_pointer(RFC, pointer) == part


@pytest.mark.parametrize(
    "pointer", ["foo", "/foo/2", "/foo/-", "/foo/00", "/foo/-1", "/none", "/ /"]
)
def test_a_pointer_to_nowhere_is_told(pointer):
    with pytest.raises(LookupError):
        resolve_pointer(RFC, pointer)


@given(values)
def test_every_leaf_has_a_pointer_that_finds_it(value):
    for pointer, leaf in iter_leaves(value):
        assert resolve_pointer(value, pointer) is leaf


def test_leaves_come_in_order():
    leaves = [pointer for pointer, _ in iter_leaves({"b": ["x", {"a": "x"}], "a": "x"})]
    assert leaves == ["/b/0", "/b/1/a", "/a"]
    assert to_pointer(["a/b", 0, "~"]) == "/a~1b/0/~0"


@given(values, st.integers(0, 200))
def test_an_output_is_cut_at_a_whole_value(value, length):
    bounded, whole = bound_output(value, length)
    if whole is None:
        assert bounded == value
        return
    assert whole > length
    if isinstance(value, str):
        assert len(bounded) <= length
        assert value.startswith(bounded)
        return
    assert len(json.dumps(bounded, ensure_ascii=False, separators=(",", ":"))) <= max(length, 30)
    for pointer, leaf in iter_leaves(bounded):
        part = resolve_pointer(value, pointer)
        assert part == leaf or (leaf is None and not isinstance(leaf, (dict, list)))


@given(values)
def test_what_fits_stays_as_it_is(value):
    assert bound_output(value, 10**6) == (value, None)


@given(values, st.integers(0, 200))
def test_what_is_short_by_its_json_is_not_cut(value, length):
    if not isinstance(value, str) and is_short(json_codec.dumps(value), length):
        assert bound_output(value, length) == (value, None)


def test_of_lists_the_first_stay_and_of_objects_what_fits():
    rows = [{"id": f"R{number}", "text": "x" * 20} for number in range(50)]
    bounded, whole = bound_output({"html": "y" * 500, "rows": rows, "total": 50}, 200)
    assert list(bounded) == ["rows"]
    assert bounded["rows"][:3] == rows[:3]
    assert whole is not None
    assert whole > 2000
    text, whole = bound_output("one two three " * 100, 20)
    assert (text, whole) == ("one two three one", 1400)
    assert bound_output("a" * 50, 20) == ("a" * 20, 50)


def test_hostile_outputs_are_bounded():
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    bounded, whole = bound_output(deep, 2000)
    assert whole is not None
    assert len(json.dumps(bounded)) <= 2000
    assert bound_output([float("nan"), float("-inf")], 50) == (["NaN", "-Infinity"], None)
    wide, whole = bound_output({str(number): number for number in range(100_000)}, 100)
    assert len(wide) < 20
    assert whole is not None
    assert whole > 10**6


@pytest.mark.parametrize(
    "output",
    [None, "", "  ", "[]", "null", [], {}, [[], ""], {"items": [], "total": 0}, {"a": None}],
)
def test_an_output_without_content_is_empty(output):
    assert is_empty(output)


@pytest.mark.parametrize("output", [0, False, "none left", [0], {"balance": 0}, {"items": [1]}])
def test_an_output_with_content_is_not(output):
    assert not is_empty(output)


def test_a_deep_output_is_looked_at_once_a_level():
    output: Any = {"rows": [], "note": "x"}
    for _ in range(150):
        output = {"inner": output, "rows": []}
    assert not is_empty(output)
