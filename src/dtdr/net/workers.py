"""Threads of one model, with a deadline for the servers that it waits for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar, TypeVarTuple

from dtdr.net.http_requests import bound_requests

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_MARGIN = 0.5
"""Seconds after the deadline until ``run`` stops waiting: the work's requests have ended by then,
and it may still explain that or do without."""

_STOP_SECONDS = 2.0
"""For work to end when the server stops."""


class Workers:
    """Runs work in threads that the process does not wait for at its end.

    Args:
        threads: at a time; further work waits.
        seconds: until the end of work, with its wait. Requests to other servers end then; a
            computation keeps its thread until it is done.
    """

    def __init__(self, threads: int, seconds: float) -> None:
        self._free = asyncio.Semaphore(threads)
        self._seconds = seconds
        self._waits: set[asyncio.Timeout] = set()
        self._is_stopping = False

    async def run(
        self,
        work: Callable[[*Arguments], Result],
        *arguments: *Arguments,
        seconds: float | None = None,
    ) -> Result:
        """Run work; ``seconds`` replace the usual ones.

        Raises:
            TimeoutError: it did not end in time.
        """
        seconds = seconds or self._seconds
        deadline = time.monotonic() + seconds
        async with asyncio.timeout(seconds + _MARGIN) as wait:
            self._waits.add(wait)
            if self._is_stopping:
                _shorten(wait)
            try:
                await self._free.acquire()
                return await self._start(deadline, work, *arguments)
            finally:
                self._waits.discard(wait)

    def _start(
        self, deadline: float, work: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> asyncio.Future[Result]:
        loop, context = asyncio.get_running_loop(), copy_context()
        done: concurrent.futures.Future[Result] = concurrent.futures.Future()
        done.set_running_or_notify_cancel()  # it continues when nothing waits for it

        def compute() -> Result:
            with bound_requests(deadline - time.monotonic()):
                return work(*arguments)

        def release(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._free.release)

        def run() -> None:
            try:
                done.set_result(context.run(compute))
            except BaseException as error:  # noqa: BLE001  # it is raised where it is awaited
                done.set_exception(error)

        done.add_done_callback(release)  # before the result is known, or the loop might end first
        future = asyncio.wrap_future(done)
        try:
            threading.Thread(target=run, daemon=True).start()
        except BaseException:
            self._free.release()
            raise
        return future

    def stop(self) -> None:
        """Give up present and future work within two seconds."""
        self._is_stopping = True
        for wait in self._waits:
            _shorten(wait)


def _shorten(wait: asyncio.Timeout) -> None:
    end = asyncio.get_running_loop().time() + _STOP_SECONDS
    wait.reschedule(min(wait.when() or end, end))
