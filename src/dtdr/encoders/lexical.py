"""``lexical``: words and pairs of words, weighted by TF-IDF; no network and no download."""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.encoders.base import MAX_CHARACTERS, Encoder
from dtdr.errors import EncoderError, InputError, ModelError

# Vowel signs and accents: ``\w`` leaves them out, which would cut Hindi or Thai words apart.
_MARKS = "".join(
    chr(code) for code in range(0x300, 0x2000) if unicodedata.category(chr(code)) in ("Mn", "Mc")
)
# Scripts written without spaces: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han. Each of their
# characters is a word, so that pairs of words are pairs of characters.
_SPACELESS = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ec0-\u0ec6\u0f40-\u0f6c"
    "\u1000-\u102a\u1780-\u17b3\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
TOKEN_PATTERN = (
    f"[{_SPACELESS}][{_MARKS}]*"
    rf"|[^\W{_SPACELESS}]+(?:[{_MARKS}]+[^\W{_SPACELESS}]*)*"
    r"|[^\w\s]"
)
"""What is one word: a run of letters and digits, one character of a script without spaces, or one
punctuation mark."""

_any_words = re.compile(TOKEN_PATTERN).findall
_ascii_words = re.compile(r"\w+|[^\w\s]").findall  # the same words of ASCII text, 2x faster


