"""Sessions in Redis, shared by several servers."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from anyio import to_thread
from redis.exceptions import ResponseError
from starlette.exceptions import HTTPException

from dtdr.data import json_codec
from dtdr.data.run import Run
from dtdr.errors import UnavailableError
from dtdr.net.limits import Limits
from dtdr.net.redis_client import connect, describe_address, explain_errors
from dtdr.serve.server.models import ModelRegistry
from dtdr.serve.server.sessions import KEY_FULL, OpenSession, full, missing

_PREFIX = "dtdr:session:3:"
"""Of the names of all lists, before the ids of the API key and the session, so that no key reaches
another's sessions; the number is the version of the format."""

_WEIGHTS = "dtdr:sessions:3:"
"""Of the names of the hashes with the sizes of each API key's sessions."""

_SESSION_BYTES = 4_000_000
"""Of one session, so that none takes much of a server's time."""

_COMPRESS = 200
"""Bytes from which an entry is compressed, which takes 6 µs."""

_ADD = """
local length, expected = redis.call('LLEN', KEYS[1]), tonumber(ARGV[1])
if length ~= expected then
  if expected == 0 then return 1 end
  return length == 0 and -1 or 0
end
if KEYS[2] then
  local id, weight, limit, prefix = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
  local more = weight - (redis.call('HGET', KEYS[2], id) or 0)
  local total = tonumber(redis.call('HGET', KEYS[2], '') or 0)
  if total == 0 or total + more > limit then
    local all, first = redis.call('HGETALL', KEYS[2]), ARGV[3]
    total = 0
    for i = 1, #all, 2 do
      local left = all[i] == '' and -1 or redis.call('PTTL', prefix .. all[i])
      if left >= 0 then
        total, first = total + all[i + 1], math.min(first, left)
      else
        redis.call('HDEL', KEYS[2], all[i])
      end
    end
    redis.call('HSET', KEYS[2], '', total)
    if total + more > limit then return {total, first} end
  end
  redis.call('HINCRBY', KEYS[2], '', more)
  redis.call('HSET', KEYS[2], id, weight)
  redis.call('PEXPIRE', KEYS[2], 2 * ARGV[3])
end
redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
"""Begins a list (expected length 0), or appends to it if nobody else has since: 1, also for a list
that began before its answer was lost; 0 if somebody has, -1 if the list is gone.

A hash for each API key has the sizes of its sessions, and their sum under an empty name. Sessions
that expired or were evicted count until there is no room; then all are counted again. If there is
still no room, nothing is added, and the answer is the sum and the milliseconds until the first one
expires."""

_READ = """
local is_open = redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {is_open, redis.call('LRANGE', KEYS[1], 0, -1)}
"""
"""Reads a list and restarts its time to live; a full Redis does so too."""

_CLOSE = """
redis.call('DEL', KEYS[1])
local weight = KEYS[2] and redis.pcall('HGET', KEYS[2], ARGV[1])
if type(weight) == 'string' and type(redis.pcall('HINCRBY', KEYS[2], '', -weight)) == 'number' then
  redis.call('HDEL', KEYS[2], ARGV[1])
