"""Sessions in Redis or Valkey, so that any of several servers answers any step of any session."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from starlette.exceptions import HTTPException

from dtdr import json_codec
from dtdr.demonstrations import before_record, parse_before
from dtdr.plan import ToolCall
from dtdr.redis_client import connect, describe_address, explain_errors
from dtdr.run import BeforeLike, CallLike
from dtdr.server.models import ModelRegistry, ServedModel
from dtdr.server.sessions import ServedSession, SessionStore, weigh
from dtdr.server.settings import Limits

_PREFIX = "dtdr:session:1:"
"""Of the names of all lists; the number changes with what they hold."""

_SESSION_BYTES = 4_000_000
"""Of one session, so that no session takes a server's time from all others."""

_COMPRESS = 500
"""Bytes from which an entry is compressed: outputs of 2,000 characters take a third then."""

_START = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('RPUSH', KEYS[1], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
"""
"""Begins a list, once where the answer was lost and it is sent again."""

_APPEND = """
local length = redis.call('LLEN', KEYS[1])
if length == 0 then return -1 end
if length ~= tonumber(ARGV[1]) then return 0 end
redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
"""Appends where nobody else has since: 1; 0 where somebody has, -1 where the list is gone."""


class RedisSessions(SessionStore):
    """A list for each session: what it began with, then one entry a request that added calls.

    The process keeps the sessions that it used last as they are, reads what others added since, and
    reads whole those that it does not have. Lists expire by themselves.

    Args:
        url: see ``dtdr.redis_client.connect``.
        limits: how long a session lives, and how many this process keeps at hand.
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
        self._start = self._client.register_script(_START)
        self._append = self._client.register_script(_APPEND)

    async def open(
        self,
        model: ServedModel,
        query: str,
        calls: Sequence[CallLike],
        owner: str,
        before: Sequence[BeforeLike] = (),
    ) -> ServedSession:
        """A new session; see ``SessionStore``."""
        session = ServedSession(model, query, calls, owner, before)
        start = {
            "model": model.name,
            "owner": owner,
            "query": query,
            "before": [before_record(item) for item in before],
            "calls": _records(calls),
        }
        with self._explain_errors():
            await self._start(
                keys=[_PREFIX + session.id], args=[_encode(start), self._milliseconds]
            )
        self._keep(session)
        return session

    async def find(
        self, identifier: str, owner: str, *, may_lack_calls: bool = False
    ) -> ServedSession:
        """An open session, whose time to live starts anew; see ``SessionStore``."""
        session = self._open.get(identifier)
        if session is None or not may_lack_calls:
            session = await self._read(identifier, session)
        if session.owner != owner:
            raise self._missing()
        if session.id in self._open:
            self._use(session)
        else:
            self._keep(session)
        return session

    async def _read(self, identifier: str, known: ServedSession | None) -> ServedSession:
        """The session with everything that was added to it by now."""
        first = 0 if known is None else known.version + 1
        with self._explain_errors():
            # No transaction: a full Redis reads, but takes none.
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.lrange(_PREFIX + identifier, first, -1)
                pipeline.pexpire(_PREFIX + identifier, self._milliseconds)
                entries, is_open = await pipeline.execute()
        # Another request may have read the session while this one waited.
        session = self._open.get(identifier, known)
        if not is_open or (session is None and not entries):
            if session is not None:
                self._drop(session)
            raise self._missing()
        try:
            if session is None:
                session = self._restore(identifier, _decode(entries[0]))
            for entry in entries[session.version + 1 - first :]:
                record = _decode(entry)
                self._add(session, _calls(record), record["key"])
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise HTTPException(
                404, "the session in Redis cannot be read by this version; open it again"
            ) from error
        return session

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

    async def call(
        self, session: ServedSession, calls: Sequence[CallLike], key: str, version: int
    ) -> bool:
        """Tell a session what was called; see ``SessionStore``."""
        self._check_length(session, calls)
        if session.bytes + weigh(calls) > _SESSION_BYTES:
            raise HTTPException(
                422, f"the session would hold more than {_SESSION_BYTES:,} bytes; open another one"
            )
        entry = _encode({"key": key, "calls": _records(calls)})
        with self._explain_errors():
            done = await self._append(
                keys=[_PREFIX + session.id], args=[version + 1, entry, self._milliseconds]
            )
        if done < 0:
            self._drop(session)
            raise self._missing()
        if done and session.version == version:  # not if another request read it since
            self._add(session, calls, key)
        return bool(done)

    async def close(self, session: ServedSession) -> None:
        """Drop a session, here and, once they look, in all servers."""
        with self._explain_errors():
            await self._client.delete(_PREFIX + session.id)
        self._drop(session)

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


def _records(calls: Sequence[CallLike]) -> list[Any]:
    return [call.to_dict() if isinstance(call, ToolCall) else call for call in calls]


def _calls(record: dict[str, Any]) -> list[CallLike]:
    return [call if isinstance(call, str) else ToolCall.from_dict(call) for call in record["calls"]]


def _encode(record: dict[str, Any]) -> bytes:
    content = json_codec.dumps(record)
    return zlib.compress(content) if len(content) > _COMPRESS else content


def _decode(entry: bytes) -> Any:
    """The record of an entry; no JSON object begins as compressed data does."""
    return json_codec.loads(entry if entry.startswith(b"{") else zlib.decompress(entry))
