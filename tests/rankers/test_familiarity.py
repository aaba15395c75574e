"""How much a query is like the demonstrations' queries, as dtdr-f tells it."""

import random

import numpy as np
import pytest
from examples.hotel.generate import conversations
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.splits import default_split
from dtdr.predict import create
from dtdr.rankers.dtdr_f.encoding import encode_texts
from dtdr.rankers.dtdr_f.familiarity import fit_threshold, hash_ngrams
from dtdr.rankers.dtdr_f.queries import QueryFeaturizer
from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.rankers.out_of_distribution import FALSE_ALARMS, threshold_of
from dtdr.text.encoders.base import Encoder
from dtdr.text.words import hash_word
from tests.helpers import RANKER_ONLY


class Familiarity:
    """The score of queries and its threshold, learned from texts."""

    def __init__(self, texts, groups=None, encoder=None):
        queries = encode_texts(texts, encoder)
        self.featurizer = QueryFeaturizer.fit(queries, [])
        hashes = [hash_word(group) for group in groups or []] or [0] * len(texts)
        vectors = self.featurizer.further_vectors
        self.threshold = fit_threshold(queries["words"], np.array(hashes), vectors, encoder)

    def score(self, query):
        return self.featurizer.read(QueryText.of(query)).familiar


SETS = ("tinyagent", "t_eval", "ultratool", "traject_bench")
OPENINGS = ("please mail", "could you mail", "write to", "send word to", "ring up", "text")
PEOPLE = ("Ann", "Bob", "Chiara", "Dmitri", "Eun-ji", "my manager", "the team")
TOPICS = ("the report", "our meeting", "the slides", "lunch", "the budget", "my notes")


def requests(count, seed):
    """Requests of one kind: somebody is to be told of something."""
    draw = random.Random(seed)
    return [
        f"{draw.choice(OPENINGS)} {draw.choice(PEOPLE)} about {draw.choice(TOPICS)} "
        f"and then {draw.choice(OPENINGS)} {draw.choice(PEOPLE)} too"
        for _ in range(count)
    ]


def test_most_requests_in_other_words_are_familiar_and_other_subjects_are_not():
    """Phrasings that no demonstration has, of requests that demonstrations make."""
    said, others = (
        [
            turn.query
            for turns in conversations(seed=seed, other=other)
            for turn in turns
            if turn.batches
        ]
        for seed, other in ((18, False), (77, True))
    )
    hotel = Familiarity(said)
    assert np.mean([hotel.score(query) < hotel.threshold for query in others]) < 0.5
    strange = ["Prove that the square root of two is irrational", "Refactor utils.py and push it"]
    assert all(hotel.score(query) < hotel.threshold for query in strange)


def test_the_reference_is_set_aside_for_another_language():
    draw = random.Random(0)
    texts = [
        f"bitte {draw.choice(('Anna', 'Bernd', 'Chiara'))} {draw.choice(('morgen', 'heute'))} "
        f"wegen {draw.choice(('des Berichts', 'der Rechnung', 'des Treffens'))} anrufen"
        for _ in range(100)
    ]
    german = Familiarity(texts)
    assert german.threshold == pytest.approx(0.6)
    assert german.score("Wie wird das Wetter in Rom?") < german.threshold


@pytest.fixture(scope="module")
def fitted():
    return Familiarity(requests(200, 0))


@pytest.mark.parametrize(
    "query",
    [
        "",
        " \n\t",
        "asdf",
        "kj ww qpz vnt xxlk oo",
        "🙂🙂🙂",
        "\ud800",
        "\0",
        "Envoie un courriel à Marie",
        "请给小明发一封邮件",
        "What is the tallest mountain of Peru?",
        "word " * 40_000,
    ],
)
def test_queries_of_another_kind_are_below_the_floor(fitted, query):
    assert 0 <= fitted.score(query) < fitted.threshold


def test_new_queries_of_the_same_kind_are_above_the_floor(fitted):
    scores = np.array([fitted.score(query) for query in requests(500, 1)])
    assert np.mean(scores < fitted.threshold) <= 2 * FALSE_ALARMS


def test_a_known_query_is_wholly_familiar_and_less_so_in_another_order_or_word(fitted):
    assert fitted.score(requests(200, 0)[7]) == 1
    query = requests(1, 3)[0]
    shuffled = " ".join(random.Random(0).sample(query.split(), len(query.split())))
    assert fitted.score(shuffled) < fitted.score(query)
    for query in requests(20, 8):
        assert fitted.score(query.replace("about", "regarding")) >= fitted.threshold


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.text(max_size=40))
def test_any_texts_give_a_score_from_0_to_1(texts, query):
    fitted = Familiarity(texts)
    assert 0 <= fitted.score(query) <= 1
    assert 0 < fitted.threshold <= 1


