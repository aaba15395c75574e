"""A real server on a free port of this machine: in a thread, or in a process of its own."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

import dtdr
from dtdr.net.servers import listen
from dtdr.serve.server import Limits, Settings, create_app
from dtdr.serve.server.launch import server
from tests import small_data
from tests.conftest import PROJECT
from tests.ports import free_port

QUERY = "Mail Ann the summary of q3.pdf"


class Served:
    """A server that runs: its address, and what it holds when it runs in this process."""

    def __init__(self, url: str, app: Any = None, process: Any = None) -> None:
        self.url = url
        self.app = app
        self.process = process
        self.lines: list[str] = []
        self.http = httpx2.Client(base_url=url, timeout=60)

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
        started.wait(60)
        reader.join(10)
        stderr.close()


@contextlib.contextmanager
def nginx(
    folder: Path, servers: Sequence[str | None], changes: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """The address of nginx with deploy/nginx.conf before two servers; None is one that is away."""
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("there is no nginx on this machine")
    port = free_port()
    places = [url.removeprefix("http://") if url else f"127.0.0.1:{free_port()}" for url in servers]
    text = (PROJECT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    fixed = {
        "/tmp/": f"{folder}/",
        "127.0.0.1:8756 ": f"{places[0]} ",
        "127.0.0.1:8757 ": f"{places[1]} ",
        "listen 8080": f"listen 127.0.0.1:{port}",
        "worker_processes auto": "worker_processes 1",
    }
    for old, new in {**fixed, **changes}.items():
        if old not in text:
            raise AssertionError(f"deploy/nginx.conf has no {old!r}")
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text)
    command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        yield "127.0.0.1", port
    finally:
        process.terminate()
        process.wait(30)


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


def wait_until(condition: Any, seconds: float = 60.0) -> None:
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
