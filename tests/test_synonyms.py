"""Requests in other words are said in those of the demonstrations before they are ranked."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr import load
from dtdr.encoders.lexical import LexicalEncoder
from dtdr.errors import InputError, ModelError
from dtdr.retrievers import create
from dtdr.retrievers.factored.query_text import QUOTED
from dtdr.retrievers.factored.synonyms import (
    ENGLISH,
    Synonyms,
    WordForms,
    _kept_tokens,
    bases_of,
    parse_groups,
    read_groups,
)

TABLE = """
# a comment
> send an email to | mail | drop a line to
email | mail | letter
> summarize | boil down | boil ~ down
article | study | preprint
film | movie
"""
TEXTS = [
    "Send an email to Ann about the articles",
    "send an email to Bob, then summarize the email",
    "Open the email and summarize the articles",
    "Show the articles about colors",
] * 40


@pytest.fixture(scope="module")
def forms():
    return WordForms(LexicalEncoder(min_df=2).fit(TEXTS))


@pytest.fixture(scope="module")
def synonyms():
    return Synonyms.fit(parse_groups(TABLE), TEXTS)


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("Mail Ann the studies", "Send an email to Ann the articles"),
        ("read the mail", "read the email"),
        ("Please drop a line to Ann", "Please send an email to Ann"),
        (
            "boil the long preprint down, and mail Bob",
            "summarize the long articles, and send an email to Bob",
        ),
        ('boil "notes. Q3" down', 'summarize "notes. Q3"'),
        ("Boil it. Then sit down", "Boil it. Then sit down"),
        ("articles in colour", "articles in colors"),
        ("summarising the emails", "summarize the email"),
    ],
)
def test_unusual_phrases_are_said_as_demonstrations_say_them(synonyms, forms, said, known):
    assert synonyms.rewrite(said, forms) == known


@pytest.mark.parametrize(
    "text",
    [
        'Open "the study. mail" and /home/study/mail.txt',
        "mail.study@example.com",
        "ask Dr Study and the Mail",  # names
        "a film and a movie",  # no demonstration speaks of either
        "",
        "?!",
        "発表を開いて",
    ],
)
def test_names_quotations_paths_and_what_nobody_demonstrated_stay(synonyms, forms, text):
    assert synonyms.rewrite(text, forms) == text


_SLOW_KEPT = re.compile(rf"{QUOTED.pattern}|`[^`]{{0,500}}`|\S*[@/\\_]\S*|\w+(?:\.\w+)+")
"""What stays, said plainly: it takes time quadratic in the length of a text."""


@given(st.lists(st.sampled_from(["ab", "c.d", "x@y", "a/b", ".", ", ", " ", " ", "(", "_"])))
def test_what_stays_is_found_in_one_pass_as_by_the_plain_definition(pieces):
    text = "".join(pieces)
    spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    plain = {
        place
        for match in _SLOW_KEPT.finditer(text)
        for place, (start, _) in enumerate(spans)
        if match.start() <= start < match.end()
    }
    assert _kept_tokens(text, spans) == plain


@pytest.mark.parametrize("piece", ["x", "a-", "a,b;", "a.a@", '"', "is"])
def test_a_long_word_is_read_once_and_not_remembered(synonyms, forms, piece):
    text = piece * (32_000 // len(piece))
    remembered = bases_of.cache_info().currsize
    assert synonyms.rewrite(text, forms) == text
    assert bases_of.cache_info().currsize <= remembered + 4


def test_what_demonstrations_hold_now_and_then_stays(forms):
    often = Synonyms.fit(parse_groups("article | study"), TEXTS + ["A study"] * 20)
    assert often.rewrite("a study", forms) == "a study"
    seldom = Synonyms.fit(parse_groups("article | study"), [*TEXTS, "A study"])
    assert seldom.rewrite("a study", forms) == "a articles"


def test_of_two_groups_the_one_with_the_commoner_phrase_says_what_stands_for_a_word(forms):
    found = Synonyms.fit(parse_groups("email | note\narticle | note"), TEXTS)
    assert found.rewrite("a note", forms) == "a email"


def test_only_the_beginning_of_a_very_long_text_is_rewritten(synonyms, forms):
    text = "study " * 6_000
    found = synonyms.rewrite(text, forms)
    assert found.startswith("articles articles")
    assert found.endswith("study study ")


def test_british_spelling_and_endings_lead_to_the_same_word():
    assert "organize" in bases_of("organising")
    assert "plan" in bases_of("planned")
    assert "category" in bases_of("categories")
    assert bases_of("colours")[0] == "colors"
    assert bases_of("his") == ("his",)


def test_replacements_are_restored_and_damaged_ones_named(synonyms, forms):
    restored = Synonyms.restore(synonyms.arrays())
    assert restored is not None
    assert (restored.commands, restored.others) == (synonyms.commands, synonyms.others)
    empty = Synonyms.fit([], TEXTS)
    restored = Synonyms.restore(empty.arrays())
    assert restored is not None
    assert restored.rewrite("Mail Ann", forms) == "Mail Ann"
    assert Synonyms.restore({}) is None
    for damaged in (b"mail", b"\xff\xff\tmail"):
        with pytest.raises(ModelError, match="synonyms"):
            Synonyms.restore({"synonyms": np.frombuffer(damaged, np.uint8)})


def test_the_table_of_english_has_groups_of_distinct_phrases():
    groups = read_groups(ENGLISH)
    assert len(groups) > 300
    for group in groups:
        assert len(set(group.phrases)) == len(group.phrases) > 1
        for phrase in group.phrases:
            assert phrase
            assert "~" not in (phrase[0], phrase[-1])


# -- in a model --------------------------------------------------------------------------------

ASKED = {
    "send_mail": "send an email to {}",
    "summarize": "summarize the report of {}",
    "play_song": "play the song of {}",
    "book_room": "book a room for {}",
}
PEOPLE = ("Ann", "Bob", "Carla", "Dai", "Emma", "Finn")
OTHER = "Boil the account of Ann down for us at once; afterwards drop a line to that fine old Finn"


def requests(count):
    rng = np.random.default_rng(5)
    names = sorted(ASKED)
    for _ in range(count):
        chosen = [names[i] for i in rng.permutation(len(names))[:2]]
        parts = [ASKED[name].format(PEOPLE[rng.integers(len(PEOPLE))]) for name in chosen]
        yield ", and then ".join(parts), chosen


def learn(**options):
    return create("dtdr-f", tune_seconds=0, width=16, **options).fit(list(requests(40)))


@pytest.fixture(scope="module")
def fitted():
    return learn()


def test_only_an_unfamiliar_query_is_rewritten_and_a_familiar_one_ranks_as_without(fitted):
    without = learn(synonyms=None)
    for query, names in requests(3):
        for history in (names[:0], names[:1], names):
            one, other = (model.rank(query, history).scores for model in (fitted, without))
            np.testing.assert_array_equal(one, other)
    assert fitted.rank(OTHER).familiarity > without.rank(OTHER).familiarity + 0.1
    one, other = (dict(model.rank(OTHER)[:])["summarize"] for model in (fitted, without))
    assert one > 1.2 * other
    words = fitted.model_.prepare(OTHER).prepared.features.text.text
    assert words.startswith("Summarize the account of Ann for us")
    assert "Summarize the account of Ann for us" in fitted.rank(OTHER).explain().note
    assert without.rank(OTHER).explain().note == fitted.rank(query).explain().note
    assert without.model_.prepare(OTHER).prepared.features.text.text == OTHER


def test_a_loaded_model_rewrites_as_the_one_that_was_saved(fitted, tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("> summarize | boil ~ down\n", encoding="utf-8")
    for model in (fitted, learn(synonyms=str(own)), learn(synonyms=None)):
        model.save(tmp_path / "model", force=True)
        own.unlink(missing_ok=True)  # the model has what it needs
        np.testing.assert_array_equal(
            load(tmp_path / "model").rank(OTHER).scores, model.rank(OTHER).scores
        )


def test_a_missing_table_of_synonyms_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="synonyms"):
        learn(synonyms=str(tmp_path / "none.txt"))


def test_words_learned_by_an_update_are_known_forms(tmp_path):
    model = learn()
    model.update([("paint the fence of Ann", ["paint"])] * 3)
    said = model.model_.prepare("Was the fences of Emma not to be painted ere long by ourselves")
    assert "paint" in said.prepared.features.text.words
