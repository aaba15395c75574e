"""What the blocks of dtdr-f are worth, and how it ranks after few demonstrations.

    python benchmarks/factored.py blocks  [--datasets tinyagent ...] [--without chain+parts ...]
    python benchmarks/factored.py sizes   [--sizes 100 300 1000] [--retriever NAME ...]
    python benchmarks/factored.py --smoke

``blocks`` leaves out one block at a time, or several joined by ``+``, and ranks a validation
quarter of the training side, whole groups of TRAJECT-Bench. ``sizes`` learns from a part of the
training side and ranks the test side; nothing is chosen there.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from dtdr.evaluate import compare, run
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split
from dtdr.evaluate.metrics import summary
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.tables import Column, count, duration, share
from dtdr.predict import create
from dtdr.rankers.dtdr_f.blocks import BLOCKS
from printing import print_rows
from sets import load_sets, make_parser

_BLOCKS = {block.name: block for block in BLOCKS}


def validation(dataset: Dataset, split: Split) -> Split:
    """A quarter of the training side is held out; whole groups of it where it has groups."""
    names = {place: dataset.demonstrations[place].group or str(place) for place in split.train}
    distinct = sorted(set(names.values()))
    random.Random(1).shuffle(distinct)
    held = set(distinct[::4])
    sides: tuple[list[int], list[int]] = ([], [])
    for place, name in names.items():
        sides[name in held].append(place)
    return Split("validation", tuple(sides[0]), tuple(sides[1]))


def blocks(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line per set and variant: MRR on the validation quarter."""
    for dataset, split in load_sets(given):
        quarter = validation(dataset, split)
        for names in ["", *given.without[: 1 if given.smoke else None]]:
            row = {"set": dataset.name, "variant": f"without {names}" if names else "default"}
            with ExitStack() as left_out:
                for name in filter(None, names.split("+")):
                    left_out.enter_context(patch.object(_BLOCKS[name], "start", lambda *_: None))
                yield row | _scores(run(create("dtdr-f"), dataset, quarter))


def sizes(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line per size and ranker: MRR on the test side, compared with the first ranker."""
    for dataset, split in load_sets(given):
        order = list(split.train)
        random.Random(0).shuffle(order)
        for size in [40] if given.smoke else given.sizes:
            part = replace(split, train=tuple(sorted(order[:size])))
            logs = {name: run(create(name), dataset, part) for name in given.retriever}
            first = logs[given.retriever[0]]
            for name, log in logs.items():
                p = None if log is first else compare(first, log).p_value
                yield {"set": dataset.name, "size": size, "ranker": name, **_scores(log), "p": p}


def _scores(log: RunLog) -> dict[str, Any]:
    scores = summary(log)
    return {"mrr": scores["mrr"], "top1": scores["top1"], "seconds": scores["fit_seconds"]}


FIGURES = [
    Column("MRR", "mrr", share, True),
    Column("Top-1", "top1", share, True),
    Column("Fit s", "seconds", duration, True),
]
MEASURES = {
    "blocks": (
        blocks,
        [Column("Set", "set"), Column("Variant", "variant"), *FIGURES],
        "A validation quarter of the training sides.",
    ),
    "sizes": (
        sizes,
        [
            Column("Set", "set"),
            Column("Demonstrations", "size", count, True),
            Column("Ranker", "ranker"),
            *FIGURES,
            Column("p", "p", lambda value: f"{value:.4f}", True),
        ],
        "The test side. p: paired permutation test over plans against the first ranker.",
    ),
}


def main() -> None:
    """Measure one claim, or a little of each."""
    parser = make_parser(__doc__, ["tinyagent"])
    parser.add_argument("claim", nargs="?", choices=list(MEASURES))
    parser.add_argument("--without", nargs="+", metavar="BLOCK+BLOCK", default=list(_BLOCKS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1_000])
    parser.add_argument("--retriever", nargs="+", default=["dtdr-f", "dtdr-l", "dtdr-c", "bm25"])
    given = parser.parse_args()
    if given.claim is None and not given.smoke:
        parser.error("name a claim, or give --smoke")
    if unknown := {*"+".join(given.without).split("+")} - _BLOCKS.keys():
        parser.error(f"no block is named {min(unknown)!r}; blocks: {', '.join(_BLOCKS)}")
    if given.smoke:
        given.retriever = ["dtdr-f", "dr"]
    for claim in [given.claim] if given.claim else MEASURES:
        measure, columns, caption = MEASURES[claim]
        print_rows(measure(given), columns, as_json=given.json, caption=caption)


if __name__ == "__main__":
    main()
