"""LLM backends by the names that users type."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from dtdr.data.registry import Registry
from dtdr.errors import InputError
from dtdr.llm.backends.backend import LLM, Completion, Decoding, LLMError, PromptTooLongError

# By the part of the name before the colon.
_REGISTRY: Registry[LLM] = Registry(
    "kind of LLM",
    {
        "gguf": ("dtdr.llm.backends.llama_cpp", "LlamaCpp"),
        "hf": ("dtdr.llm.backends.transformers", "TransformersLLM"),
        "openai": ("dtdr.llm.backends.server", "OpenAIServer"),
    },
)


def create(name: str, **parameters: Any) -> LLM:
    """A backend from its name: ``gguf:``, ``openai:`` or ``hf:`` and the rest.

    Args:
        name: kind and model; after ``hf:NAME``, ``?dtype=float16`` or ``?device=cpu`` may follow.
        parameters: of the backend, such as ``context`` or ``timeout``.

    Raises:
        InputError: the name is not of that form, or the backend does not take a parameter.
        LLMError: the model cannot be loaded.
    """
    kind, colon, rest = name.partition(":")
    if not colon or not rest:
        raise InputError(f"unknown LLM {name!r}; write gguf:PATH, openai:NAME@URL or hf:NAME")
    arguments: tuple[str, ...] = (rest,)
    if kind == "openai":
        model, at, url = rest.partition("@")
        if not at or not model or not url:
            raise InputError(
                f"{name!r} names no model and server; write openai:NAME@URL, such as "
                "openai:qwen3@http://127.0.0.1:8080/v1"
            )
        arguments = (model, url)
    elif kind == "hf" and "?" in rest:
        model, _, written = rest.partition("?")
        arguments = (model,)
        options = dict(parse_qsl(written, keep_blank_values=True))
        for option in options:
            if option not in ("dtype", "device"):
                raise InputError(
                    f"{name!r} sets {option!r}; an hf: model takes dtype and device, such as "
                    "hf:Qwen/Qwen3-0.6B?dtype=float16"
                )
        parameters = {**options, **parameters}
    return _REGISTRY.create(kind, *arguments, **parameters)


__all__ = ["LLM", "Completion", "Decoding", "LLMError", "PromptTooLongError", "create"]
