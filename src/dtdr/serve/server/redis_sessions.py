"""Sessions in Redis, shared by several servers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr.data import json_codec
from dtdr.data.run import Run
from dtdr.net.redis_client import connect, describe_address, explain_errors
from dtdr.net.servers import Limits
from dtdr.serve.server.models import ModelRegistry
from dtdr.serve.server.sessions import OpenSession, missing

_PREFIX = "dtdr:session:4:"
"""Of the names of all lists, before the ids of the API key and the session, so that no key reaches
another's sessions; the number is the version of the format."""

_SESSION_BYTES = 4_000_000
"""Of one session, so that none takes much of a server's time."""

_MOST_BYTES = 2 * _SESSION_BYTES
"""Of a session that is read: one that was opened as large as a request may be, and prolonged."""

_ADD = """
local length, expected = redis.call('LLEN', KEYS[1]), tonumber(ARGV[1])
if length ~= expected then
  if expected == 0 then return 1 end
  return length == 0 and -1 or 0
end
redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
"""Begins a list (expected length 0), or appends to it if no other server has appended since: 1,
also for a list that began before its answer was lost; 0 if another has, -1 if the list is gone."""


class RedisSessions:
    """A list for each session: its start, then one entry for each request that added calls.

    Lists expire by themselves, and Redis limits their memory. The methods are those of
    ``Sessions``.

    Args:
        url: see ``dtdr.net.redis_client.connect``.
        limits: of a session's age.
        models: of the sessions.

    Raises:
        InputError: the address is not one of Redis.
        MissingExtraError: the package redis is not installed.
    """

    def __init__(self, url: str, limits: Limits, models: ModelRegistry) -> None:
        self._limits = limits
        self._models = models
        self._milliseconds = max(1, round(1_000 * limits.session_seconds))
        self._explain_errors = partial(explain_errors, "sessions", describe_address(url))
        self._client = connect(url, asynchronous=True)
        self._add_entry = self._client.register_script(_ADD)

    async def open(self, session: OpenSession) -> None:
        """Keep a new session; see ``Sessions``."""
        start = {"model": session.model.name, "run": session.run.to_dict()}
        await self._append(session, 0, start)

    async def find(self, identifier: str, owner: str) -> OpenSession:
        """An open session, whose time to live starts again; see ``Sessions``."""
        name = _name(owner, identifier)
        with self._explain_errors():
            # Not as a transaction, which a full Redis refuses.
            async with self._client.pipeline(transaction=False) as commands:
                # One entry more than a session has, which shows that others wrote it.
                most = self._limits.history + 1
                commands.pexpire(name, self._milliseconds).lrange(name, 0, most)
                is_open, entries = await commands.execute()
        if not is_open or not entries:
            raise missing(self._limits)
        try:
            return await to_thread.run_sync(self._decode, identifier, owner, entries)
        except (KeyError, TypeError, ValueError) as error:
            reason = "the session in Redis cannot be read by this version; open it again"
            raise HTTPException(404, reason) from error

    def _decode(self, identifier: str, owner: str, entries: Sequence[bytes]) -> OpenSession:
        """The session of a list.

        Raises:
            ValueError: this server writes no such list.
        """
        sent = sum(map(len, entries))
        if sent > _MOST_BYTES:
            raise ValueError("it is larger than a session")
        start, *added = map(json_codec.loads, entries)
        model = self._models.get(start["model"])
        if model is None:
            raise HTTPException(
                503,
                "the model of this session is not served here; give every server the same models",
            )
        for record in added:
            start["run"]["calls"] += record["calls"]
        run = start["run"]
        if max(len(run["calls"]), len(run.get("before") or ())) > self._limits.history:
            raise ValueError("it has more calls than a session")
        keys = frozenset(record["key"] for record in added)
        return OpenSession(model, Run.from_dict(start["run"]), owner, sent, keys, identifier)

    async def add(self, session: OpenSession, longer: OpenSession) -> bool:
        """Replace a session that was found; see ``Sessions``."""
        if longer.bytes > _SESSION_BYTES:
            raise HTTPException(
                422, f"the session would have more than {_SESSION_BYTES:,} bytes; open another one"
            )
        (key,) = longer.keys - session.keys
        calls = [call.to_dict() for call in longer.run.calls[len(session.run.calls) :]]
        done = await self._append(longer, 1 + len(session.keys), {"key": key, "calls": calls})
        if done < 0:
            raise missing(self._limits)
        return bool(done)

    async def close(self, session: OpenSession) -> None:
        """Drop a session, for all servers."""
        with self._explain_errors():
            await self._client.delete(_name(session.owner, session.id))

    async def _append(self, session: OpenSession, length: int, entry: dict[str, Any]) -> int:
        """Add an entry to a session's list of this length; returns as ``_ADD``.

        Raises:
            UnavailableError: Redis cannot be used.
        """
        content = await to_thread.run_sync(json_codec.dumps, entry)
        keys, arguments = [_name(session.owner, session.id)], [length, content, self._milliseconds]
        with self._explain_errors():
            return int(await self._add_entry(keys=keys, args=arguments))

    async def expire(self) -> None:
        """Check that Redis is there, where lists expire by themselves.

        Raises:
            UnavailableError: it is not.
        """
        with self._explain_errors():
            await self._client.ping()

    async def shut_down(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _name(owner: str, identifier: str) -> str:
    """The name of the list of a session."""
    return f"{_PREFIX}{owner}:{identifier}"
