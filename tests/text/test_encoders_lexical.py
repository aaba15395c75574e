import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.errors import EncoderError, ModelError
from dtdr.text import encoders
from dtdr.text.encoders.lexical import LexicalEncoder
from dtdr.text.words import TOKEN_PATTERN, normalise, words


@given(st.lists(st.text(max_size=60), min_size=1, max_size=8))
def test_any_text_is_weighted_as_scikit_learn_does(texts):
    texts = [*texts, "one two", "one two"]
    vectorizer = pytest.importorskip("sklearn.feature_extraction.text").TfidfVectorizer(
        preprocessor=normalise,
        token_pattern=TOKEN_PATTERN,
        sublinear_tf=True,
        ngram_range=(1, 2),
        min_df=2,
    )
    expected = vectorizer.fit_transform(texts)
    encoder = LexicalEncoder().fit(texts)
    np.testing.assert_allclose(encoder.encode(texts).toarray(), expected.toarray(), atol=1e-6)
    restored = encoders.restore(encoder.config(), encoder.arrays())
    assert (restored.encode(texts) != encoder.encode(texts)).nnz == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mail Ann, please!", ["mail", "ann", ",", "please", "!"]),
        ("send_mail(to=42)", ["send_mail", "(", "to", "=", "42", ")"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("e\u0301 \u00e9", ["\u00e9", "\u00e9"]),
        ("\uff21\uff22", ["ab"]),
        ("查天气app", ["查", "天", "气", "app"]),
        ("मौसम कैसा", ["मौसम", "कैसा"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("한국어 날씨", ["한국어", "날씨"]),
        ("🙂🙂", ["🙂", "🙂"]),
        ("\ud800 a", ["\ud800", "a"]),
    ],
)
def test_words_of_many_scripts(text, expected):
    assert words(text) == expected


def test_terms_of_one_text_stay_when_nothing_else_is_left():
    assert set(LexicalEncoder().fit(["one two"]).vocabulary_) == {"one", "two", "one two"}


def test_texts_without_any_word_give_rows_of_zeros():
    encoder = LexicalEncoder().fit(["", " "])
    assert encoder.encode(["anything", ""]).shape == (2, 1)
    assert encoder.encode(["anything", ""]).nnz == 0


def test_encoding_before_fitting_says_what_to_do():
    with pytest.raises(EncoderError, match="not fitted"):
        LexicalEncoder().encode(["text"])
    with pytest.raises(EncoderError, match="not fitted"):
        LexicalEncoder().arrays()


def test_damaged_state_is_refused():
    encoder = LexicalEncoder().fit(["one two"])
    arrays = encoder.arrays()
    with pytest.raises(ModelError, match="3 columns but 2 weights"):
        encoders.restore(encoder.config(), {**arrays, "idf": arrays["idf"][:2]})
    doubled = np.frombuffer(b"one\none\ntwo", np.uint8)
    with pytest.raises(ModelError, match="twice"):
        encoders.restore(encoder.config(), {**arrays, "vocabulary": doubled})
