"""Single rankers against independent references, and what only one of them does."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtdr import Tool, load
from dtdr.data.calls import END
from dtdr.data.tools import Parameter
from dtdr.errors import DtdrError, InputError
from dtdr.predict import create
from dtdr.rankers.clustering import Clusters
from dtdr.rankers.descriptions import document
from dtdr.rankers.linear import MAX_CALLS, Optimisation
from dtdr.rankers.similarity import convolution
from dtdr.text.words import name_words
from tests import small_data
from tests.helpers import RANKER_ONLY, mean_reciprocal_rank

SET = small_data.dataset(24)
QUERY = "Mail Ann the summary of q3.pdf"
AFTER_A_CALL = ("read_file",)
"""Before any, the end of plan is left out of rankings that are otherwise made once."""


def fit(name, **parameters):
    return create(name, **parameters).fit(SET.demonstrations, SET.tools, **RANKER_ONLY)


def in_vocabulary_order(model, ranking):
    return np.array([ranking.probability(tool) for tool in model.vocabulary])


# -- descriptions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("get_user-by.id", "get user by id"),
        ("AirbnbSearch.getPrice", "airbnb search get price"),
        ("übersetzeText", "übersetze text"),
        ("搜索_工具", "搜索 工具"),
        ("???", "???"),
    ],
)
def test_a_name_is_split_into_its_words(name, words):
    assert name_words(name) == words


def test_a_document_has_names_and_descriptions():
    described = Tool("send_mail", "Sends it.", (Parameter("toAddress", "string", "who gets it"),))
    assert document(described) == "send mail\nSends it.\nto address\nwho gets it"


# -- bm25 ------------------------------------------------------------------------------------------


def test_bm25_scores_are_those_of_bm25s():
    import bm25s

    model = fit("bm25")
    corpus = [re.findall(r"\w+", document(tool).lower()) for tool in model.tools_]
    reference = bm25s.BM25(k1=1.5, b=0.75)
    reference.index(corpus, show_progress=False)
    for query in ("Open the file and return its text", "send a message to a phone", "text text"):
        known = [word for word in query.lower().split() if word in reference.vocab_dict]
        scores = reference.get_scores(known)
        found = in_vocabulary_order(model, model.rank(query, AFTER_A_CALL))
        np.testing.assert_allclose(found, scores / scores.sum(), rtol=1e-6)


# -- qts, tgr, less-is-more ------------------------------------------------------------------------


def test_qts_orders_tools_by_cosine():
    model = fit("qts")
    texts = [tool.description or name_words(tool.name) for tool in model.tools_]
    tools, query = (model.ranker.encoder.encode(part).toarray() for part in (texts, [QUERY]))
    cosines = (tools @ query[0]) / np.linalg.norm(tools, axis=1)
    found = in_vocabulary_order(model, model.rank(QUERY, AFTER_A_CALL))
    logs = np.log(found)
    np.testing.assert_allclose(
        (logs - logs[0]) / np.ptp(logs), (cosines - cosines[0]) / np.ptp(cosines), atol=1e-4
    )


@pytest.mark.parametrize("name", ["qts", "tgr", "less-is-more"])
def test_the_papers_recipe_shares_cosines_out_and_cuts_at_the_cosine(name, tmp_path):
    parameters: dict[str, Any] = {"llm": lambda prompt: QUERY} if name == "less-is-more" else {}
    model = fit(name, recipe="paper", threshold=0.1, **parameters)
    (vector,) = model.ranker.encoder.encode([QUERY]).toarray()
    cosines = np.maximum(model.ranker.tool_vectors_ @ vector, 0)
    ranking = model.rank(QUERY)
    np.testing.assert_allclose(
        in_vocabulary_order(model, ranking), cosines / cosines.sum(), rtol=1e-5
    )
    wanted = {tool.name for tool, cosine in zip(model.tools_, cosines, strict=True) if cosine > 0.1}
    assert set(ranking.select().tools) == wanted
    assert 0 < len(wanted) < len(ranking)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", **parameters).rank(QUERY)
    assert again.select().tools == ranking.select().tools


def test_the_tool_graph_is_convolved_as_the_matrix_formula_says():
    random = np.random.default_rng(0)
    graph = random.random((5, 5)) * (random.random((5, 5)) < 0.5)
    linked = 0.5 * graph + 0.5 * graph.T + np.identity(5)
    degree = np.diag(linked.sum(axis=0) ** -0.5)
    np.testing.assert_allclose(convolution(graph), degree @ linked @ degree, rtol=1e-5)


def test_tgr_draws_tools_called_together_to_each_other():
    texts = {"alpha": "open a door", "beta": "paint walls", "gamma": "count sheep"}
    tools = [Tool(*pair) for pair in texts.items()]
    demonstrations = [("open a door", ["alpha", "beta"])] * 3
    graph = create("tgr").fit(demonstrations, tools, **RANKER_ONLY).rank("open a door")
    plain = create("qts").fit(demonstrations, tools, **RANKER_ONLY).rank("open a door")
    assert graph.probability("beta") > graph.probability("gamma")
    assert plain.probability("beta") == pytest.approx(plain.probability("gamma"))


def test_less_is_more_asks_once_a_query_and_compares_the_answer():
    asked = []

    def llm(prompt):
        asked.append(prompt)
        return "Send a text message to a phone number"

    model = fit("less-is-more", llm=llm)
    assert not asked
    for history in ((), ("weather",), ("weather", "find_contact")):
        assert model.rank("What about Rome?", history).best == "send_text"
    assert len(asked) == 1
    assert "What about Rome?" in asked[0]
    model.rank("What about Zoë?")
    assert len(asked) == 2


def test_less_is_more_ranks_by_the_query_when_the_llm_says_nothing():
    silent, plain = fit("less-is-more", llm=lambda prompt: " \n"), fit("qts")
    assert silent.rank(QUERY).tools == plain.rank(QUERY).tools


def test_less_is_more_without_an_llm_says_what_to_give(tmp_path):
    with pytest.raises(InputError, match="llm="):
        create("less-is-more")
    fit("less-is-more", llm=lambda prompt: "").save(tmp_path / "model")
    with pytest.raises(InputError, match="llm="):
        load(tmp_path / "model")


def test_an_llm_that_answers_no_text_is_an_error():
    with pytest.raises(DtdrError, match="NoneType"):
        fit("less-is-more", llm=lambda prompt: None).rank(QUERY)


# -- dr and dtdr-c ---------------------------------------------------------------------------------


def test_dr_ranks_by_what_followed_the_last_call():
    model = fit("dr")
    after = model.rank("anything", ["weather", "find_contact"])
    assert after.top(2) == [("send_mail", 0.5), ("send_text", 0.5)]
    assert after.probabilities[2:].sum() == 0
    unseen = model.rank("anything", ["never_seen"])
    np.testing.assert_allclose(unseen.probabilities, 1 / 7)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_nearest_cluster_is_the_one_scikit_learn_predicts(sparse):
    from scipy.sparse import csr_array
    from sklearn.cluster import KMeans

    random = np.random.default_rng(0)
    vectors = random.random((80, 12)).astype(np.float32) * (random.random((80, 12)) < 0.5)
    new = random.random((30, 12)).astype(np.float32)
    new /= np.linalg.norm(new, axis=1, keepdims=True)
    clusters, labels = Clusters.fit(csr_array(vectors) if sparse else vectors, 7, seed=1)
    inputs, queries = vectors, new
    if sparse:  # 12 columns stay 12: the projection only turns them, and rows become unit vectors
        inputs, queries = (part @ clusters.projection for part in (vectors, new))
        inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
    reference = KMeans(7, n_init=1, random_state=1).fit(inputs)
    np.testing.assert_allclose(clusters.centres, reference.cluster_centers_, atol=1e-5)
    np.testing.assert_array_equal(labels, reference.labels_)
    rows = [(np.arange(12), row) for row in new] if sparse else list(new)
    found = [clusters.find_nearest(row, 3) for row in rows]
    assert [three[0] for three in found] == reference.predict(queries).tolist()
    distances = reference.transform(queries)
    np.testing.assert_array_equal(found, np.argsort(distances, axis=1)[:, :3])


def test_every_cluster_has_a_query_even_when_queries_repeat():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    clusters, labels = Clusters.fit(vectors, 12)
    assert len(clusters.centres) == len(set(labels.tolist())) <= 12
    assert [clusters.find_nearest(row, 1)[0] for row in vectors] == labels.tolist()


def test_the_papers_dtdr_c_with_one_cluster_and_order_one_is_dr():
    clustered, plain = fit("dtdr-c", recipe="paper", clusters=1, order=1), fit("dr")
    for item in SET.demonstrations:
        for step in item.plan.steps():
            left, right = (one.rank(item.query, step.history) for one in (clustered, plain))
            assert dict(left) == pytest.approx(dict(right))


def test_the_papers_dtdr_c_gives_up_on_unseen_histories_and_the_default_backs_off():
    history = ["never_seen", "find_contact"]
    paper, default = fit("dtdr-c", recipe="paper", order=2), fit("dtdr-c", order=2)
    np.testing.assert_allclose(paper.rank(QUERY, history).probabilities, 1 / 7)
    assert default.rank(QUERY, history).best in {"send_mail", "send_text"}


@pytest.mark.parametrize(
    "parameters",
    [
        {"order": -1},
        {"order": 10_000},
        {"clusters": 0},
        {"nearest": 0},
        {"strength": 0.0},
        {"recipe": "mine"},
    ],
)
def test_dtdr_c_parameters_out_of_range_are_an_input_error(parameters):
    with pytest.raises(InputError, match=next(iter(parameters))):
        create("dtdr-c", **parameters)


# -- lr and dtdr-l ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lr", "dtdr-l"])
def test_keywords_override_the_recipe(name):
    published: dict[str, Any] = {"loss": "bce", "epochs": 10, "learning_rate": 1e-3, "decay": 0.9}
    paper = Optimisation(**published, weight_decay=1e-5, batch_size=1)
    given: dict[str, Any] = {"epochs": 2, "batch_size": 32, "loss": "softmax", "decay": 0.8}
    for keywords in ({}, given):
        ranker: Any = create(name, recipe="paper", **keywords).ranker
        assert ranker._optimisation == replace(paper, **keywords)
    with pytest.raises(InputError, match="epochs"):
        create(name, epochs=0)


def test_dtdr_l_learns_that_the_history_matters():
    model = fit("dtdr-l")
    history = ["read_file", "summarize", "find_contact", "send_mail"]
    expected = [{"read_file", "find_contact"}, {"summarize", "find_contact"}, {"find_contact"}]
    for length, acceptable in enumerate([*expected, {"send_mail"}, {END}]):
        assert model.rank(QUERY, history[:length]).best in acceptable


@pytest.mark.parametrize("recipe", ["default", "paper"])
def test_dtdr_l_sees_the_history_behind_a_query_of_a_megabyte(recipe):
    model = fit("dtdr-l", recipe=recipe)
    long = "Mail the summary " * 60_000
    before, after = model.rank(long), model.rank(long, ["read_file", "summarize"])
    assert not np.array_equal(before.probabilities, after.probabilities)


def test_dtdr_l_looks_at_the_last_calls_of_a_long_history():
    model = fit("dtdr-l")
    tail = ["read_file", "summarize"] * (MAX_CALLS // 2)
    long = model.rank(QUERY, ["weather"] * 500 + tail)
    assert dict(long) == dict(model.rank(QUERY, tail))


def test_the_papers_dtdr_c_shows_what_followed_and_all_tools_where_nothing_did(tmp_path):
    demonstrations = [(QUERY, plan) for plan in (["a", "b"], ["a", "c"], ["d"])]
    fitted = create("dtdr-c", recipe="paper", order=1, clusters=1).fit(
        demonstrations, **RANKER_ONLY
    )
    fitted.save(tmp_path / "model")
    for model in (
        fitted,
        load(tmp_path / "model"),
        fitted.clone().fit(demonstrations, **RANKER_ONLY),
    ):
        assert set(model.rank(QUERY, ["a"]).select().tools) == {"b", "c"}
        assert model.rank(QUERY, ["unheard of"]).select().tools == ("a", "b", "c", "d", "end")
        assert model.rank(QUERY, ["unheard of"]).select(top_k=2).tools == ("a", "b")
        assert model.get_params()["threshold"] is None
    strict = create("dtdr-c", recipe="paper", order=1, clusters=1, threshold=0.6)
    assert len(strict.fit(demonstrations, **RANKER_ONLY).rank(QUERY, ["a"]).select()) == 1
    default = create("dtdr-c", order=1, clusters=1).fit(demonstrations, **RANKER_ONLY)
    assert default.rank(QUERY, ["a"]).threshold is None


def test_a_threshold_is_kept_by_every_ranking():
    for name in ("dtdr-l", "dtdr-c", "lr", "dr", "bm25", "qts", "tgr"):
        ranking = fit(name, threshold=0.2).rank(QUERY)
        assert ranking.threshold == 0.2
        assert len(ranking.select()) < len(ranking)


# -- published sets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "name", "low", "high"),
    [
        ("tinyagent", "dr", 0.593, 0.603),
        ("t_eval", "dr", 0.528, 0.538),
        ("t_eval", "dtdr-c", 0.63, 1),
        pytest.param("tinyagent", "dtdr-c", 0.63, 1, marks=pytest.mark.slow),
        pytest.param("tinyagent", "dtdr-l", 0.87, 1, marks=pytest.mark.slow),
        pytest.param("t_eval", "dtdr-l", 0.65, 1, marks=pytest.mark.slow),
    ],
)
def test_mean_reciprocal_ranks_on_published_sets(data_dir, dataset, name, low, high):
    from dtdr.evaluate import datasets
    from dtdr.evaluate.datasets.splits import fixed_split

    found = datasets.load(dataset, data_dir=data_dir)
    split = fixed_split(dataset, data_dir)
    train, test = (
        [found.demonstrations[index] for index in side] for side in (split.train, split.test)
    )
    assert (
        low
        <= mean_reciprocal_rank(create(name).fit(train, found.tools, **RANKER_ONLY), test)
        <= high
    )
