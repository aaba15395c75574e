"""Calibration error, coverage and AUROC, beside independent implementations."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from dtdr.cli import run as command
from dtdr.errors import InputError
from dtdr.evaluate import run
from dtdr.evaluate.reliability import BINS, calibration_error, reliability_of
from dtdr.evaluate.run_log import COVERAGES
from dtdr.evaluate.run_log_file import read_run_log
from dtdr.predict.model import Model
from dtdr.rankers.calibration import Calibration, fit_isotonic
from dtdr.rankers.random import RandomRetriever
from dtdr.rankers.ranking import Ranking
from tests import small_data
from tests.runs import make_log, make_step

probabilities = st.floats(0, 1)


def believed(count, seed, sharpness=1.0):
    """Confidences, and outcomes that come true as often as said when ``sharpness`` is 1."""
    draw = np.random.default_rng(seed)
    said = draw.beta(2, 1.2, count)
    return said, draw.random(count) < said**sharpness


def logged(steps, **header):
    """A log of steps given by probabilities, acceptable tools and confidence."""
    made = []
    for number, (row, acceptable, confidence) in enumerate(steps):
        order = np.argsort(-np.asarray(row), kind="stable")
        made.append(
            make_step(
                order,
                acceptable,
                plan=f"p{number}",
                probabilities=np.asarray(row)[order],
                confidence=confidence,
            )
        )
    return make_log(made, **header)


@pytest.mark.parametrize("decimals", [1, 17])
@pytest.mark.parametrize("count", [1, 2, 400])
def test_isotonic_regression_agrees_with_scikit_learn(count, decimals):
    said, came_true = believed(count, 1)
    said = np.round(said, decimals)
    points = fit_isotonic(said, came_true)
    other = IsotonicRegression(y_min=0, y_max=1).fit(said, came_true)
    assert points[0] == pytest.approx(other.X_thresholds_)
    assert points[1] == pytest.approx(other.y_thresholds_)
    assert np.interp(said, *points).mean() == pytest.approx(came_true.mean())


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
        (([0.5], [1], 0), "bins is 0"),
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

    def _probabilities(self, prepared, histories):
        draw = np.random.default_rng(3)
        return draw.dirichlet(np.full(len(self.tools_), 0.4), size=len(histories))


@pytest.fixture
def calibrated():
    dataset = small_data.dataset(24)
    retriever = Model(Calibrated())
    return retriever, run(retriever, dataset, small_data.split(24)), dataset


@pytest.mark.parametrize(("place", "percent"), [*enumerate(COVERAGES)])
def test_coverage_from_the_log_is_that_of_the_rankings(calibrated, place, percent):
    retriever, log, dataset = calibrated
    held, sizes = [], []
    for demonstration in dataset.demonstrations[16:]:
        for step in demonstration.plan.steps():
            held.append((demonstration.query, step))
    rankings = retriever.rank_batch(
        [query for query, _ in held], [step.history for _, step in held]
    )
    hits = []
    for (_, step), ranking in zip(held, rankings, strict=True):
        chosen = ranking.select(coverage=percent / 100, fallback=False)
        sizes.append(len(chosen))
        hits.append(bool(set(chosen.tools) & set(step.acceptable)))
    found = reliability_of(log).coverage[place]
    assert found.asked == percent / 100
    assert found.found == pytest.approx(np.mean(hits))
    assert found.tools == pytest.approx(np.mean(sizes))


def test_confidence_in_the_log_is_the_rankings_own(calibrated):
    _, log, dataset = calibrated
    queries = {item.id: item.query for item in dataset.demonstrations}
    is_familiar = ["weather" not in queries[log.plan_ids[plan]] for plan in log.plan]
    familiar = np.where(is_familiar, 1.0, 0.2 / 0.5)
    assert familiar.min() < 1
    expected = (0.1 + 0.7 * log.head_probabilities[:, 0]) * familiar
    np.testing.assert_allclose(log.confidence, expected, atol=2e-6)


def test_reliability_of_a_handmade_log_is_counted_by_hand():
    log = logged(
        [
            ([0.6, 0.2, 0.1, 0.05, 0.05], ["alpha"], 0.9),
            ([0.6, 0.2, 0.1, 0.05, 0.05], ["beta"], 0.9),
            ([0.1, 0.5, 0.2, 0.1, 0.1], ["beta"], 0.5),
            ([0.3, 0.3, 0.2, 0.1, 0.1], ["gamma"], 0.5),
        ],
        coverage_cuts=(0.2,) * 3,
    )
    found = reliability_of(log)
    # Two bins of two steps: .9 said and .5 right, .5 said and .5 right.
    assert found.ece == pytest.approx(0.2)
    assert [(item.asked, item.found, item.tools) for item in found.coverage] == [
        (0.8, 1.0, 2.25),
        (0.9, 1.0, 2.25),
        (0.95, 1.0, 2.25),
    ]
    assert json.loads(json.dumps(found.to_dict()))["ece"] == 0.2


def test_a_retriever_without_calibration_has_no_coverage():
    found = reliability_of(logged([([0.6, 0.2, 0.1, 0.05, 0.05], ["alpha"], 0.6)]))
    assert found.coverage == ()
    assert found.ece == pytest.approx(0.4)


def test_the_set_is_never_empty():
    log = logged([([0.2] * 5, ["end"], 0.2)], coverage_cuts=(0.9,) * 3)
    found = reliability_of(log).coverage[0]
    assert (found.found, found.tools) == (0.0, 1.0)


def test_a_log_without_confidence_has_no_reliability():
    found = reliability_of(make_log([make_step([0, 1, 2, 3, 4], ["alpha"])]))
    assert (found.ece, found.coverage) == (None, ())


@pytest.fixture
def evaluate(tmp_path, capsys):
    data = small_data.write(tmp_path, size=24)

    def call(*arguments, data=data):
        code = command(["evaluate", *([str(data)] if data else []), *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_calibration_is_a_second_table_of_at_most_100_columns(evaluate):
    code, out, err = evaluate(
        "--retriever", "dtdr-c", "--retriever", "random", "--show", "calibration"
    )
    assert (code, err) == (0, "")
    assert "Calibration" in out
    assert [name for name in ("ECE", "At .80", "At .90", "At .95") if name not in out] == []
    assert max(map(len, out.splitlines())) <= 100


def test_calibration_as_json_is_that_of_the_log(evaluate, tmp_path):
    runs = tmp_path / "runs"
    arguments = ["--retriever", "dtdr-c", "--show", "calibration", "--runs", runs, "--json"]
    code, out, _ = evaluate(*arguments)
    (result,) = json.loads(out)["results"]
    assert code == 0
    expected = reliability_of(read_run_log(runs / "dtdr-c.npz")).to_dict()
    assert result["calibration"] == expected
    assert 0 <= expected["ece"] <= 1
