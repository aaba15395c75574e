"""What a further encoder says of each clause of a query."""

from dataclasses import replace

import numpy as np
import pytest

from dtdr.encoders.base import Encoder
from dtdr.errors import ModelError
from dtdr.retrievers.factored.blocks.clauses import Clauses
from dtdr.retrievers.factored.model import FactoredModel
from dtdr.retrievers.factored.query_text import split_clauses
from dtdr.retrievers.factored.retriever import DTDRFactored
from dtdr.tools import Tool

TOPICS = {
    "send_mail": ("mail it to {}", "write {} a letter"),
    "play_song": ("play the song of {}", "let me hear what {} sings"),
    "book_room": ("book a room for {}", "see where {} can sleep"),
}
WORDS = (("mail", "letter", "post"), ("song", "hear", "tune"), ("room", "sleep", "bed"))
PEOPLE = ("Ann", "Bob", "Carla", "Dai")


class OneTopic(Encoder):
    """A vector of the topic of a text; nothing of a text about several."""

    name = "one-topic"

    @property
    def dimension(self):
        return len(WORDS)

    def _encode(self, texts):
        found = np.array(
            [[any(word in text for word in words) for words in WORDS] for text in texts], np.float32
        )
        return found * (found.sum(axis=1, keepdims=True) == 1)

    @classmethod
    def restore(cls, config, arrays):
        return cls()


def requests(count):
    draw = np.random.default_rng(3)
    for _ in range(count):
        names = [sorted(TOPICS)[at] for at in draw.permutation(3)[:2]]
        said = [TOPICS[name][draw.integers(2)].format(draw.choice(PEOPLE)) for name in names]
        yield ", and ".join(said), names


@pytest.fixture(scope="module")
def fitted():
    return DTDRFactored(width=8, tune_seconds=0, encoder=OneTopic()).fit(list(requests(60)))


def expected_calls(model, query):
    block = next(block for block in model.blocks.blocks if isinstance(block, Clauses))
    place = model.blocks.layout.names.index(block.names[0])
    return dict(zip(model.names, model.prepare(query).prepared.table[place], strict=True))


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        (
            "Mail it to Ann, and play a song. Then go home now",
            ["Mail it to Ann", "play a song.", "Then go home now"],
        ),
        ("Open it, read all of it and stop", ["Open it read all of it stop"]),
        ("Stop", ["Stop"]),
        ("", [""]),
    ],
)
def test_a_query_is_cut_at_pauses_into_clauses_of_some_words(text, clauses):
    assert split_clauses(text) == clauses


def test_a_long_query_has_at_most_48_clauses_and_loses_none_of_its_words():
    text = " and ".join(["one two three four"] * 60)
    clauses = split_clauses(text)
    assert len(clauses) == 48
    assert sum(clause.count("three") for clause in clauses) == 60


def test_each_clause_asks_for_its_tool_though_plans_do_not_say_which(fitted):
    expected = expected_calls(fitted.model_, "post something for Emma, and find her a bed tonight")
    assert expected["send_mail"] > 0.5
    assert expected["book_room"] > 0.5
    assert expected["play_song"] < 0.2
    twice = expected_calls(fitted.model_, "post something for Emma, and post another one for Dai")
    assert twice["send_mail"] > 1.5 * expected["send_mail"]


def test_only_a_model_with_an_encoder_has_the_block(fitted):
    lexical = DTDRFactored(width=8, tune_seconds=0).fit(list(requests(20)))
    for model, has_block in ((fitted, True), (lexical, False)):
        assert any(isinstance(one, Clauses) for one in model.model_.blocks.blocks) is has_block


def test_the_block_stays_through_updates_and_changes_of_tools(fitted):
    query = "post something for Emma, and find her a bed tonight"
    before = expected_calls(fitted.model_, query)
    model = DTDRFactored(width=8, tune_seconds=0, encoder=OneTopic()).fit(list(requests(60)))
    model.update([("paint the fence of Ann", ["paint"])] * 40)
    model.add_tools([Tool("added", "adds")])
    after = expected_calls(model.model_, query)
    assert {name: after[name] for name in before} == pytest.approx(before, abs=0.01)
    assert max(after["paint"], after["added"]) < 0.01
    assert model.rank(query).probabilities.sum() == pytest.approx(1)


def test_a_restored_block_ranks_the_same_and_damaged_weights_are_named(fitted):
    model = fitted.model_
    arrays = model.arrays()

    def restore(arrays):
        tools = model.blocks.training.tools.tools
        names = [block.name for block in model.blocks.blocks]
        return FactoredModel.restore(names, tools, arrays, encoder=OneTopic(), width=8, seed=0)

    query = "post something for Emma, and find her a bed tonight"
    restored = replace(fitted.model_, blocks=restore(arrays).blocks)
    assert expected_calls(restored, query) == expected_calls(model, query)
    damaged = {**arrays, "clauses.weights": arrays["clauses.weights"][:, :-1]}
    with pytest.raises(ModelError, match="clauses"):
        restore(damaged)
