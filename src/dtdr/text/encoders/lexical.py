"""``lexical``: words and pairs of words, weighted by TF-IDF; no network and no download."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.errors import EncoderError, ModelError, check_lists
from dtdr.text.encoders.base import MAX_CHARACTERS, Encoder
from dtdr.text.sparse import csr_array
from dtdr.text.words import words


@lru_cache(maxsize=1 << 10)
def _sublinear(count: int) -> float:
    return float(np.log(count) + 1.0)


class LexicalEncoder(Encoder):
    """Words and pairs of neighbouring words by TF-IDF, as sparse rows of length 1.

    A term that is ``c`` times in a text and in ``d`` of the ``n`` training texts weighs
    ``(1 + ln c) (1 + ln((1 + n) / (1 + d)))``: sublinear term frequency, smooth inverse document
    frequency (Salton and Buckley 1988; the defaults of scikit-learn's ``TfidfVectorizer`` but for
    ``sublinear_tf``).

    Terms in only one training text are left out, unless that leaves none.
    """

    name = "lexical"
    learned = True

    def __init__(self) -> None:
        self.idf_: npt.NDArray[np.float32] | None = None
        self.vocabulary_: dict[str, int] = {}

    @property
    def dimension(self) -> int:
        """Number of columns: terms of the vocabulary, at least 1."""
        return max(1, len(self.vocabulary_))

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn vocabulary and document frequencies; each text is cut as ``encode`` cuts it."""
        check_lists(texts=texts)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(set(self._terms(text)))
        frequent = {term for term, count in counts.items() if count > 1} or counts.keys()
        terms = sorted(frequent)
        self.vocabulary_ = {term: column for column, term in enumerate(terms)}
        frequencies = np.array([counts[term] for term in terms] or [0])
        self.idf_ = (np.log((1 + len(texts)) / (1 + frequencies)) + 1).astype(np.float32)
        return self

    def _terms(self, text: str) -> list[str]:
        terms = words(text[:MAX_CHARACTERS])
        return terms + [f"{first} {second}" for first, second in pairwise(terms)]

    def _row(self, text: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Columns (sorted) and values of one text's row; shape (distinct known terms,) each."""
        if self.idf_ is None:
            raise EncoderError("encoder 'lexical' is not fitted; call fit(texts) first")
        counts = Counter(map(self.vocabulary_.get, self._terms(text), repeat(-1)))
        counts.pop(-1, None)
        ordered = sorted(counts)
        distinct = np.array(ordered, np.int32)
        values = np.array([_sublinear(counts[index]) for index in ordered])
        values *= self.idf_[distinct]
        length = math.sqrt(values @ values)
        if length > 0:
            values /= length
        return distinct, values.astype(np.float32)

    def _encode(self, texts: Sequence[str]) -> csr_array:
        rows = [self._row(text) for text in texts]
        starts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum([len(columns) for columns, _ in rows], out=starts[1:])
        none = (np.empty(0, np.int32), np.empty(0, np.float32))
        columns, values = (np.concatenate(parts) for parts in zip(none, *rows, strict=True))
        return csr_array((values, columns, starts), shape=(len(rows), self.dimension))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """``idf`` (columns,) and ``vocabulary``: UTF-8 bytes of the terms, one per line."""
        if self.idf_ is None:
            raise EncoderError("encoder 'lexical' is not fitted; call fit(texts) first")
        terms = "\n".join(self.vocabulary_).encode("utf-8", "surrogatepass")
        return {"idf": self.idf_, "vocabulary": np.frombuffer(terms, np.uint8)}

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The encoder that was saved, to the last bit.

        Raises:
            ModelError: vocabulary and weights do not belong together.
        """
        encoder = cls()
        terms = arrays["vocabulary"].tobytes().decode("utf-8", "surrogatepass")
        names = terms.split("\n") if terms else []
        encoder.vocabulary_ = {term: column for column, term in enumerate(names)}
        if len(encoder.vocabulary_) != len(names):
            raise ModelError("the lexical encoder's vocabulary names a term twice; fit again")
        weights = arrays["idf"]
        if weights.shape != (encoder.dimension,):
            raise ModelError(
                f"the lexical encoder has {encoder.dimension} columns but {weights.size} weights; "
                "fit the model again"
            )
        encoder.idf_ = weights.astype(np.float32)
        return encoder
