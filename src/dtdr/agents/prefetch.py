"""Makes the predicted call while the LLM is thinking, with and without asyncio."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from threading import Thread
from typing import Any, Self

from dtdr.agents.early_calls import EarlyCalls, PrefetchBounds
from dtdr.errors import InputError
from dtdr.predict.session import Session

logger = logging.getLogger("dtdr.agents")

Execute = Callable[[str, Mapping[str, Any]], Any]
"""Calls a tool with arguments and returns its output; a coroutine function or a plain one."""


class AsyncPrefetch(EarlyCalls):
    """The calls of an agent's run, the next of them made while the LLM is thinking.

    >>> fetch = AsyncPrefetch(retriever.session(query), execute, ["find_user"])  # doctest: +SKIP
    >>> fetch.start()                         # before the LLM is asked          # doctest: +SKIP
    >>> tool, arguments = await ask_llm()                                        # doctest: +SKIP
    >>> output = await fetch.call(tool, arguments)                               # doctest: +SKIP

    An asynchronous context manager that cancels what is in progress when the block ends.

    Args:
        session: of the run, of a model that was fitted with arguments; it gets every call.
        execute: makes a call. A plain function runs in a thread, and cannot be cancelled there.
        tools: names of those that are safe to call early, since a call changes nothing. No other
            is ever called early.
        bounds: how much is done early.

    Raises:
        InputError: ``tools`` is a text.
    """

    def __init__(
        self,
        session: Session,
        execute: Execute,
        tools: Collection[str],
        bounds: PrefetchBounds | None = None,
    ) -> None:
        if isinstance(tools, str):
            raise InputError(f"the tools that are safe must be a list, not {tools!r}")
        super().__init__(self._make_now, frozenset(tools).__contains__, bounds)
        self.session = session
        self._call = execute
        self._predicting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin a step: predict its calls in a thread, and make those that are probable.

        An error is logged, and nothing is made early then.
        """
        self._stop_predicting()
        self._predicting = asyncio.get_running_loop().create_task(self._predict())

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The output of a call: that of the early call, or of one that is made now.

        Raises:
            Exception: whatever the call raises; the session gets the error.
        """
        arguments = arguments or {}
        try:
            is_made, output = await self.take(tool, arguments)
            if not is_made:
                output = await self._make_now(tool, arguments)
        except Exception as error:
            self.tell(tool, arguments, error)
            raise
        self.tell(tool, arguments, output)
        return output

    async def take(self, tool: str, arguments: Mapping[str, Any]) -> tuple[bool, Any]:
        """See ``EarlyCalls.take``; the session gets nothing."""
        self._stop_predicting()
        return await super().take(tool, arguments)

    def tell(self, tool: str, arguments: Mapping[str, Any], output: Any) -> None:
        """Give the session a call with its output, or with the error that it raised."""
        try:
            if isinstance(output, Exception):
                self.session.call(tool, arguments, output=str(output), status="error")
            else:
                self.session.call(tool, arguments, output=output)
        except InputError as error:  # which must not stop an agent
            logger.warning("of a call of %r the name counts alone: %s", tool, error)
            self.session.call(tool)

    async def close(self) -> None:
        """Cancel what is in progress."""
        self._stop_predicting()
        self.discard()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _stop_predicting(self) -> None:
        if self._predicting is not None:
            self._predicting.cancel()
            self._predicting = None

    async def _predict(self) -> None:
        try:
            calls = await asyncio.to_thread(self.session.next_calls, self.candidates)
            self.prepare(calls, self.session.run.calls)
        except Exception as error:  # noqa: BLE001  # an agent must never be stopped by this
            logger.warning("nothing is called early: %s: %s", type(error).__name__, error)

    async def _make_now(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._call):
            return await self._call(tool, arguments)
        output = await asyncio.to_thread(self._call, tool, arguments)
        return await output if inspect.isawaitable(output) else output


class Prefetch:
    """As ``AsyncPrefetch``, for an agent without asyncio; early calls run in threads.

    >>> with Prefetch(retriever.session(query), execute, ["find_user"]) as fetch:  # doctest: +SKIP
    ...     fetch.start()
    ...     output = fetch.call(*ask_llm())

    A call that was not made early runs in the caller's thread. ``execute`` is a plain function that
    several threads may use.
    """

    def __init__(
        self,
        session: Session,
        execute: Execute,
        tools: Collection[str],
        bounds: PrefetchBounds | None = None,
    ) -> None:
        self._execute = execute
        self._fetch = AsyncPrefetch(session, execute, tools, bounds)
        self.session, self.counts = session, self._fetch.counts
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="dtdr-prefetch", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Begin a step; see ``AsyncPrefetch.start``."""
        self._loop.call_soon_threadsafe(self._fetch.start)

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The output of a call; see ``AsyncPrefetch.call``."""
        arguments = arguments or {}
        try:
            is_made, output = self._wait(self._fetch.take(tool, arguments))
            if not is_made:
                output = self._execute(tool, arguments)
        except Exception as error:
            self._fetch.tell(tool, arguments, error)
            raise
        self._fetch.tell(tool, arguments, output)
        return output

    def close(self) -> None:
        """Cancel what is in progress; what runs in a thread runs to its end."""
        if self._thread.is_alive():
            self._wait(self._fetch.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
