"""Mahalanobis distance of queries, and what dtdr-c and dtdr-l make of it."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp

from dtdr import Demonstration, Plan, ToolCall, load
from dtdr.errors import ModelError
from dtdr.predict import create
from dtdr.rankers.clustering import ClusterLikelihood, Clusters
from dtdr.rankers.out_of_distribution import Mahalanobis
from dtdr.rankers.vectors import REDUCED, rows, unit
from tests.helpers import RANKER_ONLY
from tests.rankers.test_familiarity import requests

METHODS = ("dtdr-c", "dtdr-l")


def vectors(count, columns, seed=0):
    """Unit vectors about three centres."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(3, columns))
    return unit(centres[draw.integers(3, size=count)] + 0.4 * draw.normal(size=(count, columns)))


def demonstrations(count, seed=0):
    return [
        Demonstration(str(number), query, Plan((ToolCall("1", "send"), ToolCall("2", "log"))))
        for number, query in enumerate(requests(count, seed))
    ]


def familiarity(model, query):
    value = model.rank(query).familiarity
    assert value is not None
    return value


@pytest.fixture(scope="module", params=METHODS)
def fitted(request):
    return create(request.param).fit(demonstrations(150), **RANKER_ONLY)


def test_distance_is_that_of_the_covariance_that_it_stands_for():
    columns = REDUCED + 16
    train, new = csr_array(vectors(400, columns)), vectors(20, columns, seed=1)
    found = Mahalanobis.fit(train)
    plane = found.directions.astype(np.float64)
    inside = np.linalg.inv(found.whitening.astype(np.float64) @ found.whitening.T)
    outside = np.eye(columns) - plane @ plane.T
    covariance = plane @ inside @ plane.T + found.outside[0] / 16 * outside
    mean = plane @ found.mean
    expected = [-(row - mean) @ np.linalg.solve(covariance, row - mean) for row in new]
    scores = [found.score(row) * columns for row in rows(csr_array(new))]
    np.testing.assert_allclose(scores, expected, rtol=1e-3)


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
@pytest.mark.parametrize("count", [1, 2, 200])
def test_far_vectors_score_lower_than_near_ones(kind, count):
    columns = REDUCED + 40
    train = vectors(count, columns)
    far = unit(np.random.default_rng(3).normal(size=(20, columns)))
    model = Mahalanobis.fit(kind(train))
    near = [model.score(row) for row in rows(kind(train))]
    assert np.isfinite(near).all()
    assert np.mean(near) > max(model.score(row) for row in rows(kind(far)))


def test_familiar_queries_are_above_the_floor(fitted):
    found = fitted.rank_batch(requests(300, 1))
    assert np.mean([not ranking.is_familiar for ranking in found]) <= 0.06


@pytest.mark.parametrize("query", ["", "qwv lkj zzt", "請給小明發一封郵件", "🙂", "word " * 40_000])
def test_queries_of_another_kind_are_shown_all_tools(fitted, query):
    ranking = fitted.rank(query)
    assert not ranking.is_familiar
    assert len(ranking.select(threshold=0.9)) == len(ranking)
    assert len(ranking.select(threshold=0.9, fallback=False)) < len(ranking)


def test_familiarity_is_that_of_the_query_whatever_was_called(fitted):
    query = requests(1, 4)[0]
    values = {fitted.rank(query, history).familiarity for history in ([], ["send"], ["?"] * 50)}
    assert len(values) == 1
    assert fitted.session(query).call("log").rank().familiarity in values


@pytest.mark.parametrize("method", METHODS)
def test_the_papers_recipe_notices_foreign_queries_too(method, tmp_path):
    model = create(method, recipe="paper").fit(demonstrations(60), **RANKER_ONLY)
    model.save(tmp_path / "model")
    for each in (model, load(tmp_path / "model")):
        ranking = each.rank("qwv lkj zzt")
        assert familiarity(each, "qwv lkj zzt") < familiarity(each, requests(1, 0)[0])
        assert not ranking.is_familiar
        assert len(ranking.select(threshold=0.9)) == len(ranking)
    rankings = model.rank_batch(requests(300, 1))
    assert np.mean([not ranking.is_familiar for ranking in rankings]) <= 0.1


def test_the_likelihood_is_that_of_a_mixture_of_normal_distributions():
    from scipy.stats import multivariate_normal

    train, new = vectors(300, 12), vectors(20, 12, seed=1)
    clusters, labels = Clusters.fit(train, 5)
    likelihood = ClusterLikelihood.fit(clusters, train, labels)
    shares = np.bincount(labels) / 300
    expected = []
    for row in new.astype(np.float64):
        densities = [
            multivariate_normal.logpdf(row, centre, likelihood.variance)
            for centre in clusters.centres
        ]
        normaliser = -6 * np.log(2 * np.pi * likelihood.variance)
        expected.append((logsumexp(densities, b=shares) - normaliser) / 12)
    np.testing.assert_allclose([likelihood.score(row) for row in new], expected, rtol=1e-3)


def test_vectors_of_any_length_have_a_distance():
    train = 2.6 * vectors(400, REDUCED + 16)
    raw, scaled = Mahalanobis.fit(train), Mahalanobis.fit(train / 2.6)
    new = vectors(20, REDUCED + 16, seed=1)
    np.testing.assert_allclose(
        [raw.score(2.6 * row) for row in new], [scaled.score(row) for row in new], rtol=1e-3
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_few_demonstrations_still_rank(method, count):
    found = create(method).fit(demonstrations(count), **RANKER_ONLY)
    assert found.rank(requests(1, 0)[0]).is_familiar
    assert found.rank("").familiarity is not None


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 30])
def test_one_distinct_query_gives_no_floor(method, count):
    same = [
        Demonstration(str(n), "ring the bell", Plan((ToolCall("1", "ring"),))) for n in range(count)
    ]
    found = create(method).fit(same, **RANKER_ONLY)
    assert found.calibration_.familiarity_threshold is None
    assert found.rank("qwv lkj zzt").is_familiar
    assert np.isfinite(familiarity(found, "ring the bell"))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("distance_.mean", np.zeros(3, np.float32)),
        ("distance_.whitening", np.zeros((1, 1), np.float32)),
        ("distance_.outside", np.zeros(2)),
        ("lowest_", np.zeros(2)),
    ],
)
def test_damaged_arrays_are_refused(method, name, value):
    fitted = create(method).fit(demonstrations(40), **RANKER_ONLY)
    arrays = fitted.ranker.arrays()
    assert name in arrays
    with pytest.raises(ModelError, match="fit"):
        fitted.ranker.restore(fitted.tools_, {**arrays, name: value})
