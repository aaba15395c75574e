"""The clients: they send the server's calls with or without asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dtdr.client.calls import Call
from dtdr.client.endpoints import Endpoints, Result
from dtdr.client.sessions import (
    AsyncClosing,
    AsyncRemoteSession,
    Closing,
    OpeningSession,
    RemoteSession,
)
from dtdr.http_requests import NoAnswerError
from dtdr.run import BeforeLike, CallLike


class Client(Endpoints, Closing):
    """Asks a ``dtdr serve`` server. Thread-safe; a context manager that closes connections.

    Args:
        url: the server's address.
        key: an API key; ``$DTDR_API_KEY`` where none is given.
        model: the model that is meant where a call names none.
        timeout: seconds for one try, from connecting to the last byte.
        retries: how often a question is asked again when no answer came. What changes something
            on the server is asked again only if no connection was made.
        options: of ``httpx2.Client``, such as ``verify`` or ``transport``.

    Raises:
        InputError: the address is none, or the key holds characters that no key has.
        MissingExtraError: httpx2 or tenacity is not installed.
    """

    def _open(self, options: dict[str, Any]) -> None:
        from dtdr.http_transport import Transport

        self._transport = Transport(self.url, self._policy, **options)

    def session(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> RemoteSession:
        """A session on the server, which encodes the query once."""
        return self.send(self.session_call(RemoteSession, query, history, before, model))

    def send(self, call: Call[Result]) -> Result:
        """Send one call."""
        request = call.request(self.url, self._headers, self._timeout)
        try:
            return call.result(self.url, self._transport.send(request))
        except NoAnswerError as error:
            return call.result(self.url, error)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


class AsyncClient(Endpoints, AsyncClosing):
    """Asks a ``dtdr serve`` server from one event loop; a context manager that closes connections.

    Its calls are those of ``Client``, awaited. Arguments and errors are the same; ``options`` are
    those of ``httpx2.AsyncClient``.
    """

    def _open(self, options: dict[str, Any]) -> None:
        from dtdr.http_transport import AsyncTransport

        self._transport = AsyncTransport(self.url, self._policy, **options)

    def session(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> OpeningSession:
        """A session on the server, which encodes the query once.

        Awaited, it is the session; ``async with client.session(query) as session`` deletes it when
        the block ends.
        """
        call = self.session_call(AsyncRemoteSession, query, history, before, model)
        return OpeningSession(partial(self.send, call))

    async def send(self, call: Call[Result]) -> Result:
        """Send one call."""
        request = call.request(self.url, self._headers, self._timeout)
        try:
            return call.result(self.url, await self._transport.send(request))
        except NoAnswerError as error:
            return call.result(self.url, error)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()
