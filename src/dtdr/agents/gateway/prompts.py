"""Takes the user's prompts from the hook of the client that started this gateway.

MCP does not carry what the user wrote. A client's hook does: it runs ``hook.py``, which finds the
gateways of its client by the client's process number, and writes the prompt to their Unix sockets.
The prompt is in no file, and no port is open that a page in a browser could reach. Each gateway has
a secret, in a file that only its user can read.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from dtdr.agents.gateway.hook import LONGEST, folder

logger = logging.getLogger("dtdr.mcp")

READ_SECONDS = 1.0
"""For a hook to say what it has to say."""


@asynccontextmanager
async def listen_for_prompts(take: Callable[[str], Awaitable[None]]) -> AsyncIterator[None]:
    """Listen while the block runs; where that is not possible, the log says why.

    Args:
        take: called with each prompt; the hook waits until it is done.
    """
    secret = secrets.token_hex(16)
    path = Path(folder()) / f"{os.getppid()}-{os.getpid()}"
    socket, key = path.with_suffix(".sock"), path.with_suffix(".key")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(READ_SECONDS):
                given = await reader.readline()
                if hmac.compare_digest(given, secret.encode() + b"\n"):
                    told = json.loads(await _read(reader))
                    prompt = told.get("prompt") if isinstance(told, dict) else None
                    if isinstance(prompt, str):
                        await take(prompt)
        writer.close()

    server = None
    try:
        _prepare(path.parent)
        server = await asyncio.start_unix_server(answer, socket, limit=LONGEST)
        with open(os.open(key, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secret)
    except (OSError, AttributeError, NotImplementedError) as error:  # Windows has no such sockets
        logger.warning("hooks cannot tell this gateway what the user wrote: %s", error)
    try:
        yield
    finally:
        if server is not None:
            server.close()
        for file in (key, socket):
            with suppress(OSError):
                file.unlink()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """All that comes, up to what a hook sends."""
    told = b""
    while len(told) <= LONGEST and (more := await reader.read(LONGEST)):
        told += more
    return told


def _prepare(place: Path) -> None:
    """Make the folder, which must be the user's alone, and remove what killed gateways left."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = place.stat()
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise OSError(f"{place} must be readable by its owner alone; set its mode to 700")
    for file in place.iterdir():
        number = file.stem.rpartition("-")[2]
        if number.isdecimal() and not _is_running(int(number)):
            file.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
