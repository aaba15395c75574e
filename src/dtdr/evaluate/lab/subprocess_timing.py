"""``efficiency``, ``encoder``: time and memory, each measured in a process of its own.

That process runs ``python -m dtdr.evaluate.lab.subprocess_timing``: it reads a task as JSON from
standard input and prints its answer as JSON. What it measures must not be imported before, so
this module imports the rest of the package inside functions.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdr.errors import DtdrError

if TYPE_CHECKING:
    from dtdr.evaluate.lab.kinds import Context

QUERIES = 60
"""Queries that are timed: over 200 steps on every published set."""

TEXTS = 160
"""Texts that are encoded one by one."""


def measure_retriever(spec: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Numbers learned, bytes, memory, time to fit and to rank (paper, Section "Metrics").

    Raises:
        DtdrError: a process failed.
    """
    from dtdr.rankers.model_folder import versions

    locations = {name: asdict(location) for name, location in context.locations.items()}
    with tempfile.TemporaryDirectory(prefix="dtdr-lab-") as folder:
        model = str(Path(folder) / "model")
        task = {"do": "fit", "spec": dict(spec), "locations": locations, "model": model}
        learned = run_task(task)
        queries = learned.pop("queries")
        ranked = run_task({"do": "rank", "model": model, "queries": queries})
    result = {**learned, "measured": {**learned["measured"], **ranked}}
    return {"versions": versions(), "result": result}


def measure_encoder(spec: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Milliseconds a text and megabytes: learns from training queries, encodes held-out ones.

    Raises:
        DtdrError: the encoder is not installed, or the process failed.
    """
    from dtdr.evaluate.lab.train_test import train_test
    from dtdr.rankers.model_folder import versions

    data = train_test(context.dataset(spec), spec)
    task = {
        "do": "encode",
        "encoder": spec["encoder"],
        "training": [item.query for item in data.train],
        "texts": [item.query for item in data.test[:TEXTS]],
    }
    return {"versions": versions(), "result": run_task(task)}


def run_task(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task in a new Python process and give its answer.

    Raises:
        DtdrError: the process failed, with the last line that it wrote.
    """
    done = subprocess.run(
        [sys.executable, "-m", "dtdr.evaluate.lab.subprocess_timing"],
        input=json.dumps(task).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DtdrError(lines[-1] if lines else f"the process ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _fit(task: Mapping[str, Any]) -> dict[str, Any]:
    """Fit, save, and say how long it took, what the most memory was, and what was learned."""
    from dtdr.evaluate.lab.data import DataLocation
    from dtdr.evaluate.lab.fitting import make_retriever
    from dtdr.evaluate.lab.kinds import Context
    from dtdr.evaluate.lab.train_test import train_test
    from dtdr.rankers.model_folder import describe

    spec = task["spec"]
    locations = {name: DataLocation(**value) for name, value in task["locations"].items()}
    data = train_test(Context(locations, Path(), {}).dataset(spec), spec)
    retriever = make_retriever(spec, len(data.train))
    started = time.perf_counter()
    retriever.fit(data.train, data.tools or None)
    seconds = time.perf_counter() - started
    retriever.save(task["model"])
    model = describe(task["model"])
    return {
        "numbers": sum(prod(about["shape"]) for about in model["tensors"].values()),
        "model_kb": model["bytes"] / 1e3,
        "measured": {"fit_seconds": seconds, "peak_mb": _peak_mb()},
        "queries": [[item.query, list(item.plan.tools)] for item in data.test[:QUERIES]],
    }


def _rank(task: Mapping[str, Any]) -> dict[str, Any]:
    """Load the model and rank: memory, and medians of a new query and of a further step."""
    import numpy  # noqa: F401  # every retriever needs both: they count for none
    import scipy.sparse  # noqa: F401

    from dtdr import load

    before = _resident_mb()
    started = time.perf_counter()
    model = load(task["model"])
    load_seconds = time.perf_counter() - started
    queries: list[float] = []
    steps: list[float] = []
    for query, tools in task["queries"]:
        started = time.perf_counter()
        session = model.session(query)
        _ = session.rank().order
        queries.append(time.perf_counter() - started)
        for tool in tools:
            session.call(tool)
            started = time.perf_counter()
            _ = session.rank().order
            steps.append(time.perf_counter() - started)
    return {
        "load_ms": load_seconds * 1e3,
        "resident_mb": _resident_mb() - before,
        "query_ms": statistics.median(queries) * 1e3,
        "step_ms": statistics.median(steps or queries) * 1e3,
    }


def _encode(task: Mapping[str, Any]) -> dict[str, Any]:
    """Fit an encoder where it learns, encode texts one by one: milliseconds and megabytes."""
    import numpy  # noqa: F401
    import scipy.sparse  # noqa: F401

    from dtdr.text import encoders

    before = _resident_mb()
    encoder = encoders.create(task["encoder"], cache=False).fit(task["training"])
    encoder.encode(task["training"][:1])
    seconds = []
    for text in task["texts"]:
        started = time.perf_counter()
        encoder.encode([text])
        seconds.append(time.perf_counter() - started)
    return {
        "dimension": encoder.dimension,
        "measured": {
            "ms": statistics.median(seconds) * 1e3,
            "resident_mb": _resident_mb() - before,
        },
    }


def _resident_mb() -> float:
    """Memory of this process, in MB; where it cannot be read, the most that it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return _peak_mb()
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _peak_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def main() -> None:
    """Read one task from standard input and print its answer as JSON."""
    task = json.load(sys.stdin)
    try:
        answer = {"fit": _fit, "rank": _rank, "encode": _encode}[task["do"]](task)
    except DtdrError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