end
"""
"""Drops a list. A full Redis does not subtract its size until all are counted."""


class RedisSessions:
    """A list for each session: its start, then one entry for each request that added calls.

    Lists expire by themselves. The sessions of one API key are limited over all processes, those of
    all keys by Redis alone. The methods are those of ``Sessions``.

    Args:
        url: see ``dtdr.net.redis_client.connect``.
        limits: of a session's age, and of the size of a key's sessions.
        models: of the sessions.

    Raises:
        InputError: the address is not one of Redis.
        MissingExtraError: the package redis is not installed.
    """

    def __init__(self, url: str, limits: Limits, models: ModelRegistry) -> None:
        self._limits = limits
        self._models = models
        self._milliseconds = max(1, round(1_000 * limits.session_seconds))
        self._address = describe_address(url)
        self._client = connect(url, asynchronous=True)
        self._add_entry = self._client.register_script(_ADD)
        self._read_entries = self._client.register_script(_READ)
        self._close = self._client.register_script(_CLOSE)

    async def open(self, session: OpenSession) -> None:
        """Keep a new session; see ``Sessions``."""
        start = {"model": session.model.name, "run": session.run.to_dict()}
        await self._append(session, 0, start)

    async def find(self, identifier: str, owner: str) -> OpenSession:
        """An open session, whose time to live starts again; see ``Sessions``."""
        try:
            with self._explain_errors():
                is_open, entries = await self._read_entries(
                    keys=[_name(owner, identifier)], args=[self._milliseconds]
                )
        except UnavailableError as error:
            if type(error.__cause__) is ResponseError:  # it is not a list
                raise _unreadable() from error
            raise
        if not is_open:
            raise missing(self._limits)
        try:
            return await to_thread.run_sync(self._decode, identifier, owner, entries)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise _unreadable() from error

    def _decode(self, identifier: str, owner: str, entries: Sequence[bytes]) -> OpenSession:
        room = _SESSION_BYTES
        records = []
        for entry in entries:
            content = _unpack(entry, room)
            room -= len(content)
            records.append(json_codec.loads(content))
        start, *added = records
        model = self._models.get(start["model"])
        if model is None:
            raise HTTPException(
                503,
                "the model of this session is not served here; give every server the same models",
            )
        for record in added:
            start["run"]["calls"] += record["calls"]
        run = Run.from_dict(start["run"])
        return OpenSession.of(
            model, run, owner, frozenset(record["key"] for record in added), identifier
        )

    async def add(self, session: OpenSession, longer: OpenSession) -> bool:
        """Replace a session that was found; see ``Sessions``."""
        if longer.bytes > _SESSION_BYTES:
            raise HTTPException(
                422, f"the session would have more than {_SESSION_BYTES:,} bytes; open another one"
            )
        (key,) = longer.keys - session.keys
        calls = [call.to_dict() for call in longer.run.calls[len(session.run.calls) :]]
        entry = {"key": key, "calls": calls}
        done = await self._append(longer, 1 + len(session.keys), entry)
        if done < 0:
            raise missing(self._limits)
        return bool(done)

    async def close(self, session: OpenSession) -> None:
        """Drop a session, for all servers."""
        with self._explain_errors():
            await self._close(keys=_keys(session), args=[session.id])

    async def _append(self, session: OpenSession, length: int, entry: dict[str, Any]) -> int:
        """Add an entry to a session's list of this length; returns as ``_ADD``.

        Raises:
            HTTPException: the sessions of its key would be too large; nothing was added.
            UnavailableError: Redis cannot be used.
        """
        content = await to_thread.run_sync(_encode, entry)
        arguments = [length, content, self._milliseconds, session.id, session.bytes]
        arguments += [self._limits.key_session_bytes, _name(session.owner, "")]
        keys = _keys(session)
        with self._explain_errors():
            try:
                done = await self._add_entry(keys=keys, args=arguments)
            except ResponseError as error:
                # The sizes of a key's sessions are damaged: they count again when they grow.
                if type(error) is not ResponseError or not keys[1:]:
                    raise
                await self._client.delete(*keys[1:])
                done = await self._add_entry(keys=keys, args=arguments)
        if isinstance(done, list):
            total, milliseconds = done
            raise full(KEY_FULL.format(total), milliseconds / 1_000)
        return int(done)

    async def expire(self) -> int:
        """0, since lists expire by themselves.

        Raises:
            UnavailableError: Redis is not there.
        """
        with self._explain_errors():
            await self._client.ping()
        return 0

    async def shut_down(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _explain_errors(self) -> AbstractContextManager[None]:
        return explain_errors("sessions", self._address)


def _unreadable() -> HTTPException:
    """The refusal of a session that this process cannot read."""
    return HTTPException(404, "the session in Redis cannot be read by this version; open it again")


def _name(owner: str, identifier: str) -> str:
    """The name of the list of a session."""
    return f"{_PREFIX}{owner}:{identifier}"


def _keys(session: OpenSession) -> list[str]:
    """The names of a session's list, and of the sizes of its key's sessions."""
    name = _name(session.owner, session.id)
    return [name, f"{_WEIGHTS}{session.owner}"] if session.owner else [name]


def _encode(entry: dict[str, Any]) -> bytes:
    content = json_codec.dumps(entry)
    return zlib.compress(content) if len(content) > _COMPRESS else content


def _unpack(entry: bytes, limit: int) -> bytes:
    """The JSON of an entry; compressed data does not begin like a JSON object.

    Raises:
        ValueError: it is larger than a session may be.
    """
    if entry.startswith(b"{"):
        return entry
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(entry, max(1, limit))
    if not unpacker.eof:
        raise ValueError("too large")
    return content
