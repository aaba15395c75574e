"""Encoders by the names that users type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt

from dtdr.data.registry import Registry
from dtdr.errors import InputError
from dtdr.text.encoders.base import Encoder

_REGISTRY: Registry[Encoder] = Registry(
    "encoder",
    {
        "lexical": ("dtdr.text.encoders.lexical", "LexicalEncoder"),
        "static": ("dtdr.text.encoders.static", "StaticEncoder"),
        "minilm": ("dtdr.text.encoders.minilm", "MiniLMEncoder"),
        "sentence-transformers": (
            "dtdr.text.encoders.sentence_transformers",
            "SentenceTransformersEncoder",
        ),
        "endpoint": ("dtdr.text.encoders.endpoint", "EndpointEncoder"),
    },
)

NAMES = _REGISTRY.names
DEFAULT = "lexical"


encoder_class = _REGISTRY.find
"""The class behind a name; InputError if no encoder has it."""


def create(name: str, *, cache: bool = True, **options: Any) -> Encoder:
    """Create an encoder.

    Args:
        name: one of ``NAMES``, or ``endpoint:MODEL@URL``, or ``static:FOLDER``.
        cache: keep the vectors of pretrained encoders on disk, see ``dtdr.text.encoders.cache``.
        options: of the encoder.

    Raises:
        InputError: no encoder has that name, or it does not take an option.
        MissingExtraError: the encoder needs an extra that is not installed.
    """
    name, _, position = name.partition(":")
    if name == "static" and position:
        options, position = {"folder": position, **options}, ""
    if position or (name == "endpoint" and not options):
        options = {**_endpoint(name, position), **options}
    encoder = _REGISTRY.create(name, **options)
    return _with_cache(encoder) if cache else encoder


def as_encoder(encoder: str | Encoder) -> Encoder:
    """An encoder by its name, or the encoder itself."""
    return create(encoder) if isinstance(encoder, str) else encoder


def _endpoint(name: str, address: str) -> dict[str, str]:
    """Model and address of ``endpoint:MODEL@URL``."""
    if name != "endpoint":
        raise InputError(f"encoder {name!r} takes nothing after its name; leave out {address!r}")
    model, _, url = address.partition("@")
    if not model or not url:
        raise InputError(
            "the encoder endpoint needs a model and an address: endpoint:MODEL@URL, such as "
            "endpoint:all-minilm@http://localhost:11434/v1"
        )
    return {"model": model, "url": url}


def restore(
    config: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    *,
    allow_endpoint: str | Iterable[str] = (),
) -> Encoder:
    """The encoder that a model folder describes.

    Args:
        config: from ``Encoder.config``.
        arrays: from ``Encoder.arrays``.
        allow_endpoint: hosts that the encoder ``endpoint`` may ask.

    Raises:
        InputError: no encoder has that name, or it would ask a host that is not allowed.
        ModelError: the folder lacks something that the encoder needs.
    """
    name = str(config.get("name"))
    encoder: Any = encoder_class(name)
    options = {"allow_endpoint": allow_endpoint} if name == "endpoint" else {}
    return _with_cache(encoder.restore(config, arrays, **options))


def _with_cache(encoder: Encoder) -> Encoder:
    if not encoder.learned:
        from dtdr.text.encoders.cache import VectorCache

        encoder.cache = VectorCache()
    return encoder


__all__ = ["DEFAULT", "NAMES", "Encoder", "as_encoder", "create", "encoder_class", "restore"]
