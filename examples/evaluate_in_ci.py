"""A quality limit for a build: exits with 1 if Recall@5 is below the limit.

python examples/evaluate_in_ci.py [LOG] [--limit 0.8]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dtdr.evaluate import mean_score, run
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import default_split
from dtdr.logs import open_demonstrations
from dtdr.predict import create

LOG = Path(__file__).parent / "hotel" / "openai-chat.jsonl"


def main() -> None:
    """Hold out 30 % of the runs, rank their steps, and compare with the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Help)
    parser.add_argument("log", nargs="?", type=Path, default=LOG)
    parser.add_argument("--limit", type=float, default=0.8)
    given = parser.parse_args()
    stream = open_demonstrations([given.log])
    data = Dataset(given.log.stem, given.log.name, list(stream), stream.tools, False, "", "")
    log = run(create("dtdr-l"), data, default_split(data))
    share = mean_score(log, "recall@5")
    print(f"recall@5 is {share:.3f}; the limit is {given.limit}")
    raise SystemExit(share < given.limit)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description."""


if __name__ == "__main__":
    main()
