"""Logs in the forms that programs write are told apart and read, calls, results and failures."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr import Demonstration
from dtdr.data import json_codec
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError
from dtdr.logs import FORMATS, CutOptions, open_demonstrations
from tests.crafted import change
from tests.logs.public_forms import BOOK, ERROR, FIND, FORMS, QUERY, ROOM

WITHOUT_QUERY = ("opencode_run", "codex_exec", "mcp_debug", "mcp_pairs")
AS_TEXT = {"swe_agent_commands": ({"input": "Oslo"}, {"input": "RM-40417"})}
SILENT = ("tau2", "gemini_lines", "cursor_composer")
FAILED_RUNS = ("inspect", "tau2")


def read(path, **options):
    return open_demonstrations([path], None, CutOptions(**options))


@pytest.mark.parametrize("name", FORMS)
def test_a_log_of_each_public_form_is_detected_and_read(name, tmp_path):
    form, fmt = FORMS[name]
    path = tmp_path / "log.json"
    path.write_text(form(), encoding="utf-8")
    file = read(path, references=False)
    (item,) = file
    assert file.format == fmt
    assert item.query.splitlines()[0] == (
        "(no query in the log)" if name in WITHOUT_QUERY else QUERY
    )
    find, book = item.plan.calls
    prefix = "mcp__desk__" if name == "codex_exec" else ""
    assert (find.tool, book.tool) == (f"{prefix}search_rooms", f"{prefix}book_room")
    entered = (dict(find.arguments), dict(book.arguments))
    assert entered == AS_TEXT.get(name, (FIND, BOOK))
    assert [find.step, book.step] == ([1, 1] if name == "weave" else [1, 2])
    if name == "toolbench":
        assert find.output == {"error": "", "response": ROOM}
    elif name == "cursor_stream":
        assert "RM-40417" in str(find.output)
    else:
        assert find.output == ROOM
    assert find.status == "ok"
    assert book.status == "error"
    assert ERROR in str(book.output)
    assert item.outcome == ("failure" if name in FAILED_RUNS else "success")
    if name not in WITHOUT_QUERY and name not in SILENT:
        assert "I look." in (find.text or "")


@pytest.mark.parametrize("name", FORMS)
def test_references_are_the_same_in_every_form(name, tmp_path):
    if name in (*AS_TEXT, "cursor_stream", "weave"):  # a text; parallel; a wrapper of its own
        pytest.skip("the output is not a source of the argument in this form")
    path = tmp_path / "log.json"
    path.write_text(FORMS[name][0](), encoding="utf-8")
    (item,) = read(path)
    reference = item.plan.calls[1].arguments["room"]
    assert reference["$ref"] == "1"
    assert reference["path"].endswith("/room")


def values_of(text):
    """The JSON values of a log, one after the other or one a line."""
    decoder, place, values = json.JSONDecoder(), 0, []
    while place < len(text):
        value, place = decoder.raw_decode(text, place)
        values.append(value)
        while text[place : place + 1].isspace():
            place += 1
    return values


@pytest.mark.parametrize("name", FORMS)
@given(data=st.data())
def test_a_changed_log_of_any_form_is_read_or_refused_in_one_sentence(name, data, tmp_path_factory):
    form, fmt = FORMS[name]
    values = [change(value, data.draw) for value in values_of(form())]
    text = "\n".join(map(json.dumps, values)).encode()
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(text)))
        text = text[:place] + data.draw(st.binary(max_size=5)) + text[place:]
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_bytes(text)
    known = data.draw(st.sampled_from([None, fmt, *sorted(FORMATS)]))
    bad = BadRecords()
    try:
        found = list(open_demonstrations([path], known, CutOptions(), bad=bad))
    except InputError:
        return
    for item in found:
        written = json_codec.dumps(item.to_dict())
        assert Demonstration.from_dict(json.loads(written)) == item
    assert all(reason.startswith(str(path)) for reason in bad.first)
