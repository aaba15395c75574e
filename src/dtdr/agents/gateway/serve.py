"""Serves a gateway over standard input and output, or over streamable HTTP."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import signal
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import anyio

from dtdr.agents.gateway.clients import IDLE_SECONDS
from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.hook import LONGEST, folder
from dtdr.agents.gateway.pipes import open_standard_pipes
from dtdr.agents.gateway.server import GatewayServer
from dtdr.errors import InputError
from dtdr.net.servers import Limits, is_loopback, listen, refuse_page

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger("dtdr.mcp")

PATH = "/mcp"

LIMITS = Limits(body_bytes=4 << 20)
"""Defaults of the gateway; the SDK takes arguments of this size."""

READ_SECONDS = 1.0
"""For a hook to send its prompt."""


async def serve_stdio(gateway: Gateway) -> None:
    """Serve one client over standard input and output, until it closes them."""

    async def end(received: int) -> NoReturn:
        await gateway.close()
        # At once: the thread that reads would wait for the client's next message.
        os._exit(130 if received == signal.SIGINT else 0)

    async with (
        gateway.run(),
        listen_for_prompts(gateway.take_prompt),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_on_signals, end)
        server = GatewayServer(gateway)
        async with open_standard_pipes() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def serve_http(
    gateway: Gateway, host: str, port: int, *, key: str = "", limits: Limits = LIMITS
) -> None:
    """Serve clients over streamable HTTP until interrupted.

    Args:
        gateway: what is served.
        host: address to listen on.
        port: its port.
        key: if set, clients must send it as ``Authorization: Bearer …``.
        limits: on connections, heads and bodies; the others are ignored.

    Raises:
        InputError: the address is public and there is no key, or it cannot listen there.
    """
    import uvicorn

    from dtdr.net.bodies import BodyLimits
    from dtdr.net.connections import limit_connections

    if not is_loopback(host) and not key:
        raise InputError(
            f"{host} can be reached by others; set a key in DTDR_MCP_KEY, or serve on 127.0.0.1"
        )
    app = GatewayServer(gateway).streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        max_request_body_size=limits.body_bytes,
        session_idle_timeout=IDLE_SECONDS,
    )
    config = uvicorn.Config(
        _check_access(BodyLimits(app, limits), key),
        http=limit_connections(limits, lambda _, reason: reason.encode()),
        ws="none",
        proxy_headers=False,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    received: list[int] = []

    async def stop(received_signal: int) -> None:
        received.append(received_signal)
        server.should_exit = True

    # uvicorn would raise the signal again and end the process before the last runs are recorded.
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
    with listen(host, port) as listener:
        async with gateway.run(), anyio.create_task_group() as tasks:
            tasks.start_soon(_on_signals, stop)
            logger.info("serving http://%s:%d%s", host, port, PATH)
            await server.serve([listener])
            tasks.cancel_scope.cancel()
    if signal.SIGINT in received:
        raise KeyboardInterrupt


async def _on_signals(act: Callable[[int], Awaitable[None]]) -> None:
    """Call a function when the process is interrupted or terminated."""
    with suppress(NotImplementedError):  # on Windows, where they end it at once
        receiver = anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
        with receiver as signals:
            async for received in signals:
                await act(received)


def _check_access(app: ASGIApp, key: str) -> ASGIApp:
    """Let only requests with the key through, or without a key no web page.

    The SDK lets pages of any port of this machine through.
    """
    from starlette.responses import PlainTextResponse

    def refuse(headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        if not key:
            refusal = refuse_page(headers)
            advice = "set a key in DTDR_MCP_KEY to use it from elsewhere"
            return refusal and (refusal[0], f"{refusal[1]}; {advice}")
        sent, expected = headers.get(b"authorization", b""), f"Bearer {key}".encode()
        return None if hmac.compare_digest(sent, expected) else (401, "the key is missing or wrong")

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        answer = app
        if scope["type"] == "http" and (refusal := refuse(dict(scope["headers"]))):
            status, text = refusal
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            answer = PlainTextResponse(f"{text}\n", status, headers)
        await answer(scope, receive, send)

    return checked


@asynccontextmanager
async def listen_for_prompts(take: Callable[[str], Awaitable[None]]) -> AsyncIterator[None]:
    """Listen while the block runs; if that is impossible, the log says why.

    The hook waits until ``take`` is done with its prompt.
    """
    path = Path(folder()) / f"{os.getppid()}-{os.getpid()}.sock"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(Exception):  # of something other than a hook
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


def _prepare(folder: Path) -> None:
    """Make the folder, which must be the user's alone, and remove what killed gateways left."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise OSError(f"{folder} must be readable by its owner alone; set its mode to 700")
    for file in folder.iterdir():
        try:
            os.kill(int(file.stem.rpartition("-")[2]), 0)
        except (ProcessLookupError, ValueError, OverflowError):
            file.unlink(missing_ok=True)
        except OSError:
            continue  # another user's process, which has the number of a gateway that is gone
