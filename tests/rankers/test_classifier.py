"""The linear layer against scikit-learn and against gradients taken by differences."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from dtdr import Demonstration, Plan, ToolCall
from dtdr.errors import InputError
from dtdr.rankers.linear import Optimisation, indicators, train_layer, training_steps
from dtdr.rankers.vectors import softmax


def how(**changes):
    settings = {
        "loss": "softmax",
        "epochs": 10,
        "learning_rate": 1e-3,
        "decay": 0.9,
        "weight_decay": 1e-5,
        "batch_size": 32,
    }
    return Optimisation(**{**settings, **changes})


@pytest.fixture(scope="module")
def problem():
    """Vectors (300, 12) of length 1 and labels (300,) of 4 classes that overlap."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 300)
    vectors = random.normal(size=(300, 12)) + 0.4 * random.normal(size=(4, 12))[labels]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), labels


def log_loss(logits, labels):
    return -np.log(softmax(logits.astype(float))[np.arange(len(labels)), labels]).mean()


def test_softmax_reaches_the_loss_of_scikit_learn(problem):
    from sklearn.linear_model import LogisticRegression

    vectors, labels = problem
    reference = LogisticRegression(C=1e6, max_iter=10_000).fit(vectors, labels)
    best = log_loss(reference.decision_function(vectors), labels)
    weights, bias = train_layer(
        vectors,
        indicators(labels[:, None].tolist(), 4),
        how(epochs=400, learning_rate=0.1, decay=0.985, weight_decay=0),
    )
    reached = log_loss(vectors @ weights + bias, labels)
    assert best - 1e-6 <= reached < best + 0.005


def test_binary_cross_entropy_reaches_one_scikit_learn_model_a_tool(problem):
    from sklearn.linear_model import LogisticRegression

    vectors, labels = problem
    targets = np.stack([labels == 0, labels <= 1, labels != 3, labels == 2], axis=1)
    weights, bias = train_layer(
        vectors,
        csr_array(targets.astype(np.float32)),
        how(loss="bce", epochs=400, learning_rate=0.1, decay=0.985, weight_decay=0),
    )
    logits = vectors @ weights + bias
    for column in range(4):
        wanted = targets[:, column].astype(int)
        reference = LogisticRegression(C=1e6, max_iter=10_000).fit(vectors, wanted)
        expected = reference.decision_function(vectors)
        binary = [np.stack([0 * one, one], axis=1) for one in (expected, logits[:, column])]
        assert log_loss(binary[1], wanted) < log_loss(binary[0], wanted) + 0.005


def test_adam_steps_as_published():
    """Algorithm 1 of Kingma and Ba, with the paper's decay of the rate and of the weights."""
    vectors = np.array([[0.6, 0.8]], np.float32)
    settings = how(loss="bce", epochs=3, learning_rate=0.1, weight_decay=0.01, batch_size=1)
    learned = train_layer(vectors, indicators([[1]], 2), settings)
    weights, first, second = np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2))
    bias, bias_first, bias_second = np.zeros(2), np.zeros(2), np.zeros(2)
    for step in range(1, 4):
        error = 1 / (1 + np.exp(-(vectors[0] @ weights + bias))) - [0, 1]
        gradient = np.outer(vectors[0], error) + 0.01 * weights
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        bias_first = 0.9 * bias_first + 0.1 * error
        bias_second = 0.999 * bias_second + 0.001 * error**2
        rate = 0.1 * 0.9 ** (step - 1)
        ups, downs = 1 - 0.9**step, 1 - 0.999**step
        weights -= rate * (first / ups) / (np.sqrt(second / downs) + 1e-8)
        bias -= rate * (bias_first / ups) / (np.sqrt(bias_second / downs) + 1e-8)
    for found, expected in zip(learned, (weights, bias), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_sparse_and_dense_vectors_train_the_same_layer(problem):
    vectors, labels = problem
    targets = indicators(labels[:, None].tolist(), 4)
    dense, _ = train_layer(vectors, targets, how(learning_rate=0.1))
    sparse, _ = train_layer(csr_array(vectors), targets, how(learning_rate=0.1))
    np.testing.assert_allclose(sparse, dense, atol=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
    ],
)
def test_settings_out_of_range_are_an_input_error(changes):
    with pytest.raises(InputError, match=next(iter(changes))):
        how(**changes)


def test_training_steps_are_the_teacher_forced_walk():
    calls = (ToolCall("1", "b"), ToolCall("2", "a"), ToolCall("3", "a", {"x": {"$ref": "2"}}))
    items, index = [Demonstration("d", "q", Plan(calls))], {"a": 0, "b": 1, "end": 2}
    owners, histories, acceptable = training_steps(items, index)
    assert owners == [0, 0, 0, 0]
    assert histories == [(), (1,), (1, 0), (1, 0, 0)]
    assert acceptable.toarray().tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1]]
