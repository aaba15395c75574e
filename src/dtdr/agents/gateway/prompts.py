"""Takes the user's prompts from the hook of the client that started this gateway.

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
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from dtdr.agents.gateway.hook import LONGEST, folder

logger = logging.getLogger("dtdr.mcp")

READ_SECONDS = 1.0
"""For a hook to send its prompt."""

_BROKEN = (OSError, EOFError, ValueError, LookupError, TypeError, asyncio.LimitOverrunError)
"""Errors that something other than a hook may cause."""


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
