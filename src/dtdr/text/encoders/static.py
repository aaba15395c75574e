"""``static``: the mean of one vector per token, from a folder that model2vec saved.

The folder contains ``model.safetensors`` with the tensor ``embeddings`` (tokens, dimension),
``tokenizer.json``, and a ``config.json`` that may contain ``"normalize": false``. Two further
tensors are optional: ``weights`` (tokens,), and ``mapping`` (tokens,), the row of each token. No
network, no download; a text takes about 20 microseconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from dtdr.errors import EncoderError, InputError, MissingExtraError
from dtdr.text.encoders import folders
from dtdr.text.encoders.base import Encoder, Floats32, encodable, length_one

FOLDER_VARIABLE = "DTDR_STATIC_DIR"

_FILES = ("model.safetensors", "tokenizer.json")


class StaticEncoder(Encoder):
    """Static embeddings of tokens, averaged; loaded when first used.

    Args:
        folder: of the model.
        sha256: of its two files, from ``config``; None accepts any.

    Raises:
        InputError: there is no folder.
        MissingExtraError: tokenizers is not installed.
        EncoderError: the folder lacks a file.
    """

    name = "static"

    def __init__(self, *, folder: str | Path | None = None, sha256: str | None = None) -> None:
        if not folder:
            raise InputError("the encoder static needs the folder of a model: static:FOLDER")
        try:
            import tokenizers
        except ImportError as error:
            raise MissingExtraError("encoder 'static'", "static", "tokenizers") from error
        self._library: Any = tokenizers
        self.folder = Path(folder)
        for name in _FILES:
            if not (self.folder / name).is_file():
                raise EncoderError(
                    f"{self.folder} has no {name}; it must contain static embeddings, as model2vec "
                    "saves them"
                )
        self._expected = sha256
        self._tables: tuple[Floats32, Any, bool] | None = None
        self._lock = threading.Lock()
        self._hash: str | None = None

    def _load(self) -> tuple[Floats32, Any, bool]:
        with self._lock:
            if self._tables is None:
                self._tables = self._open()
            return self._tables

    def _open(self) -> tuple[Floats32, Any, bool]:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        self._check()
        try:
            tensors = load_file(str(self.folder / "model.safetensors"))
            tokenizer = self._library.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
            settings = self.folder / "config.json"
            config = json.loads(settings.read_bytes()) if settings.is_file() else {}
            vectors = tensors["embeddings"].astype(np.float32)
            if "mapping" in tensors:
                vectors = vectors[tensors["mapping"].astype(np.intp)]
            if "weights" in tensors:
                vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
            normalised = bool(config.get("normalize", True))
            if vectors.ndim != 2 or len(vectors) < tokenizer.get_vocab_size():
                raise ValueError(f"{vectors.shape} vectors for {tokenizer.get_vocab_size()} tokens")
        except Exception as error:  # tokenizers raises bare Exception
            kind = "is not a safetensors file" if isinstance(error, SafetensorError) else ""
            reason = kind or (str(error) or type(error).__name__).splitlines()[0][:200]
            raise EncoderError(
                f"cannot load the static embeddings of {self.folder} ({reason}); it must contain "
                "model.safetensors with 'embeddings', and the tokenizer.json that they belong to"
            ) from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return vectors, tokenizer, normalised

    def _check(self) -> str:
        """The SHA-256 of both files together."""
        if self._hash is None:
            digest = hashlib.sha256()
            for name in _FILES:
                digest.update(hashlib.sha256((self.folder / name).read_bytes()).digest())
            self._hash = digest.hexdigest()
        if self._expected not in (None, self._hash):
            raise EncoderError(
                f"the static embeddings of {self.folder} have SHA-256 {self._hash}, expected "
                f"{self._expected}; use the folder of the fit, or fit again"
            )
        return self._hash

    @property
    def dimension(self) -> int:
        """The dimension of the model."""
        return int(self._load()[0].shape[1])

    def _encode(self, texts: Sequence[str]) -> Floats32:
        table, tokenizer, normalised = self._load()
        tokens = tokenizer.encode_batch(list(map(encodable, texts)), add_special_tokens=False)
        vectors = np.zeros((len(texts), table.shape[1]), np.float32)
        for row, encoding in zip(vectors, tokens, strict=True):
            if encoding.ids:
                row[:] = table[encoding.ids].mean(axis=0)
        return length_one(vectors) if normalised else vectors

    def fingerprint(self) -> str:
        """Hash of the files."""
        return f"static {self._check()}"

    def config(self) -> dict[str, Any]:
        """The hash of the files; only this machine records their folder."""
        checksum = self._check()
        folders.remember(checksum, self.folder)
        return {"name": self.name, "sha256": checksum}

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The encoder with the same files.

        They are in ``$DTDR_STATIC_DIR``, or in the folder that this user fitted with.

        Raises:
            EncoderError: the folder is unknown, or, on first use, contains other files.
        """
        folder = os.environ.get(FOLDER_VARIABLE) or folders.recall(config["sha256"])
        if not folder:
            raise EncoderError(
                "the model was fitted with static embeddings whose folder is unknown here; name "
                f"it in the environment variable {FOLDER_VARIABLE}"
            )
        return cls(folder=folder, sha256=config["sha256"])
