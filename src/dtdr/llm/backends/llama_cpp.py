"""``gguf:path``: llama.cpp inside this process, on any GGUF file."""

from __future__ import annotations

import os
import secrets
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from dtdr.errors import InputError, MissingExtraError, cannot_read
from dtdr.llm.backends.backend import LLMError
from dtdr.llm.backends.server import OpenAIServer


class LlamaCpp(OpenAIServer):
    """A GGUF model run by llama.cpp (package xllamacpp), its prompt prefix cached between calls.

    The library runs llama.cpp's server inside this process; it listens on a free loopback port
    and requires a random key that only this object has.

    Args:
        path: the model file.
        context: tokens of prompt and answer together.
        threads: processor threads. Default: half of the processors, since two hardware threads
            share one core's arithmetic.
        timeout: seconds for one call.

    Raises:
        MissingExtraError: xllamacpp is not installed.
        InputError: there is no such file, or it is not GGUF.
        LLMError: the file is truncated, or this llama.cpp does not support it.
    """

    kind: ClassVar[str] = "gguf"

    def __init__(
        self,
        path: str | Path,
        *,
        context: int = 4096,
        threads: int | None = None,
        timeout: float = 600.0,
    ) -> None:
        check_gguf(Path(path))
        try:
            xllamacpp: Any = import_module("xllamacpp")
        except ImportError as error:
            raise MissingExtraError("a gguf: model", "llm", "xllamacpp") from error
        key = secrets.token_hex(16)
        parameters: Any = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx = context
        parameters.n_parallel = 1
        workers = threads or max(1, (os.cpu_count() or 2) // 2)
        parameters.cpuparams.n_threads = workers
        parameters.cpuparams_batch.n_threads = workers
        parameters.api_keys = [key]
        parameters.hostnames = ["127.0.0.1"]
        parameters.endpoint_props = True
        parameters.warmup = False
        parameters.verbosity = -1
        try:
            self._server: Any = xllamacpp.Server(parameters)
        except RuntimeError as error:
            raise LLMError(
                f"llama.cpp cannot load {path}: it is truncated, or of a kind that this version "
                "does not know; download it again or update xllamacpp"
            ) from error
        super().__init__(
            Path(path).stem,
            f"{self._server.listening_address}/v1",
            key=key,
            concurrency=1,
            timeout=timeout,
            tries=1,
        )
        self.name = f"gguf:{path}"

    def close(self) -> None:
        """Free the model."""
        super().close()
        self._server = None


def check_gguf(path: Path) -> None:
    """Raise InputError if the path is not a GGUF file."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise cannot_read(f"the model {path}", error) from error
    if magic != b"GGUF":
        raise InputError(f"{path} is not a GGUF file; give a model in llama.cpp's format")
