"""Feedback in a stream of Redis, for several servers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

from dtdr.net.redis_client import connect, describe_address, explain_errors
from dtdr.serve.feedback.log import DuplicateError, Entry, FeedbackLog, parse

PREFIX = "dtdr:feedback:1:"
"""Prefix of the names of all streams; the number is the version of the format."""

_ID_SECONDS = 7 * 86_400
"""For which a repeated id is refused."""

_APPEND = """
for i = 3, #ARGV, 2 do
  local token = redis.call('GET', KEYS[1] .. ':id:' .. ARGV[i])
  if token == ARGV[1] then return 0 end
  if token then return (i - 1) / 2 end
end
for i = 3, #ARGV, 2 do
  redis.call('SET', KEYS[1] .. ':id:' .. ARGV[i], ARGV[1], 'EX', ARGV[2])
  redis.call('XADD', KEYS[1], '*', 'demonstration', ARGV[i + 1])
end
return 0
"""
"""Adds all or none: 0, or the number from 1 of the first whose id another request had. The token of
a request lets it be repeated after a lost answer."""


class RedisLog(FeedbackLog):
    """A stream; positions are the ids that Redis gives its entries.

    Args:
        url: see ``dtdr.net.redis_client.connect``.
        model: whose feedback it is.
        redact: remove secrets and personal data.
    """

    def __init__(self, url: str, model: str, *, redact: bool = True) -> None:
        super().__init__(redact=redact)
        self._name = PREFIX + model
        self._explain_errors = partial(explain_errors, "logs of feedback", describe_address(url))
        self._client = connect(url)
        self._script = self._client.register_script(_APPEND)

    def _append(self, ids: Sequence[str], records: Sequence[str]) -> None:
        """Add entries; see ``FeedbackLog``."""
        arguments: list[Any] = [secrets.token_hex(8), _ID_SECONDS]
        for pair in zip(ids, records, strict=True):
            arguments += pair
        with self._explain_errors():
            position = self._script(keys=[self._name], args=arguments)
        if position:
            raise DuplicateError(position - 1)

    def read(self, position: str, limit: int) -> list[Entry]:
        """The next entries; see ``FeedbackLog``."""
        with self._explain_errors():
            start = f"({position}" if position else "-"
            entries = self._client.xrange(self._name, min=start, count=limit)
        read = []
        for identifier, fields in entries:
            item, sender = parse(fields.get(b"demonstration", b""))
            moment = int(identifier.split(b"-")[0]) / 1_000
            read.append(Entry(identifier.decode(), item, moment, sender))
        return read
