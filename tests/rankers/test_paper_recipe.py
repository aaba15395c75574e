"""The paper's recipe against versions that are written from the paper's text alone."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from dtdr.data.calls import END
from dtdr.evaluate.lab.kinds import PARAMETERS
from dtdr.predict import create
from dtdr.text.encoders.base import Encoder
from tests import small_data
from tests.helpers import RANKER_ONLY

DIMENSION = 8


class Hashed(Encoder):
    """A vector of about length 2.6 for each text, as the paper's encoder gives."""

    name = "hashed"
    learned = False
    dimension = DIMENSION

    def _encode(self, texts: Sequence[str]):
        rows = []
        for text in texts:
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
            rows.append(np.random.default_rng(seed).normal(size=DIMENSION) * 2.6 / DIMENSION**0.5)
        return np.array(rows, np.float32)

    @classmethod
    def restore(cls, config, arrays):
        return cls()


def independent_linear(demonstrations, vocabulary, encoder, *, loss, seed):
    """Algorithm 5, example by example, with plain Adam; the settings are those of Appendix C."""
    texts, targets = [], []
    for item in demonstrations:
        called = [call.tool for call in item.plan.calls]
        done: list[int] = []
        for place in range(len(called) + 1):
            acceptable = {
                called[index]
                for index in range(len(called))
                if index not in done
                and all(before in done for before, after in item.plan.edges() if after == index)
            } or {END}
            texts.append(f"{item.query} {' '.join(called[:place])}")
            targets.append([float(tool in acceptable) for tool in vocabulary])
            done.append(place)
    vectors, wanted = encoder.encode(texts).astype(np.float64), np.array(targets)
    weights = np.zeros((DIMENSION + 1, len(vocabulary)))
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    order, step = np.random.default_rng(seed), 0
    for epoch in range(10):
        for index in order.permutation(len(texts)):
            step += 1
            inputs = np.append(vectors[index], 1.0)
            logits = inputs @ weights
            if loss == "bce":
                error = 1 / (1 + np.exp(-logits)) - wanted[index]
            else:
                shares = np.exp(logits - logits.max())
                error = shares / shares.sum() - wanted[index] / wanted[index].sum()
            gradient = np.outer(inputs, error)
            gradient[:-1] += 1e-5 * weights[:-1]
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            rate = 1e-3 * 0.9**epoch
            change = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            weights -= rate * change
    return weights


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_dtdr_l_is_algorithm_5_example_by_example(loss):
    demonstrations = small_data.dataset(40).demonstrations
    encoder = Hashed()
    model = create("dtdr-l", recipe="paper", loss=loss, encoder=encoder, seed=3)
    model.fit(demonstrations, **RANKER_ONLY)
    vocabulary = [tool.name for tool in model.tools_]
    weights = independent_linear(demonstrations, vocabulary, encoder, loss=loss, seed=3)
    for item in demonstrations[:10]:
        history = list(item.plan.tools[:2])
        (vector,) = encoder.encode([f"{item.query} {' '.join(history)}"])
        logits = np.append(vector, 1.0) @ weights
        expected = np.exp(logits - logits.max())
        expected /= expected.sum()
        ranking = model.rank(item.query, history)
        shares = [ranking.probability(name) for name in vocabulary]
        np.testing.assert_allclose(shares, expected, atol=1e-5)


def test_parameters_are_counted_as_in_the_paper():
    demonstrations = small_data.dataset(60).demonstrations
    for name, expected in (("dtdr-l", "tools"), ("lr", "tools"), ("dtdr-c", "clusters")):
        model = create(name, recipe="paper", encoder=Hashed()).fit(demonstrations, **RANKER_ONLY)
        count = {"tools": len(model.tools_), "clusters": 6}[expected]
        assert model.ranker.arrays()[PARAMETERS[name]].size == DIMENSION * count


def test_the_recipe_takes_the_encoders_own_vectors(monkeypatch):
    asked = []

    def make(name, **options):
        asked.append(options)
        return Hashed()

    monkeypatch.setattr("dtdr.text.encoders.create", make)
    for recipe in ("paper", "default"):
        for name in ("lr", "dtdr-c", "dtdr-l"):
            create(name, recipe=recipe, encoder="sentence-transformers")
    assert asked == [{"normalize": False}] * 3 + [{}] * 3
