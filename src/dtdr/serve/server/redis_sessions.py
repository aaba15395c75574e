"""Sessions in Redis or Valkey, so that any of several servers answers any step of any session."""

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
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import before_record, parse_before
from dtdr.data.run import CallLike
from dtdr.errors import UnavailableError
from dtdr.net.limits import Limits
from dtdr.net.redis_client import connect, describe_address, explain_errors
from dtdr.serve.server.models import ModelRegistry
from dtdr.serve.server.served_session import ServedSession, Told
from dtdr.serve.server.sessions import Sessions
from dtdr.serve.server.snapshots import SHORT_BYTES

_PREFIX = "dtdr:session:2:"
"""Of the names of all lists, before the API key's id and the session's, so that no key reaches the
sessions of another; the number changes with what they hold."""

_OWNER_PREFIX = "dtdr:sessions:2:"
"""Prefix of the names that hold the bookkeeping of each API key's sessions."""

_SESSION_BYTES = 4_000_000
"""Of one session, so that no session takes a server's time from all others."""

_SHORT_BYTES = 1_000
"""Of compressed entries that are read in the event loop: they unpack to 1 MB at most."""

_COMPRESS = 200
"""Bytes from which an entry is compressed, which takes 6 µs: sessions of four calls with outputs of
200 characters take a fifth less than if it were 500."""

_ADD = """
local length = redis.call('LLEN', KEYS[1])
local expected = tonumber(ARGV[1])
if length ~= expected then
  if expected == 0 then return 1 end
  if length == 0 then return -1 end
  return 0
end
if KEYS[2] then
  local open, weights = KEYS[2], KEYS[3]
  local id, weight, limit, prefix = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- Where one of the two was evicted, sessions count again when they grow.
  if redis.call('HLEN', weights) ~= redis.call('ZCARD', open) + 1 then
    redis.call('DEL', open, weights)
  end
  local function look(latest)
    local changes = 0
    local range = redis.call('ZRANGEBYSCORE', open, '-inf', latest, 'WITHSCORES', 'LIMIT', 0, 100)
    for i = 1, #range, 2 do
      local left = redis.call('PTTL', prefix .. range[i])
      if left < 0 then
        redis.call('HINCRBY', weights, '', -redis.call('HGET', weights, range[i]))
        redis.call('HDEL', weights, range[i])
        redis.call('ZREM', open, range[i])
        changes = changes + 1
      elseif now + left > range[i + 1] + 1000 then
        redis.call('ZADD', open, now + left, range[i])
        changes = changes + 1
      end
    end
    return changes
  end
  local function recount()
    local all, sum = redis.call('HGETALL', weights), 0
    for i = 1, #all, 2 do
      if all[i] ~= '' then sum = sum + all[i + 1] end
    end
    local counted = tonumber(redis.call('HGET', weights, '') or 0)
    redis.call('HSET', weights, '', sum)
    return sum ~= counted
  end
  look(now)
  local more = weight - (redis.call('HGET', weights, id) or 0)
  local held
  repeat
    held = tonumber(redis.call('HGET', weights, '') or 0)
    local fits = held + more <= limit
    if not fits and look('+inf') == 0 and not recount() then
      local first = redis.call('ZRANGE', open, 0, 0, 'WITHSCORES')
      return {held, (first[2] or now) - now}
    end
  until fits
  redis.call('HINCRBY', weights, '', more)
  redis.call('HSET', weights, id, weight)
  redis.call('ZADD', open, now + ARGV[3], id)
  redis.call('PEXPIRE', open, 2 * ARGV[3])
  redis.call('PEXPIRE', weights, 2 * ARGV[3])
end
redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
"""Begins a list (expected length 0), or appends to it where nobody else has since: 1, also for a
list that began before its answer was lost; 0 where somebody has, -1 where the list is gone.

