"""Feedback in a stream of Redis, for several servers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.net.redis_client import connect, describe_address, explain_errors
from dtdr.serve.feedback.file_log import parse
from dtdr.serve.feedback.log import DuplicateError, Entry, FeedbackLog

PREFIX = "dtdr:feedback:1:"
"""Of the names of all streams; the number is the version of the format."""

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

    def _append(self, demonstrations: Sequence[Demonstration]) -> None:
        """Add entries; see ``FeedbackLog``."""
        arguments: list[Any] = [secrets.token_hex(8), _ID_SECONDS]
        for item in demonstrations:
            arguments += [item.id, json.dumps(item.to_dict(), separators=(",", ":"))]
        with self._explain_errors():
            number = self._script(keys=[self._name], args=arguments)
        if number:
            raise DuplicateError(number - 1)

    def read(self, position: str, limit: int) -> list[Entry]:
        """The next entries; see ``FeedbackLog``."""
        with self._explain_errors():
            start = f"({position}" if position else "-"
            entries = self._client.xrange(self._name, min=start, count=limit)
        return [
            Entry(
                identifier.decode(),
                parse(fields.get(b"demonstration", b"")),
                int(identifier.split(b"-")[0]) / 1_000,
            )
            for identifier, fields in entries
        ]
