"""Choosing and scoring along the tree of tokens, against a model that is a table."""

import math
import random
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.llm.backends import LLMError
from dtdr.llm.backends.tree import (
    LISTED,
    NEGLIGIBLE,
    NO_TOKEN,
    NextTokens,
    Tree,
    likelihoods,
    most_probable,
)

END = 9
TOKENS = range(END)
texts = st.lists(
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=4).map(tuple),
    min_size=1,
    max_size=8,
    unique=True,
)


class Table:
    """A random next-token distribution after each path; counts what it was asked."""

    def __init__(self, seed: int, sharpness: float = 1.0) -> None:
        self.seed, self.sharpness = seed, sharpness
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, path: tuple[int, ...], wanted: Collection[int]) -> dict[int, float]:
        self.asked.append(path)
        return {token: self.logprob(path, token) for token in wanted}

    def logprob(self, path: tuple[int, ...], token: int) -> float:
        draw = random.Random(f"{self.seed} {path}")
        weights = [math.exp(self.sharpness * draw.gauss(0, 1)) for _ in range(END + 1)]
        return math.log(weights[token] / sum(weights))

    def likelihood(self, text: tuple[int, ...]) -> float:
        whole = (*text, END)
        return sum(self.logprob(whole[:place], token) for place, token in enumerate(whole))


def tree(found) -> Tree:
    return Tree.of((*text, END) for text in found)


@given(texts, st.integers(0, 10**6), st.sampled_from([0.5, 2.0, 6.0]))
def test_scores_are_likelihoods_of_whole_texts_cut_below_the_best(found, seed, sharpness):
    table = Table(seed, sharpness)
    expected = [table.likelihood(text) for text in found]
    floor = max(expected) - NEGLIGIBLE
    assert likelihoods(tree(found), table) == pytest.approx(
        [max(value, floor) for value in expected]
    )


@given(texts, st.integers(0, 10**6))
def test_scores_do_not_depend_on_the_order_of_the_texts(found, seed):
    forwards = likelihoods(tree(found), Table(seed, 4.0))
    backwards = likelihoods(tree(found[::-1]), Table(seed, 4.0))
    assert forwards == pytest.approx(backwards[::-1])


@given(texts, st.integers(0, 10**6))
def test_a_choice_takes_the_most_probable_allowed_token_each_time(found, seed):
    table = Table(seed)
    chosen = (*found[most_probable(tree(found), table)], END)
    for place, token in enumerate(chosen):
        allowed = {
            text[place] for text in ((*one, END) for one in found) if text[:place] == chosen[:place]
        }
        best = max(table.logprob(chosen[:place], other) for other in allowed)
        assert table.logprob(chosen[:place], token) == best


def test_a_shared_token_is_asked_for_once_and_a_forced_one_never():
    table = Table(0)
    likelihoods(tree([(1, 2, 3), (1, 2, 4)]), table)
    assert sorted(table.asked) == [(), (1,), (1, 2), (1, 2, 3), (1, 2, 4)]
    table = Table(0)
    most_probable(tree([(1, 2, 3), (1, 2, 4)]), table)
    assert table.asked == [(1, 2)]


def test_a_text_far_behind_is_not_followed_to_its_end():
    asked = []

    def ask(path, wanted):
        asked.append(path)
        return {token: -NEGLIGIBLE - 1 if token == 2 else -0.1 for token in wanted}

    found = likelihoods(tree([(1,), (2, 3, 4)]), ask)
    assert found == pytest.approx([-0.2, -0.2 - NEGLIGIBLE])
    assert (2,) not in asked


def test_the_same_text_twice_has_the_same_score():
    found = likelihoods(tree([(1, 2), (1, 2)]), Table(3))
    assert found[0] == found[1]


class Listing:
    """A server that lists as many of its tokens as it is asked for, most probable first."""

    def __init__(self, tokens: dict[int, float]) -> None:
        self.tokens = sorted(tokens.items(), key=lambda item: -item[1])
        self.asked: list[int] = []

    def __call__(self, tokens, fields):
        self.asked.append(fields["n_probs"])
        assert fields["n_predict"] == 1
        told = [{"id": one, "logprob": value} for one, value in self.tokens[: fields["n_probs"]]]
        return {"completion_probabilities": [{"top_logprobs": told}], "timings": {"cache_n": 7}}


def many(count: int) -> dict[int, float]:
    return {token: -1.0 - token / 100 for token in range(count)}


def test_a_token_that_is_not_listed_is_asked_for_once_more():
    few, more = LISTED
    server = Listing(many(few + 50))
    ask = NextTokens(server, [1, 2, 3], 0, all)
    assert ask((), [5])[5] == many(6)[5]
    assert server.asked == [few]
    assert ask((), [5, few + 20])[few + 20] == many(few + 21)[few + 20]
    assert server.asked == [few, few, more]
    assert (ask.requests, ask.prompt_tokens, ask.cached_tokens) == (3, 3, 7)


def test_a_token_rarer_than_all_listed_counts_as_the_last_of_them():
    server = Listing(many(10))
    found = NextTokens(server, [1], 0, all)((), [3, 99, NO_TOKEN])
    assert found[99] == found[NO_TOKEN] == many(10)[9]


def test_a_choice_needs_only_one_of_its_tokens_listed():
    server = Listing(many(10))
    NextTokens(server, [1], 0, any)((), [3, 99])
    assert server.asked == [LISTED[0]]


@pytest.mark.parametrize("enough", [any, all])
def test_where_no_token_is_wanted_one_short_listing_is_asked_for(enough):
    server = Listing(many(10))
    assert NextTokens(server, [1], 0, enough)((), []) == {}
    assert server.asked == [LISTED[0]]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"completion_probabilities": []},
        {"completion_probabilities": [{}]},
        {"completion_probabilities": [{"top_logprobs": [{"id": 1}]}]},
        {"completion_probabilities": [{"top_logprobs": [{"id": 1, "logprob": None}]}]},
        {"completion_probabilities": "none"},
    ],
)
def test_a_server_that_tells_no_probabilities_is_one_clear_error(answer):
    with pytest.raises(LLMError, match="gave no probabilities"):
        NextTokens(lambda tokens, fields: answer, [1], 0, all)((), [1])
