"""Networks in numpy: gradients against finite differences, Adam against its publication."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dtdr.rankers.nn import (
    RowGradient,
    binary_cross_entropy,
    dropout,
    linear_gradient,
    marginal_cross_entropy,
    softmax_cross_entropy,
)
from dtdr.rankers.optimiser import Adam, cosine, train
from dtdr.rankers.softmax_regression import fit_softmax

RANDOM = np.random.default_rng(2)
TARGETS: Any = RANDOM.dirichlet(np.ones(4), 5)
RIGHT = np.array([[1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 0, 0], [0, 1, 1, 0]], bool)
LOSSES = {
    "softmax": lambda logits: softmax_cross_entropy(logits, TARGETS),
    "binary": lambda logits: binary_cross_entropy(logits, TARGETS),
    "marginal": lambda logits: marginal_cross_entropy(logits, RIGHT),
}


def difference(value, array, place):
    """Derivative of ``value()`` for one number of an array, by central differences."""
    before = array[place]
    array[place] = before + 1e-6
    above = value()
    array[place] = before - 1e-6
    below = value()
    array[place] = before
    return (above - below) / 2e-6


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_losses_are_those_of_finite_differences(loss):
    logits = np.random.default_rng(3).normal(size=(5, 4))
    _, error = LOSSES[loss](logits)
    for place in np.ndindex(logits.shape):
        numeric = difference(lambda: LOSSES[loss](logits)[0], logits, place)
        assert error[place] == pytest.approx(numeric, abs=1e-6)


def test_a_softmax_regression_has_the_smallest_loss():
    """Its gradient, of steps and of what the steps of a plan share, is zero."""
    rng = np.random.default_rng(4)
    owner = np.repeat(np.arange(30), rng.integers(1, 4, 30))
    steps, shared = rng.normal(size=(len(owner), 3)), rng.normal(size=(30, 2))
    wanted = [
        rng.choice(4, size, replace=False).tolist() for size in rng.integers(1, 3, len(owner))
    ]
    learned, common = fit_softmax(
        csr_array(steps, dtype=np.float32),
        wanted,
        owner,
        4,
        shared=csr_array(shared, dtype=np.float32),
        smoothing=0.1,
        epochs=600,
        batch_size=30,
        rate=0.1,
        weight_decay=0.0,
        seed=0,
    )
    targets = np.full((len(owner), 4), 0.1 / 4)
    for row, right in zip(targets, wanted, strict=True):
        row[right] += 0.9 / len(right)
    chances = np.exp(steps @ learned + (shared @ common)[owner])
    chances /= chances.sum(axis=1, keepdims=True)
    error = (chances - targets) / 30
    assert steps.T @ error == pytest.approx(0, abs=2e-3)
    assert shared[owner].T @ error == pytest.approx(0, abs=2e-3)


def test_the_gradient_of_a_sparse_product_is_that_of_the_dense_one():
    rng = np.random.default_rng(5)
    values = (rng.random((4, 9)) * (rng.random((4, 9)) < 0.3)).astype(np.float32)
    error = rng.random((4, 2), np.float32)
    sparse = linear_gradient(csr_array(values), error)
    assert isinstance(sparse, RowGradient)
    dense = np.zeros((9, 2), np.float32)
    dense[sparse.rows] = sparse.values
    assert dense == pytest.approx(linear_gradient(values, error))


def test_adam_steps_as_published():
    """Kingma and Ba (2015), Algorithm 1; Loshchilov and Hutter (2019)."""
    rng = np.random.default_rng(6)
    weights = rng.normal(size=(3, 2)).astype(np.float32)
    expected, first, second = weights.astype(float), np.zeros((3, 2)), np.zeros((3, 2))
    adam = Adam({"weights": weights}, 0.1)
    for step in range(1, 5):
        gradient = rng.normal(size=(3, 2)).astype(np.float32)
        adam.step({"weights": gradient}, 0.01)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        change = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        expected -= 0.01 * (0.1 * expected + change)
        assert weights == pytest.approx(expected, rel=1e-4)


def test_rows_without_a_gradient_are_left_alone():
    weights = np.ones((4, 2), np.float32)
    adam = Adam({"weights": weights}, 0.1)
    adam.step({"weights": RowGradient(np.array([1, 3]), np.ones((2, 2), np.float32))}, 0.01)
    assert (weights[[0, 2]] == 1).all()
    assert (weights[[1, 3]] < 1).all()


def test_matrices_beyond_the_cache_are_moved_as_small_ones_are():
    rng = np.random.default_rng(7)
    large = rng.normal(size=(70_000, 3)).astype(np.float32)
    small, part = large[:5].copy(), np.arange(70_000)
    gradient = rng.normal(size=large.shape).astype(np.float32)
    for weights, rows in ((large, part), (small, part[:5])):
        adam = Adam({"weights": weights}, 0.1)
        adam.step({"weights": RowGradient(rows, gradient[rows])}, 0.01)
        adam.step({"weights": gradient[rows]}, 0.01)
    assert (large[:5] == small).all()


def test_training_reaches_the_smallest_loss_of_a_convex_problem():
    rng = np.random.default_rng(8)
    values, truth = rng.normal(size=(200, 3)).astype(np.float32), np.array([[1.0], [-2], [0.5]])
    targets = (1 / (1 + np.exp(-values @ truth))).astype(np.float32)
    weights = np.zeros((3, 1), np.float32)

    def gradients(chosen):
        _, error = binary_cross_entropy(values[chosen] @ weights, targets[chosen])
        return {"weights": linear_gradient(values[chosen], error)}

    epochs = []
    train(
        {"weights": weights},
        gradients,
        200,
        epochs=60,
        batch_size=32,
        rate=lambda epoch: cosine(0.1, epoch / 60),
        rng=rng,
        weight_decay=0,
        advance=lambda: epochs.append(1),
    )
    assert weights == pytest.approx(truth, abs=0.01)
    assert len(epochs) == 60


def test_averaged_weights_are_the_mean_over_the_last_steps():
    def train_for(epochs, averaged):
        weights = np.zeros((1, 1), np.float32)
        train(
            {"weights": weights},
            lambda chosen: {"weights": weights - np.float32(2)},
            4,
            epochs=epochs,
            batch_size=2,
            rate=lambda epoch: 0.1,
            rng=np.random.default_rng(0),
            weight_decay=0,
            averaged=averaged,
        )
        return float(weights[0, 0])

    last = train_for(4, 0)
    assert train_for(4, 0.25) == pytest.approx(last - 0.05, abs=0.003)  # two steps of .1
    assert train_for(4, 0.5) == pytest.approx(last - 0.15, abs=0.01)


def test_dropout_drops_its_share_and_keeps_the_mean():
    factors = dropout(np.random.default_rng(9), (300, 100), 0.3)
    assert (factors > 0).mean() == pytest.approx(0.7, abs=0.01)
    assert factors.mean() == pytest.approx(1, abs=0.02)