@pytest.mark.parametrize("count", [1, 2, 10])
def test_few_demonstrations_are_enough_to_tell_gibberish(count):
    fitted = Familiarity(requests(count, 0))
    assert fitted.score("qwv lkj zzt") < fitted.threshold
    assert fitted.score(requests(count, 0)[0]) >= fitted.threshold


def test_equal_queries_do_not_make_every_other_one_unfamiliar():
    fitted = Familiarity([requests(1, 0)[0]] * 300)
    assert fitted.score(requests(1, 0)[0].replace("about", "regarding")) >= fitted.threshold


def test_each_query_is_judged_without_its_group():
    texts = [f"kind {number} of thing {number} in place {number}" for number in range(60)]
    pairs = [text for text in texts for _ in range(2)]
    twins = [f"{text} {'now' if place % 2 else 'soon'}" for place, text in enumerate(pairs)]
    groups = [str(place // 2) for place in range(len(twins))]
    alone = Familiarity(twins).threshold
    assert Familiarity(twins, groups).threshold < alone
    assert Familiarity(twins, [""] * len(twins)).threshold == alone


class ByTopic(Encoder):
    """A vector of which of some topics a text is about, whatever its words."""

    name = "by-topic"
    topics = (("mail", "write", "letter"), ("about", "concerning", "on"), ("square", "root"))

    @property
    def dimension(self):
        return len(self.topics)

    def _encode(self, texts):
        return np.array(
            [[any(word in text for word in words) for words in self.topics] for text in texts],
            np.float32,
        )

    def config(self):
        return {"name": self.name}

    @classmethod
    def restore(cls, config, arrays):
        return cls()


def test_with_an_encoder_what_means_the_same_is_familiar():
    texts = requests(100, 0)
    items = [(text, ["mail"]) for text in texts]
    by_words = create("dtdr-f").fit(items, **RANKER_ONLY)
    by_meaning = create("dtdr-f", encoder=ByTopic()).fit(items, **RANKER_ONLY)
    other, strange = "please mail Ann concerning lunch, my friend", "please mail me a square"
    assert not by_words.rank(other).is_familiar
    assert by_meaning.rank(other).is_familiar
    assert not by_meaning.rank(strange).is_familiar


def test_phrases_that_were_counted_are_familiar_too():
    model = create("dtdr-f").fit([(text, ["mail"]) for text in requests(40, 0)], **RANKER_ONLY)
    query = "dim the lights of the kitchen at nine"
    words = encode_texts([query])["words"]
    assert not model.rank(query).is_familiar
    model.record_counts(model.training_, np.unique(hash_ngrams(words.values, words.starts)))
    assert model.rank(query).familiarity == 1


@pytest.fixture(scope="module")
def published(data_dir):
    """Queries of the training side and of the test side of each set."""
    sides = {}
    for name in SETS:
        dataset = datasets.load(name, data_dir=data_dir)
        split = default_split(dataset, data_dir, 0)
        sides[name] = [
            [item.query for item in split.training(dataset.demonstrations)],
            [item.query for item in split.testing(dataset.demonstrations)[:100]],
        ]
    return sides


@pytest.mark.parametrize("name", SETS)
def test_held_out_queries_are_told_from_those_of_other_sets(name, published):
    from sklearn.metrics import roc_auc_score

    fitted = Familiarity(published[name][0])
    scores = {key: [fitted.score(query) for query in test] for key, (_, test) in published.items()}
    for other in SETS:
        if other != name:
            right = [1] * len(scores[name]) + [0] * len(scores[other])
            assert roc_auc_score(right, [*scores[name], *scores[other]]) >= 0.97


def floor(scores):
    assert threshold_of(scores[:1]) is None
    found = threshold_of(scores)
    assert found is not None
    return found


@pytest.mark.parametrize("count", [10, 30, 1_000])
def test_the_floor_keeps_its_share_of_false_alarms(count):
    draw = np.random.default_rng(0)
    # With enough scores it does so whatever their distribution.
    for power in (1,) if count < 99 else (1, 3):
        alarms = [
            np.mean(draw.normal(size=400) ** power < floor(draw.normal(size=count) ** power))
            for _ in range(400)
        ]
        assert np.mean(alarms) == pytest.approx(FALSE_ALARMS, abs=0.005)
