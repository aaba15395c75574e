"""How a fit grows with its data: time, processor time and memory on ever more plans.

    python benchmarks/growth.py             # 10,000 and 100,000 plans, a sample of 10,000
    python benchmarks/growth.py --plans 1000000 --sample 100000 --folder /data/growth
    python benchmarks/growth.py --smoke     # 300 and 600 plans, a sample of 200

Plans of the generator with 200 tools are written as Parquet shards once (``growth_data.py``; they
stay in ``--folder``), and each fit is a process of its own with two workers. The exponent is that
of a power law between a row and the one before.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from dtdr import load
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.harness import rank_steps
from dtdr.evaluate.tables import Column, Table, count
from dtdr.predict.gains import reciprocal_rank
from dtdr.predict.model import Model
from growth_data import SHARD, held_out, write_shards


def shards(folder: Path, plans: int) -> list[str]:
    """Files with this many plans; those that exist are kept."""
    folder = folder if plans >= SHARD else folder / f"plans-{plans}"
    write_shards(folder, plans)
    return [str(folder / f"part-{start:010}.parquet") for start in range(0, plans, SHARD)]


def measure(folder: Path, plans: int, given: argparse.Namespace) -> dict[str, Any]:
    """Fit once, in a process that this one waits for."""
    data = shards(folder, plans)
    command = [sys.executable, "-m", "dtdr", "fit", *data, "-o", str(folder / "model"), "--force"]
    command += ["--json", "--sample", str(given.sample), "--workers", "2"]
    command += ["--retriever", given.retriever, "--no-arguments", "--no-plans"]
    started = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, env=environment)
        _, process.returncode, used = os.wait4(process.pid, 0)  # of this one and its workers alone
        if process.returncode:
            raise SystemExit(f"this fit failed: {' '.join(command)}")
        output.seek(0)
        fitted = json.loads(output.read())
    seconds = time.perf_counter() - started
    new = held_out(given.held_out)
    return {
        "mrr": mean_reciprocal_rank(load(folder / "model"), new) if new else None,
        "plans": fitted["demonstrations"],
        "sampled": fitted["sampled"] or fitted["demonstrations"],
        "seconds": seconds,
        "fit": fitted["fit_seconds"],
        "cpu": used.ru_utime + used.ru_stime,
        "mb": used.ru_maxrss / 1024,
        "model": fitted["bytes"] / 1e6,
    }


def mean_reciprocal_rank(model: Model, test: list[Demonstration]) -> float:
    """MRR over the steps of held-out plans, ends included, teacher-forced."""
    return fmean(
        reciprocal_rank(ranking.tools, item.plan.acceptable_next(range(done)))
        for item, done, ranking in rank_steps(model, test)
    )


def _one(value: Any) -> str:
    return "" if value is None else f"{value:.1f}"


def _two(value: Any) -> str:
    return "" if value is None else f"{value:.2f}"


def main() -> None:
    """Measure each size in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plans", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--sample", type=int, default=10_000)
    parser.add_argument("--retriever", default="dtdr-f")
    parser.add_argument("--held-out", type=int, default=0, help="new plans for the MRR")
    parser.add_argument("--folder", type=Path, help="where plans are kept")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    if given.smoke:
        given.plans, given.sample, given.retriever = [300, 600], 200, "dtdr-l"
        given.held_out = 20
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for plans in sorted(given.plans):
            row = measure(folder, plans, given)
            if rows:
                growth = math.log(row["plans"] / rows[-1]["plans"])
                row["exponent"] = math.log(row["cpu"] / rows[-1]["cpu"]) / growth
            rows.append({"exponent": None, **row})
    columns = [
        Column("Plans", "plans", count, numeric=True),
        Column("Sampled", "sampled", count, numeric=True),
        Column("Seconds", "seconds", _one, numeric=True),
        Column("of these fitting", "fit", _one, numeric=True),
        Column("CPU s", "cpu", _one, numeric=True),
        Column("Exponent", "exponent", _two, numeric=True),
        Column("Peak MB", "mb", count, numeric=True),
        Column("Model MB", "model", _one, numeric=True),
        *([Column("MRR", "mrr", "{:.4f}".format, numeric=True)] if given.held_out else []),
    ]
    title = f"dtdr fit --retriever {given.retriever} --sample {given.sample} --workers 2"
    caption = "Peak: of the largest process. Exponent: of CPU s, from the row before."
    Console(width=100).print(Table(columns, rows, title, caption).to_rich())


if __name__ == "__main__":
    main()
