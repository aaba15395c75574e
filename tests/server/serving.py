"""A real server on a free port of this machine: in a thread, or in a process of its own."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2

import dtdr
from dtdr.net.servers import listen
from dtdr.serve.server import Limits, Settings, create_app
from dtdr.serve.server.launch import server
from tests import small_data

QUERY = "Mail Ann the summary of q3.pdf"


class Served:
    """A server that runs: its address, and what it holds when it runs in this process."""

    def __init__(self, url: str, app: Any = None, process: Any = None) -> None:
        self.url = url
        self.app = app
        self.process = process
        self.lines: list[str] = []
        self.http = httpx2.Client(base_url=url, timeout=30)

    @property
    def service(self) -> Any:
        return self.app.state.service

    def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        return self.http.post(path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.http.get(path, **options)

    def connect(self) -> socket.socket:
        """A connection, to send anything."""
        url = httpx2.URL(self.url)
        return socket.create_connection((url.host, int(url.port or 0)), timeout=60)

    def open_session(self, **given: Any) -> str:
        """The path of a new session."""
        answer = self.post("/v1/sessions", {"query": QUERY, **given})
        if answer.status_code != 201:
            raise AssertionError(answer.text)
        return f"/v1/sessions/{answer.json()['session']}"

    def metric(self, name: str, **options: Any) -> float:
        """The value of a line of /metrics, 0 where there is none."""
        for line in self.get("/metrics", **options).text.splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0


def fit(folder: Path, *, size: int = 12, ranker: str = "dtdr-l", **given: Any) -> Path:
    """Fit a small model into a folder, replacing what is there."""
    dataset = small_data.dataset(size)
    given = {"arguments": False, "plans": False, **given}
    fitted = dtdr.fit(dataset.demonstrations, dataset.tools, ranker=ranker, **given)
    fitted.save(folder, force=True)
    return folder


@contextlib.contextmanager
def serve(settings: Settings, **given: Any) -> Iterator[Served]:
    """Serve in a thread of this process."""
    app = create_app(settings, **given)
    running = server(app)
    with listen(settings.host, settings.port) as listener:
        host, port = listener.getsockname()[:2]
        url = httpx2.URL(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        served = Served(str(url), app)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: running.started or not thread.is_alive())
            yield served
        finally:
            served.http.close()
            running.should_exit = True
            thread.join(30)


@contextlib.contextmanager
def process(
    *arguments: str | Path, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """``dtdr serve`` in a process of its own, on a free port."""
    command = [sys.executable, "-m", "dtdr", "serve", *map(str, arguments), "--port", "0"]
    started = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        text=True,
    )
    stderr = started.stderr
    if stderr is None:
        raise AssertionError("no standard error to read")
    lines: list[str] = []
    for line in stderr:
        lines.append(line)
        if "listening on " in line:
            break
    else:
        started.wait(10)
        raise AssertionError(f"the server did not start: {lines}")
    served = Served(lines[-1].split("listening on ")[1].split()[0], process=started)
    served.lines = lines
    reader = threading.Thread(target=lambda: lines.extend(stderr), daemon=True)
    reader.start()
    try:
        wait_until(lambda: is_ready(served))
        yield served
    finally:
        served.http.close()
        if started.poll() is None:
            started.send_signal(signal.SIGTERM)
        started.wait(30)
        reader.join(10)
        stderr.close()


@contextlib.contextmanager
def lose_answers(port: int, marker: bytes) -> Iterator[tuple[int, threading.Event]]:
    """A port before Redis that passes on the first request with a marker, and hangs up then."""
    lost = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def forward(client: socket.socket, redis: socket.socket) -> None:
        with client, redis:
            while asked := client.recv(65_536):
                redis.sendall(asked)
                answer = redis.recv(65_536)
                if marker in asked and not lost.is_set() and not answer.startswith(b"-NOSCRIPT"):
                    lost.set()
                    return
                client.sendall(answer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                ends = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                threading.Thread(target=forward, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener:
        yield listener.getsockname()[1], lost


def refused(answer: httpx2.Response, *statuses: int) -> str:
    """The reason of a refusal, which must have one of the statuses."""
    assert answer.status_code in statuses, answer.text
    error = answer.json()["error"]
    assert error["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "Traceback" not in answer.text
    assert error["message"]
    return error["message"]


def is_ready(served: Served) -> bool:
    try:
        return served.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def is_in_event_loop() -> bool:
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def wait_until(condition: Any, seconds: float = 30.0) -> None:
    """Wait for something that another thread or process does; fail when it never does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("what was waited for did not happen")
        time.sleep(0.02)


def settings(model: Path | None = None, **given: Any) -> Settings:
    """Settings of one model named ``mail`` on a free port; limits may be given by their names."""
    names = set(vars(Limits()))
    limits = Limits(**{name: given.pop(name) for name in names & given.keys()})
    given = {"watch_seconds": 0.0, "log_requests": False, "port": 0} | given
    return Settings(models=given.pop("models", {"mail": model}), limits=limits, **given)
