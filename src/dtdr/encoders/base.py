"""What an encoder is: text in, one vector a text out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.errors import EncoderError

Vectors: TypeAlias = Any
"""``numpy.ndarray`` or ``scipy.sparse.csr_array`` of shape (texts, dimension), float32, rows of
length 1 (or 0 for a text without any feature)."""

MAX_CHARACTERS = 32_768
"""Longer texts are cut before encoding: 1 MB of query costs no more than 32 KB of it."""


class Encoder(ABC):
    """Text to vectors. Thread-safe once fitted."""

    name: ClassVar[str]
    learned: ClassVar[bool] = False
    """Whether ``fit`` changes what the encoder does, so that it travels inside a model folder."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of columns of what ``encode`` returns."""

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn a vocabulary from training texts; encoders that are trained already ignore it."""
        return self

    @abstractmethod
    def _encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts that are cut to ``MAX_CHARACTERS``."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts; shape (texts, dimension), float32, rows of length 1 or 0.

        Raises:
            EncoderError: the encoder gave another shape, or a value that is not finite.
        """
        vectors = self._encode([text[:MAX_CHARACTERS] for text in texts])
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

    def config(self) -> dict[str, Any]:
        """What ``encoders.restore`` needs beside the arrays; JSON only, with the key ``name``."""
        return {"name": self.name}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What was learned, to be kept in a model folder."""
        return {}

    @classmethod
    @abstractmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The encoder that ``config`` and ``arrays`` describe."""
