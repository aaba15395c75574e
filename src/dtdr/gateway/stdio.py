"""Serves a gateway over standard input and output, as MCP streams without threads.

The SDK's own stdio server reads and writes in worker threads, which costs a call about a
millisecond on a busy machine; pipes need none.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from dtdr.gateway.gateway import Gateway
from dtdr.gateway.server import GatewayServer

CHUNK = 1 << 16


async def serve_stdio(gateway: Gateway) -> None:
    """Serve one client over standard input and output, until it closes them."""
    async with gateway.run(), anyio.create_task_group() as tasks:

        async def terminate(number: int) -> None:
            tasks.cancel_scope.cancel()

        tasks.start_soon(on_signals, terminate, signal.SIGTERM)
        server = GatewayServer(gateway)
        async with standard_streams() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def on_signals(act: Callable[[int], Awaitable[None]], *numbers: signal.Signals) -> None:
    """Call a function with each of these signals that comes."""
    try:
        with anyio.open_signal_receiver(*numbers) as signals:
            async for number in signals:
                await act(number)
    except (NotImplementedError, RuntimeError, ValueError):
        # Windows, or not the main thread: there the signals do what they do without us.
        await anyio.sleep_forever()


@asynccontextmanager
async def standard_streams() -> AsyncIterator[tuple[Any, Any]]:
    """What the client writes and what it reads; where they are not pipes, the SDK's own streams.

    Inside the block, what anything else prints goes to standard error.
    """
    if sys.platform == "win32" or not (_is_pipe(0) and _is_pipe(1)):
        async with stdio_server() as streams:
            yield streams
        return
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    read_end, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", 0)
    )
    write_end, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(outgoing, "wb", 0)
    )
    writer = asyncio.StreamWriter(write_end, protocol, None, loop)
    try:
        yield _Incoming(reader), _Outgoing(writer)
    finally:
        read_end.close()
        write_end.close()


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _Closing:
    """A stream that can be left like the SDK's."""

    async def aclose(self) -> None:
        """Nothing to do: the pipes are closed where they were opened."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Incoming(_Closing):
    """Messages from lines; a line that is not a message yields the error."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            while not self._lines:
                await self._fill()
            line = self._lines.popleft()
            if line.strip():
                return _parse(line)

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _fill(self) -> None:
        if self._ended:
            raise StopAsyncIteration
        chunk = await self._reader.read(CHUNK)
        if not chunk:
            self._ended = True
            self._lines.append(b"".join(self._parts))
            return
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            self._lines.extend((b"".join(self._parts) + head).split(b"\n"))
            self._parts = [tail]
        else:
            self._parts.append(chunk)


class _Outgoing(_Closing):
    """Messages to lines."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._writer.write(line.encode("utf-8", "replace") + b"\n")
        try:
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            raise anyio.BrokenResourceError from error


def _parse(line: bytes) -> SessionMessage | Exception:
    try:
        text = line.decode("utf-8", "replace")
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError as error:
        return error
