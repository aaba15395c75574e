import json
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from dtdr.agents.gateway import Gateway, serve_http
from dtdr.agents.gateway.serve import LIMITS
from dtdr.net.bodies import BodyLimits, problem_of
from dtdr.net.servers import Limits
from tests.gateway.helpers import few, text, wait_for_port
from tests.ports import free_port

pytestmark = pytest.mark.anyio

SMALL = Limits(
    head_bytes=20_000,
    head_seconds=2,
    body_bytes=500_000,
    body_seconds=2,
    idle_seconds=1,
    connections=8,
)
HEAD = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def http_gateway(model, specs, limits=SMALL, gateway=None):
    """A gateway over HTTP in this process; yields its port."""
    port = free_port()
    gateway = gateway or Gateway(model, specs, few(20))
    async with anyio.create_task_group() as tasks:

        async def serve():
            await serve_http(gateway, "127.0.0.1", port, limits=limits)

        tasks.start_soon(serve)
        await anyio.to_thread.run_sync(wait_for_port, port)
        yield port
        tasks.cancel_scope.cancel()


async def answer_to(port, *parts):
    """What comes back until the connection ends."""
    received = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        with anyio.fail_after(60):
            try:
                for part in parts:
                    await stream.send(part)
                while True:
                    received += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return received.decode()


async def test_heads_bodies_and_idle_connections_have_limits(model, served):
    async with http_gateway(model, [served["known"]]) as port:
        filler = f"X-Filler: {'a' * 9_000}\r\n".encode()
        large_head = await answer_to(port, HEAD.encode() + filler * 3)
        slow_head = await answer_to(port, HEAD.encode())
        silent = await answer_to(port)
        slow = await answer_to(port, f"{HEAD}Content-Length: 100\r\n\r\n{{".encode())
        chunked = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
        piece = b"20000\r\n" + b" " * 0x20000 + b"\r\n"
        large = await answer_to(port, chunked, *[piece] * 4)
        kept = await answer_to(port, b"GET /none HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    assert large_head.startswith("HTTP/1.1 431 ")
    assert slow_head.startswith("HTTP/1.1 408 ")
    assert silent == ""
    assert slow.startswith("HTTP/1.1 408 ")
    assert large.startswith("HTTP/1.1 413 ")
    assert kept.startswith("HTTP/1.1 404 ")
    assert "connection: close" not in kept.lower()


async def test_trailers_and_extensions_without_end_are_refused(model, served):
    async with http_gateway(model, [served["known"]]) as port:
        chunked = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n".encode()
        answers = [
            await answer_to(port, chunked, *[endless] * 20)
            for endless in (b"0\r\n" + b"a:\r\n" * 50_000, b"1;a=" + b"a" * 200_000)
        ]
        twice = HEAD + "Transfer-Encoding: chunked\r\n" * 2
        refused = await answer_to(port, f"{twice}\r\n0\r\n\r\n".encode())
        nameless = await answer_to(port, b"GET /mcp HTTP/1.1\r\n\r\n")

    # Nothing came back if the server had closed before the client read.
    assert all(not answer or answer.startswith("HTTP/1.1 431 ") for answer in answers)
    assert refused.startswith("HTTP/1.1 400 ")
    assert nameless.startswith("HTTP/1.1 400 ")


async def test_a_client_is_not_told_by_an_address_that_it_claims(model, served):
    """Else one of this machine could take another's place, which the gateway keeps by address."""
    gateway = Gateway(model, [served["known"]], few())
    async with http_gateway(model, [], gateway=gateway) as port:
        for address in ("192.0.2.1", "192.0.2.2"):
            async with httpx2.AsyncClient(headers={"X-Forwarded-For": address}, timeout=60) as http:
                transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
                async with Client(transport, mode="auto", cache=None) as client:
                    await client.call_tool("open_file", {"id": address})
        assert len(list(gateway.clients)) == 1


async def test_web_pages_are_refused_without_a_key(model, served):
    async with http_gateway(model, [served["known"]]) as port:
        own = f"http://127.0.0.1:{port}"
        refused = {
            "another port": f"Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:1\r\n",
            "another name": f"Host: 127.0.0.1:{port}\r\nOrigin: http://localhost:{port}\r\n",
            "another site": f"Host: 127.0.0.1:{port}\r\nOrigin: https://evil.example\r\n",
            "a file": f"Host: 127.0.0.1:{port}\r\nOrigin: null\r\n",
            "rebinding": "Host: evil.example\r\n",
        }
        answers = {
            name: await answer_to(port, f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode())
            for name, head in refused.items()
        }
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: {own}\r\n\r\n"
        itself = await answer_to(port, head.encode())

    statuses = {name: answer.split()[1] for name, answer in answers.items()}
    assert statuses == dict.fromkeys(refused, "403") | {"rebinding": "421"}
    assert itself.split()[1] not in ("403", "421")


async def test_idle_connections_keep_no_client_out(model, served):
    async with http_gateway(model, [served["known"]], Limits(connections=8)) as port:
        idle = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(20)]
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert not (await client.call_tool("open_file", {"id": "1"})).is_error
        for stream in idle:
            await stream.aclose()


MANY: list[dict[str, int]] = [{}] * 300_000
KEYS = {f"k{number}": 1 for number in range(80_000)}
SLOW = {
    "listen": {"notifications": {"resourceSubscriptions": [1] * 400_000}},
    "responses": {"name": "open_file", "inputResponses": KEYS},
    "arguments": {"name": "open_file", "arguments": {"id": "1", "more": MANY}},
    "not an object": [1] * 400_000,
}


@pytest.mark.parametrize("kind", SLOW)
async def test_a_message_that_would_take_long_to_validate_is_refused_before_that(kind):
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": SLOW[kind]}
    validated = []

    async def validate(scope, receive, send):
        validated.append(await receive())

    app = BodyLimits(validate, LIMITS)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as http:
        response = await http.post("/mcp", content=json.dumps(message).encode())

    assert response.status_code == 400
    assert "values" in response.json()["error"]["message"]
    assert validated == []


async def test_large_arguments_pass(model, served):
    rows = [[number, str(number), "a, b, {c}"] for number in range(20_000)]
    async with (
        http_gateway(model, [served["known"]], LIMITS) as port,
        Client(f"http://127.0.0.1:{port}/mcp") as client,
    ):
        result = await client.call_tool("open_file", {"id": "1", "rows": rows})

    assert json.loads(text(result))["rows"] == rows


@pytest.mark.parametrize("number", ["1" * 5_000, "[" * 2_000])
async def test_a_message_of_many_values_that_cannot_be_read_is_refused(number):
    body = f'{{"params": {{"name": [{"1," * 5_000}{number}]}}}}'
    assert problem_of(body.encode()) == "the message cannot be read"
