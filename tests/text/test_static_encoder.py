"""Static embeddings of tokens from a folder."""

import json
import sys
from typing import Any

import numpy as np
import pytest

from dtdr import load
from dtdr.errors import EncoderError, InputError, MissingExtraError
from dtdr.predict import create
from dtdr.text import encoders
from dtdr.text.encoders.static import StaticEncoder
from tests import small_data
from tests.helpers import RANKER_ONLY

tokenizers = pytest.importorskip("tokenizers")
WORDS = ("[UNK]", "mail", "email", "ann", "weather", "rain")
VECTORS = np.array(
    [[0, 0, 0], [1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0, 1], [0, 0.1, 0.9]], np.float32
)


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "static")


def write(folder, *, words=WORDS, config=None, **tensors):
    from safetensors.numpy import save_file

    folder.mkdir()
    vocabulary = {word: number for number, word in enumerate(words)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": VECTORS, **tensors}, str(folder / "model.safetensors"))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_text_is_the_mean_of_its_tokens_at_length_1(folder):
    encoder = encoders.create(f"static:{folder}", cache=False)
    rows = encoder.encode(["mail Ann", "", "MAIL"])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], np.array([1, 1, 0]) / np.sqrt(2), atol=1e-6)
    assert not rows[1].any()
    np.testing.assert_allclose(rows[2], [1, 0, 0], atol=1e-6)


def test_weights_and_mapping_of_tokens_are_read(tmp_path):
    mapping = np.array([0, 1, 1, 3, 4, 5], np.int64)
    weights = np.array([1, 2, 1, 1, 1, 1], np.float64)
    folder = write(tmp_path / "m", config={"normalize": False}, mapping=mapping, weights=weights)
    rows = StaticEncoder(folder=folder).encode(["mail", "email", "mail ann"])
    np.testing.assert_allclose(rows, np.array([[2, 0, 0], [1, 0, 0], [1, 0.5, 0]]))


def test_a_model_with_static_vectors_ranks_as_before_after_a_round_trip(folder, tmp_path):
    data = small_data.dataset(30)
    model: Any = create("dtdr-f", encoder=f"static:{folder}").fit(
        data.demonstrations, data.tools, **RANKER_ONLY
    )
    model.save(tmp_path / "model")
    restored = load(tmp_path / "model")
    query = "Email Ann the rain"
    np.testing.assert_array_equal(restored.rank(query).scores, model.rank(query).scores)


def test_other_files_than_were_fitted_with_are_refused(folder):
    config = StaticEncoder(folder=folder).config()
    (folder / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes() + b" ")
    with pytest.raises(EncoderError, match="fit again"):
        StaticEncoder.restore(config, {}).encode(["mail"])


def test_a_model_folder_names_no_folder_whose_files_are_read(folder, tmp_path, monkeypatch):
    config = StaticEncoder(folder=folder).config()
    assert str(folder) not in json.dumps(config)
    rows = StaticEncoder.restore(config, {}).encode(["mail"])
    monkeypatch.setenv("DTDR_CACHE", str(tmp_path / "of another user"))
    for crafted in (config, {**config, "folder": str(folder)}, {**config, "sha256": "../../x"}):
        with pytest.raises(EncoderError, match="DTDR_STATIC_DIR"):
            StaticEncoder.restore(crafted, {})
    monkeypatch.setenv("DTDR_STATIC_DIR", str(folder))
    np.testing.assert_array_equal(StaticEncoder.restore(config, {}).encode(["mail"]), rows)


def test_too_few_vectors_for_the_tokens_are_refused(tmp_path):
    folder = write(tmp_path / "m", words=(*WORDS, "one more"))
    with pytest.raises(EncoderError, match=r"6, 3.* vectors for 7 tokens"):
        StaticEncoder(folder=folder).encode(["mail"])


def test_what_is_missing_is_named(tmp_path, folder, monkeypatch):
    with pytest.raises(InputError, match="static:FOLDER"):
        encoders.create("static")
    with pytest.raises(EncoderError, match=r"has no model\.safetensors"):
        encoders.create(f"static:{tmp_path}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match="static"):
        encoders.create(f"static:{folder}")
