"""Makes predicted calls while the LLM is thinking, in threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Self

from dtdr.agents.early_calls import EarlyCalls, PrefetchBounds
from dtdr.errors import InputError
from dtdr.predict.session import Session

logger = logging.getLogger("dtdr.agents")

Execute = Callable[[str, Mapping[str, Any]], Any]
"""Calls a tool with arguments and returns its output; several threads may use it."""


class Prefetch:
    """The calls of an agent's run, the next of them made while the LLM is thinking.

    >>> with Prefetch(retriever.session(query), execute, ["find_user"]) as fetch:  # doctest: +SKIP
    ...     fetch.start()                         # before the LLM is asked
    ...     output = fetch.call(*ask_llm())

    With asyncio, use ``await asyncio.to_thread(fetch.call, tool, arguments)``.

    Args:
        session: of the run, of a model that was fitted with arguments; it gets every call.
        execute: makes a call, in a thread if early, else in the caller's thread.
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
        self.session = session
        self._execute = execute
        self._early = EarlyCalls(self._call_early, frozenset(tools).__contains__, bounds)
        self.counts = self._early.counts
        self._predicting: Future[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="dtdr-prefetch", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Begin a step: predict its calls in a thread, and make those that are probable.

        If the prediction fails, the logger ``dtdr.agents`` warns, and no call is made early.
        """
        self._stop_predicting()
        self._predicting = self._submit(self._predict())

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The output of a call: that of the early call, or of one that is made now.

        Raises:
            Exception: whatever the call raises; the session gets the error.
        """
        arguments = arguments or {}
        self._stop_predicting()
        try:
            is_made, output = self._submit(self._early.take(tool, arguments)).result()
            if not is_made:
                output = self._execute(tool, arguments)
        except Exception as error:
            self._tell(tool, arguments, output=str(error), status="error")
            raise
        self._tell(tool, arguments, output=output)
        return output

    def close(self) -> None:
        """Cancel what is in progress; what runs in a thread runs to its end."""
        if self._thread.is_alive():
            self._stop_predicting()
            self._submit(self._cancel()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _stop_predicting(self) -> None:
        if self._predicting is not None:
            self._predicting.cancel()
            self._predicting = None

    async def _predict(self) -> None:
        try:
            calls = await asyncio.to_thread(self.session.next_calls, self._early.candidates)
            self._early.prepare(calls, self.session.run.calls)
        except Exception as error:  # noqa: BLE001  # an agent must never be stopped by this
            logger.warning("nothing is called early: %s: %s", type(error).__name__, error)

    async def _cancel(self) -> None:
        self._early.discard()
        await asyncio.sleep(0)  # in which the calls see it

    async def _call_early(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        return await asyncio.to_thread(self._execute, tool, arguments)

    def _tell(self, tool: str, arguments: Mapping[str, Any], **result: Any) -> None:
        """Add a call to the session; one that is not JSON is added by its name."""
        try:
            self.session.call(tool, arguments, **result)
        except InputError as error:  # which must not stop an agent
            logger.warning("of a call of %r the name counts alone: %s", tool, error)
            self.session.call(tool)
