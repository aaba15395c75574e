"""A typed client of a ``dtdr serve`` server: ``Client``, and ``AsyncClient`` for asyncio.

>>> with dtdr.Client("http://127.0.0.1:8756") as client:              # doctest: +SKIP
...     client.rank("Mail Ann the summary of q3.pdf", ["open_file"]).best
"""

from dtdr.serve.client.clients import AsyncClient, Client
from dtdr.serve.client.sessions import AsyncRemoteSession, RemoteSession
from dtdr.serve.client.surface import InvalidRequestError, RemoteRanking, ServerError

__all__ = [
    "AsyncClient",
    "AsyncRemoteSession",
    "Client",
    "InvalidRequestError",
    "RemoteRanking",
    "RemoteSession",
    "ServerError",
]
