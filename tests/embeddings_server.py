"""A server of embeddings on loopback that can misbehave in chosen ways."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class EmbeddingsServer(ThreadingHTTPServer):
    """``script``: what answers the next requests, in turn; then all goes well.

    It answers nothing while ``works`` is not set.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.script: list[Callable[[Any, Any], None]] = []
        self.works = threading.Event()
        self.works.set()


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingsServer

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the other side gave up
            super().handle()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script = self.server.script
        behave = script.pop(0) if script else good
        self.server.requests.append((self.path, dict(self.headers), body))
        self.server.works.wait(60)
        behave(self, body)

    def answer(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def vector(text: str) -> list[float]:
    return [float(len(text) + 1), float(sum(text.encode()) % 97), 1.0, -2.0]


def good(handler: Any, body: Any, change: Callable[[Any], Any] = lambda data: data) -> None:
    data = [
        {"object": "embedding", "index": index, "embedding": vector(text)}
        for index, text in enumerate(body["input"])
    ]
    handler.answer(200, json.dumps({"data": change(data)}).encode())


@contextlib.contextmanager
def embeddings_server() -> Iterator[EmbeddingsServer]:
    """A running server."""
    with EmbeddingsServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.works.set()
        server.shutdown()
        thread.join()
