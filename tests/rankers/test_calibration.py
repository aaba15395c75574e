"""Calibration, its error and coverage, compared with independent implementations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.errors import InputError
from dtdr.evaluate import run
from dtdr.evaluate.next_calls import calibration_table, score_next_calls
from dtdr.evaluate.statistics import BINS, calibration_error
from dtdr.predict.model import Model
from dtdr.rankers.calibration import Calibration, fit_confidence, fit_isotonic
from dtdr.rankers.random import RandomRetriever
from dtdr.rankers.ranking import Ranking
from tests import small_data
from tests.runs import make_log, make_step

probabilities = st.floats(0, 1)


@pytest.mark.parametrize("decimals", [1, 17])
@pytest.mark.parametrize("count", [1, 2, 400])
def test_isotonic_regression_agrees_with_scikit_learn(count, decimals):
    from sklearn.isotonic import IsotonicRegression

    draw = np.random.default_rng(1)
    said = draw.beta(2, 1.2, count)
    came_true = draw.random(count) < said
    said = np.round(said, decimals)
    points = fit_isotonic(said, came_true)
    other = IsotonicRegression(y_min=0, y_max=1).fit(said, came_true)
    assert points[0] == pytest.approx(other.X_thresholds_)
    assert points[1] == pytest.approx(other.y_thresholds_)
    assert np.interp(said, *points).mean() == pytest.approx(came_true.mean())


def test_confidence_is_how_often_a_probability_was_right():
    draw = np.random.default_rng(0)
    said, new = draw.beta(2, 1.2, 4_000), draw.beta(2, 1.2, 4_000)
    points = fit_confidence(said, (draw.random(4_000) < said**2).astype(float))
    assert np.interp(new, *points) == pytest.approx(new**2, abs=0.05)


@given(st.lists(st.tuples(probabilities, st.booleans()), min_size=1, max_size=60))
def test_confidence_rises_and_a_few_steps_do_not_make_it_sure(pairs):
    said, right = np.array(pairs, float).T
    points = fit_confidence(said, right)
    assert (np.diff(points) >= 0).all()
    assert ((points > 0) & (points < 1)).all()


def test_three_steps_hardly_change_a_probability():
    points = fit_confidence(np.array([0.6, 0.6, 0.6]), np.zeros(3))
    assert np.interp(0.6, *points) == pytest.approx(0.6, abs=0.1)


@given(st.lists(st.tuples(probabilities, st.booleans()), min_size=1, max_size=60))
def test_calibration_error_agrees_with_its_definition(pairs):
    total = 0.0
    for number in range(BINS):
        low, high = np.linspace(0, 1, BINS + 1)[[number, number + 1]]
        here = [
            (said, right)
            for said, right in pairs
            if low < said <= high or (number == 0 and said == 0)
        ]
        if here:
            accuracy = np.mean([right for _, right in here])
            total += len(here) / len(pairs) * abs(accuracy - np.mean([said for said, _ in here]))
    said, right = zip(*pairs, strict=True)
    assert calibration_error(said, right) == pytest.approx(total, abs=1e-12)


def test_no_steps_have_no_calibration_error():
    assert math.isnan(calibration_error([], []))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([0.5], [1, 0]), "1 confidences but 2 outcomes"),
        (([1.5], [1]), "from 0 to 1"),
        (([math.nan], [1]), "from 0 to 1"),
    ],
)
def test_what_is_no_confidence_is_refused(arguments, said):
    with pytest.raises(InputError, match=said):
        calibration_error(*arguments)


def world(count, draw, tools=8):
    """Probabilities that are too sure of themselves, and one acceptable tool a step."""
    truth = draw.dirichlet(np.full(tools, 0.5), size=count)
    acceptable = np.array([draw.choice(tools, p=row) for row in truth])
    claimed = truth**2
    return claimed / claimed.sum(axis=1, keepdims=True), acceptable


@pytest.mark.parametrize("asked", [0.8, 0.9, 0.95])
def test_sets_cover_what_was_asked_on_exchangeable_steps(asked):
    """Split conformal prediction: mean coverage over draws is c up to 1 / (m + 1)."""
    draw = np.random.default_rng(0)
    names = [str(number) for number in range(8)]
    found = []
    for _ in range(60):
        claimed, acceptable = world(200, draw)
        calibration = Calibration(held_out=np.sort(claimed[np.arange(200), acceptable]))
        claimed, acceptable = world(200, draw)
        for row, tool in zip(claimed, acceptable, strict=True):
            chosen = Ranking(names, row, calibration=calibration).select(coverage=asked)
            found.append(str(tool) in chosen.tools)
    assert np.mean(found) == pytest.approx(asked, abs=0.012)


class Calibrated(RandomRetriever):
    """Ranks at random, with a calibration as dtdr-f has one and a familiarity of its own."""

    def _fit(self, demonstrations):
        super()._fit(demonstrations)
        self.calibration_ = Calibration(
            held_out=np.linspace(0.01, 0.5, 40),
            confidence=np.array([[0.0, 1.0], [0.1, 0.8]]),
            familiarity_threshold=0.5,
        )

    def get_params(self):
        return {}

    def familiarity(self, prepared):
        return 0.2 if "weather" in str(prepared) else 0.9

    def _prepare(self, queries):
        return queries

    def _row(self, prepared, history):
        draw = np.random.default_rng(len(history))
        return draw.dirichlet(np.full(len(self.tools_), 0.4))


def test_confidence_in_the_log_is_the_rankings_own():
    dataset = small_data.dataset(24)
    log = run(Model(Calibrated()), dataset, small_data.split(24))
    queries = {item.id: item.query for item in dataset.demonstrations}
    is_familiar = ["weather" not in queries[log.plan_ids[plan]] for plan in log.plan]
    familiar = np.where(is_familiar, 1.0, 0.2 / 0.5)
    assert familiar.min() < 1
    expected = (0.1 + 0.7 * log.best_probability) * familiar
    np.testing.assert_allclose(log.confidence, expected, atol=2e-6)


def test_the_calibration_error_of_a_log_is_that_of_its_confidence():
    steps = [("alpha", 0.9), ("beta", 0.9), ("alpha", 0.5), ("gamma", 0.5)]
    log = make_log(
        [
            make_step([0, 1, 2, 3, 4], [tool], plan=f"p{number}", confidence=confidence)
            for number, (tool, confidence) in enumerate(steps)
        ]
    )
    scores = score_next_calls(log)
    # Two bins of two steps: .9 said and .5 right, .5 said and .5 right.
    assert scores.ece == pytest.approx(0.2)
    assert "| x | 0.200 |" in calibration_table([("x", [scores], ())]).to_markdown()
    assert score_next_calls(make_log([make_step([0, 1, 2, 3, 4], ["alpha"])])).ece is None
