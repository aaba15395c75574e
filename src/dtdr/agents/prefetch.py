"""Calls that are made before the LLM asks for them, of tools that are safe to call early.

``EarlyCalls`` decides which, on an event loop; ``Prefetch`` makes them in threads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from dtdr.data.calls import END, ToolCall, is_reference
from dtdr.data.outputs import resolve_pointer
from dtdr.errors import InputError, check_lists
from dtdr.net.http_requests import submit, wait_for
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.session import Session

logger = logging.getLogger("dtdr.agents")


MIN_PROBABILITY = 0.8
"""Default probability of a call, its tool and all its arguments, from which it is made early."""

CONCURRENCY = 2
"""Early calls of a run in progress at a time."""

BUDGET = 20
"""Dropped early calls after which a run makes no more."""

MAX_AGE = 60.0
"""Seconds after which a result is no longer used."""

CANDIDATES = 2 * CONCURRENCY
"""How many predictions ``EarlyCalls.prepare`` can use."""


@dataclass(slots=True)
class PrefetchCounts:
    """The use of early calls.

    Attributes:
        started: calls made early.
        hits: of them, those that were used.
        wasted: of them, those that were dropped; the others are in progress.
    """

    started: int = 0
    hits: int = 0
    wasted: int = 0


def check_probability(minimum: float) -> float:
    """The least probability of a call that is made early; InputError if it is not in (0, 1]."""
    if not 0 < minimum <= 1:
        raise InputError(f"min_probability is {minimum}; it must be above 0 and at most 1")
    return minimum


class _EarlyCall(NamedTuple):
    key: str
    tool: str
    task: asyncio.Task[Any]
    started: float


class EarlyCalls:
    """The early calls of one run; used in one event loop.

    Only tools that ``allows`` accepts are ever called. A result is handed over once, for exactly
    the call that was made. It is dropped when it is no longer predicted, when it is too old, or
    when a tool that is not allowed is called first, since that may change what the result says. An
    early call that failed is not handed over, and a dropped call is not made early again.

    Args:
        execute: makes a call.
        allows: whether calling a tool changes nothing.
        min_probability: of a call that is made early; see ``check_probability``.
        counts: where to count; several runs may share it.
    """

    def __init__(
        self,
        execute: Callable[[str, Mapping[str, Any]], Coroutine[Any, Any, Any]],
        allows: Callable[[str], bool],
        min_probability: float = MIN_PROBABILITY,
        counts: PrefetchCounts | None = None,
    ) -> None:
        self.counts = counts or PrefetchCounts()
        self._min_probability = min_probability
        self._execute = execute
        self._allows = allows
        self._calls: dict[str, _EarlyCall] = {}
        self._dropped: set[str] = set()

    def prepare(self, calls: Iterable[CallPrediction], earlier: Iterable[ToolCall] = ()) -> None:
        """Make the probable calls, and drop those that are no longer predicted.

        Args:
            calls: predicted for the step.
            earlier: calls that arguments may refer to.
        """
        outputs = {call.id: call for call in earlier}
        wanted: dict[str, tuple[str, dict[str, Any]]] = {}
        for call in calls:
            if (
                call.tool != END
                and not call.unknown
                and call.probability >= self._min_probability
                and self._allows(call.tool)
                and (arguments := _resolve(call.arguments, outputs)) is not None
            ):
                wanted[_key(call.tool, arguments)] = call.tool, arguments
        for key in self._calls.keys() - wanted.keys():
            self._drop(self._calls[key])
        for key, (tool, arguments) in wanted.items():
            is_full = len(self._calls) >= CONCURRENCY
            if is_full or len(self._dropped) + len(self._calls) >= BUDGET:
                break
            if key not in self._calls and key not in self._dropped:
                task = asyncio.get_running_loop().create_task(self._execute(tool, arguments))
                # So that an error in a call that is never used leaves no warning.
                task.add_done_callback(lambda task: task.cancelled() or task.exception())
                self._calls[key] = _EarlyCall(key, tool, task, time.monotonic())
                self.counts.started += 1

    async def take(self, tool: str, arguments: Mapping[str, Any]) -> tuple[bool, Any]:
        """Whether exactly this call was made early, and its output, waited for.

        Cancelling this cancels the call.
        """
        if not self._allows(tool):
            self.discard()
        call = self._calls.pop(_key(tool, arguments), None)
        if call is None:
            return False, None
        if call.task.done() and time.monotonic() - call.started > MAX_AGE:
            self._drop(call)
            return False, None
        try:
            output = await call.task
        except Exception as error:  # noqa: BLE001  # the caller makes the call again
            logger.info("the early call of %r failed and is made again: %s", tool, error)
            self._drop(call)
            return False, None
        except asyncio.CancelledError:
            self._drop(call)
            raise
        self.counts.hits += 1
        return True, output

    def discard(self, are_stale: Callable[[str], bool] = lambda tool: True) -> None:
        """Drop and cancel unused calls: all, or those of some tools."""
        for call in tuple(self._calls.values()):
            if are_stale(call.tool):
                self._drop(call)

    def _drop(self, call: _EarlyCall) -> None:
        self._calls.pop(call.key, None)
        call.task.cancel()
        self._dropped.add(call.key)
        self.counts.wasted += 1


def _key(tool: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps([tool, arguments], sort_keys=True, ensure_ascii=False, default=repr)


def _resolve(
    arguments: Mapping[str, Any], outputs: Mapping[str, ToolCall]
) -> dict[str, Any] | None:
    """The arguments with whole outputs in place of references; None if one is not known."""

    def resolve(value: Any) -> Any:
        if is_reference(value):
            call = outputs[str(value["$ref"])]
            if call.output is None or call.output_length is not None:
                raise LookupError  # it is not known whole
            return resolve_pointer(call.output, value.get("path", ""))
        if isinstance(value, Mapping) and list(value) == ["$join"]:
            parts = resolve(value["$join"])
            if not all(isinstance(part, str) for part in parts):
                raise LookupError  # how it would be written is not known
            return "".join(parts)
        if isinstance(value, Mapping):
            return {key: resolve(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [resolve(item) for item in value]
        return value

    try:
        return {name: resolve(value) for name, value in arguments.items()}
    except LookupError:
        return None


Execute = Callable[[str, Mapping[str, Any]], Any]
"""Calls a tool with arguments and returns its output; several threads may use it."""


def add_call(
    session: Session, tool: str, arguments: Mapping[str, Any] | None, **about: Any
) -> None:
    """Add a call to a session; one that is not JSON is added by its name."""
    try:
        session.call(tool, arguments, **about)
    except InputError as error:  # which must not stop an agent
        logger.warning("of a call of %r the name counts alone: %s", tool, error)
        session.call(tool)


class Prefetch:
    """The calls of an agent's run, the next of them made while the LLM is thinking.

    >>> with Prefetch(model.session(query), execute, ["find_user"]) as fetch:  # doctest: +SKIP
    ...     fetch.start()                         # before the LLM is asked
    ...     output = fetch.call(*ask_llm())

    With asyncio, use ``await asyncio.to_thread(fetch.call, tool, arguments)``.

    Args:
        session: of the run, of a model that was fitted with arguments; it gets every call.
        execute: makes a call, in a thread if early, else in the caller's thread.
        tools: names of those that are safe to call early, since a call changes nothing. No other
            is ever called early.
        min_probability: of a call, its arguments included, that is made early; in (0, 1].

    Raises:
        InputError: ``tools`` is a text, or the probability is out of range.
    """

    def __init__(
        self,
        session: Session,
        execute: Execute,
        tools: Collection[str],
        min_probability: float = MIN_PROBABILITY,
    ) -> None:
        check_lists(tools=tools)
        self.session = session
        self._execute = execute
        is_safe = frozenset(tools).__contains__
        least = check_probability(min_probability)
        self._early = EarlyCalls(self._call_early, is_safe, least)
        self.counts = self._early.counts
        self._predicting: Future[None] | None = None
        # The event loop's own threads look up the names of hosts, also for the tools.
        self._threads = ThreadPoolExecutor(BUDGET, "dtdr-prefetch")

    def start(self) -> None:
        """Begin a step: predict its calls in a thread, and make those that are probable.

        If the prediction fails, the logger ``dtdr.agents`` warns, and no call is made early.
        """
        self._stop_predicting()
        self._predicting = submit(self._predict())

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The output of a call: that of the early call, or of one that is made now.

        Raises:
            Exception: whatever the call raises; the session gets the error.
        """
        arguments = arguments or {}
        self._stop_predicting()
        try:
            is_made, output = wait_for(self._early.take(tool, arguments))
            if not is_made:
                output = self._execute(tool, arguments)
        except Exception as error:
            add_call(self.session, tool, arguments, output=str(error), status="error")
            raise
        add_call(self.session, tool, arguments, output=output)
        return output

    def close(self) -> None:
        """Cancel what is in progress; what runs in a thread runs to its end."""
        self._stop_predicting()
        wait_for(self._cancel())
        self._threads.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop_predicting(self) -> None:
        if self._predicting is not None:
            self._predicting.cancel()
            self._predicting = None

    async def _predict(self) -> None:
        try:
            calls = await self._in_thread(self.session.next_calls, CANDIDATES)
            self._early.prepare(calls, self.session.run.calls)
        except Exception as error:  # noqa: BLE001  # an agent must never be stopped by this
            logger.warning("nothing is called early: %s: %s", type(error).__name__, error)

    async def _cancel(self) -> None:
        self._early.discard()
        await asyncio.sleep(0)  # in which the calls see it

    async def _call_early(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        return await self._in_thread(self._execute, tool, arguments)

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        loop, run = asyncio.get_running_loop(), copy_context().run
        return await loop.run_in_executor(self._threads, run, work, *arguments)