Beside the lists stand, for each API key, when its sessions expire and what they weigh. A request
that adds nothing prolongs its list and not that, so a session counts until its list is gone. Where
there is no room, the lists that would expire first are looked for too, since Redis may have evicted
them, and the weights are counted again. If there is none even so, nothing is added, and the answer
is what the sessions hold and the milliseconds until the first expires."""

_READ = """
local is_open = redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {is_open, redis.call('LRANGE', KEYS[1], ARGV[1], -1)}
"""
"""Reads a list from some entry on, and prolongs it; a full Redis does so too. As a script it takes
the client 55 µs, as a pipeline of both commands 77 to 104."""

_CLOSE = """
redis.call('DEL', KEYS[1])
local weight = KEYS[3] and redis.pcall('HGET', KEYS[3], ARGV[1])
if type(weight) == 'string' and type(redis.pcall('HINCRBY', KEYS[3], '', -weight)) == 'number' then
  redis.call('HDEL', KEYS[3], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
end
"""
"""Drops a list. A full Redis does not subtract its weight, which is done when its time is over."""


class RedisSessions(Sessions):
    """A list for each session: what it began with, then one entry a request that added calls.

    The process keeps the sessions that it used last as they are, reads what others added since, and
    reads whole those that it does not have. Lists expire by themselves. What the sessions of one
    API key hold is limited over all processes; what all hold is up to Redis.

    Args:
        url: see ``dtdr.net.redis_client.connect``.
        limits: how long a session lives, what those of a key may hold, and how many this process
            keeps at hand.
        models: that sessions may be of.

    Raises:
        InputError: the address is not one of Redis.
        MissingExtraError: the package redis is not installed.
    """

    def __init__(self, url: str, limits: Limits, models: ModelRegistry) -> None:
        super().__init__(limits)
        self._models = models
        self._milliseconds = max(1, round(1_000 * limits.session_seconds))
        self._address = describe_address(url)
        self._client = connect(url, asynchronous=True)
        self._add_entry = self._client.register_script(_ADD)
        self._read_entries = self._client.register_script(_READ)
        self._close = self._client.register_script(_CLOSE)

    async def open(self, session: ServedSession) -> None:
        """Hold a new session; see ``Sessions``."""
        start = {
            "model": session.model.name,
            "owner": session.owner,
            "query": session.query,
            "before": session.before,
            "calls": session.calls,
        }
        await self._append(session, 0, start, session.bytes, session.bytes)
        self._keep(session)

    async def find(
        self, identifier: str, owner: str, *, may_lack_calls: bool = False
    ) -> ServedSession:
        """An open session, whose time to live starts again; see ``Sessions``."""
        session = self._open.get(identifier)
        if session is not None and session.owner != owner:
            raise self._explain_missing()
        if session is None or not may_lack_calls:
            session = await self._read(identifier, owner, session)
        if session.id in self._open:
            self._use(session)
        else:
            self._keep(session)
        return session

    async def _read(
        self, identifier: str, owner: str, known: ServedSession | None
    ) -> ServedSession:
        """The session with everything that was added to it by now."""
        first = 0 if known is None else known.version + 1
        try:
            with self._explain_errors():
                is_open, entries = await self._read_entries(
                    keys=[_name(owner, identifier)], args=[first, self._milliseconds]
                )
        except UnavailableError as error:
            if type(error.__cause__) is ResponseError:  # it is no list
                raise _unreadable() from error
            raise
        if not is_open or (known is None and not entries):
            if known is not None:
                self._drop(known)
            raise self._explain_missing()
        try:
            decode = partial(self._decode, identifier, entries, first)
            is_short = sum(map(len, entries)) <= _SHORT_BYTES
            start, told = decode() if is_short else await to_thread.run_sync(decode)
            # Another request may have read the session while this one waited.
            session = self._open.get(identifier, known) or start
            assert session is not None
            for item in told[session.version + 1 - max(first, 1) :]:
                self._add(session, item)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise _unreadable() from error
        if session.owner != owner:
            raise self._explain_missing()
        return session

    def _decode(
        self, identifier: str, entries: Sequence[bytes], first: int
    ) -> tuple[ServedSession | None, list[Told]]:
        """What a session began with, where the entries begin there, and what was added."""
        room = _SESSION_BYTES
        records = []
        for entry in entries:
            content = _unpack(entry, room)
            room -= len(content)
            records.append(json_codec.loads(content))
        start = None if first else self._restore(identifier, records.pop(0))
        return start, [Told.of(_calls(record), record["key"]) for record in records]

    def _restore(self, identifier: str, start: dict[str, Any]) -> ServedSession:
        model = self._models.get(start["model"])
        if model is None:
            raise HTTPException(
                503,
                "the model of this session is not served here; give every server the same models",
            )
        before = parse_before(start["before"])
        return ServedSession(
            model, start["query"], _calls(start), start["owner"], before, identifier
        )

    async def call(self, session: ServedSession, told: Told, version: int) -> bool:
        """Tell a session what was called; see ``Sessions``."""
        self._check_length(session, told)
        weight = session.bytes + told.bytes
        if weight > _SESSION_BYTES:
            raise HTTPException(
                422, f"the session would have more than {_SESSION_BYTES:,} bytes; open another one"
            )
        entry = {"key": told.key, "calls": told.calls}
        done = await self._append(session, version + 1, entry, weight, told.bytes)
        if done < 0:
            self._drop(session)
            raise self._explain_missing()
        if done and session.version == version:  # not if another request read it since
            self._add(session, told)
        return bool(done)

    async def close(self, session: ServedSession) -> None:
        """Drop a session, here and, once they look, in all servers."""
        with self._explain_errors():
            await self._close(keys=_keys(session), args=[session.id])
        self._drop(session)

    async def _append(
        self, session: ServedSession, length: int, entry: dict[str, Any], weight: int, more: int
    ) -> int:
        """Add an entry to the list of a session; what ``_ADD`` says.

        Args:
            session: whose list it is.
            length: that the list has.
            entry: to add.
            weight: of the session with it.
            more: of that, what the entry adds.

        Raises:
            HTTPException: the sessions of its key would be too large together; nothing was added.
            UnavailableError: Redis cannot be used.
        """
        content = (
            _encode(entry) if more <= SHORT_BYTES else await to_thread.run_sync(_encode, entry)
        )
        arguments = [length, content, self._milliseconds, session.id, weight]
        arguments += [self._limits.key_session_bytes, _name(session.owner, "")]
        keys = _keys(session)
        with self._explain_errors():
            try:
                done = await self._add_entry(keys=keys, args=arguments)
            except ResponseError as error:
                # The bookkeeping of a key's sessions is damaged: they count again when they grow.
                if type(error) is not ResponseError or not keys[1:]:
                    raise
                await self._client.delete(*keys[1:])
                done = await self._add_entry(keys=keys, args=arguments)
        if isinstance(done, list):
            held, milliseconds = done
            raise self._key_full(held, milliseconds / 1_000)
        return int(done)

    async def expire(self) -> int:
        """Let go of sessions that this process did not use for long; asks whether Redis is there.

        Returns:
            0: a session that was not used here may have been used elsewhere.

        Raises:
            UnavailableError: Redis is not there.
        """
        self._expire()
        with self._explain_errors():
            await self._client.ping()
        return 0

    async def shut_down(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _explain_errors(self) -> AbstractContextManager[None]:
        return explain_errors("sessions", self._address)

    def _keep(self, session: ServedSession) -> None:
        super()._keep(session)
        while len(self._open) > 1 and (
            len(self._open) > self._limits.sessions
            or self._bytes.total() > self._limits.session_bytes
        ):
            self._drop(next(iter(self._open.values())))


def _unreadable() -> HTTPException:
    """The refusal of a session that this process cannot read."""
    return HTTPException(404, "the session in Redis cannot be read by this version; open it again")


def _name(owner: str, identifier: str) -> str:
    """The name of the list of a session."""
    return f"{_PREFIX}{owner}:{identifier}"


def _keys(session: ServedSession) -> list[str]:
    """The names of a session's list, and of the bookkeeping of its key's sessions."""
    names = [_name(session.owner, session.id)]
    if session.owner:
        names += [f"{_OWNER_PREFIX}open:{session.owner}", f"{_OWNER_PREFIX}weights:{session.owner}"]
    return names


def _calls(record: dict[str, Any]) -> list[CallLike]:
    return [call if isinstance(call, str) else ToolCall.from_dict(call) for call in record["calls"]]


def _encode(entry: dict[str, Any]) -> bytes:
    """An entry as it is kept; calls and messages become their records."""
    record = dict(entry)
    record["calls"] = [
        call.to_dict() if isinstance(call, ToolCall) else call for call in entry["calls"]
    ]
    if "before" in entry:
        record["before"] = list(map(before_record, entry["before"]))
    content = json_codec.dumps(record)
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
