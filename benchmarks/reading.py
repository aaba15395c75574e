"""Time and memory of reading TinyAgent's training file.

    python benchmarks/reading.py
    python benchmarks/reading.py --smoke

The file is written in the form and size of the hub into a temporary folder: plans of the synthetic
generator with the long raw prompts that make up most of the real one. A new process reads it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dtdr.evaluate import datasets
from synthetic_runs import generate

PLANS = 39_874
MEGABYTES = 734


def write(path: Path, plans: int, megabytes: float) -> None:
    """A file of the hub's form, with this many plans in about this many megabytes."""
    filler = "x" * int(megabytes * 1e6 / plans / 2 - 800)
    with path.open("w", encoding="utf-8") as stream:
        stream.write("{")
        for number, item in enumerate(generate(plans)):
            calls = [
                {"tool_name": call.tool, "tool_args": [str(v) for v in call.arguments.values()]}
                for call in item.plan.calls
            ]
            output = {
                "type": "plan",
                "raw_input": filler,
                "raw_output": filler,
                "parsed_output": calls,
                "id": "1",
                "index": 0,
            }
            record = {"input": item.query, "output": [output], "closest_5_queries": [item.query]}
            stream.write(("," if number else "") + json.dumps(str(number)) + ":")
            json.dump(record, stream)
        stream.write("}")


def read(folder: str) -> None:
    """Read the set, and print what it took as one JSON object."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    dataset = datasets.load("tinyagent", data_dir=folder)
    print(
        json.dumps(
            {
                "plans": len(dataset),
                "seconds": time.perf_counter() - started,
                "before_mb": before / 1024,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


def main() -> None:
    """Write, read, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a file of 1 MB")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read)
        return
    plans, megabytes = (100, 1.0) if arguments.smoke else (PLANS, float(MEGABYTES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tinyagent" / "training_data.json"
        path.parent.mkdir()
        write(path, plans, megabytes)
        done = subprocess.run(
            [sys.executable, __file__, "--read", folder], capture_output=True, check=True, text=True
        )
        size = path.stat().st_size / 1e6
    found = json.loads(done.stdout)
    print("| File MB | Plans | Seconds | MB before | Peak MB |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    print(
        f"| {size:.0f} | {found['plans']:,} | {found['seconds']:.1f} | {found['before_mb']:.0f} "
        f"| {found['peak_mb']:.0f} |"
    )


if __name__ == "__main__":
    main()
