"""Sessions in Redis, shared by several servers."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
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
from dtdr.serve.server.sessions import Session, key_full, missing

_PREFIX = "dtdr:session:3:"
"""Of the names of all lists, before the API key's id and the session's, so that no key reaches the
sessions of another; the number changes with what they hold."""

_WEIGHTS = "dtdr:sessions:3:"
"""Prefix of the names that hold what the sessions of each API key weigh."""

_SESSION_BYTES = 4_000_000
"""Of one session, so that no session takes a server's time from all others."""

_SHORT_BYTES = 1_000
"""Of compressed entries that are read in the event loop: they unpack to 1 MB at most."""

_SHORT_ENTRY = 8_000
"""Bytes of an entry that is written in the event loop: 0.1 ms."""

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
"""Begins a list (expected length 0), or appends to it where nobody else has since: 1, also for a
list that began before its answer was lost; 0 where somebody has, -1 where the list is gone.

A hash for each API key has what its sessions weigh, and the sum under an empty name. Sessions that
expired or were evicted count until there is no room, when all are counted again. If there is none
even so, nothing is added, and the answer is what the sessions hold and the milliseconds until the
first expires."""

_READ = """
local is_open = redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {is_open, redis.call('LRANGE', KEYS[1], 0, -1)}
"""
"""Reads a list and prolongs it; a full Redis does so too."""

_CLOSE = """
redis.call('DEL', KEYS[1])
local weight = KEYS[2] and redis.pcall('HGET', KEYS[2], ARGV[1])
if type(weight) == 'string' and type(redis.pcall('HINCRBY', KEYS[2], '', -weight)) == 'number' then
  redis.call('HDEL', KEYS[2], ARGV[1])
end
"""
"""Drops a list. A full Redis does not subtract its weight, which is done when all are counted."""


class RedisSessions:
    """A list for each session: what it began with, then one entry a request that added calls.

    Lists expire by themselves. What the sessions of one API key hold is limited over all processes;
    what all hold is up to Redis. The methods are those of ``Sessions``.

    Args:
        url: see ``dtdr.net.redis_client.connect``.
        limits: how long a session lives, and what those of a key may hold.
        models: that sessions may be of.

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

    async def open(self, session: Session) -> None:
        """Keep a new session; see ``Sessions``."""
        start = {"model": session.model.name, "run": session.run.to_dict()}
        await self._append(session, 0, start, session.bytes)

    async def find(self, identifier: str, owner: str) -> Session:
        """An open session, whose time to live starts again; see ``Sessions``."""
        try:
            with self._explain_errors():
                is_open, entries = await self._read_entries(
                    keys=[_name(owner, identifier)], args=[self._milliseconds]
                )
        except UnavailableError as error:
            if type(error.__cause__) is ResponseError:  # it is no list
                raise _unreadable() from error
            raise
        if not is_open:
            raise missing(self._limits)
        decode = partial(self._decode, identifier, owner, entries)
        is_short = sum(map(len, entries)) <= _SHORT_BYTES
        try:
            return decode() if is_short else await to_thread.run_sync(decode)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise _unreadable() from error

    def _decode(self, identifier: str, owner: str, entries: Sequence[bytes]) -> Session:
        room = _SESSION_BYTES
        records = []
        for entry in entries:
            content = _unpack(entry, room)
            room -= len(content)
            records.append(json_codec.loads(content))
        start, *told = records
        model = self._models.get(start["model"])
        if model is None:
            raise HTTPException(
                503,
                "the model of this session is not served here; give every server the same models",
            )
        for record in told:
            start["run"]["calls"] += record["calls"]
        run = Run.from_dict(start["run"])
        return Session.of(
            model, run, owner, frozenset(record["key"] for record in told), identifier
        )

    async def add(self, session: Session, told: Session) -> bool:
        """Put a session in the place of one that was found; see ``Sessions``."""
        if told.bytes > _SESSION_BYTES:
            raise HTTPException(
                422, f"the session would have more than {_SESSION_BYTES:,} bytes; open another one"
            )
        (key,) = told.keys - session.keys
        calls = [call.to_dict() for call in told.run.calls[len(session.run.calls) :]]
        entry = {"key": key, "calls": calls}
        done = await self._append(told, 1 + len(session.keys), entry, told.bytes - session.bytes)
        if done < 0:
            raise missing(self._limits)
        return bool(done)

    async def close(self, session: Session) -> None:
        """Drop a session, for all servers."""
        with self._explain_errors():
            await self._close(keys=_keys(session), args=[session.id])

    async def _append(self, session: Session, length: int, entry: dict[str, Any], more: int) -> int:
        """Add an entry to the list of a session, which has this length; what ``_ADD`` says.

        Raises:
            HTTPException: the sessions of its key would be too large together; nothing was added.
            UnavailableError: Redis cannot be used.
        """
        content = (
            _encode(entry) if more <= _SHORT_ENTRY else await to_thread.run_sync(_encode, entry)
        )
        arguments = [length, content, self._milliseconds, session.id, session.bytes]
        arguments += [self._limits.key_session_bytes, _name(session.owner, "")]
        keys = _keys(session)
        with self._explain_errors():
            try:
                done = await self._add_entry(keys=keys, args=arguments)
            except ResponseError as error:
                # What a key's sessions weigh is damaged: they count again when they grow.
                if type(error) is not ResponseError or not keys[1:]:
                    raise
                await self._client.delete(*keys[1:])
                done = await self._add_entry(keys=keys, args=arguments)
        if isinstance(done, list):
            total, milliseconds = done
            raise key_full(total, milliseconds / 1_000)
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


def _keys(session: Session) -> list[str]:
    """The names of a session's list, and of the weights of its key's sessions."""
    name = _name(session.owner, session.id)
    return [name, f"{_WEIGHTS}{session.owner}"] if session.owner else [name]


def _encode(entry: dict[str, Any]) -> bytes:
    content = json_codec.dumps(entry)
    return zlib.compress(content) if len(content) > _COMPRESS else content


def _unpack(entry: bytes, limit: int) -> bytes:
    """The JSON of an entry; no JSON object begins as compressed data does.

    Raises:
        ValueError: it has more bytes than a session may have.
    """
    if entry.startswith(b"{"):
        return entry
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(entry, max(1, limit))
    if not unpacker.eof:
        raise ValueError("too large")
    return content
