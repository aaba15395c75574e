"""Small things that several test files need."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseServer
from statistics import fmean
from typing import Any, TypeVar

from dtdr.evaluate.harness import rank_steps
from dtdr.predict.gains import reciprocal_rank
from dtdr.predict.model import Model
from dtdr.rankers.model_folder import config_checksum

RANKER_ONLY: dict[str, Any] = {"arguments": False, "plans": False}
"""Keywords of a fit that learns to rank, and nothing else."""


AnyServer = TypeVar("AnyServer", bound=BaseServer)


@contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """A server that answers in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def change_config(folder: Path, **changes: Any) -> None:
    """Edit a model's configuration as somebody would who makes the checksum fit."""
    path = folder / "config.json"
    config = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps(config | {"config_sha256": config_checksum(config)}))


def mean_reciprocal_rank(model: Model, test: list[Any]) -> float:
    """MRR over the steps of held-out plans, ends included, teacher-forced."""
    return fmean(
        reciprocal_rank(ranking.tools, item.plan.acceptable_next(range(done)))
        for item, done, ranking in rank_steps(model, test)
    )


def smoke_rows(benchmark: str) -> list[dict[str, Any]]:
    """What a benchmark prints in its shortest form, a row a line."""
    script = Path(__file__).parents[1] / "benchmarks" / f"{benchmark}.py"
    command = [sys.executable, str(script), "--smoke", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return list(map(json.loads, done.stdout.splitlines()))


def inner(model: Model) -> Any:
    """What a dtdr-f inside a model ranks with."""
    ranker: Any = model.ranker
    return ranker.model_


def collected_spans():
    """What gives the spans that were finished, and the provider to make them with."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter.get_finished_spans, provider
