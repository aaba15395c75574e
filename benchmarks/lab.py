"""Re-runs the paper's retrieval experiments and writes the report; about an hour on two cores.

    python benchmarks/lab.py [--smoke]

``--smoke`` runs the small form of every suite that needs no LLM, on synthetic data, in a cache of
its own, and exits with the lab's code.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from dtdr.cli import run


def main() -> int:
    """Run the lab; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--smoke", action="store_true", help="a minute or two instead of an hour")
    parser.add_argument("--output", type=Path, default=Path("runs/lab"))
    given = parser.parse_args()
    if not given.smoke:
        return run(["lab", "run", "all", "--output", str(given.output)])
    with tempfile.TemporaryDirectory() as folder:
        return run(
            ["lab", "run", "all", "--quick", "--cache", f"{folder}/cache", "--output", folder]
        )


if __name__ == "__main__":
    sys.exit(main())
