"""A small OpenAI-compatible server on loopback that can misbehave in chosen ways."""

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.helpers import running


class FakeServer(ThreadingHTTPServer):
    """``faults``: what goes wrong with the next requests, in turn; then all goes well.

    ``script``: gives the answer to the body of a request.

    ``pages``: statuses of the next pages that are fetched, in turn; then there is no such page.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[str | None] = []
        self.context = 200
        self.pages: list[int] = []
        self.script: Callable[[dict[str, Any]], str] | None = None
        self.running = self.most_running = 0
        self.lock = threading.Lock()

    def handle_error(self, *_: Any) -> None:
        """A client that gives up on a misbehaving server is part of the test."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


_TOO_LONG = "This model's maximum context length is {} tokens"
_ANSWERS: dict[str, tuple[Any, ...]] = {
    "429": (429, {"error": "busy"}, {"Retry-After": "0"}),
    "500": (500, {"error": "busy"}, {"Retry-After": "0"}),
    "wait": (429, {"error": "busy"}, {"Retry-After": "3600"}),
    "401": (401, {"error": {"message": "bad key"}}),
    "array": (200, []),
    "no message": (200, {"choices": []}),
    "flat": (400, {"object": "error", "message": _TOO_LONG.format(9)}),
    "odd": (
        200,
        {
            "choices": [{"message": {"content": "\ud83d end"}}],
            "usage": {"prompt_tokens": 3, "prompt_tokens_details": "x"},
        },
    ),
}
"""By fault: status, body and headers."""


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer
    protocol_version = "HTTP/1.1"  # connections are kept, as by the servers it stands for
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        status = self.server.pages.pop(0) if self.server.pages else 404
        self._send(status, {"error": {"message": "no such page"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append(body)
            self.server.headers.append(self.headers["Authorization"])
            self.server.running += 1
            self.server.most_running = max(self.server.most_running, self.server.running)
            fault = self.server.faults.pop(0) if self.server.faults else ""
        try:
            self._answer(body, fault)
        finally:
            with self.server.lock:
                self.server.running -= 1

    def _answer(self, body: dict[str, Any], fault: str) -> None:
        if fault == "slow":
            time.sleep(1.0)
        elif fault == "drop":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        elif fault == "half":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.close_connection = True
            return
        elif fault == "not json":
            self._raw(200, b"<html>oops</html>")
            return
        elif fault == "strict" and "chat_template_kwargs" in body:
            self._send(422, {"detail": [{"loc": ["body", "chat_template_kwargs"]}]})
            return
        elif fault == "no schemas" and "response_format" in body:
            self._send(400, {"error": {"message": "response_format is not supported"}})
            return
        elif fault in _ANSWERS:
            self._send(*_ANSWERS[fault])
            return
        text = " ".join(message["content"] for message in body["messages"])
        tokens = len(text.split())
        if tokens > self.server.context:
            message = _TOO_LONG.format(self.server.context)
            self._send(400, {"error": {"message": message, "code": "context_length_exceeded"}})
            return
        answer = "send_mail" if self.server.script is None else self.server.script(body)
        if "response_format" in body:
            schema = body["response_format"]["json_schema"]["schema"]
            values = {
                name: value["enum"][0] if "enum" in value else "text"
                for name, value in schema["properties"].items()
            }
            answer = json.dumps(values, ensure_ascii=False)
        usage = {"prompt_tokens": tokens, "completion_tokens": 1}
        self._send(200, {"choices": [{"message": {"content": answer}}], "usage": usage})

    def _send(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._raw(status, json.dumps(value).encode(), headers)

    def _raw(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def fake_server() -> AbstractContextManager[FakeServer]:
    """A running server."""
    return running(FakeServer())
