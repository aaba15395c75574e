"""Keeps servers from controlling the terminal by escape sequences or forged lines."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO

CHUNK = 1 << 16


def printable(text: str, keep: str = "") -> str:
    """An untrusted text with control characters escaped, except those to ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else ascii(character)[1:-1]
        for character in text
    )


class PrintableFormatter(logging.Formatter):
    """A log record as one line without control characters; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """The line, printable."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802
        """The traceback, printable."""
        return printable(super().formatException(ei), keep="\n")


@asynccontextmanager
async def printable_errors() -> AsyncIterator[TextIO]:
    """A file for a server's standard error, which is ours; on a terminal, made printable."""
    if sys.platform == "win32" or not sys.stderr.isatty():
        yield sys.stderr
        return
    incoming, outgoing = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", 0)
    )

    async def copy() -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while chunk := await reader.read(CHUNK):
            sys.stderr.write(printable(decode(chunk), keep="\n\t"))
            sys.stderr.flush()

    copying = asyncio.create_task(copy())
    try:
        with os.fdopen(outgoing, "w", encoding="utf-8") as file:
            yield file
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(copying, 0.2)  # what the server wrote last
    finally:
        copying.cancel()
        transport.close()
