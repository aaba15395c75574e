"""Serves a gateway over standard input and output, and takes the prompts of the client's hook.

MCP does not carry the user's message. A client's hook does: it runs ``hook.py``, which finds the
gateways of its client by the client's process number, and writes the prompt to their Unix sockets.
The sockets are in a folder that only their user can enter. The prompt is in no file, and no port is
open that a web page could reach.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import stat
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp.server.stdio import stdio_server

from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.hook import LONGEST, folder
from dtdr.agents.gateway.server import GatewayServer

logger = logging.getLogger("dtdr.mcp")

LONGEST_LINE = 1 << 30
"""Bytes of a message: the client is whoever started the gateway."""


READ_SECONDS = 1.0
"""For a hook to send its prompt."""

_BROKEN = (OSError, EOFError, ValueError, LookupError, TypeError, asyncio.LimitOverrunError)
"""Errors that something other than a hook may cause."""


async def serve_stdio(gateway: Gateway) -> None:
    """Serve one client over standard input and output, until it closes them."""
    async with (
        gateway.run(),
        listen_for_prompts(gateway.take_prompt),
        anyio.create_task_group() as tasks,
    ):

        async def terminate(number: int) -> None:
            tasks.cancel_scope.cancel()

        tasks.start_soon(on_signals, terminate, signal.SIGTERM)
        server = GatewayServer(gateway)
        async with standard_streams() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def on_signals(act: Callable[[int], Awaitable[None]], *numbers: signal.Signals) -> None:
    """Call a function at each of these signals."""
    try:
        with anyio.open_signal_receiver(*numbers) as signals:
            async for number in signals:
                await act(number)
    except (NotImplementedError, RuntimeError, ValueError):
        # Windows, or not the main thread: there the signals keep their default effect.
        await anyio.sleep_forever()


@asynccontextmanager
async def standard_streams() -> AsyncIterator[tuple[Any, Any]]:
    """Standard input and output as the SDK's streams.

    The SDK reads and writes in threads. A thread that reads would keep a terminated gateway alive
    until the client's next message, and one that writes makes each answer wait for a processor: on
    a busy machine 10 ms. So pipes belong to the event loop here. Inside the block, what anything
    else prints goes to standard error.
    """
    if sys.platform == "win32" or not (_is_pipe(0) and _is_pipe(1)):
        async with stdio_server() as streams:
            yield streams
        return
    incoming, outgoing = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    read_end, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", 0)
    )
    write_end, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(outgoing, "wb", 0)
    )
    lines: Any = _decode(reader)
    writer: Any = _Writer(asyncio.StreamWriter(write_end, protocol, None, loop))
    try:
        async with stdio_server(lines, writer) as streams:
            yield streams
    finally:
        read_end.close()
        write_end.close()


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _decode(lines: AsyncIterable[bytes]) -> AsyncIterator[str]:
    async for line in lines:
        yield line.decode("utf-8", "replace")


class _Writer:
    """Writes to a pipe, as the SDK writes to a file."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode("utf-8", "replace"))

    async def flush(self) -> None:
        try:
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            raise anyio.ClosedResourceError from error


@asynccontextmanager
async def listen_for_prompts(take: Callable[[str], Awaitable[None]]) -> AsyncIterator[None]:
    """Listen while the block runs; if that is impossible, the log says why.

    The hook waits until ``take`` is done with its prompt.
    """
    path = Path(folder()) / f"{os.getppid()}-{os.getpid()}.sock"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(*_BROKEN):
            async with asyncio.timeout(READ_SECONDS):
                sent = await reader.readuntil(b"\0")  # no more than the limit is read
                prompt = json.loads(sent[:-1])["prompt"]
                if isinstance(prompt, str):
                    await take(prompt)
        writer.close()

    server = None
    try:
        _prepare(path.parent)
        server = await asyncio.start_unix_server(answer, path, limit=LONGEST)
    except (OSError, AttributeError, NotImplementedError) as error:  # Windows has no such sockets
        logger.warning("hooks cannot send this gateway the user's prompts: %s", error)
    try:
        yield
    finally:
        if server is not None:
            server.close()
            path.unlink(missing_ok=True)


def _prepare(place: Path) -> None:
    """Make the folder, which must be the user's alone, and remove what killed gateways left."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = place.stat()
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise OSError(f"{place} must be readable by its owner alone; set its mode to 700")
    for file in place.iterdir():
        number = file.stem.rpartition("-")[2]
        try:
            os.kill(int(number), 0)
        except (ProcessLookupError, ValueError, OverflowError):
            file.unlink(missing_ok=True)
        except OSError:
            continue  # another user's process, which has the number of a gateway that is gone
