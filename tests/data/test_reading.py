"""Lines of demonstrations are read, or refused with a reason."""

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dtdr import Demonstration
from dtdr.data import json_codec
from dtdr.data.demonstration_files import convert_record
from dtdr.errors import InputError
from tests.strategies import demonstrations, runs

_REFERENCES = ({"$ref": "0"}, {"$ref": "b0"}, {"$ref": "0", "path": "/a"}, {"$ref": "9"})
_TIMES = (
    "2026-11-22T09:30:00Z",
    "2026-11-22 09:30:00",
    "0001-01-01T00:00:00+09:00",
    "2026-11-22T09:30:00.1234567+02:00",
    "2026-11-22",
)
_LISTS: tuple[list[Any], ...] = ([["0", "1"]], [["1", "0"]], ["open_file", {"tool": "x"}], [])
_TEXTS = ("", " ", "1", "end", "ü", "\ud800", "ok", "call", *_TIMES)
_NUMBERS = (0, -1, 3, 2**70, 1.0, 1.5, float("nan"), True)
ODD = st.sampled_from([None, {}, *_NUMBERS, *_TEXTS, *_LISTS, *_REFERENCES]).map(copy.deepcopy)
_OF_CALLS = ("tool", "arguments", "output", "status", "step", "output_length", "role", "content")
_OF_RECORDS = ("id", "query", "calls", "links", "before", "source", "outcome", "group", "time")
KEYS = st.sampled_from([*_OF_RECORDS, *_OF_CALLS, "x"])


def places(value, at=()):
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, (dict, list)):
            yield from places(item, (*at, key))


@st.composite
def lines(draw):
    """Lines of demonstrations, most of them with something changed in them."""
    record = draw(st.one_of(demonstrations(), runs())).to_dict()
    if draw(st.booleans()):
        record["time"] = draw(st.datetimes()).isoformat() + draw(
            st.sampled_from(["", "Z", "+02:00"])
        )
    for _ in range(draw(st.integers(0, 2))):
        inner = record
        for key in draw(st.sampled_from(list(places(record)))):
            inner = inner[key]
        if isinstance(inner, dict):
            inner[draw(KEYS)] = draw(ODD)
        elif inner:
            inner[draw(st.integers(0, len(inner) - 1))] = draw(ODD)
    line = json.dumps(record, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.binary(max_size=2)) + line[at + draw(st.integers(0, 2)) :]
    return line


@given(lines())
@example(b'{"id":"1","id":2,"query":"q","calls":[]}')
@example(b'{"id":"1","query":"q","calls":[{"id":"1","tool":"x","y":"\xff"}]}')
@example(b'{"id":"1","query":"q","calls":[{"id":"1","tool":"x","y":1e999}]}')
@example(b'{"id":"1","query":"q","calls":[],"before":[{"role":"user","content":"\\ud800"}]}')
@example(b'{"id":"1","query":"q","calls":[{"id":"1","tool":"x","arguments":{"\\u0024ref":"2"}}]}')
def test_any_line_is_read_or_refused(line):
    try:
        found = convert_record(line)
    except InputError:
        return
    again = convert_record(json_codec.dumps(found.to_dict()))
    assert json_codec.dumps(again.to_dict()) == json_codec.dumps(found.to_dict())
    assert again.plan.dependencies == found.plan.dependencies


def test_times_are_kept_in_utc():
    record = {"id": "1", "query": "q", "calls": ["a"]}
    moment = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
    for written in (
        "2026-11-22T09:30:00Z",
        "2026-11-22 09:30:00",
        "2026-11-22T11:30:00+02:00",
        moment.astimezone(timezone(timedelta(hours=-5))),
    ):
        found = Demonstration.from_dict({**record, "time": written})
        assert found.time == moment
        assert found.to_dict()["time"] == "2026-11-22T09:30:00Z"
    for wrong in (1732267800, "yesterday", "2026-11-22", ["2026"], "0001-01-01T00:00:00+09:00"):
        with pytest.raises(InputError, match=r"write it as 2026-11-22T09:30:00Z"):
            Demonstration.from_dict({**record, "time": wrong})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_json_is_read_and_written_as_the_standard_library_does(value):
    line = json.dumps(value).encode()
    assert json_codec.loads(line) == json.loads(line)
    assert json.loads(json_codec.dumps(value)) == value
