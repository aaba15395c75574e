"""``sentence-transformers``: any model of that library; by default the one of the paper."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from dtdr.errors import EncoderError, MissingExtraError, ModelError
from dtdr.text.encoders import folders
from dtdr.text.encoders.base import Encoder, Floats32, encodable, length_one, with_progress

DEFAULT_MODEL = "sentence-transformers/paraphrase-MiniLM-L6-v2"
"""The encoder of the paper (appendix, other details and hyper-parameters)."""


class SentenceTransformersEncoder(Encoder):
    """A model of the sentence-transformers library; loaded when first used.

    Args:
        model: name on the public hub, or a folder.
        revision: branch, tag or commit of the hub's model.
        device: such as ``"cpu"`` or ``"cuda"``; None lets the library choose.
        batch_size: texts encoded at once.
        normalize: scale every vector to length 1; False takes the model's own vectors.
        weights_sha256: of the weights, from ``config``; None accepts any.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
    """

    name = "sentence-transformers"

    def __init__(
        self,
        *,
        model: str = DEFAULT_MODEL,
        revision: str | None = None,
        device: str | None = None,
        batch_size: int = 64,
        normalize: bool = True,
        weights_sha256: str | None = None,
    ) -> None:
        try:
            import sentence_transformers
        except ImportError as error:
            raise MissingExtraError(
                "encoder 'sentence-transformers'", "sentence-transformers", "sentence-transformers"
            ) from error
        self._library: Any = sentence_transformers
        self.model = model
        self.revision = revision
        self.device = device
        self.batch_size = batch_size
        self.normalize = normalize
        self.weights_sha256 = weights_sha256
        self._model: Any = None
        self._lock = threading.Lock()

    def _load(self) -> Any:
        with self._lock:
            if self._model is None:
                options = {"revision": self.revision, "device": self.device}
                known = {key: value for key, value in options.items() if value is not None}
                try:
                    loaded = self._library.SentenceTransformer(self.model, **known)
                except (OSError, ValueError, RuntimeError) as error:
                    raise EncoderError(
                        f"cannot load the model {self.model!r} "
                        f"({(str(error) or type(error).__name__).splitlines()[0][:200]}); give a "
                        "folder that contains it, or connect to the hub"
                    ) from error
                digest = _weights_hash(loaded)
                if self.weights_sha256 not in (None, digest):
                    raise ModelError(
                        f"the weights of {self.model!r} have SHA-256 {digest}, expected "
                        f"{self.weights_sha256}; use the model that was fitted with, or fit again"
                    )
                self.weights_sha256 = digest
                self._model = loaded
            return self._model

    @property
    def dimension(self) -> int:
        """The dimension of the model."""
        model = self._load()
        # Renamed in version 5.
        ask = getattr(model, "get_embedding_dimension", None)
        return int(ask() if ask else model.get_sentence_embedding_dimension())

    def _encode(self, texts: Sequence[str]) -> Floats32:
        model = self._load()
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        # By length, to pad little.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        starts = range(0, len(order), self.batch_size)
        for start in with_progress(starts, len(texts), self.name, len(starts)):
            batch = order[start : start + self.batch_size]
            rows = model.encode(
                [encodable(texts[index]) for index in batch],
                batch_size=self.batch_size,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
            encoded = np.asarray(rows, np.float32)
            vectors[batch] = length_one(encoded) if self.normalize else encoded
        return vectors

    def fingerprint(self) -> str:
        """Name of the model and hash of its weights."""
        self._load()
        raw = "" if self.normalize else " raw"
        return f"sentence-transformers {self.model} {self.weights_sha256}{raw}"

    def config(self) -> dict[str, Any]:
        """The name on the hub, and the hash of the weights; only this machine records a folder."""
        self._load()
        is_folder = Path(self.model).exists()
        if is_folder and self.weights_sha256 is not None:
            folders.remember(self.weights_sha256, self.model)
        return {
            "name": self.name,
            "model": None if is_folder else self.model,
            "revision": self.revision,
            "weights_sha256": self.weights_sha256,
            **({} if self.normalize else {"normalize": False}),
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The encoder with the same weights.

        Raises:
            EncoderError: they are in a folder that this user did not fit with.
            ModelError: on first use, if the weights are other ones.
        """
        model = config["model"]
        if model is None or Path(str(model)).exists():
            model = folders.recall(config["weights_sha256"])
        if model is None:
            raise EncoderError(
                "the model was fitted with the encoder of a folder that is not known here; load it "
                "with encoder=SentenceTransformersEncoder(model=FOLDER)"
            )
        return cls(
            model=str(model),
            revision=config.get("revision"),
            normalize=config.get("normalize", True),
            weights_sha256=config["weights_sha256"],
        )


def _weights_hash(model: Any) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = np.ascontiguousarray(tensor.detach().cpu().float().numpy())
        digest.update(f"{name}{values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
