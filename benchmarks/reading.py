"""Time of reading demonstrations, and time and memory of reading TinyAgent's training file.

    python benchmarks/reading.py
    python benchmarks/reading.py --smoke
    python benchmarks/reading.py --files runs.jsonl --only-lines

Lines of JSON, in megabytes a second of one core, the best of five: ``json`` alone, which makes
dictionaries; ``json`` and ``Demonstration.from_dict``, which checks them; and the reader, which
does all of that, finds ids that stand twice, and names what is wrong with a line. Sets that are
not there are left out.

TinyAgent's file is written in the form and size of the hub into a temporary folder, plans of the
synthetic generator with the long raw prompts that make up most of the real one, and read by a new
process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dtdr import Demonstration, read_demonstrations
from dtdr.data.demonstration_files import save_demonstrations
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from synthetic_runs import generate

PLANS = 39_874
MEGABYTES = 734


def write(path: Path, plans: int, megabytes: float) -> None:
    """A file of the hub's form: so many plans in about so many megabytes."""
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


def best_rate(path: Path, read_all: Callable[[], object], times: int) -> float:
    """Megabytes a second of processor time, the best of so many times."""
    seconds = []
    for _ in range(times):
        started = time.process_time()
        read_all()
        seconds.append(time.process_time() - started)
    return path.stat().st_size / 1e6 / min(seconds)


def measure_lines(path: Path, times: int) -> str:
    """A row of the table: what one file of lines takes."""
    lines = path.read_bytes().splitlines()

    def parse() -> None:
        for line in lines:
            json.loads(line)

    def check() -> None:
        for line in lines:
            Demonstration.from_dict(json.loads(line))

    def read() -> None:
        for _ in read_demonstrations(path):
            pass

    alone, checked, reader = (best_rate(path, one, times) for one in (parse, check, read))
    size = path.stat().st_size / len(lines)
    return (
        f"| {path.stem} | {len(lines):,} | {size:.0f} | {alone:.0f} | {checked:.0f} | {reader:.0f} "
        f"| {reader * 1e6 / size:,.0f} |"
    )


def compare_lines(files: list[Path], plans: int, times: int, folder: Path) -> None:
    """Print how fast lines are read, of files, or of the generator and the published sets."""
    if not files:
        files = [folder / "generated.jsonl"]
        save_demonstrations(files[0], generate(plans, tools=200, seed=0))
        for name in ("tinyagent", "t-eval", "ultratool", "tau-airline"):
            try:
                found = datasets.load(name, data_dir="../shared/data").demonstrations
            except InputError:
                continue
            files.append(folder / f"{name}.jsonl")
            save_demonstrations(files[-1], found[:plans])
    print("| Lines of | Plans | Bytes a plan | json alone | checked | reader | plans/s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for path in files:
        print(measure_lines(path, times))
    print()


def main() -> None:
    """Write, read, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="300 lines, and a file of 1 MB")
    parser.add_argument("--files", type=Path, nargs="+", default=[], help="lines to read")
    parser.add_argument("--only-lines", action="store_true", help="leave TinyAgent's file out")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read)
        return
    with tempfile.TemporaryDirectory() as folder:
        plans, times = (300, 1) if arguments.smoke else (30_000, 5)
        compare_lines(arguments.files, plans, times, Path(folder))
    if arguments.only_lines:
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
