"""Runs of requests, and the sessions of recent ones: a next step reads only its new calls."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from threading import Lock

from msgspec.json import Encoder
from msgspec.structs import asdict

from dtdr.data.calls import read_text
from dtdr.data.run import Run, as_run
from dtdr.errors import InputError
from dtdr.predict.model import Model
from dtdr.predict.session import Session
from dtdr.serve.server.schemas import CallMade, Object

_BYTES = 64_000_000
"""Estimated bytes of all kept runs of a model."""
_PER_BYTE = 4
"""Python needs about this much memory for a byte of a run."""

_encode = Encoder().encode


class RunCache:
    """Sessions of one model by a digest of their runs, least recently used first.

    A request takes the session of the longest known start of its run, adds the further calls, and
    puts it back under the digest of the whole run. So two requests never share a session, and an
    answer is the one that a new session would give.

    Args:
        model: that ranks.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._state_bytes = 300 * (100 + len(model.vocabulary))
        self._sessions: OrderedDict[bytes, tuple[Session, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    @contextlib.contextmanager
    def session(
        self,
        owner: str,
        query: str,
        calls: Sequence[CallMade | str],
        before: Sequence[Object],
        text: str | None = None,
    ) -> Iterator[Session]:
        """The session of a run, which is kept after the block unless that fails.

        Args:
            owner: id of the key that asks; keys share nothing.
            query: what the user asked for.
            calls: so far, oldest first.
            before: the conversation before the query.
            text: what the agent wrote before its next call.

        Raises:
            InputError: something is not a call or a message, or two calls share an id.
        """
        digests: list[bytes] = []
        size = 0
        with contextlib.suppress(UnicodeEncodeError):
            digests, size = _digests(owner, query, calls, before)
        session = self._take(digests)
        known = 0 if session is None else len(session.run.calls)
        if session is not None:
            try:
                for call in _add_calls(session.run, calls[known:]).calls[known:]:
                    session.call(call)
            except InputError:  # an earlier call without an id may have taken this one's
                session = None
        if session is None:
            session = self._model.session(read_run(query, calls, before))
        if text is None:
            yield session
        else:
            yield session.say(text)
            session.say(None)
        if digests and len(session.run.calls) == len(calls):
            self._keep(digests[-1], session, _PER_BYTE * size + self._state_bytes)

    def _take(self, digests: Sequence[bytes]) -> Session | None:
        with self._lock:
            for digest in reversed(digests):
                if digest in self._sessions:
                    session, size = self._sessions.pop(digest)
                    self._bytes -= size
                    return session
        return None

    def _keep(self, digest: bytes, session: Session, size: int) -> None:
        if size > _BYTES:
            return
        with self._lock:
            _, former = self._sessions.pop(digest, (None, 0))
            self._sessions[digest] = session, size
            self._bytes += size - former
            while self._bytes > _BYTES:
                _, (_, oldest) = self._sessions.popitem(last=False)
                self._bytes -= oldest


def _digests(
    owner: str, query: str, calls: Sequence[CallMade | str], before: Sequence[Object]
) -> tuple[list[bytes], int]:
    """Digests of the run before its first call, and after each; and the bytes of the run.

    Raises:
        UnicodeEncodeError: a text has half a surrogate pair.
    """
    running, size, digests = blake2b(digest_size=20), 0, []
    for part in ([owner, query, before], *calls):
        content = _encode(part)
        running.update(len(content).to_bytes(8, "big"))
        running.update(content)
        size += len(content)
        digests.append(running.digest())
    return digests, size


def are_names(calls: Sequence[CallMade | str]) -> bool:
    """Whether the calls are names of tools."""
    return all(isinstance(item, str) for item in calls)


def names_of(calls: Sequence[CallMade | str]) -> list[str]:
    """The names of the tools that were called."""
    return [item if isinstance(item, str) else item.tool for item in calls]


def record_of(call: CallMade) -> Object:
    """A call as the library takes it."""
    return {name: value for name, value in asdict(call).items() if value is not None}


def read_run(
    query: str,
    calls: Sequence[CallMade | str],
    before: Sequence[Object] = (),
    text: str | None = None,
) -> Run:
    """The run of a request; long outputs are cut.

    Raises:
        InputError: something is not a call or a message, or two calls share an id.
    """
    run = _add_calls(as_run(query, (), before), calls)
    run.text = read_text(text, "the text before a call")
    return run


def _add_calls(run: Run, calls: Sequence[CallMade | str]) -> Run:
    return run.with_calls(item if isinstance(item, str) else record_of(item) for item in calls)
