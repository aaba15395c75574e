"""Messages over standard input and output: each request gets an answer, also one not understood."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import anyio
import anyio.to_thread
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from dtdr.agents.gateway.messages import BadMessageError, iter_messages, read_fields
from dtdr.net.bodies import problem_of

LARGEST_MESSAGE = 4 << 20
"""Bytes of a client's message, as over HTTP."""

_ENDS = 10_000
"""Bytes kept of the beginning and of the end of a larger message, for its id."""


@asynccontextmanager
async def open_standard_pipes() -> AsyncIterator[tuple[Any, Any]]:
    """The streams of messages from and to the client.

    Meanwhile, what else this process reads is empty, and what it prints goes to standard error.
    """
    source, target = _take(0, "rb"), _take(1, "wb")
    async with open_pipes(source, target) as streams:
        yield streams


@asynccontextmanager
async def open_pipes(source: BinaryIO, target: BinaryIO) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of messages from and to a client, one message per line."""
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    pipes = _Pipes(source, target, to_server)
    async with anyio.create_task_group() as tasks, from_client, to_client:
        tasks.start_soon(pipes.read)
        tasks.start_soon(pipes.write, from_server)
        yield from_client, to_client


class _Pipes:
    def __init__(
        self, source: BinaryIO, target: BinaryIO, received: MemoryObjectSendStream[SessionMessage]
    ) -> None:
        self._source, self._target, self._received = source, target, received
        self._turn = anyio.Lock()

    async def read(self) -> None:
        """Pass the client's messages on until it closes its end."""
        async with self._received:
            try:
                while line := await self._read_line():
                    for message in iter_messages(line, problem_of) if line.strip() else ():
                        await self._take(message)
                    del line  # not kept while the next one is waited for
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass  # the server ended

    async def _read_line(self) -> bytes:
        """The next line; of a line that is too large, the refusal is written instead."""
        while True:
            line: bytes = await _in_thread(self._source.readline, LARGEST_MESSAGE + 1)
            if len(line) <= LARGEST_MESSAGE:
                return line
            start, end = line[:_ENDS], line
            while end and not end.endswith(b"\n"):
                more = await _in_thread(self._source.readline, 1 << 16)
                end = end[-_ENDS:] + more if more else b""
            reason = f"a message has at most {LARGEST_MESSAGE} bytes"
            fields = read_fields(start, end)
            await self._take(BadMessageError(types.INVALID_REQUEST, reason, fields))

    async def _take(self, message: types.JSONRPCMessage | BadMessageError) -> None:
        if not isinstance(message, BadMessageError):
            await self._received.send(SessionMessage(message))
        elif message.is_answer:  # a request of the gateway waits for it
            await self._received.send(SessionMessage(message.to_error()))
        elif message.is_request:
            await self._write_line(message.to_line())

    async def write(self, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write the gateway's messages until it ends or the client is gone."""
        async with messages:
            try:
                async for item in messages:
                    await self._write_line(await self._encode(item.message))
            except (BrokenPipeError, ValueError):
                pass

    async def _encode(self, message: types.JSONRPCMessage) -> bytes:
        """A message on one line; an error in its place if it cannot be written."""
        try:
            return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        except ValueError as error:
            reason = f"the message cannot be written: {error}"
        data = types.ErrorData(code=types.INTERNAL_ERROR, message=reason)
        refusal = types.JSONRPCError(jsonrpc="2.0", id=getattr(message, "id", None), error=data)
        if isinstance(message, types.JSONRPCRequest):  # which the gateway itself waits for
            await self._received.send(SessionMessage(refusal))
            return b""
        return refusal.model_dump_json(by_alias=True).encode() + b"\n"

    async def _write_line(self, line: bytes) -> None:
        async with self._turn:
            await _in_thread(self._write, line)

    def _write(self, line: bytes) -> None:
        self._target.write(line)
        self._target.flush()


async def _in_thread(work: Any, *arguments: Any) -> Any:
    return await anyio.to_thread.run_sync(work, *arguments, abandon_on_cancel=True)


def _take(descriptor: int, mode: str) -> BinaryIO:
    """The file of a standard stream, whose number is another file's from now on."""
    sys.stdout.flush()
    stream: Any = os.fdopen(os.dup(descriptor), mode)
    other = os.open(os.devnull, os.O_RDONLY) if descriptor == 0 else os.dup(2)
    os.dup2(other, descriptor)
    os.close(other)
    return stream  # type: ignore[no-any-return]