def normalise(text: str) -> str:
    """Text without differences of case, width or composition (NFKC, case-folded)."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


def words(text: str) -> list[str]:
    """The words of a text, in order; punctuation marks are words, and no word holds a space."""
    text = normalise(text)
    return _ascii_words(text) if text.isascii() else _any_words(text)


@lru_cache(maxsize=1 << 10)
def _sublinear(count: int) -> float:
    return float(np.log(count) + 1.0)


class LexicalEncoder(Encoder):
    """Words and pairs of neighbouring words by TF-IDF, as sparse rows of length 1.

    A term that stands ``c`` times in a text and in ``d`` of the ``n`` training texts weighs
    ``(1 + ln c) (1 + ln((1 + n) / (1 + d)))``: sublinear term frequency, smooth inverse document
    frequency (Salton and Buckley 1988; the defaults of scikit-learn's ``TfidfVectorizer`` but for
    ``sublinear_tf``).

    Args:
        hashed: columns are hashes of the terms (CRC-32) instead of a learned vocabulary: constant
            memory, but different terms can share a column.
        dimension: number of columns when ``hashed``.
        pairs: count pairs of words too.
        min_df: terms in fewer training texts are left out; 1 when that leaves none. Not used when
            ``hashed``.
        max_features: keep only so many terms, those in most training texts first, ties in
            alphabetical order. Not used when ``hashed``.
        idf: learn the inverse document frequency; without it every term weighs ``1 + ln c``.

    Raises:
        InputError: an option is out of range.
    """

    name = "lexical"
    learned = True

    def __init__(
        self,
        *,
        hashed: bool = False,
        dimension: int = 2**18,
        pairs: bool = True,
        min_df: int = 2,
        max_features: int | None = None,
        idf: bool = True,
    ) -> None:
        for option, value in (("dimension", dimension), ("min_df", min_df)):
            if value < 1:
                raise InputError(f"{option} is {value}; it must be at least 1")
        if max_features is not None and max_features < 1:
            raise InputError(f"max_features is {max_features}; it must be at least 1 or None")
        self.hashed = hashed
        self.pairs = pairs
        self.min_df = min_df
        self.max_features = max_features
        self.idf = idf
        self._hashed_dimension = dimension
        self.idf_: npt.NDArray[np.float32] | None = None
        if hashed and not idf:  # nothing to learn
            self.idf_ = np.ones(dimension, np.float32)
        self.vocabulary_: dict[str, int] = {}

    @property
    def dimension(self) -> int:
        """Number of columns: terms of the vocabulary (at least 1), or of hashes."""
        return self._hashed_dimension if self.hashed else max(1, len(self.vocabulary_))

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn vocabulary and document frequencies; each text is cut as ``encode`` cuts it."""
        if self.hashed:
            if self.idf:
                self._learn_idf(self._bucket_frequencies(texts), len(texts))
            return self
        found: Counter[str] = Counter()
        for text in texts:
            found.update(set(self._terms(text)))
        kept = {term: count for term, count in found.items() if count >= self.min_df} or found
        chosen: Iterable[str] = kept
        if self.max_features is not None and len(kept) > self.max_features:
            chosen = heapq.nsmallest(self.max_features, kept, key=lambda term: (-kept[term], term))
        self.vocabulary_ = {term: column for column, term in enumerate(sorted(chosen))}
        frequencies = np.zeros(self.dimension, np.int64)
        for term, column in self.vocabulary_.items():
            frequencies[column] = kept[term]
        self._learn_idf(frequencies, len(texts))
        return self

    def _bucket_frequencies(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        frequencies = np.zeros(self._hashed_dimension, np.int64)
        for text in texts:
            frequencies[list({self._bucket(term) for term in self._terms(text)})] += 1
        return frequencies

    def _learn_idf(self, frequencies: npt.NDArray[np.int64], texts: int) -> None:
        if self.idf:
            self.idf_ = (np.log((1 + texts) / (1 + frequencies)) + 1).astype(np.float32)
        else:
            self.idf_ = np.ones(self.dimension, np.float32)

    def _terms(self, text: str) -> list[str]:
        terms = words(text[:MAX_CHARACTERS])
        if self.pairs:
            terms += [f"{first} {second}" for first, second in pairwise(terms)]
        return terms

    def _bucket(self, term: str) -> int:
        return zlib.crc32(term.encode("utf-8", "surrogatepass")) % self._hashed_dimension

    def encode_one(self, text: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Columns (rising) and values of one text's row: what ``encode`` gives, in microseconds.

        Raises:
            EncoderError: the encoder is not fitted.
        """
        terms = self._terms(text)
        return self.row(map(self._bucket, terms) if self.hashed else self.columns(terms))

    def row(self, found: Iterable[int]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Columns (rising) and values of the row of a text with terms of these columns.

        Args:
            found: the column of each term, -1 for terms that are not known.

        Raises:
            EncoderError: the encoder is not fitted.
        """
        if self.idf_ is None:
            raise EncoderError("encoder 'lexical' is not fitted; call fit(texts) first")
        counts = Counter(found)
        counts.pop(-1, None)
        ordered = sorted(counts)
        columns = np.array(ordered, np.int32)
        values = np.array([_sublinear(counts[index]) for index in ordered])
        values *= self.idf_[columns]
        length = math.sqrt(values @ values)
        if length > 0:
            values /= length
        return columns, values.astype(np.float32)

    def columns(self, terms: Iterable[str]) -> list[int]:
        """The column of each term of a learned vocabulary, -1 for terms that are not known."""
        return list(map(self.vocabulary_.get, terms, repeat(-1)))

    def _encode(self, texts: Sequence[str]) -> csr_array:
        rows = [self.encode_one(text) for text in texts]
        starts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum([len(columns) for columns, _ in rows], out=starts[1:])
        none = (np.empty(0, np.int32), np.empty(0, np.float32))
        columns, values = (np.concatenate(parts) for parts in zip(none, *rows, strict=True))
        return csr_array((values, columns, starts), shape=(len(rows), self.dimension))

    def config(self) -> dict[str, Any]:
        """The constructor's options."""
        return {
            "name": self.name,
            "hashed": self.hashed,
            "dimension": self._hashed_dimension,
            "pairs": self.pairs,
            "min_df": self.min_df,
            "max_features": self.max_features,
            "idf": self.idf,
        }

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """``idf`` (columns,) and ``vocabulary``: UTF-8 bytes of the terms, one a line."""
        if self.idf_ is None:
            raise EncoderError("encoder 'lexical' is not fitted; call fit(texts) first")
        kept: dict[str, npt.NDArray[Any]] = {}
        if self.idf:
            kept["idf"] = self.idf_
        if not self.hashed:
            terms = "\n".join(self.vocabulary_).encode("utf-8", "surrogatepass")
            kept["vocabulary"] = np.frombuffer(terms, np.uint8)
        return kept

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The encoder that was saved, to the last bit.

        Raises:
            ModelError: vocabulary and weights do not belong together.
        """
        encoder = cls(**{key: value for key, value in config.items() if key != "name"})
        if not encoder.hashed:
            terms = arrays["vocabulary"].tobytes().decode("utf-8", "surrogatepass")
            names = terms.split("\n") if terms else []
            encoder.vocabulary_ = {term: column for column, term in enumerate(names)}
            if len(encoder.vocabulary_) != len(names):
                raise ModelError("the lexical encoder's vocabulary names a term twice; fit again")
        weights = arrays["idf"] if encoder.idf else np.ones(encoder.dimension, np.float32)
        if weights.shape != (encoder.dimension,):
            raise ModelError(
                f"the lexical encoder has {encoder.dimension} columns but {weights.size} weights; "
                "fit the model again"
            )
        encoder.idf_ = weights.astype(np.float32)
        return encoder
