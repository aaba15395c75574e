"""Lets the clients of a server take turns, so that none waits for all connections of another."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")

_REQUESTS = 4
"""That may be worked on before others begin: what a request does between waits, four times, is how
long the next client's waits."""

_READ_SECONDS = 0.002
"""Of reading at a time, before the event loop does something else."""


class ByClient(Generic[Item]):
    """What waits: of each client the oldest in turn, so that none waits for all of another's."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Item]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, client: str, item: Item) -> None:
        """Have something of a client wait."""
        self._waiting.setdefault(client, deque()).append(item)

    def take(self) -> Item:
        """The next in turn.

        Raises:
            StopIteration: nothing waits.
        """
        client, items = next(iter(self._waiting.items()))
        del self._waiting[client]
        if len(items) > 1:
            self._waiting[client] = items  # behind the other clients
        return items.popleft()


class Reader(Protocol):
    """A connection with bytes that nobody has read."""

    def read_piece(self) -> None:
        """Read some of them, and ask for another turn where that is not all."""


class Turns:
    """Whose bytes are read next: one piece of each client's, then of the next client's.

    A client is an address, however many connections it has; of its own connections, too, each gets
    a piece in turn. Nothing is read while ``_REQUESTS`` requests are being worked on.
    """

    def __init__(self) -> None:
        self._waiting: ByClient[Reader] = ByClient()
        self._held = 0
        self._is_reading = False

    def ask(self, client: str, reader: Reader) -> None:
        """Have a piece read, at once where nobody waits."""
        self._waiting.put(client, reader)
        if not self._is_reading:
            self._read()

    def hold(self) -> None:
        """A request begins to be worked on."""
        self._held += 1

    def release(self) -> None:
        """A request was answered, or waits for others so long that the next one may begin."""
        self._held -= 1
        if self._waiting and not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._read)

    def _read(self) -> None:
        self._is_reading = True
        end = time.perf_counter() + _READ_SECONDS
        while self._waiting and self._held < _REQUESTS:
            if time.perf_counter() > end:
                asyncio.get_running_loop().call_soon(self._read)
                return
            self._waiting.take().read_piece()
        self._is_reading = False
