"""A real Redis (or Valkey) on a free port of this machine, started and ended by a test."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.ports import free_port

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer:
    """One server with its data in a folder, so that it comes back with them when it is restarted.

    Args:
        folder: for its data.
        options: lines of its configuration, such as ``{"requirepass": "secret"}``.
    """

    def __init__(self, folder: Path, **options: str) -> None:
        pytest.importorskip("redis", reason="these tests need the extra 'redis'")
        if PROGRAM is None:
            pytest.skip("there is no redis-server or valkey-server on this machine")
        self._folder = folder
        self._options = {"appendonly": "yes", "appendfsync": "always", "save": ""} | options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        lines = [f'{name} "{value}"' for name, value in self._options.items()]
        configuration = "\n".join(
            [f"port {self.port}", "bind 127.0.0.1", f'dir "{self._folder}"', *lines, ""]
        )
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [PROGRAM, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert self._process.stdin is not None
        with self._process.stdin as stream:
            stream.write(configuration)
        end = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, "redis-server did not start"
            assert time.monotonic() < end, "redis-server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                # With a password the answer is NOAUTH; while it loads its data, LOADING.
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(30)
