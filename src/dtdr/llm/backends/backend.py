"""The interface of LLM backends, and their errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from dtdr.errors import DtdrError, InputError, check_lists
from dtdr.llm.prompting import AnswerForm, Prompt


class LLMError(DtdrError):
    """An LLM could not be loaded or reached, or its answer could not be used."""


class PromptTooLongError(LLMError):
    """The prompt exceeds the model's context."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer of an LLM.

    Attributes:
        text: the answer.
        prompt_tokens: tokens of the whole prompt, chat template included; None where unknown.
        cached_tokens: how many of them were not read again; None where unknown.
    """

    text: str
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Decoding:
    """Limits of an answer.

    Attributes:
        max_tokens: at most this many tokens are written.
        choices: given, the answer is one of them, whatever ``max_tokens`` says.
        stop: texts that end the answer and are left out of it.
        form: what the answer must look like, where the backend can hold it to that.

    Raises:
        InputError: there is nothing to choose from, or an empty text.
    """

    max_tokens: int
    choices: tuple[str, ...] | None = None
    stop: tuple[str, ...] = ()
    form: AnswerForm | None = None

    def __post_init__(self) -> None:
        if self.choices is not None and not (self.choices and all(self.choices)):
            raise InputError("an LLM needs at least one choice, and none that is empty")


class LLM(ABC):
    """Base of every backend; thread-safe. Use it as a context manager, or call ``close``.

    Attributes:
        kind: the part of the name before the colon.
        name: the name that users type.
    """

    kind: ClassVar[str]
    name: str

    def complete(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
        form: AnswerForm | None = None,
    ) -> Completion:
        """The most probable continuation (temperature 0) of a prompt, as ``Decoding`` says.

        Raises:
            InputError: there is nothing to choose from, or an empty text.
            PromptTooLongError: the prompt exceeds the model's context.
            LLMError: there was no usable answer, after retries where they can help.
        """
        check_lists(choices=choices, stop=stop)
        allowed = None if choices is None else tuple(choices)
        return self._complete(prompt, Decoding(max_tokens, allowed, tuple(stop), form))

    @abstractmethod
    def _complete(self, prompt: Prompt, decoding: Decoding) -> Completion:
        """As ``complete``."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Tokens of a text, without a chat template."""

    def forget(self) -> None:  # noqa: B027  # a backend without a cache has nothing to forget
        """Drop what is cached of earlier prompts, to time a step cold."""

    def close(self) -> None:  # noqa: B027  # a backend may hold nothing
        """Free the backend's memory and files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
