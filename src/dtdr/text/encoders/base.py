"""The base class of encoders: texts in, one vector per text out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dtdr.data.outputs import READ_LENGTH
from dtdr.data.progress import track
from dtdr.errors import EncoderError, check_lists

Item = TypeVar("Item")
Floats32 = npt.NDArray[np.float32]

Vectors: TypeAlias = Any
"""``numpy.ndarray`` or ``scipy.sparse.csr_array`` of shape (texts, dimension), float32, rows of
length 1 (or 0 for a text without any feature)."""

MAX_CHARACTERS = READ_LENGTH
"""Longer texts are cut before encoding."""

LONG_LIST = 2_000
"""Number of texts above which a terminal shows a progress bar."""


class VectorStore(Protocol):
    """Vectors by encoder and text."""

    def encode(self, encoder: Encoder, texts: Sequence[str]) -> Vectors:
        """The result of ``encoder.compute``, with known vectors from the cache."""
        ...


class Encoder(ABC):
    """Text to vectors. Thread-safe once fitted."""

    name: ClassVar[str]
    learned: ClassVar[bool] = False
    """Whether ``fit`` changes the encoder, so that a model folder contains it."""

    cache: VectorStore | None = None
    """A cache of computed vectors; see ``dtdr.text.encoders.cache``."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of columns of what ``encode`` returns."""

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn a vocabulary from training texts; pretrained encoders ignore it."""
        return self

    @abstractmethod
    def _encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts, which are already cut to ``MAX_CHARACTERS``."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts; shape (texts, dimension), float32, rows of length 1 or 0.

        Raises:
            InputError: the argument is one text instead of a list of texts.
            EncoderError: the encoder gave another shape, or a value that is not finite.
        """
        check_lists(texts=texts)
        texts = [text[:MAX_CHARACTERS] for text in texts]
        return self.compute(texts) if self.cache is None else self.cache.encode(self, texts)

    def compute(self, texts: Sequence[str]) -> Vectors:
        """Like ``encode``, for texts that are already cut, without the cache."""
        vectors = self._encode(texts)
        if vectors.shape != (len(texts), self.dimension):
            raise EncoderError(
                f"encoder {self.name!r} gave vectors of shape {tuple(vectors.shape)}, "
                f"expected {(len(texts), self.dimension)}"
            )
        values = vectors if isinstance(vectors, np.ndarray) else vectors.data
        if not np.isfinite(values).all():
            raise EncoderError(
                f"encoder {self.name!r} gave a value that is not a finite number; "
                "check the model or choose another encoder"
            )
        return vectors

    def fingerprint(self) -> str | None:
        """Everything but the text that the vectors depend on; None: they are never cached.

        Two encoders with the same fingerprint give the same vectors.
        """
        return None

    def config(self) -> dict[str, Any]:
        """The JSON that ``encoders.restore`` needs with the arrays; it has the key ``name``."""
        return {"name": self.name}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The learned arrays, for a model folder."""
        return {}

    @classmethod
    @abstractmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The encoder that ``config`` and ``arrays`` describe."""


def encodable(text: str) -> str:
    """The text with question marks for halves of surrogate pairs, which are not UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def length_one(vectors: npt.NDArray[Any]) -> Floats32:
    """Rows scaled to length 1; rows of zeros stay. Shape (texts, dimension)."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # infinite values are reported by encode
        return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def with_progress(batches: Iterable[Item], texts: int, encoder: str, total: int) -> Iterable[Item]:
    """The batches, with a progress bar on a terminal if there are many texts."""
    return track(batches, f"encoding ({encoder})", total) if texts > LONG_LIST else batches
