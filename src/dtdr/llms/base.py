"""What every LLM backend can do, and how it fails."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from dtdr.errors import DtdrError, InputError
from dtdr.prompting import Prompt

Result = TypeVar("Result")


class LLMError(DtdrError):
    """An LLM could not be loaded or reached, or its answer could not be used."""


class PromptTooLongError(LLMError):
    """The prompt exceeds the model's context."""


class CannotScoreError(LLMError):
    """The backend gives no log-likelihoods of given texts."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What an LLM wrote.

    Attributes:
        text: the answer.
        prompt_tokens: tokens of the whole prompt, chat template included; None where not told.
        cached_tokens: how many of them were not read again; None where not told.
        completion_tokens: tokens written; None where not told.
    """

    text: str
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


def check_choices(choices: Sequence[str]) -> None:
    """Raise InputError where there is nothing to choose, or an empty text."""
    if not choices or not all(choices):
        raise InputError("an LLM needs at least one choice, and none that is empty")


class LLM(ABC):
    """Base of every backend; thread-safe. Use it as a context manager, or call ``close``.

    Attributes:
        kind: the part of the name before the colon.
        name: the name that users type.
        counts_exactly: whether ``count_tokens`` uses the model's own tokenizer.
        concurrency: how many calls run at a time; more wait their turn.
    """

    kind: ClassVar[str]
    name: str
    counts_exactly: bool = True
    concurrency: int = 1
    _pool: ThreadPoolExecutor | None = None

    @abstractmethod
    def complete(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """The most probable continuation (temperature 0).

        Args:
            prompt: what the model reads.
            max_tokens: at most so many tokens are written.
            choices: given, the answer is one of them, whatever ``max_tokens`` says.
            stop: texts that end the answer and are no part of it.

        Raises:
            PromptTooLongError: the prompt exceeds the model's context.
            LLMError: there was no usable answer, after retries where they can help.
        """

    @abstractmethod
    def score(self, prompt: Prompt, continuations: Sequence[str]) -> list[float]:
        """Natural logarithm of each text's probability as the whole answer, its end included.

        A text that is less than e^-12 times as probable as the best may count as that
        (``dtdr.llms.tree.NEGLIGIBLE``).

        Raises:
            CannotScoreError: the backend cannot do this.
            PromptTooLongError: the prompt exceeds the model's context.
            LLMError: there was no usable answer, after retries where they can help.
        """

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Tokens of a text, without a chat template."""

    @property
    def can_score(self) -> bool:
        """Whether ``score`` works."""
        return True

    def forget(self) -> None:  # noqa: B027  # a backend without a cache has nothing to forget
        """Drop what is cached of earlier prompts, to time a step cold."""

    def close(self) -> None:
        """Free what the backend holds."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    async def acomplete(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """As ``complete``, without blocking the event loop."""
        return await self._in_pool(
            functools.partial(
                self.complete, prompt, max_tokens=max_tokens, choices=choices, stop=stop
            )
        )

    async def ascore(self, prompt: Prompt, continuations: Sequence[str]) -> list[float]:
        """As ``score``, without blocking the event loop."""
        return await self._in_pool(functools.partial(self.score, prompt, continuations))

    async def _in_pool(self, work: Callable[[], Result]) -> Result:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="dtdr-llm")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
