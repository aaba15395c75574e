"""Measurements of time and memory, each in a process of its own: ``python -m dtdr.lab.fresh``."""

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
from pathlib import Path
from typing import Any

from dtdr.errors import DtdrError

QUERIES = 60
"""Queries that are timed: over 200 steps on every published set."""

TEXTS = 160


def measured(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task in a new Python process and give its answer.

    Raises:
        DtdrError: the process failed, with the last line that it wrote.
    """
    done = subprocess.run(
        [sys.executable, "-m", "dtdr.lab.fresh"],
        input=json.dumps(task).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DtdrError(said[-1] if said else f"the process ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def resident_mb() -> float:
    """Memory of this process, in MB; where it cannot be read, the most that it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def fit(task: Mapping[str, Any]) -> dict[str, Any]:
    """Fit, save, and say how long it took, what the most memory was, and what was learned."""
    from dtdr.lab.data import DataPlace
    from dtdr.lab.fitting import make_retriever
    from dtdr.lab.kinds import Context
    from dtdr.lab.kinds.rank import sides_of
    from dtdr.model_folder import describe

    spec = task["spec"]
    places = {name: DataPlace(**place) for name, place in task["places"].items()}
    sides = sides_of(Context(places, Path(), {}).dataset(spec), spec)
    retriever = make_retriever(spec, len(sides.train))
    started = time.perf_counter()
    retriever.fit(sides.train, sides.tools or None)
    seconds = time.perf_counter() - started
    retriever.save(task["model"])
    found = describe(task["model"])
    numbers = 0
    for about in found["tensors"].values():
        size = 1
        for length in about["shape"]:
            size *= length
        numbers += size
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "numbers": numbers,
        "model_kb": found["bytes"] / 1e3,
        "measured": {
            "fit_seconds": seconds,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6,
        },
        "queries": [[item.query, list(item.plan.tools)] for item in sides.test[:QUERIES]],
    }


def rank(task: Mapping[str, Any]) -> dict[str, Any]:
    """Load the model and rank: memory, and medians of a new query and of a further step."""
    import numpy  # noqa: F401  # every retriever needs both: they count for none
    import scipy.sparse  # noqa: F401

    from dtdr import load

    before = resident_mb()
    started = time.perf_counter()
    model = load(task["model"])
    loading = time.perf_counter() - started
    new: list[float] = []
    steps: list[float] = []
    for query, tools in task["queries"]:
        started = time.perf_counter()
        session = model.session(query)
        _ = session.rank().order
        new.append(time.perf_counter() - started)
        for tool in tools:
            session.call(tool)
            started = time.perf_counter()
            _ = session.rank().order
            steps.append(time.perf_counter() - started)
    return {
        "load_ms": loading * 1e3,
        "resident_mb": resident_mb() - before,
        "query_ms": statistics.median(new) * 1e3,
        "step_ms": statistics.median(steps or new) * 1e3,
    }


def encode(task: Mapping[str, Any]) -> dict[str, Any]:
    """Fit an encoder where it learns, encode texts one by one: milliseconds and megabytes."""
    import numpy  # noqa: F401
    import scipy.sparse  # noqa: F401

    from dtdr import encoders

    before = resident_mb()
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
            "resident_mb": resident_mb() - before,
        },
    }


def model_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that lasts as long as the measurement."""
    return tempfile.TemporaryDirectory(prefix="dtdr-lab-")


def main() -> None:
    """Read one task from standard input and print its answer as JSON."""
    task = json.load(sys.stdin)
    try:
        answer = {"fit": fit, "rank": rank, "encode": encode}[task["do"]](task)
    except DtdrError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
