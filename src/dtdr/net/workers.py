"""Threads of one model, with a deadline for the servers that it waits for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TypeVar, TypeVarTuple

from dtdr.net.http_requests import bound_requests
from dtdr.net.threads import start_daemon

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
        self._longest = math.inf
        self._waits: set[asyncio.Timeout] = set()

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
        with bound_requests(seconds):
            context = copy_context()
        async with asyncio.timeout(min(seconds + _MARGIN, self._longest)) as wait:
            self._waits.add(wait)
            try:
                await self._free.acquire()
                return await self._start(partial(context.run, work, *arguments))
            finally:
                self._waits.discard(wait)

    def _start(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """Start a thread, which continues when nothing waits for it any more."""
        loop = asyncio.get_running_loop()
        done: concurrent.futures.Future[Result] = concurrent.futures.Future()
        done.set_running_or_notify_cancel()

        def release(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._free.release)

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001  # it is raised where it is awaited
                done.set_exception(error)

        done.add_done_callback(release)  # before the result is known, or the loop might end first
        future = asyncio.wrap_future(done)
        try:
            start_daemon(run)
        except (RuntimeError, MemoryError) as error:
            done.set_exception(error)
        return future

    def stop(self) -> None:
        """Give up present and future work within two seconds."""
        self._longest = _STOP_SECONDS
        end = asyncio.get_running_loop().time() + _STOP_SECONDS
        for wait in self._waits:
            wait.reschedule(min(wait.when() or end, end))
