"""A server with OpenAI's two APIs on loopback, which answers as a script says.

Clients reach it under OpenAI's own address, since it is their proxy: what a client decides by the
address of its API, it decides as it would for OpenAI.
"""

import json
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.helpers import running

OPENAI = "http://api.openai.com/v1"
COMPATIBLE = "http://llm.example/v1"


class OpenAIServer(ThreadingHTTPServer):
    """``requests`` are the bodies that it was sent, ``script`` gives the calls of its answers."""

    daemon_threads = True

    def __init__(self, script: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: OpenAIServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        calls = self.server.script.next_calls(callable_names(body))
        answer = (_chat if "messages" in body else _response)(calls)
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def callable_names(body: dict[str, Any]) -> list[str]:
    """The functions that a request lets the model call."""
    choice = body.get("tool_choice")
    tools = body.get("tools", [])
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        tools = choice.get("allowed_tools", choice)["tools"]
    return [tool.get("function", tool)["name"] for tool in tools if tool["type"] == "function"]


def _chat(calls: list[tuple[str, str, dict]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "There you are."}
    if calls:
        message["tool_calls"] = [
            {
                "id": id_,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for id_, name, arguments in calls
        ]
        message["content"] = None
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _response(calls: list[tuple[str, str, dict]]) -> dict[str, Any]:
    text = {"type": "output_text", "text": "There you are.", "annotations": []}
    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "content": [text]}
    output = [
        {
            "id": f"i-{id_}",
            "type": "function_call",
            "call_id": id_,
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        for id_, name, arguments in calls
    ] or [{**message, "status": "completed"}]
    return {
        "id": "r",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": "m",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def openai_server(script: Any) -> AbstractContextManager[OpenAIServer]:
    """A running server."""
    return running(OpenAIServer(script))
