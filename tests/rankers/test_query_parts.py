"""What each part of a query asks for, and where among the parts the calls have come."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr import Demonstration, Plan, Tool, ToolCall, load
from dtdr.predict import create
from dtdr.rankers.dtdr_f.blocks import LAYOUT
from dtdr.rankers.dtdr_f.blocks.block import StepFeatures
from dtdr.rankers.dtdr_f.blocks.parts import Parts
from dtdr.rankers.dtdr_f.encoding import encode_texts
from dtdr.rankers.dtdr_f.queries import QueryFeaturizer, part_terms
from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.text.words import hash_word
from dtdr.text.words import words as words_of
from tests.helpers import RANKER_ONLY, inner

PHRASES = {
    "book_room": "Please book a room by the sea",
    "play_song": "Play a song that everybody knows",
    "send_mail": "Send Ann the bill by mail",
    "call_taxi": "Call a taxi to the airport",
}
NAMES = list(PHRASES)
TOOLS = [Tool(name, phrase) for name, phrase in PHRASES.items()]


def request(*names):
    return ". ".join(PHRASES[name] for name in names) + "."


def plan(names):
    """Each call uses what the one before returned."""
    return Plan(
        tuple(
            ToolCall(str(at), name, {"after": {"$ref": str(at - 1)}} if at else {})
            for at, name in enumerate(names)
        )
    )


def demonstrations(count, seed=0):
    rng = np.random.default_rng(seed)
    for number in range(count):
        names = rng.permutation(NAMES)[: rng.integers(1, 4)].tolist()
        yield Demonstration(str(number), request(*names), plan(names))


@pytest.fixture(scope="module")
def fitted() -> Any:
    return create("dtdr-f").fit(list(demonstrations(60)), TOOLS, **RANKER_ONLY)


def texts(query, first=()):
    words = words_of(query)
    begins = QueryText.of(query).parts(frozenset(map(hash_word, first)))
    ends = [*begins[1:], len(words)]
    return [" ".join(words[one:end]) for one, end in zip(begins, ends, strict=True)]


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("Play Rome. Order soup!", ["play rome .", "order soup !"]),
        ("Open a.pdf, version 2.5. Print it", ["open a . pdf , version 2 . 5 .", "print it"]),
        ("Who is it? Really?! Yes", ["who is it ?", "really ? !", "yes"]),
        ("Mail all of them, and create a note", ["mail all of them , and", "create a note"]),
        ("Mail Ann and create a note", ["mail ann and create a note"]),  # too short to be a part
        ("打开文件。然后发送", ["打 开 文 件 。", "然 后 发 送"]),
        ("", [""]),
        ("...", [". . ."]),
    ],
)
def test_a_query_has_its_sentences_and_what_begins_like_one_as_parts(query, parts):
    assert texts(query, ["create"]) == parts


def test_words_that_begin_sentences_are_those_of_many_queries():
    queries = ["Create a note. Then mail it."] * 3 + ["Zoom in."] + ["Mail it"] * 60
    first = QueryFeaturizer.fit(encode_texts(queries), []).first
    assert first == set(map(hash_word, ["create", "then", "mail"]))


@given(st.lists(st.text(alphabet="ab .,!é。Then", max_size=60), min_size=1, max_size=4))
def test_every_word_is_in_one_part_and_every_pair_in_one_at_most(queries):
    featurizer = QueryFeaturizer.fit(encode_texts(queries), [])
    for query in queries:
        read = featurizer.read(QueryText.of(query))
        words = (len(read.terms) + 1) // 2
        parts = part_terms(read.terms, read.parts)
        assert len(parts) == len(read.parts)
        assert read.parts == sorted(set(read.parts))
        known = [column for column in read.terms[:words] if column >= 0]
        found = [column for part in parts for column in part]
        assert len(found) <= sum(column >= 0 for column in read.terms)
        for column in set(known):
            assert found.count(column) == known.count(column)


def rows_after(model, query, calls):
    step = StepFeatures(inner(model).prepare(query))
    for name in calls:
        step.call(model.index(name) if name in NAMES else -1)
    table = step.write()
    return {name: table[LAYOUT.names.index(name)] for name in Parts.rows.names}


def test_each_part_asks_for_its_tool_though_no_demonstration_says_which(fitted):
    names = ["send_mail", "call_taxi", "book_room"]
    block: Any = next(one for one in inner(fitted).blocks if one.name == "parts")
    read = inner(fitted).training.featurizer.read(QueryText.of(request(*names)))
    presence, counts = block.read(read)
    columns = [fitted.index(name) for name in names]
    assert presence.argmax(axis=1).tolist() == columns
    assert (presence[range(3), columns] > 0.7).all()
    assert counts.sum(axis=0)[columns] == pytest.approx([1, 1, 1], abs=0.3)


def test_calls_move_along_the_parts_of_the_query(fitted):
    names = ["send_mail", "call_taxi", "book_room"]
    mail, taxi, room = (fitted.index(name) for name in names)
    query = request(*names)
    first = rows_after(fitted, query, [])
    assert first["asked_here"].argmax() == mail
    after = rows_after(fitted, query, names[:1])
    assert after["asked_here"].argmax() == mail
    assert after["asked_next"].argmax() == taxi
    assert after["asked_left"][mail] < first["asked_left"][mail] - 0.9
    later = rows_after(fitted, query, names[:2])
    assert later["asked_here"].argmax() == taxi
    assert later["asked_next"].argmax() == later["asked_ahead"].argmax() == room
    assert later["asked_behind"].argmax() == mail
    at_end = [rows_after(fitted, query, names[:made]) for made in range(4)]
    assert np.all(np.diff([one["asked_left_at_end"][-1] for one in at_end]) < -0.5)
    assert at_end[3]["asked_ahead_at_end"][-1] < at_end[2]["asked_ahead_at_end"][-1] - 1


def test_calls_of_unknown_tools_move_nothing(fitted):
    query = request("send_mail", "call_taxi")
    one = rows_after(fitted, query, ["send_mail"])
    other = rows_after(fitted, query, ["nobody", "send_mail", "nobody"])
    assert all((one[name] == other[name]).all() for name in one)


def test_a_part_in_new_words_is_learned_by_an_update_and_survives_saving(tmp_path):
    new = [
        Demonstration(str(number), f"{request(name)} Feed the gorilla.", plan([name, "feed"]))
        for number, name in enumerate(NAMES)
    ]
    model = create("dtdr-f").fit(list(demonstrations(60)), TOOLS, **RANKER_ONLY)
    model.update(new)
    model.rename_tool("feed", "feed_animals")
    model.save(tmp_path / "model")
    loaded: Any = load(tmp_path / "model")
    for one in (model, loaded):
        block: Any = next(item for item in inner(one).blocks if item.name == "parts")
        read = inner(one).training.featurizer.read(
            QueryText.of("Send Ann the bill. Feed the gorilla.")
        )
        presence, _ = block.read(read)
        seen = inner(one).training.seen
        assert seen[presence[1].argmax()] == one.index("feed_animals")
        assert seen[presence[0].argmax()] == one.index("send_mail")
    assert (block.read(read) == presence).all()
