"""Processor time that ``dtdr serve`` needs for a ranking, without a network or other load.

    python benchmarks/server_cpu.py [--smoke] [--retriever NAME ...] [--model FOLDER]

The application answers requests in this process, one after another; uvicorn's part is left out, and
the log is written to nowhere. The least of several passes is shown, since a busy machine only adds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.tables import Column, Table
from server import add_model_arguments, models, rank_bodies, read_demonstrations


async def _answered(app: Any, contents: Sequence[bytes]) -> None:
    """Answer requests one after another, without a network."""
    statuses: set[int] = set()

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.add(message["status"])

    for content in contents:
        length = str(len(content)).encode()
        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", length),
        ]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/rank",
            "query_string": b"",
            "headers": headers,
        }
        message = {"type": "http.request", "body": content, "more_body": False}

        async def receive(message: dict[str, Any] = message) -> dict[str, Any]:
            return message

        await app(scope, receive, send)
    if statuses != {200}:
        raise SystemExit(f"the server answered {sorted(statuses)}")


def measure_cpu(
    model: Path, demonstrations: Sequence[Demonstration], requests: int, runs: int
) -> list[dict[str, Any]]:
    """Processor time a request, with the log written to nowhere."""
    from dtdr.net import server_logs
    from dtdr.serve.server import Settings, create_app
    from dtdr.serve.server.snapshots import Snapshot

    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
        server_logs.configure()
        app = create_app(Settings(models={"model": model}))
        retriever = app.state.service.models.find(None).current.retriever
        constant = retriever.rank("a query")
        rank = Snapshot.rank
        rows = []
        for name, order, ranked in (
            ("all steps shuffled", "shuffled", rank),
            ("100 runs at once", "runs", rank),
            ("without ranking", "shuffled", lambda *_: constant),
        ):
            bodies = rank_bodies(demonstrations, order)[:requests]
            contents = [json.dumps(body).encode() for body in bodies]
            Snapshot.rank = ranked  # type: ignore[method-assign]
            try:
                used = []
                for _ in range(runs):
                    began = time.process_time()
                    asyncio.run(_answered(app, contents))
                    used.append((time.process_time() - began) / len(contents) * 1e3)
            finally:
                Snapshot.rank = rank  # type: ignore[method-assign]
            rows.append({"retriever": retriever.name, "what": name, "cpu": min(used)})
    return rows


def main() -> None:
    """Fit or take models, and measure the application with each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_model_arguments(parser)
    parser.add_argument("--requests", type=int, default=2_000, help="of each pass")
    parser.add_argument("--passes", type=int, default=5)
    given = parser.parse_args()
    if given.smoke:
        given.requests, given.passes, given.retriever = 200, 1, ["dtdr-l"]
    demonstrations, known = read_demonstrations(given)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models(given, demonstrations, known, folder):
            rows += measure_cpu(model, demonstrations, given.requests, given.passes)
    if given.json:
        for row in rows:
            print(json.dumps(row))
        return
    columns = [
        Column("Retriever", "retriever"),
        Column("Requests", "what"),
        Column("CPU ms", "cpu", lambda value: f"{value:.2f}", numeric=True),
    ]
    title = "POST /v1/rank in one process: processor time a request"
    Console(width=100).print(Table(columns, rows, title).to_rich())


if __name__ == "__main__":
    main()
